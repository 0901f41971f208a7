"""Policies: what they may be, which of them hold for a destination, and what comes of its attributes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.model.definitions.policy import LIMITS, Effective, Policy, PolicyBook, conflicts, effective, policy_of
from raybroker.model.errors import ConfigError
from raybroker.model.naming.wildcard import common_name, matches
from raybroker.model.settings.setting import Value
from raybroker.model.settings.settings import destination_attributes

DEFAULTS = destination_attributes({}).as_dict("queue")


def policy(
    name: str = "p",
    pattern: str = ">",
    *,
    operator: bool = False,
    priority: int = 0,
    apply_to: str = "all",
    **attributes: Any,
) -> Policy:
    return policy_of(
        name,
        {
            "pattern": pattern,
            "operator": operator,
            "priority": priority,
            "applyTo": apply_to,
            "attributes": attributes,
        },
    )


def held(own: dict[str, Any], user: Policy | None = None, operator: Policy | None = None) -> dict[str, Effective]:
    values = destination_attributes(own).as_dict("queue")
    found = effective("queue", values, DEFAULTS, user, operator)
    return {name: one for name, one in found.items() if one.origin != "default"}


@pytest.mark.parametrize(
    ("own", "user", "operator", "expected"),
    [
        ({}, {}, {}, {}),
        ({}, {"maxNumMsgs": 5}, {}, {"maxNumMsgs": (5, "policy p")}),
        ({"maxNumMsgs": 9}, {"maxNumMsgs": 5}, {}, {"maxNumMsgs": (9, "destination")}),
        ({"maxNumMsgs": 9}, {}, {"maxNumMsgs": 7}, {"maxNumMsgs": (7, "operator policy o")}),
        ({"maxNumMsgs": 6}, {}, {"maxNumMsgs": 7}, {"maxNumMsgs": (6, "destination")}),
        ({}, {"maxNumMsgs": 5}, {"maxNumMsgs": 7}, {"maxNumMsgs": (5, "policy p")}),
        ({}, {"maxNumMsgs": -1}, {"maxNumMsgs": 7}, {"maxNumMsgs": (7, "operator policy o")}),
        ({}, {}, {"maxNumProducers": 200}, {}),
        ({}, {"consumerFlowLimit": 0}, {"consumerFlowLimit": 9}, {"consumerFlowLimit": (9, "operator policy o")}),
        ({"useDMQ": False}, {}, {"useDMQ": True}, {"useDMQ": (True, "operator policy o")}),
        (
            {"limitBehavior": "FLOW_CONTROL"},
            {},
            {"limitBehavior": "REMOVE_OLDEST"},
            {"limitBehavior": ("REMOVE_OLDEST", "operator policy o")},
        ),
        (
            {"messagesHigh": 9, "messagesLow": 2},
            {"maxNumMsgs": 5},
            {},
            {"maxNumMsgs": (5, "policy p"), "messagesHigh": (5, "policy p"), "messagesLow": (2, "destination")},
        ),
        (
            {"messagesHigh": 9, "messagesLow": 8},
            {},
            {"maxNumMsgs": 5},
            {
                "maxNumMsgs": (5, "operator policy o"),
                "messagesHigh": (5, "operator policy o"),
                "messagesLow": (4, "operator policy o"),
            },
        ),
        (
            {"bytesHigh": 9, "bytesLow": 8},
            {},
            {"maxTotalMsgBytes": 0},
            {
                "maxTotalMsgBytes": (0, "operator policy o"),
                "bytesHigh": (-1, "operator policy o"),
                "bytesLow": (-1, "operator policy o"),
            },
        ),
    ],
)
def test_what_holds_and_where_it_comes_from(own: Any, user: Any, operator: Any, expected: Any) -> None:
    found = held(own, policy(**user) if user else None, policy("o", operator=True, **operator) if operator else None)
    assert {name: tuple(one) for name, one in found.items()} == expected


@pytest.mark.parametrize(
    ("own", "user", "operator", "expected"),
    [
        ({}, {"quota": "q", "unitOfOrder": True}, {}, {"quota": ("q", "policy p"), "unitOfOrder": (True, "policy p")}),
        ({"quota": "mine"}, {"quota": "q"}, {}, {"quota": ("mine", "destination")}),
        ({"quota": "mine"}, {"quota": "q"}, {"quota": "o"}, {"quota": ("o", "operator policy o")}),
        ({"forwardDelay": 9}, {}, {"forwardDelay": 5}, {"forwardDelay": (5, "operator policy o")}),
        ({"forwardDelay": 3}, {}, {"forwardDelay": 5}, {"forwardDelay": (3, "destination")}),
        ({}, {}, {"forwardDelay": 5}, {"forwardDelay": (5, "operator policy o")}),
        ({}, {}, {"duplicateWindowMs": 5}, {}),
        ({"duplicateWindowMs": 9}, {}, {"duplicateWindowMs": 5}, {"duplicateWindowMs": (5, "operator policy o")}),
        (
            {"unitOfWorkHandlingPolicy": "SingleMessageDelivery"},
            {"unitOfOrder": True},
            {},
            {
                "unitOfWorkHandlingPolicy": ("SingleMessageDelivery", "destination"),
                "unitOfOrder": (False, "destination"),
            },
        ),
        (
            {"unitOfOrderRouting": "PathService"},
            {"duplicateWindowMs": 5},
            {},
            {"unitOfOrderRouting": ("PathService", "destination"), "duplicateWindowMs": (0, "destination")},
        ),
        (
            {"duplicateWindowMs": 5},
            {},
            {"unitOfOrderRouting": "PathService"},
            {"unitOfOrderRouting": ("PathService", "operator policy o"), "duplicateWindowMs": (0, "operator policy o")},
        ),
    ],
)
def test_what_clients_act_on_follows_policies_and_what_excludes_it_yields(
    own: Any, user: Any, operator: Any, expected: Any
) -> None:
    found = held(own, policy(**user) if user else None, policy("o", operator=True, **operator) if operator else None)
    assert {name: tuple(one) for name, one in found.items()} == expected


def test_some_attributes_of_a_destination_can_be_held_against_policies_alone() -> None:
    found = effective("queue", {"unitOfOrder": False}, DEFAULTS, policy(unitOfOrder=True, maxNumMsgs=5), None)
    assert found == {"unitOfOrder": Effective(True, "policy p")}


def test_of_those_that_match_the_highest_priority_holds_as_a_whole_and_then_the_first_name() -> None:
    book = PolicyBook(
        [
            policy("low", "a>", maxNumMsgs=1),
            policy("b", "a.*", priority=5, useDMQ=False),
            policy("a", "a.b", priority=5, redeliveryLimit=3),
            policy("t", ">", priority=9, apply_to="topic", useDMQ=False),
            policy("o", "**", operator=True, maxNumMsgs=9),
        ]
    )
    assert [one.name if one else "" for one in book.policies_of("queue", "a.b")] == ["a", "o"]
    assert [one.name if one else "" for one in book.policies_of("queue", "a.c")] == ["b", "o"]
    assert [one.name if one else "" for one in book.policies_of("queue", "a")] == ["low", "o"]
    assert book.policies_of("queue", "b")[0] is None
    assert [one.name if one else "" for one in book.policies_of("topic", "a.b")] == ["t", "o"]
    assert book.policies_of("queue", "mq.sys.dmq") == (None, None)
    assert (bool(book), bool(PolicyBook())) == (True, False)


def test_attributes_of_the_other_type_are_passed_over() -> None:
    both = policy(sharedConsumerFlowLimit=3, maxNumActiveConsumers=4)
    assert both.of_type("queue") == {"maxNumActiveConsumers": 4}
    assert both.of_type("topic") == {"sharedConsumerFlowLimit": 3}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"pattern": "a*", "attributes": {"maxNumMsgs": 1}}, "policy 'p': topic pattern 'a\\*' has '\\*' beside"),
        ({"pattern": "a..b", "attributes": {"maxNumMsgs": 1}}, "has an empty segment"),
        ({"pattern": "mq.sys>", "attributes": {"maxNumMsgs": 1}}, "of the broker's own destinations"),
        ({"attributes": {"maxNumMsgs": 1}}, "needs a pattern, such as orders>"),
        ({"pattern": ">"}, "has no attributes"),
        ({"pattern": ">", "attributes": 5}, "attributes = 5; they are a table"),
        ({"pattern": ">", "attributes": {"maxNumMessages": 1}}, "is not a destination attribute; the nearest"),
        ({"pattern": ">", "attributes": {"maxNumMsgs": -2}}, "policy 'p': maxNumMsgs = -2"),
        ({"pattern": ">", "attributes": {"hosting": "shared"}}, "hosting cannot change while a destination is used"),
        ({"pattern": ">", "attributes": {"productionPausedAtStartup": True}}, "cannot change while"),
        ({"pattern": ">", "attributes": {"template": "t"}}, "template cannot change"),
        ({"pattern": ">", "attributes": {"quota": "no name!"}}, "quota"),
        ({"pattern": ">", "attributes": {"distributed": True}}, "distributed cannot change"),
        (
            {"pattern": ">", "attributes": {"duplicateWindowMs": 5, "unitOfOrderRouting": "PathService"}},
            "exclude each other",
        ),
        ({"pattern": ">", "attributes": {"messagesHigh": 5, "messagesLow": 1, "maxNumMsgs": 4}}, "never be reached"),
        ({"pattern": ">", "attributes": {"messagesHigh": 5}}, "needs messagesLow below it"),
        ({"pattern": ">", "applyTo": "topic", "attributes": {"maxNumActiveConsumers": 4}}, "attribute of queues"),
        ({"pattern": ">", "applyTo": "queues", "attributes": {"useDMQ": True}}, "applyTo = 'queues'"),
        ({"pattern": ">", "priority": -1, "attributes": {"useDMQ": True}}, "priority = -1; it is a whole number"),
        ({"pattern": ">", "priority": True, "attributes": {"useDMQ": True}}, "priority = True"),
        ({"pattern": ">", "operator": "yes", "attributes": {"useDMQ": True}}, "operator = 'yes'"),
        ({"pattern": ">", "colour": 1, "attributes": {"useDMQ": True}}, "'colour' is none of its fields"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        policy_of("p", fields)


def test_a_policy_needs_a_name_that_can_be_one() -> None:
    with pytest.raises(ConfigError, match="policy name 'a b' is not allowed"):
        policy("a b", useDMQ=True)


def test_fields_come_back() -> None:
    made = policy("p", "orders>", priority=3, operator=True, apply_to="queue", maxNumMsgs="10", maxBytesPerMsg="1k")
    assert made.attributes == {"maxNumMsgs": 10, "maxBytesPerMsg": 1024}
    assert policy_of("p", made.fields()) == made


def test_conflicts_are_pairs_of_one_kind_and_priority_that_match_one_name() -> None:
    policies = [
        policy("a", "orders>", useDMQ=True),
        policy("b", "*.eu", useDMQ=True),
        policy("c", "*.eu", priority=1, useDMQ=True),
        policy("d", "*.eu", operator=True, useDMQ=True),
        policy("e", "prices>", apply_to="topic", useDMQ=True),
        policy("f", "prices.*", apply_to="queue", useDMQ=True),
        policy("g", "stock", useDMQ=True),
    ]
    found = {(one.first.name, one.second.name): one.example for one in conflicts(policies)}
    assert found == {("a", "b"): "orders.eu", ("b", "e"): "prices.eu", ("b", "f"): "prices.eu"}


segments = st.sampled_from(["a", "b", "c"])
names = st.lists(segments, min_size=1, max_size=4).map(".".join)
patterns = st.lists(
    st.tuples(st.sampled_from(["a", "b", "*", "**"]), st.sampled_from(["", "", ">"])), min_size=1, max_size=4
).map(lambda parts: ".".join(base + end for base, end in parts))


@given(patterns, patterns, names)
def test_a_common_name_is_found_exactly_when_there_is_one(first: str, second: str, name: str) -> None:
    found = common_name(first, second)
    if found is not None:
        assert matches(first, found)
        assert matches(second, found)
    if matches(first, name) and matches(second, name):
        assert found is not None


NUMBERS = st.integers(-1, 20)
VALUES: dict[str, st.SearchStrategy[Value]] = {
    "maxNumMsgs": NUMBERS,
    "maxTotalMsgBytes": NUMBERS,
    "consumerFlowLimit": NUMBERS,
    "redeliveryLimit": NUMBERS,
    "useDMQ": st.booleans(),
    "errorDestination": st.sampled_from(["", "dead"]),
    "maxNumSchedules": NUMBERS,
}
sets = st.fixed_dictionaries({}, optional=VALUES)
SLOW_DOWN = st.sampled_from([{}, {"messagesHigh": 12, "messagesLow": 11}, {"messagesHigh": 3, "messagesLow": 0}])


def room(name: str, value: Any) -> float:
    return float("inf") if value < 0 or (value == 0 and name == "consumerFlowLimit") else value


@given(sets, SLOW_DOWN, sets, sets)
def test_what_holds_can_be_and_keeps_every_bound(own: Any, thresholds: Any, user: Any, operator: Any) -> None:
    if "maxNumMsgs" in own and 0 <= own["maxNumMsgs"] < thresholds.get("messagesHigh", -1):
        thresholds = {}
    values = destination_attributes({**own, **thresholds}).as_dict("queue")
    found = effective(
        "queue",
        values,
        DEFAULTS,
        policy(**user) if user else None,
        policy("o", operator=True, **operator) if operator else None,
    )
    destination_attributes({name: one.value for name, one in found.items()})  # It contradicts nothing.
    assert found.keys() == values.keys()
    for name, one in found.items():
        if name in operator:
            bound = operator[name]
            assert room(name, one.value) <= room(name, bound) if name in LIMITS else one.value == bound
        elif name in own and own[name] != DEFAULTS[name]:
            assert one == (own[name], "destination")
        elif name in user and name not in ("messagesHigh", "messagesLow"):
            assert one == (user[name], "policy p")
