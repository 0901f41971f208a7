"""Which selectors the consumers of a queue have, and how a backlog is sorted by them (B-22)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybroker.core import command as cmd
from raybroker.core.delivery.backlog import ANY, UNSORTED
from raybroker.core.delivery.run import Run
from raybroker.core.delivery.selector_index import SELECTORS_MAX, SORT_MESSAGES_MAX, SelectorIndex
from raybroker.model.errors import InvalidSelectorError, ResourceAllocationError
from tests.unit.core.driven_destination import DrivenDestination, Rows, handed


def run(mask: int, attempts: int = 0) -> Run:
    return Run(1, 1, mask, attempts, 0, 4)


def selector_index(*texts: str) -> SelectorIndex:
    found = SelectorIndex(lambda ordinal: None)
    for text in texts:
        found.join(text)
    return found


def test_equal_selectors_have_one_number_until_the_last_consumer_leaves() -> None:
    found = selector_index()
    assert found.join(None) == (ANY, False)
    assert not found
    assert found.join("a = 1") == (0, True)
    assert found.join("b = 1") == (1, True)
    assert found.join("a = 1") == (0, False)
    found.leave(0)
    found.leave(ANY)
    assert found.number_of("a = 1") == 0
    found.leave(0)
    assert found.number_of("a = 1") == ANY
    assert found.join("c = 1") == (0, True), "a free number is used again"


def test_a_bad_selector_joins_nothing() -> None:
    found = selector_index()
    with pytest.raises(InvalidSelectorError):
        found.join("a = ")
    assert not found
    assert not found.users


def test_there_are_at_most_so_many_different_selectors() -> None:
    found = selector_index(*(f"a = {n}" for n in range(SELECTORS_MAX)))
    assert found.join("a = 0") == (0, False), "one that is there already is free"
    with pytest.raises(ResourceAllocationError, match=str(SELECTORS_MAX)):
        found.join("a = -1")


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(1, 4095), st.lists(st.integers(0, 5), max_size=4)
)
def test_a_signature_is_the_set_of_selectors_that_match(values: list[int], mask: int, wanted: list[int]) -> None:
    mask &= (1 << len(values)) - 1
    texts = [f"n >= {bound}" for bound in dict.fromkeys(wanted)]
    found = selector_index(*texts)
    groups = found.classify(run(mask), Rows([{"n": value} for value in values]))
    seen = {}
    for signature, some in groups:
        assert some or not mask
        for index in range(len(values)):
            if some >> index & 1:
                assert index not in seen
                seen[index] = signature
    assert set(seen) == {i for i in range(len(values)) if mask >> i & 1}
    for index, signature in seen.items():
        bounds = [bound for bit, bound in enumerate(dict.fromkeys(wanted)) if signature >> bit & 1]
        assert bounds == [bound for bound in dict.fromkeys(wanted) if values[index] >= bound]


def test_a_selector_may_look_at_how_often_a_message_was_handed_out() -> None:
    found = selector_index("JMSXDeliveryCount > 1")
    rows = Rows([{}])
    assert found.classify(run(1, attempts=0), rows) == [(0, 1)]
    assert found.classify(run(1, attempts=1), rows) == [(1, 1)]


def test_a_block_that_cannot_be_read_matches_nothing() -> None:
    assert selector_index("a = 1").classify(run(0b11)) == [(0, 0b11)]


# ---- in a queue ----------------------------------------------------------------------------------------------------

RED = {"color": "red"}
BLUE = {"color": "blue"}


def test_a_backlog_is_sorted_when_a_selector_comes() -> None:
    destination = DrivenDestination()
    producer = destination.producer()
    destination.send(producer, [1] * 4, properties=[RED, BLUE, RED, BLUE])
    destination.send(producer, [1] * 2, properties=[BLUE, RED])
    blue, out = destination.open(selector="color = 'blue'")
    assert handed(out) == [(1, 1, 1), (1, 3, 1), (2, 0, 1)]
    destination.send(producer, [1, 1], properties=[RED, BLUE])
    assert destination.queue.plain.backlog.count == 4
    destination.do(cmd.DetachConsumer(blue))
    assert not destination.queue.plain.selector_index
    _, out = destination.open()
    assert sorted(handed(out)) == [
        (1, 0, 1),
        (1, 1, 2),
        (1, 2, 1),
        (1, 3, 2),
        (2, 0, 2),
        (2, 1, 1),
        (3, 0, 1),
        (3, 1, 2),
    ]


def test_unmatched_messages_stay_for_others() -> None:
    destination = DrivenDestination()
    red = destination.consumer(selector="color = 'red'")
    out = destination.send(destination.producer(), [1] * 3, properties=[BLUE, RED, {}])
    assert handed(out) == [(1, 1, 1)]
    rest, out = destination.open()
    assert handed(out, rest) == [(1, 0, 1), (1, 2, 1)]
    out = destination.do(cmd.DetachConsumer(rest))
    assert handed(out, red) == []


def test_a_consumer_without_messages_for_it_does_not_stop_the_others() -> None:
    destination = DrivenDestination()
    destination.consumer(selector="color = 'red'")
    blue = destination.consumer(selector="color = 'blue'")
    out = destination.send(destination.producer(), [1] * 3, properties=[BLUE] * 3)
    assert handed(out, blue) == [(1, 0, 1), (1, 1, 1), (1, 2, 1)]


def test_one_step_sorts_a_part_of_a_long_backlog_and_ticks_do_the_rest() -> None:
    destination = DrivenDestination()
    producer = destination.producer()
    blocks = SORT_MESSAGES_MAX // 500 + 2
    for _ in range(blocks):
        destination.send(producer, [1] * 500, properties=[RED, BLUE] * 250)
    consumer, out = destination.open(selector="color = 'red'")
    found = handed(out, consumer)
    assert len(found) == 250 * -(-SORT_MESSAGES_MAX // 500), "the last block is compared as a whole"
    assert out.unfinished
    late = destination.send(producer, [1], properties=[RED])
    found += handed(late)
    while out.unfinished:
        out = destination.tick()
        found += handed(out)
    assert len(found) == 250 * blocks + 1
    assert all(before < after for before, after in pairwise(found)), "also what came meanwhile is in order"
    assert not any(signature == UNSORTED for _, signature in destination.queue.plain.backlog.buckets)


def test_a_refused_consumer_leaves_no_selector_behind() -> None:
    destination = DrivenDestination(maxNumActiveConsumers=1)
    destination.consumer()
    with pytest.raises(ResourceAllocationError):
        destination.consumer(selector="color = 'red'")
    assert not destination.queue.plain.selector_index
    destination = DrivenDestination()
    with pytest.raises(InvalidSelectorError):
        destination.consumer(selector="color = ")
    assert not destination.queue.consumers.by_attachment


def test_what_comes_back_is_compared_again() -> None:
    destination = DrivenDestination()
    first = destination.consumer()
    destination.send(destination.producer(), [1, 1], properties=[RED, BLUE])
    red = destination.consumer(selector="color = 'red'")
    out = destination.do(cmd.DetachConsumer(first))
    assert handed(out, red) == [(1, 0, 2)]


def test_a_damaged_block_is_reported_and_goes_to_nobody_with_a_selector() -> None:
    destination = DrivenDestination()
    destination.send(destination.producer(), [1, 1], properties=[RED, RED])
    destination.contents.clear()
    _, out = destination.open(selector="color = 'red'")
    assert handed(out) == []
    assert out.damaged == [1]


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from("RBN"), st.sampled_from(["s", "r", "b", "n", "x", "t"])), max_size=30))
def test_every_message_goes_to_somebody_who_wants_it(steps: list[tuple[str, str]]) -> None:
    wants = {"r": "color = 'red'", "b": "color = 'blue'", "n": None}
    destination = DrivenDestination()
    producer = destination.producer()
    color_of: dict[int, str] = {}
    consumers: dict[int, str] = {}
    for color, verb in steps:
        if verb == "s":
            row = {"R": RED, "B": BLUE, "N": {}}[color]
            out = destination.send(producer, [1], properties=[row])
            color_of[destination.core.block_index.next_ordinal - 1] = color.lower()
        elif verb == "x" and consumers:
            number = next(iter(consumers))
            out = destination.do(cmd.DetachConsumer(number))
            del consumers[number]
        elif verb in wants:
            number, out = destination.open(2, "prefetch", selector=wants[verb])
            consumers[number] = verb
        else:
            out = destination.tick()
        for number, wanted in consumers.items():
            assert all(wanted in ("n", color_of[ordinal]) for ordinal, _, _ in handed(out, number))
