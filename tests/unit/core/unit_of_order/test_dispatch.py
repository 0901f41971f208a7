"""Handing out messages of units of order: who gets what of a block, and what waits for its session."""

from __future__ import annotations

from array import array

import pytest

from raybroker.core.blocks.block_entry import BlockEntry, Columns
from raybroker.core.command import AttachConsumer
from raybroker.core.delivery.consumers import Consumer, Consumers
from raybroker.core.delivery.dead_letters import Dead
from raybroker.core.delivery.plain import PlainPending
from raybroker.core.delivery.run import Run
from raybroker.core.delivery.selector_index import SelectorIndex
from raybroker.core.step import Step
from raybroker.core.unit_of_order import dispatch
from raybroker.core.unit_of_order.unit_pending import UnitPending

NOW = 1_000


class Ordered:
    """Pending messages and consumers; a block is written as the units of its messages, "-" for none."""

    def __init__(self) -> None:
        self.step = Step(1)
        self.step.begin(NOW)
        self.consumers = Consumers()
        self.held: dict[int, BlockEntry] = {}
        self.plain = PlainPending(self.consumers, SelectorIndex(self.step.peek))
        self.pending = UnitPending(1, self.plain, self.step, self.held, 0)
        self.handed: list[tuple[int, str]] = []
        self.dead: list[Dead] = []

    def put(self, text: str, *, expires: list[int] | None = None, priority: int = 4) -> int:
        """A new block waits; returns its ordinal."""
        names = tuple(None if name == "-" else name for name in text.split())
        columns = Columns(priority, expires=array("Q", expires) if expires else None, units=names)
        ordinal = len(self.held) + 1
        self.held[ordinal] = BlockEntry(len(names), 4, True, columns)
        self.pending.append(Run(ordinal, ordinal, (1 << len(names)) - 1, 0, 0, priority))
        return ordinal

    def consumer(self, number: int, credit: int, owner: str = "") -> Consumer:
        one = Consumer(AttachConsumer(number, "credit", limit=credit, no_ack=False, held=False, owner=owner))
        self.consumers.attach(one, active_max=-1, backup_max=0, name="d")
        self.consumers.rank(local_first=False)
        return one

    def hand_out(self, consumer: Consumer, run: Run) -> None:
        consumer.handed(run, NOW, BlockEntry(run.mask.bit_length(), 0, persistent=True))
        names = self.held[run.ordinal].columns.units or ()
        got = " ".join(f"{name or '-'}{run.ordinal}" for i, name in enumerate(names) if run.mask >> i & 1)
        self.handed.append((consumer.attachment, got))

    def dies(self, dead: Dead) -> None:
        self.dead.append(dead)

    def dispatch(self) -> list[tuple[int, str]]:
        """(consumer, messages as unit and block) of each delivery."""
        self.handed.clear()
        self.pending.find_next()
        self.pending.dispatch(self.hand_out, self.dies)
        return self.handed[:]

    def settled(self, consumer: Consumer, first: int, last: int) -> None:
        self.pending.settled([item.run for item in consumer.settle_tags(first, last)])


def test_all_messages_of_a_unit_go_to_who_has_its_first_and_a_block_in_one_delivery() -> None:
    destination = Ordered()
    destination.consumer(7, 9)
    destination.consumer(8, 9)
    destination.put("a b a -")
    assert destination.dispatch() == [(7, "a1 b1 a1 -1")]
    destination.put("c")
    destination.put("a c")
    assert sorted(destination.dispatch()) == [(7, "a3"), (8, "c2"), (8, "c3")]
    assert {name: unit.held for name, unit in destination.pending.state.units.items()} == {"a": 3, "b": 1, "c": 2}


def test_free_units_of_a_large_block_go_in_equal_parts_to_those_with_room(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a b c d e f a"
    destination = Ordered()
    destination.consumer(7, 9)
    destination.consumer(8, 9)
    destination.put(text)
    assert destination.dispatch() == [(7, "a1 b1 c1 d1 e1 f1 a1")], "less than a part is not divided"
    monkeypatch.setattr(dispatch, "PART_MIN", 1)
    destination = Ordered()
    destination.consumer(7, 9)
    destination.consumer(8, 9)
    destination.put(text)
    assert destination.dispatch() == [(7, "a1 b1 c1 d1 a1"), (8, "e1 f1")]


def test_what_its_session_has_no_room_for_waits_for_it_and_is_nobody_elses() -> None:
    destination = Ordered()
    one = destination.consumer(7, 2)
    destination.put("a b a")
    assert destination.dispatch() == [(7, "a1 b1")]
    destination.consumer(8, 9)
    destination.put("c a b")
    assert destination.dispatch() == [(8, "c2")]
    assert (destination.pending.count, destination.pending.state.behind) == (3, 3)
    one.window.granted(9)
    destination.consumers.offer(one)
    assert destination.dispatch() == [(7, "a1"), (7, "a2 b2")]
    assert (destination.pending.count, destination.pending.state.behind) == (0, 0)


def test_a_unit_is_free_for_others_once_its_session_has_settled_all_it_had() -> None:
    destination = Ordered()
    one = destination.consumer(7, 1)
    destination.put("a a")
    destination.dispatch()
    destination.consumer(8, 9)
    assert destination.dispatch() == []
    destination.settled(one, 1, 1)
    assert destination.dispatch() == [(8, "a1")]


def test_another_consumer_of_the_session_may_go_on_with_its_units() -> None:
    destination = Ordered()
    destination.consumer(7, 1, "s")
    destination.put("a a")
    destination.dispatch()
    destination.consumer(8, 9, "s")
    assert destination.dispatch() == [(8, "a1")]


def test_what_is_blocked_stops_its_unit_and_no_other() -> None:
    destination = Ordered()
    destination.consumer(7, 9)
    first = destination.put("x")
    destination.dispatch()
    destination.held[9] = BlockEntry(1, 4, True, Columns(units=("a",)))
    destination.pending.reserve(Run(9, 9, 0b1, 0, 0, 4))
    destination.held[10] = BlockEntry(2, 4, True, Columns(units=("a", "b")))
    destination.pending.append(Run(10, 10, 0b11, 0, 0, 4))
    assert (first, destination.dispatch()) == (1, [(7, "b10")])
    destination.pending.put_back(Run(9, 9, 0b1, 0, 0, 4))
    assert destination.dispatch() == [(7, "a9"), (7, "a10")]


def test_expired_messages_of_a_block_that_is_opened_are_dead_and_in_nobodys_way() -> None:
    destination = Ordered()
    destination.consumer(7, 9)
    destination.put("a a b", expires=[NOW, 0, NOW + 1])
    assert destination.dispatch() == [(7, "a1 b1")]
    assert [(dead.run.mask, dead.reason) for dead in destination.dead] == [(0b001, "EXPIRED")]


def test_a_higher_priority_goes_first_wherever_its_block_is() -> None:
    destination = Ordered()
    one = destination.consumer(7, 0)
    destination.put("a b")
    destination.put("c a", priority=9)
    one.window.granted(9)
    destination.consumers.offer(one)
    assert destination.dispatch() == [(7, "c2"), (7, "a1 b1"), (7, "a2")]


def test_nothing_is_opened_for_nobody() -> None:
    destination = Ordered()
    destination.put("a b")
    assert (destination.dispatch(), len(destination.pending.state.unopened.queue)) == ([], 1)
    destination.consumer(7, 0)
    assert (destination.dispatch(), len(destination.pending.state.unopened.queue)) == ([], 1)


def test_one_step_opens_so_many_blocks_for_nobody_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "OPEN_MESSAGES_MAX", 4)
    destination = Ordered()
    destination.consumer(7, 1)
    destination.put("a")
    destination.dispatch()
    for _ in range(5):
        destination.put("a a")
    destination.consumer(8, 9)
    assert destination.dispatch() == []
    assert (destination.plain.unfinished, len(destination.pending.state.unopened.queue)) == (True, 3)
    eight = destination.consumers.by_attachment[8]
    for unfinished, left in ((True, 1), (False, 0)):
        destination.plain.unfinished = False
        assert not destination.pending.has_for(eight)
        assert (destination.plain.unfinished, len(destination.pending.state.unopened.queue)) == (unfinished, left)


def test_it_knows_whether_there_is_something_for_a_consumer() -> None:
    destination = Ordered()
    one, other = destination.consumer(7, 1), destination.consumer(8, 0)
    assert not destination.pending.has_for(other)
    destination.put("a a")
    destination.dispatch()
    assert (destination.pending.has_for(one), destination.pending.has_for(other)) == (True, False)
    destination.put("b")
    assert destination.pending.has_for(other)


def test_it_is_idle_when_no_unit_has_messages_any_more() -> None:
    destination = Ordered()
    one = destination.consumer(7, 9)
    destination.put("a -")
    destination.dispatch()
    assert not destination.pending.idle
    destination.settled(one, 1, 2)
    destination.pending.find_next()
    assert (destination.pending.idle, destination.pending.state.units) == (True, {})
