"""Security, row by row: what is set, who tries what, and what comes of it, each row of the checklist one story.

LDAP and TLS want servers and certificates of their own: test_ldap.py and test_tls.py.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

import raybroker as rb
from raybroker.errors import ConfigError, NotSupportedError, SecurityError
from raybroker.security.passfile import LDAP, encoded
from raybroker.security.user_file import UserEntry
from tests.contracts.test_services import RULES, VERIFIER, Outside

HEADER: Final = "version=JMQFileAccessControlModel/100"
NO_ADMIN = "user 'ann' may not connect to ADMIN services"


class World:
    """A broker with these settings, and what its log says."""

    def __init__(self, folder: Path, opened: ExitStack, caplog: pytest.LogCaptureFixture) -> None:
        self.folder, self._opened, self._caplog = folder, opened, caplog

    def broker(self, **settings: Any) -> Outside:
        (self.folder / "passwd").unlink(missing_ok=True)
        return Outside(self.folder, self._opened, **{name.replace("__", "."): v for name, v in settings.items()})

    @property
    def log(self) -> str:
        return self._caplog.text


def refused(attempt: Callable[[], Any], told: str, error: type[Exception] = SecurityError) -> None:
    with pytest.raises(error, match=told):
        attempt()


def send(outside: Outside, user: str, queue: str = "q") -> Callable[[], Any]:
    return lambda: outside.connect(user).session().producer(queue).send("x")


def authentication(world: World) -> None:
    """Without the right password there is no connection; the client learns nothing, the log has the reason."""
    outside = world.broker()
    told = "^wrong user or password, or the user may not connect now$"
    refused(lambda: rb.connect(outside.url(), username="ann", password="wrong"), told)
    assert "user 'ann' has a wrong password" in world.log
    refused(lambda: rb.connect(outside.url()), "username and a password", ConfigError)
    assert outside.admin.list_connections() == []
    send(outside, "ann")()


def repository(world: World) -> None:
    """The repository is the file unless LDAP is chosen, which has to be configured."""
    send(world.broker(), "ann")()
    refused(
        lambda: world.broker(imq__authentication__type="basic", imq__authentication__basic__user_repository="ldap"),
        r"imq\.user_repository\.ldap\.",
        ConfigError,
    )
    for kinds in ("digest", "token", "digest,token"):
        refused(
            lambda kinds=kinds: world.broker(
                imq__authentication__type=kinds, imq__authentication__basic__user_repository="ldap"
            ),
            r"imq\.authentication\.basic\.user_repository=ldap has no effect.*set imq\.authentication\.type=basic",
            ConfigError,
        )
    refused(lambda: world.broker(imq__authentication__basic__user_repository="jaas"), "file, ldap", ConfigError)


def encoding(world: World) -> None:
    """The mechanism is that of the service, else that of the broker."""
    outside = world.broker(imq__authentication__type="digest", imq__jms__authentication__type="basic")
    send(outside, "ann")()
    refused(
        lambda: rb.connect(outside.url(), token="a.b.c"), "takes no login by 'token'; it takes basic", NotSupportedError
    )
    outside.connect("root", "admin")


def switch(world: World) -> None:
    """Switched off, every user may use every destination, and ADMIN services are for the group admin all the same."""
    outside = world.broker(imq__accesscontrol__enabled=False)
    send(outside, "bob", "created.by.bob")()
    assert outside.connect("bob").session().receive("created.by.bob", timeout=20).body == "x"
    send(outside, "stranger")()
    refused(lambda: outside.connect("ann", "admin"), NO_ADMIN)


def switch_of_a_service(world: World) -> None:
    """A service may differ from the broker."""
    outside = world.broker(imq__accesscontrol__enabled=False, imq__jms__accesscontrol__enabled="true")
    refused(send(outside, "stranger"), "user 'stranger' may not connect to NORMAL services")


def rule_file(world: World) -> None:
    """The file has the name that is set, and an edit holds for the next operation."""
    (world.folder / "mine").write_text(RULES + "queue.q.produce.deny.user=ann\n")
    outside = world.broker(imq__accesscontrol__file__filename="mine")
    refused(send(outside, "ann"), "user 'ann' may not produce with queue 'q'")
    (world.folder / "mine").write_text(RULES)
    send(outside, "ann")()
    (world.folder / "mine").write_text("nonsense\n")
    send(outside, "ann")()
    assert "'nonsense': the first line is version=" in world.log, "the rules before hold on, and the log says why"


def operations(world: World) -> None:
    """Connecting, producing, consuming, browsing and creating are covered one by one."""
    outside = world.broker()
    send(outside, "ann")()
    for rule, attempt, told in (
        ("queue.q.produce.deny.user=ann", lambda s: s.producer("q").send("x"), "produce"),
        ("queue.q.consume.deny.user=ann", lambda s: s.receive("q", timeout=5), "consume"),
        ("queue.q.browse.deny.user=ann", lambda s: list(s.browser(s.queue("q"))), "browse"),
        ("topic.create.deny.user=ann", lambda s: s.producer(s.topic("t")).send("x"), "create topics"),
    ):
        outside.rules.write_text(f"{RULES}{rule}\n")
        session = outside.connect("ann").session()
        refused(lambda: attempt(session), f"user 'ann' may not {told}")  # noqa: B023 - called at once
        found = outside.admin.why_denied(
            "ann", told.split()[0], "q" if told != "create topics" else None, rule.split(".")[0]
        )
        assert (found["allowed"], found["rule"]) == (False, rule)
    outside.rules.write_text(f"{RULES}connection.NORMAL.deny.user=ann\n")
    refused(lambda: outside.connect("ann"), "may not connect to NORMAL services")


def syntax(world: World) -> None:
    """A file that is none of rules keeps the services from starting, and its line is named."""
    for text, told in (
        ("queue.*.produce.allow.user=*\n", HEADER),
        (f"{HEADER}\nqueue.*.eat.allow.user=*\n", "line 2"),
        (f"{HEADER}\ncar.*.produce.allow.user=*\n", "line 2"),
        (f"{HEADER}\nqueue.*.produce.perhaps.user=*\n", "line 2"),
    ):
        (world.folder / "mine").write_text(text)
        outside = world.broker(imq__accesscontrol__file__filename="mine")
        refused(lambda: outside.connect("ann"), told, Exception)  # noqa: B023 - called at once


def precedence(world: World) -> None:
    """The very destination before all, a user before his groups, and deny before allow."""
    outside = world.broker()
    for rules, may in (
        ("", False),
        ("queue.*.produce.allow.user=*", True),
        ("queue.*.produce.allow.user=*\nqueue.q.produce.deny.user=*", False),
        ("queue.*.produce.deny.group=user\nqueue.*.produce.allow.user=ann", True),
        ("queue.*.produce.allow.user=ann\nqueue.*.produce.deny.user=ann", False),
        ("queue.*.produce.allow.user= ann", False),
    ):
        outside.rules.write_text(f"{HEADER}\nconnection.NORMAL.allow.user=*\nqueue.create.allow.user=*\n{rules}\n")
        assert outside.admin.why_denied("ann", "produce", "q")["allowed"] is may
        if may:
            send(outside, "ann")()
        else:
            refused(send(outside, "ann"), "user 'ann' may not produce")


def defaults(world: World) -> None:
    """Without a file everybody uses destinations, and the group admin alone administers."""
    outside = world.broker(imq__accesscontrol__file__filename="there.is.none")
    send(outside, "stranger", "fresh")()
    refused(lambda: outside.connect("ann", "admin"), NO_ADMIN)
    outside.connect("root", "admin").admin().list_destinations()


def creating(world: World) -> None:
    """Created but not produced: the destination stays, and the send is refused."""
    outside = world.broker()
    outside.rules.write_text(f"{HEADER}\nconnection.NORMAL.allow.user=*\nqueue.create.allow.user=ann\n")
    refused(send(outside, "ann", "fresh"), "may not produce with queue 'fresh'")
    assert [row["messages"] for row in outside.admin.list_destinations() if row["name"] == "fresh"] == [0]
    refused(send(outside, "bob", "other"), "may not create queues")
    assert "other" not in [row["name"] for row in outside.admin.list_destinations()]


def users(world: World) -> None:
    """There are no users to begin with but those that were made; one that is inactive keeps its entry."""
    outside = world.broker()
    refused(lambda: rb.connect(outside.url("admin"), username="admin", password="admin"), "wrong user or password")
    refused(lambda: outside.users.add("ann", UserEntry(VERIFIER, "user")), "exists already", ConfigError)
    for name in ("a*b", "a,b", "a:b", "a\nb", ""):
        refused(lambda: outside.users.add(name, UserEntry(VERIFIER, "user")), "name", ConfigError)  # noqa: B023
    outside.users.update("ann", active=False)
    refused(lambda: outside.connect("ann"), "wrong user or password")
    assert outside.admin.why_denied("ann", "produce", "q")["active"] is False
    outside.users.update("ann", active=True)
    outside.connect("ann")


def passfile(world: World) -> None:
    """Passwords of other systems come from a private file; those in clear are told, and none is shown."""
    path = world.folder / "passfile"
    path.write_text(f"{LDAP}=top secret\n")
    path.chmod(0o644)
    refused(lambda: world.broker(imq__passfile__enabled=True), "chmod 600", ConfigError)
    path.chmod(0o600)
    send(world.broker(imq__passfile__enabled=True), "ann")()
    assert "has passwords in clear" in world.log
    assert "top secret" not in world.log
    path.write_text(f"{LDAP}={encoded('top secret')}\n")
    outside = world.broker(imq__passfile__enabled=True)
    assert world.log.count("has passwords in clear") == 1
    assert "top secret" not in json.dumps(outside.admin.query_broker(), default=str)


def denials(world: World) -> None:
    """An error names the operation and not the rule, which the log has with the user."""
    outside = world.broker()
    outside.admin.create_destination("queue", "kept")
    with pytest.raises(SecurityError) as caught:
        outside.connect("bob").session().receive("kept", timeout=5)
    text = str(caught.value)
    assert (caught.value.code, text.partition(";")[0]) == ("security", "user 'bob' may not consume with queue 'kept'")
    assert "deny" not in text
    assert "[B4051] user 'bob' may not consume with queue 'kept': rule 'queue.*.consume.deny.user=bob'" in world.log


def audit(world: World) -> None:
    """Start, logins, denials and administration are written down, each with how it went; nothing else is."""
    outside = world.broker(imq__audit__enabled=True)
    root = outside.connect("root", "admin").admin()
    root.create_destination("queue", "made")
    root.purge_destination("queue", "made")
    root.list_destinations()
    root.destroy_destination("queue", "made")
    refused(lambda: outside.connect("stranger"), "may not connect")
    (log,) = (world.folder / "audit").glob("*.log")
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(row["event"], row["result"], row.get("user", "")) for row in rows] == [
        ("start", "ok", ""),
        ("login", "ok", "root"),
        *[("admin", "ok", "root")] * 3,
        ("login", "refused", "stranger"),
    ]
    assert [row["what"].split("(")[0] for row in rows if row["event"] == "admin"] == [
        "create_destination",
        "purge_destination",
        "destroy_destination",
    ]


STORIES: Final[dict[str, tuple[Callable[[World], None], ...]]] = {
    "S-01": (authentication,),
    "S-02": (repository,),
    "S-03": (encoding,),
    "S-04": (switch, switch_of_a_service),
    "S-05": (rule_file,),
    "S-06": (operations,),
    "S-07": (syntax,),
    "S-08": (precedence,),
    "S-09": (defaults,),
    "S-10": (creating,),
    "S-11": (users,),
    "S-14": (passfile,),
    "S-15": (denials,),
    "S-16": (audit,),
}


@pytest.fixture
def world(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[World]:
    with ExitStack() as opened, caplog.at_level(logging.INFO):
        yield World(tmp_path, opened, caplog)


@pytest.mark.parametrize(
    "story",
    [story for stories in STORIES.values() for story in stories],
    ids=[f"{row} {story.__name__}" for row, stories in STORIES.items() for story in stories],
)
def test_row(world: World, story: Callable[[World], None]) -> None:
    story(world)
