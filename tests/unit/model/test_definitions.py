"""Definitions: read from plain values, checked, and written again."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.model.definitions import ENTRIES_MAX, Defaults, Definitions, definitions_of
from raybroker.model.errors import ConfigError

HEAD = {"raybroker": {"definitions": 1}}
DEFAULTS = Defaults.of()


def read(**sections: Any) -> Definitions:
    return definitions_of({**HEAD, **sections}, DEFAULTS)


def test_what_is_the_default_is_not_kept_and_texts_become_values() -> None:
    found = read(
        queues={"orders": {"maxNumMsgs": "5", "useDMQ": True},
                "mq.sys.dmq": {"maxNumMsgs": 1000, "maxBytesPerMsg": "1k"}},
        topics={"prices": {}}, quotas={"q": {"MessagesMaximum": "LMAX", "Policy": "preemptive"}},
        templates={"t": {"maxNumMsgs": -1, "maxBytesPerMsg": "2k"}}, properties={"imq.log.level": "warning"},
        policies={"p": {"pattern": ">", "attributes": {"maxNumMsgs": "-1"}}},
        agents={"a": {"queue": "orders", "to": "other/orders", "windowSize": 10, "retryDelayBase": "5"}},
        subscriptions=[{"name": "audit", "topic": "prices", "shared": False}],
    )  # fmt: skip
    assert found.queues == {"orders": {"maxNumMsgs": 5}, "mq.sys.dmq": {"maxBytesPerMsg": 1024}}
    assert (found.topics, found.quotas) == ({"prices": {}}, {"q": {"Policy": "Preemptive"}})
    assert (found.templates, found.properties) == ({"t": {"maxBytesPerMsg": 2048}}, {"imq.log.level": "WARNING"})
    assert found.policies["p"]["attributes"] == {"maxNumMsgs": -1}
    assert found.agents == {"a": {"queue": "orders", "to": "other/orders", "retryDelayBase": 5}}
    assert found.subscriptions == {
        ("", "audit"): {"topic": "prices", "shared": False, "selector": "", "no_local": False}
    }
    assert definitions_of(found.plain(), DEFAULTS) == found
    assert found.plain()["subscriptions"] == [{"name": "audit", "topic": "prices"}]
    assert found.plain()["policies"] == {"p": {"pattern": ">", "attributes": {"maxNumMsgs": -1}}}


def test_nothing_is_a_header_and_equal_definitions_look_equal() -> None:
    assert Definitions().plain() == HEAD
    assert list(read(queues={"b": {}, "a": {}}).plain()["queues"]) == ["a", "b"]


def test_a_copy_is_independent() -> None:
    first = read(queues={"a": {}})
    second = first.copy()
    second.queues["b"] = {}
    assert (list(first.queues), second.of_type("queue") is second.queues) == (["a"], True)


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
        ({**HEAD, "policies": {f"p{n}": {"pattern": ">", "attributes": {"useDMQ": True}} for n in range(201)}},
         "there are 201 policies; there can be 200"),
        ({**HEAD, "properties": {"imq.brokerid": "x"}}, "properties, imq.brokerid: .*imq.brokerid"),
        ({**HEAD, "properties": {"imq.service.activelist": "jms"}}, "is read when a broker starts"),
        ({**HEAD, "agents": {"a": {"queue": "q"}}}, "agents, a: a forwarding agent needs to"),
        ({**HEAD, "subscriptions": {"a": {}}}, "it is a list of tables"),
        ({**HEAD, "subscriptions": [5]}, "subscriptions, 1: '5' is no table"),
        ({**HEAD, "subscriptions": [{"name": "a"}]}, "subscriptions, a: topic = None; it is a text"),
        ({**HEAD, "subscriptions": [{"name": "a", "topic": "t", "shared": 1}]}, "shared = 1; it is true or false"),
        ({**HEAD, "subscriptions": [{"name": "a", "topic": "t", "durable": True}]}, "'durable' is no field"),
        ({**HEAD, "subscriptions": [{"name": "", "topic": "t"}]}, "it is 1 to 255 printable characters"),
        ({**HEAD, "subscriptions": [{"name": "a", "topic": "t"}, {"name": "a", "topic": "u"}]}, "it is there twice"),
        ({**HEAD, "queues": {f"q{n}": {} for n in range(ENTRIES_MAX + 1)}}, f"at most {ENTRIES_MAX} are read"),
    ],

)  # fmt: skip
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
