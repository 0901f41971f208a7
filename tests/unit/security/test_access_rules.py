"""Access rules: what a line means, which of several decides, and what is refused."""

from __future__ import annotations

import pytest

from raybroker.errors import ConfigError
from raybroker.security.access_rules import AccessRequest, AccessRules, User, default_rules

HEAD = "version=JMQFileAccessControlModel/100\n"
SNOOPY = User("snoopy", frozenset({"dogs"}))
LINUS = User("linus", frozenset({"user"}))
ADMIN = User("root", frozenset({"admin"}))


def rules(*lines: str) -> AccessRules:
    return AccessRules.parse(HEAD + "\n".join(lines))


def produce(name: str = "q1") -> AccessRequest:
    return AccessRequest("queue", name, "produce")


@pytest.mark.parametrize(
    ("lines", "snoopy", "linus"),
    [
        ((), False, False),
        (("queue.*.produce.allow.user=*",), True, True),
        (("queue.*.produce.allow.user=snoopy",), True, False),
        (("queue.*.produce.allow.user=*", "queue.*.produce.deny.user=snoopy"), False, True),
        (("queue.*.produce.deny.user=*", "queue.*.produce.allow.user=snoopy"), True, False),
        (("queue.*.produce.allow.group=dogs",), True, False),
        (("queue.*.produce.deny.group=dogs", "queue.*.produce.allow.user=snoopy"), True, False),
        (("queue.*.produce.deny.group=dogs", "queue.*.produce.allow.user=*"), False, True),
        (("queue.*.produce.deny.group=*", "queue.*.produce.allow.user=*"), True, True),
        (("queue.*.produce.allow.user=*", "queue.q1.produce.deny.user=*"), False, False),
        (("queue.*.produce.deny.user=snoopy", "queue.q1.produce.allow.user=*"), True, True),
        (("queue.*.produce.allow.user=*", "queue.q1.produce.deny.user=linus"), True, False),
        (("queue.*.produce.allow.user=snoopy", "queue.*.produce.deny.user=snoopy"), False, False),
        (("queue.*.produce.allow.user=snoopy", "queue.*.produce.allow.user=linus"), False, True),
        (("queue.*.produce.allow.user= snoopy",), False, False),
        (("topic.*.produce.allow.user=*", "queue.*.consume.allow.user=*"), False, False),
    ],
    ids=[
        "no rule is a no",
        "everybody",
        "one",
        "the named before everybody",
        "everybody else is denied",
        "a group",
        "the user before the group",
        "a named group before everybody",
        "everybody before every group",
        "the very queue before all",
        "the very queue, whoever is named for all",
        "one denied at one queue",
        "both is a no",
        "the later of two lines",
        "spaces count",
        "other resources do not speak",
    ],
)
def test_who_may_produce(lines: tuple[str, ...], snoopy: bool, linus: bool) -> None:
    found = rules(*lines)
    assert found.decide(SNOOPY, produce()).allowed is snoopy
    assert found.decide(LINUS, produce()).allowed is linus


def test_the_rule_that_decides_is_told() -> None:
    found = rules("queue.*.produce.allow.user=*", "queue.a.b.produce.deny.group=dogs")
    assert found.decide(SNOOPY, produce("a.b")) == (False, "queue.a.b.produce.deny.group=dogs")
    assert found.decide(LINUS, produce("a.b")) == (True, "queue.*.produce.allow.user=*")
    assert found.decide(LINUS, AccessRequest("queue", "a.b", "consume")) == (False, "")


def test_only_rules_for_the_very_name_count_where_that_is_asked() -> None:
    found = rules("queue.*.produce.allow.user=*", "queue.mq.sys.dmq.consume.allow.group=admin")
    assert not found.decide_exactly(ADMIN, produce("mq.sys.dmq")).allowed
    assert found.decide_exactly(ADMIN, AccessRequest("queue", "mq.sys.dmq", "consume")).allowed


def test_the_default_rules_keep_the_admin_service_for_its_group() -> None:
    found = default_rules()
    for user, admin in ((SNOOPY, False), (ADMIN, True)):
        assert found.decide(user, AccessRequest("connection", "NORMAL", "")).allowed
        assert found.decide(user, AccessRequest("connection", "ADMIN", "")).allowed is admin
        assert found.decide(user, AccessRequest("topic", "", "create")).allowed
        assert found.decide(user, AccessRequest("queue", "x", "browse")).allowed


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("queue.*.produce.allow.user=*", "the first line is version="),
        (HEAD + "queue.*.produce.allow.user", "a rule is"),
        (HEAD + "queue.allow.user=*", "a rule is resource"),
        (HEAD + "queue.*.purge.allow.user=*", "'purge' is none of"),
        (HEAD + "topic.*.browse.allow.user=*", "'browse' is none of produce, consume, create"),
        (HEAD + "queue.*.produce.maybe.user=*", "'maybe' is neither allow nor deny"),
        (HEAD + "queue.*.produce.allow.role=*", "'role' is neither user nor group"),
        (HEAD + "connection.ODD.allow.user=*", "'ODD' is no kind of service"),
        (HEAD + "table.*.produce.allow.user=*", "'table' is none of connection, queue, topic"),
    ],
)
def test_a_line_that_means_nothing_is_refused_by_its_number(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told.replace("*", r"\*")):
        AccessRules.parse(text, "rules")
