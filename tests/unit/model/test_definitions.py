"""Definitions: read from plain values, checked, and written again."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.model.definitions.definitions import ENTRIES_MAX, definitions_of, plain
from raybroker.model.definitions.kinds.pause import PAUSE
from raybroker.model.definitions.kinds.properties import shared_properties
from raybroker.model.definitions.values import Defaults, Definitions
from raybroker.model.errors import ConfigError

HEAD = {"raybroker": {"definitions": 1}}
DEFAULTS = Defaults.from_config()


def read(**sections: Any) -> Definitions:
    return definitions_of({**HEAD, **sections}, DEFAULTS)


def test_what_is_the_default_is_not_kept_and_texts_become_values() -> None:
    found = read(
        queues={
            "orders": {"maxNumMsgs": "5", "useDMQ": True},
            "mq.sys.dmq": {"maxNumMsgs": 1000, "maxBytesPerMsg": "1k"},
        },
        topics={"prices": {}},
        quotas={"q": {"MessagesMaximum": "LMAX", "Policy": "preemptive"}},
        templates={"t": {"maxNumMsgs": -1, "maxBytesPerMsg": "2k"}},
        properties={"imq.log.level": "warning"},
        policies={"p": {"pattern": ">", "attributes": {"maxNumMsgs": "-1"}}},
        agents={"a": {"queue": "orders", "to": "other/orders", "windowSize": 10, "retryDelayBase": "5"}},
        subscriptions=[{"name": "audit", "topic": "prices", "shared": False}],
    )
    assert found.queues == {"orders": {"maxNumMsgs": 5}, "mq.sys.dmq": {"maxBytesPerMsg": 1024}}
    assert (found.topics, found.quotas) == ({"prices": {}}, {"q": {"Policy": "Preemptive"}})
    assert (found.templates, found.properties) == ({"t": {"maxBytesPerMsg": 2048}}, {"imq.log.level": "WARNING"})
    assert found.policies["p"]["attributes"] == {"maxNumMsgs": -1}
    assert found.agents == {"a": {"queue": "orders", "to": "other/orders", "retryDelayBase": 5}}
    assert found.subscriptions == {
        ("", "audit"): {"topic": "prices", "shared": False, "selector": "", "no_local": False}
    }
    assert definitions_of(plain(found), DEFAULTS) == found
    assert plain(found)["subscriptions"] == [{"name": "audit", "topic": "prices"}]
    assert plain(found)["policies"] == {"p": {"pattern": ">", "attributes": {"maxNumMsgs": -1}}}


def test_nothing_is_a_header_and_equal_definitions_look_equal() -> None:
    assert plain(Definitions()) == HEAD
    assert list(plain(read(queues={"b": {}, "a": {}}))["queues"]) == ["a", "b"]


def test_a_copy_is_independent() -> None:
    first = read(queues={"a": {}})
    second = first.copy()
    second.queues["b"] = {}
    assert (list(first.queues), second.of_type("queue") is second.queues) == (["a"], True)


PAUSED = {"type": "queue", "name": "a", "which": "consumers"}
SCRAM = "SCRAM-SHA-256$600000:c2FsdA==$a2V5:a2V5"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "these are no definitions: raybroker says nothing of their version"),
        ({"raybroker": {"definitions": True}}, "these are no definitions"),
        ({"raybroker": {"definitions": 2}}, "definitions of version 2; this release reads up to 1: take a newer"),
        ({**HEAD, "queue": {}}, "'queue' is no part of definitions; the nearest is 'queues'"),
        ({**HEAD, "queues": []}, "it is a table of names"),
        ({**HEAD, "queues": {"a": 5}}, "queues, a: '5' is no table"),
        ({**HEAD, "queues": {"a": {5: 5}}}, "queues, a: '5' is no name of an attribute"),
        ({**HEAD, "queues": {5: {}}}, "queues, 5: a destination name is a text"),
        ({**HEAD, "queues": {"a b": {}}}, "queues, a b: destination name 'a b' contains a blank"),
        ({**HEAD, "queues": {"mq.x": {}}}, "queues, mq.x: .*reserved"),
        ({**HEAD, "topics": {"mq.sys.dmq": {}}}, "topics, mq.sys.dmq: .*reserved"),
        ({**HEAD, "queues": {"a": {"maxNumMessages": 1}}}, "queues, a: 'maxNumMessages' is not a destination"),
        ({**HEAD, "topics": {"a": {"maxNumActiveConsumers": -1}}}, "topics, a: maxNumActiveConsumers is an"),
        ({**HEAD, "queues": {"a": {"maxNumMsgs": 1, "messagesHigh": 2, "messagesLow": 1}}}, "would never be reached"),
        ({**HEAD, "queues": {"mq.sys.dmq": {"useDMQ": True}}}, "useDMQ = True is not possible"),
        ({**HEAD, "templates": {"t": {"template": "u"}}}, "templates, t: a template has no template"),
        ({**HEAD, "quotas": {"q": {"Messages": 1}}}, "quotas, q: 'Messages' is not an attribute of quotas"),
        ({**HEAD, "policies": {"p": {"pattern": "a*", "attributes": {"useDMQ": True}}}}, "policies, p: policy 'p'"),
        (
            {**HEAD, "policies": {f"p{n}": {"pattern": ">", "attributes": {"useDMQ": True}} for n in range(201)}},
            "there are 201 policies; there can be 200",
        ),
        ({**HEAD, "properties": {"imq.brokerid": "x"}}, "properties, imq.brokerid: .*imq.brokerid"),
        ({**HEAD, "properties": {"imq.service.activelist": "jms"}}, "is read when a broker starts"),
        ({**HEAD, "agents": {"a": {"queue": "q"}}}, "agents, a: a forwarding agent needs to"),
        ({"raybroker": {"definitions": 1, "missing": "b2"}}, "missing = 'b2'; it is a list of names of brokers"),
        ({**HEAD, "brokers": {"b1": {"imq.log.level": "LOUD"}}}, "brokers, b1: imq.log.level"),
        ({**HEAD, "brokers": {"b1": {"imq.service.activelist": "jms"}}}, "brokers, b1: .*read when a broker starts"),
        ({**HEAD, "brokers": {"b\n1": {}}}, "the name of a broker is 1 to 255 printable"),
        ({**HEAD, "pauses": {"a": {}}}, "it is a list of tables"),
        ({**HEAD, "pauses": [{"name": "a", "type": "queue"}]}, "pauses, a: 'which': a pause has type, name and which"),
        ({**HEAD, "pauses": [{**PAUSED, "until_ms": 5}]}, "pauses, a: 'until_ms': a pause has type"),
        ({**HEAD, "pauses": [{**PAUSED, "which": "all"}]}, "which = 'all'; it is one of producers, consumers, insert"),
        ({**HEAD, "pauses": [{**PAUSED, "type": "q"}]}, "type = 'q'; it is queue or topic"),
        ({**HEAD, "pauses": [{**PAUSED, "name": "mq.sys.dmq"}]}, "pauses, mq.sys.dmq: .*reserved"),
        ({**HEAD, "pauses": [PAUSED, PAUSED]}, "queue 'a' is there twice with consumers"),
        ({**HEAD, "users": {"ann": {"verifier": "secret"}}}, "users, ann: verifier: what is there is no verifier"),
        ({**HEAD, "users": {"ann": {}}}, "users, ann: verifier: "),
        ({**HEAD, "users": {"ann": {"password": "secret"}}}, "'password' is no field of users"),
        ({**HEAD, "users": {"a:b": {"verifier": SCRAM}}}, "users, a:b: .*none of"),
        ({**HEAD, "users": {"ann": {"verifier": f"{SCRAM}\n"}}}, "users, ann: verifier: "),
        ({**HEAD, "users": {"ann": {"verifier": SCRAM, "group": "root"}}}, "group = 'root'; the groups are admin"),
        ({**HEAD, "users": {"ann": {"verifier": SCRAM, "active": 1}}}, "active = '1'; it is true or false"),
        ({**HEAD, "users": {name: {"verifier": SCRAM, "group": "anonymous"} for name in "ab"}}, "holds one user"),
        ({**HEAD, "subscriptions": {"a": {}}}, "it is a list of tables"),
        ({**HEAD, "subscriptions": [5]}, "subscriptions, 1: '5' is no table"),
        ({**HEAD, "subscriptions": [{"name": "a"}]}, "subscriptions, a: topic = None; it is a text"),
        ({**HEAD, "subscriptions": [{"name": "a", "topic": "t", "shared": 1}]}, "shared = 1; it is true or false"),
        ({**HEAD, "subscriptions": [{"name": "a", "topic": "t", "durable": True}]}, "'durable' is no field"),
        ({**HEAD, "subscriptions": [{"name": "", "topic": "t"}]}, "it is 1 to 255 printable characters"),
        ({**HEAD, "subscriptions": [{"name": "a", "topic": "t"}, {"name": "a", "topic": "u"}]}, "it is there twice"),
        ({**HEAD, "queues": {f"q{n}": {} for n in range(ENTRIES_MAX + 1)}}, f"at most {ENTRIES_MAX} are read"),
    ],
)
def test_what_is_wrong_is_named(given: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        definitions_of(given, DEFAULTS)


def test_a_subscription_may_be_of_a_metrics_topic_and_of_no_other_of_the_brokers_own() -> None:
    found = read(subscriptions=[{"name": "a", "topic": "mq.metrics.jvm"}])
    assert found.subscriptions["", "a"]["topic"] == "mq.metrics.jvm"
    with pytest.raises(ConfigError, match=r"subscriptions, a: .*reserved"):
        read(subscriptions=[{"name": "a", "topic": "mq.temp.t.b1.x"}])


def test_selectors_are_checked_by_who_knows_how() -> None:
    given = {**HEAD, "subscriptions": [{"name": "a", "topic": "t", "selector": " x "}]}
    assert definitions_of(given, DEFAULTS, str.strip).subscriptions["", "a"]["selector"] == "x"


def test_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        read(users={"ann": {"verifier": "hush-hush"}})
    assert "hush" not in str(caught.value)


def test_users_pauses_and_what_one_broker_has_come_back() -> None:
    argon = "$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$aGFzaA"
    given = {
        "raybroker": {"definitions": 1, "missing": ["b3"]},
        "brokers": {"b1": {"imq.log.level": "ERROR"}},
        "queues": {"a": {}},
        "pauses": [PAUSED],
        "users": {"ann": {"verifier": SCRAM, "group": "admin", "active": False}, "bob": {"verifier": argon}},
    }
    found = definitions_of(given, DEFAULTS)
    assert plain(found) == given
    assert found.users["bob"] == {"verifier": argon, "group": "user", "active": True}
    assert found.copy() == found


def test_what_all_brokers_have_is_told_from_what_one_has() -> None:
    assert shared_properties({"b1": {"x": 1, "y": 2}, "b2": {"x": 1, "y": 3}, "b3": {"x": 1}}) == (
        {"x": 1},
        {"b1": {"y": 2}, "b2": {"y": 3}},
    )
    assert shared_properties({"b1": {"x": 1}, "b2": {}}) == ({}, {"b1": {"x": 1}})
    assert shared_properties({}) == ({}, {})


def test_a_pause_is_a_definition_where_its_destination_is_one_and_does_not_begin_paused() -> None:
    found = read(queues={"a": {}, "b": {"consumptionPausedAtStartup": True}})
    assert PAUSE.is_defined(found, ("queue", "a", "consumers"))
    assert not PAUSE.is_defined(found, ("queue", "b", "consumers"))
    assert PAUSE.is_defined(found, ("queue", "b", "producers"))
    assert not PAUSE.is_defined(found, ("queue", "auto", "consumers"))
