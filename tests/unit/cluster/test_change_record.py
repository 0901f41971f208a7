"""The configuration change record: order, history, and what it leads to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.cluster.change_record import Change, ChangeRecord, Entry, Gap, RecordState, differences
from raybroker.model.errors import (
    BrokerError,
    ConfigError,
    IllegalStateError,
    InvalidDestinationError,
    ProtocolError,
)

Q = ("queue", "orders")
T = ("topic", "news")


def record_of(*changes: Change, term: int = 1) -> ChangeRecord:
    record = ChangeRecord("r", "c", term)
    for change in changes:
        record.propose(change)
    return record


def filled() -> ChangeRecord:
    return record_of(
        Change("create_destination", Q, {"maxNumMsgs": 5}),
        Change("create_destination", T),
        Change("create_subscription", ("c", "s"), {"topic": "news"}),
        Change("set_template", ("t",), {"maxNumMsgs": 1}),
        Change("add_broker", ("b2",)),
        Change("add_broker", ("b1",)),
        Change("update_destination", Q, {"useDMQ": False}),
    )


def test_error_destinations_that_lead_back_are_refused_and_old_ones_are_carried_out() -> None:
    to: Any = lambda queue: {"errorDestination": queue}
    record = record_of(
        Change("create_destination", ("queue", "a"), to("b")),
        Change("create_destination", ("queue", "c"), to("a")),
        Change("create_destination", ("topic", "b"), to("a")),
    )
    for change, way in (
        (Change("create_destination", ("queue", "b"), to("c")), "b to c to a to b"),
        (Change("create_destination", ("queue", "d"), to("d")), "d to d"),
        (Change("update_destination", ("queue", "a"), to("c")), "a to c to a"),
    ):
        before = record.digest
        with pytest.raises(ConfigError, match=f"circle, {way};"):
            record.propose(change)
        assert record.digest == before
    record.propose(Change("create_destination", ("queue", "b"), {"maxNumMsgs": 1}))
    record.propose(Change("update_destination", ("queue", "c"), {"maxNumMsgs": 1}))
    record.state.apply(Change("update_destination", ("queue", "b"), to("a")))
    with pytest.raises(ConfigError, match="c to b to a to b"):
        record.propose(Change("update_destination", ("queue", "c"), to("b")))
    record.propose(Change("update_destination", ("queue", "b"), to("")))


def test_a_quota_is_there_as_long_as_something_refers_to_it() -> None:
    record = record_of(Change("create_quota", ("q",), {"MessagesMaximum": 5, "Policy": "FIFO"}))
    named = {"quota": "q"}
    for kind in ("create_destination", "set_template"):
        key = ("queue", "a") if kind == "create_destination" else ("a",)
        with pytest.raises(ConfigError, match="there is no quota 'x'"):
            record.propose(Change(kind, key, {"quota": "x"}))
        record.propose(Change(kind, key, named))
    record.propose(Change("update_quota", ("q",), {"MessagesMaximum": 6}))
    assert record.state.quotas == {("q",): {"MessagesMaximum": 6, "Policy": "FIFO"}}
    with pytest.raises(IllegalStateError, match="quota 'q' is in use by queue a"):
        record.propose(Change("destroy_quota", ("q",)))
    record.propose(Change("update_destination", ("queue", "a"), {"quota": ""}))
    with pytest.raises(IllegalStateError, match="quota 'q' is in use by template a"):
        record.propose(Change("destroy_quota", ("q",)))
    record.propose(Change("drop_template", ("a",)))
    with pytest.raises(ConfigError, match="there is no quota 'x'"):
        record.propose(Change("create_policy", ("p",), {"pattern": ">", "attributes": {"quota": "x"}}))
    record.propose(Change("create_policy", ("p",), {"pattern": ">", "attributes": {"quota": "q"}}))
    with pytest.raises(IllegalStateError, match="quota 'q' is in use by policy p"):
        record.propose(Change("destroy_quota", ("q",)))
    record.propose(Change("destroy_policy", ("p",)))
    record.propose(Change("destroy_quota", ("q",)))
    assert record.state.quotas == {}


def test_quotas_come_before_what_refers_to_them_and_go_after_it() -> None:
    have = record_of(
        Change("create_quota", ("old",), {"n": 1}), Change("create_destination", Q, {"quota": "old"})
    ).state
    want = record_of(
        Change("create_quota", ("new",), {"n": 1}),
        Change("create_destination", Q, {"quota": "new"}),
        Change("set_template", ("t",), {"quota": "new"}),
    ).state
    for change in differences(have, want):
        have.make(change)
    assert have == want


def test_changes_are_numbered_from_one_and_lead_to_a_state() -> None:  # K-10
    record = filled()
    assert [entry.number for entry in record.entries] == [1, 2, 3, 4, 5, 6, 7]
    assert record.state.destinations == {Q: {"maxNumMsgs": 5, "useDMQ": False}, T: {}}
    assert record.state.subscriptions == {("c", "s"): {"topic": "news"}}
    assert record.state.templates == {("t",): {"maxNumMsgs": 1}}
    assert record.state.brokers == ["b2", "b1"]


@pytest.mark.parametrize(
    ("kind", "key", "error", "text"),
    [
        ("create_destination", Q, InvalidDestinationError, "exists already"),
        ("update_destination", ("queue", "x"), InvalidDestinationError, "does not exist"),
        ("destroy_destination", ("queue", "x"), InvalidDestinationError, "does not exist"),
        ("create_subscription", ("c", "s"), InvalidDestinationError, "durable subscription 'c' 's' exists already"),
        ("destroy_subscription", ("", "x"), InvalidDestinationError, "durable subscription 'x' does not exist"),
        ("drop_template", ("x",), ConfigError, "template 'x' does not exist"),
        ("add_broker", ("b1",), ConfigError, "exists already"),
        ("remove_broker", ("b9",), ConfigError, "does not exist"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_and_leaves_no_trace(
    kind: str, key: tuple[str, ...], error: type[BrokerError], text: str
) -> None:
    record = filled()
    before = record.number, record.digest, record.state.canonical()
    with pytest.raises(error, match=text):
        record.propose(Change(kind, key))
    assert (record.number, record.digest, record.state.canonical()) == before


def test_a_topic_takes_its_subscriptions_with_it() -> None:
    record = filled()
    record.propose(Change("destroy_destination", T))
    assert record.state.subscriptions == {}


def test_a_subscription_may_be_of_a_topic_that_is_in_no_record() -> None:  # K-07: auto-created topics are not
    record = record_of(Change("create_subscription", ("", "s"), {"topic": "auto"}))
    assert record.state.subscriptions == {("", "s"): {"topic": "auto"}}


def test_a_copy_takes_only_the_next_entry_with_the_same_history() -> None:
    record, copy = filled(), ChangeRecord("r", "c", 1)
    for entry in record.entries[:3]:
        copy.accept(entry)
    with pytest.raises(ProtocolError, match="does not follow"):
        copy.accept(record.entries[4])
    other = record_of(*(entry.change for entry in record.entries[:3]), term=2)
    with pytest.raises(ProtocolError, match="another history"):
        other.accept(record.entries[3])
    forged = Entry(4, 1, Change("drop_template", ("t",)), record.entries[3].digest)
    with pytest.raises(ProtocolError, match="another history"):
        copy.accept(forged)
    for entry in record.entries[3:]:
        copy.accept(entry)
    assert (copy.digest, copy.state) == (record.digest, record.state)


def test_the_same_changes_in_another_order_are_another_history() -> None:
    one, two = queue("a"), queue("b")
    assert record_of(one, two).digest != record_of(two, one).digest
    assert record_of(one, two).state == record_of(two, one).state


def queue(name: str) -> Change:
    return Change("create_destination", ("queue", name))


def test_what_a_copy_lacks_is_told_by_its_last_entry() -> None:
    record = filled()
    third = record.entries[2]
    assert record.after(0, "") == record.entries
    assert record.after(3, third.digest) == record.entries[3:]
    assert record.after(record.number, record.digest) == []
    assert record.after(3, "other") is Gap.FORKED
    assert record.after(8, "x") is Gap.AHEAD


def test_a_compressed_record_has_the_same_state_and_goes_on_counting() -> None:  # K-14
    record = filled()
    short = record.compress()
    assert (short.number, short.digest, short.state, short.entries) == (7, record.digest, record.state, [])
    assert short.after(3, record.entries[2].digest) is Gap.COMPRESSED
    assert short.after(7, record.digest) == []
    entry = short.propose(queue("later"))
    record.accept(entry)
    assert record.state == short.state
    assert record.number == 8


def test_a_record_compressed_up_to_an_entry_keeps_the_later_ones() -> None:
    record = filled()
    for number in range(record.number + 1):
        short = record.compress(number)
        assert (short.base_number, short.number, short.digest) == (number, record.number, record.digest)
        assert short.entries == record.entries[number:]
        assert (short.state, short.term) == (record.state, record.term)


def test_compressing_does_not_share_what_changes_later() -> None:
    record = filled()
    short = record.compress()
    short.propose(queue("later"))
    assert ("queue", "later") not in record.state.destinations
    assert ("queue", "later") not in short.base_state.destinations


names = st.sampled_from(["a", "b", "c"])
marks = st.integers(0, 3).map(lambda n: {"n": n})
changes = st.one_of(
    st.builds(
        Change,
        st.sampled_from(["create_destination", "update_destination", "destroy_destination"]),
        st.tuples(st.sampled_from(["queue", "topic"]), names),
        marks,
    ),
    st.builds(
        Change,
        st.sampled_from(["create_subscription", "destroy_subscription"]),
        st.tuples(st.just(""), names),
        names.map(lambda n: {"topic": n}),
    ),
    st.builds(Change, st.sampled_from(["create_quota", "update_quota", "destroy_quota"]), st.tuples(names), marks),
    st.builds(Change, st.sampled_from(["create_policy", "update_policy", "destroy_policy"]), st.tuples(names), marks),
    st.builds(
        Change,
        st.sampled_from(["set_template", "drop_template", "add_broker", "remove_broker"]),
        st.tuples(names),
        marks,
    ),
)


def state_of(wanted: list[Change]) -> RecordState:
    state = RecordState()
    for change in wanted:
        try:
            state.apply(change)
        except BrokerError:
            continue
    return state


@given(st.lists(changes, max_size=25), st.lists(changes, max_size=25))
def test_differences_lead_from_any_state_to_any_other(before: list[Change], after: list[Change]) -> None:
    have, want = state_of(before), state_of(after)
    for change in differences(have, want):
        if change.kind == "update_destination":
            have.check(change)
            have.destinations[change.key] = dict(change.attributes)
        else:
            have.apply(change)
    assert sorted(have.brokers) == sorted(want.brokers)
    assert (have.destinations, have.subscriptions) == (want.destinations, want.subscriptions)
    assert (have.templates, have.quotas) == (want.templates, want.quotas)
    assert have.policies == want.policies


@given(st.lists(changes, max_size=25))
def test_a_state_survives_its_canonical_form(wanted: list[Change]) -> None:
    state = state_of(wanted)
    found: Any = state.canonical()
    assert RecordState.from_canonical(found) == state
    assert state.copy() == state
    assert differences(state, state.copy()) == ()
