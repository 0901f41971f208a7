"""Messages that wait without units of order: the order of consumers and messages, and what selectors put off."""

from __future__ import annotations

import pytest

from raybroker.core.blocks.block_entry import BlockEntry
from raybroker.core.command import AttachConsumer
from raybroker.core.delivery import plain
from raybroker.core.delivery.backlog import UNSORTED
from raybroker.core.delivery.consumers import Consumer, Consumers
from raybroker.core.delivery.dead_letters import Dead
from raybroker.core.delivery.plain import PlainPending
from raybroker.core.delivery.run import Run
from raybroker.core.delivery.selector_index import SelectorIndex
from tests.unit.core.selector.samples import Messages


class Handed:
    """Writes down who was handed what; a consumer counts it, as a delivery queue has it do."""

    def __init__(self) -> None:
        self.found: list[tuple[int, int, int]] = []

    def hand_out(self, consumer: Consumer, run: Run) -> None:
        consumer.handed(run, 0, BlockEntry(run.mask.bit_length(), 0, persistent=True))
        self.found.append((consumer.attachment, run.ordinal, run.mask))

    def dies(self, dead: Dead) -> None:
        raise AssertionError(dead)


class Waiting:
    """Pending messages of blocks of four, whose property ``a`` is 0 … 3."""

    def __init__(self) -> None:
        self.read = 0
        self.consumers = Consumers()
        self.pending = PlainPending(self.consumers, SelectorIndex(self._peek))

    def _peek(self, ordinal: int) -> Messages:
        self.read += 1
        return Messages([{"a": index} for index in range(4)])

    def consumer(self, number: int, credit: int, selector: str | None = None) -> Consumer:
        one = Consumer(AttachConsumer(number, "credit", limit=credit, no_ack=False, held=False))
        one.selector, new = self.pending.selector_index.join(selector)
        if new:
            self.pending.selectors_changed()
        self.consumers.attach(one, active_max=-1, backup_max=0, name="d")
        self.consumers.rank(local_first=False)
        return one

    def dispatch(self) -> list[tuple[int, int, int]]:
        handed = Handed()
        self.pending.dispatch(handed.hand_out, handed.dies)
        return handed.found

    def runs(self) -> list[tuple[int, int]]:
        return [(run.ordinal, run.mask) for run in self.pending.runs()]


def run(ordinal: int, mask: int = 0b1111, attempts: int = 0, priority: int = 4) -> Run:
    return Run(ordinal, ordinal, mask, attempts, 0, priority)


def test_each_consumer_gets_what_it_has_room_for_before_the_next() -> None:
    waiting = Waiting()
    waiting.pending.append(run(1))
    waiting.pending.append(run(2))
    waiting.consumer(7, 3)
    waiting.consumer(8, 9)
    assert waiting.dispatch() == [(7, 1, 0b0111), (8, 1, 0b1000), (8, 2, 0b1111)]
    assert (waiting.pending.count, waiting.runs()) == (0, [])


def test_arrivals_that_come_alone_go_round() -> None:
    waiting = Waiting()
    for number in (7, 8):
        waiting.consumer(number, 9)
    found = []
    for ordinal in (1, 2, 3):
        waiting.pending.append(run(ordinal, 0b1))
        found += waiting.dispatch()
    assert [number for number, _, _ in found] == [7, 8, 7]


def test_without_room_everything_stays() -> None:
    waiting = Waiting()
    waiting.pending.append(run(1))
    waiting.consumer(7, 0)
    assert (waiting.dispatch(), waiting.pending.count) == ([], 4)


def test_a_consumer_for_whom_there_is_nothing_keeps_its_turn_and_lets_others_go() -> None:
    waiting = Waiting()
    waiting.consumer(7, 9, "a = 9")
    waiting.consumer(8, 2)
    waiting.pending.append(run(1))
    assert waiting.dispatch() == [(8, 1, 0b0011)]
    assert [one.attachment for one in waiting.consumers.turn] == [7]


def test_what_comes_back_goes_before_what_never_left() -> None:
    waiting = Waiting()
    waiting.pending.append(run(1))
    waiting.pending.append(run(3))
    waiting.pending.put_back(run(2, attempts=1))
    assert waiting.runs() == [(1, 0b1111), (2, 0b1111), (3, 0b1111)]


def test_selectors_split_what_comes_and_what_comes_back() -> None:
    waiting = Waiting()
    one = waiting.consumer(7, 0, "a >= 2")
    waiting.pending.append(run(1))
    waiting.pending.put_back(run(2, 0b0111, attempts=1))
    assert sorted(waiting.pending.backlog.buckets) == [(4, 0), (4, 1)]
    assert waiting.pending.has_for(one)
    one.window.granted(9)
    waiting.consumers.offer(one)
    assert waiting.dispatch() == [(7, 1, 0b1100), (7, 2, 0b0100)]
    assert (waiting.runs(), waiting.pending.has_for(one)) == ([(1, 0b0011), (2, 0b0011)], False)


def test_headers_at_hand_are_not_read_again_and_without_selectors_none_are() -> None:
    waiting = Waiting()
    waiting.pending.append(run(1))
    waiting.pending.put_back(run(2))
    assert waiting.read == 0
    waiting = Waiting()
    waiting.consumer(7, 0, "a = 1")
    waiting.pending.append(run(1), Messages([{"a": 1}] * 4))
    assert (waiting.read, list(waiting.pending.backlog.buckets)) == (0, [(4, 1)])
    waiting.pending.put_back(run(2))
    assert waiting.read == 1


@pytest.mark.parametrize(
    ("selector", "found"),
    [("JMSPriority > 4", [2, 3]), ("NOT JMSRedelivered", [2, 1]), ("JMSXDeliveryCount = 2 AND JMSPriority = 5", [3])],
)
def test_selectors_of_priority_and_deliveries_open_no_message(selector: str, found: list[int]) -> None:
    waiting = Waiting()
    waiting.pending.append(run(1))
    waiting.pending.append(run(2, priority=5))
    waiting.pending.put_back(run(3, attempts=1, priority=5))
    waiting.consumer(7, 99, selector)
    assert not waiting.pending.sort_some()
    assert sorted(waiting.dispatch()) == sorted((7, ordinal, 0b1111) for ordinal in found)
    assert waiting.read == 0
    waiting.consumer(8, 0, "a = 1")
    assert not waiting.pending.sort_some()
    assert waiting.read == 3 - len(found), "one that asks for a property has every message opened that waits"


def test_whoever_reads_headers_otherwise_says_how() -> None:
    waiting = Waiting()
    waiting.consumer(7, 0, "a = 1")
    waiting.pending.put_back(run(1), lambda run: [(1, 0b0001), (0, 0b1110)])
    waiting.pending.selectors_changed()
    assert not waiting.pending.sort_some(lambda run: [(1, run.mask)])
    assert (waiting.read, list(waiting.pending.backlog.buckets)) == (0, [(4, 1)])


def test_while_a_new_selector_has_not_seen_all_what_comes_waits_behind_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plain, "SORT_MESSAGES_MAX", 4)
    waiting = Waiting()
    for ordinal in (2, 3):
        waiting.pending.append(run(ordinal))
    waiting.consumer(7, 0, "a = 0")
    waiting.pending.unfinished = waiting.pending.sort_some()
    assert waiting.pending.unfinished
    waiting.pending.append(run(4))
    waiting.pending.put_back(run(1, 0b0001, attempts=1))
    waiting.pending.append(run(5, priority=5))
    waiting.pending.put_back(run(6, attempts=1, priority=5))
    unsorted = waiting.pending.backlog.buckets[4, UNSORTED]
    assert [one.ordinal for one in unsorted.runs()] == [1, 3, 4]
    assert (5, UNSORTED) not in waiting.pending.backlog.buckets, "its priority is compared already"
    assert [waiting.pending.sort_some() for _ in range(2)] == [True, False]


def test_the_headers_of_a_block_are_read_once_for_a_new_selector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "SORT_MESSAGES_MAX", 3)
    waiting = Waiting()
    for ordinal in (1, 2, 3):
        waiting.pending.append(run(ordinal))
    waiting.consumer(7, 0, "a = 0")
    assert [waiting.pending.sort_some() for _ in range(3)] == [True, True, False]
    assert waiting.read == 3


def test_a_selector_that_nobody_had_finds_everything_that_waits_unsorted() -> None:
    waiting = Waiting()
    waiting.pending.selectors_changed()
    assert waiting.pending.backlog.buckets == {}
    waiting.pending.append(run(1))
    waiting.consumer(7, 9, "a = 0")
    assert list(waiting.pending.backlog.buckets) == [(4, UNSORTED)]
    assert waiting.dispatch() == []


@pytest.mark.parametrize(("lowest", "ordinal"), [(False, 1), (True, 2)])
def test_what_is_discarded_first_is_of_one_block(lowest: bool, ordinal: int) -> None:
    waiting = Waiting()
    assert waiting.pending.take_to_remove(9, lowest_priority=lowest) == []
    waiting.pending.append(run(1, priority=5))
    waiting.pending.append(run(2))
    assert waiting.pending.take_to_remove(3, lowest_priority=lowest) == [
        run(ordinal, 0b0111, priority=5 if ordinal == 1 else 4)
    ]
    assert waiting.pending.count == 5


def test_chosen_messages_or_all_are_taken_out() -> None:
    waiting = Waiting()
    waiting.pending.append(run(1))
    waiting.pending.append(run(2))
    assert waiting.pending.remove({1: 0b0101, 9: 1}) == [run(1, 0b0101)]
    assert waiting.pending.clear() == [run(1, 0b1010), run(2)]
    assert (waiting.pending.count, waiting.pending.clear()) == (0, [])


def test_nothing_depends_on_what_is_elsewhere() -> None:
    waiting = Waiting()
    waiting.pending.append(run(1))
    waiting.pending.hold_place(run(2))
    waiting.pending.reserve(run(3))
    waiting.pending.restage(run(4), 5)
    assert (waiting.pending.returned([]), waiting.pending.overtaken([run(1)])) == ([], [])
    assert waiting.pending.staged_elsewhere([], 5) is None
    assert waiting.runs() == [(1, 0b1111)]
