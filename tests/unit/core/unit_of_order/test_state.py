"""Where the messages of units of order are: unopened, behind, blocked, with a session, or for anybody to take."""

from __future__ import annotations

from raybroker.core.blocks.block_entry import BlockEntry, Columns
from raybroker.core.command import AttachConsumer
from raybroker.core.delivery.consumers import Consumer, Consumers
from raybroker.core.delivery.plain import PlainPending
from raybroker.core.delivery.run import Run
from raybroker.core.delivery.selector_index import SelectorIndex
from raybroker.core.step import Step
from raybroker.core.unit_of_order.unit_pending import UnitPending

TXN = 5


class DrivenDestination:
    """A state of units in which every block is opened; a block is written as the units of its messages."""

    def __init__(self) -> None:
        self.step = Step(1)
        self.step.begin(1_000)
        self.held: dict[int, BlockEntry] = {}
        self.consumers = Consumers()
        self.plain = PlainPending(self.consumers, SelectorIndex(self.step.peek))
        self.pending = UnitPending(1, self.plain, self.step, self.held, 1_000)
        self.state = self.pending.state

    def block(self, text: str) -> Run:
        names = tuple(None if name == "-" else name for name in text.split())
        ordinal = len(self.held) + 1
        self.held[ordinal] = BlockEntry(len(names), 4, True, Columns(units=names))
        return Run(ordinal, ordinal, (1 << len(names)) - 1, 0, 0, 4)

    def put(self, text: str) -> Run:
        run = self.block(text)
        self.pending.put_back(run)
        self.state.refresh()
        return run

    def take(self, number: int) -> list[Run]:
        """A consumer takes what is for anybody to take."""
        consumer = Consumer(AttachConsumer(number, "credit", limit=-1, no_ack=False, held=False))
        self.consumers.attach(consumer, active_max=-1, backup_max=0, name="d")
        runs = self.plain.backlog.clear()
        for run in runs:
            consumer.handed(run, 1_000, BlockEntry(run.mask.bit_length(), 0, persistent=True))
            for name in self.state.names(run):
                unit = self.state.units[name]
                unit.head = None
                self.state.hold(unit, self.state.owner_of(consumer), 1)
                self.state.changed(unit)
        self.state.refresh()
        return runs

    def consumer(self, number: int) -> Consumer:
        return self.consumers.by_attachment[number]

    def settle(self, number: int, first: int, last: int) -> None:
        self.pending.settled([item.run for item in self.consumer(number).settle_tags(first, last)])
        self.state.refresh()

    def heads(self) -> list[tuple[int, int]]:
        """Blocks and their messages that are for anybody to take."""
        found: dict[int, int] = {}
        for run in self.plain.backlog.runs():
            found[run.ordinal] = found.get(run.ordinal, 0) | run.mask
        return sorted(found.items())


def test_the_first_message_of_each_unit_is_for_anybody_and_the_others_are_behind() -> None:
    destination = DrivenDestination()
    destination.put("a b a - b")
    assert destination.heads() == [(1, 0b01011)]
    assert (destination.state.count, destination.state.behind) == (5, 2)
    destination.put("a c")
    assert (2, 0b10) in destination.heads()
    assert destination.state.behind == 3


def test_while_a_session_has_a_unit_nobody_else_gets_more_of_it() -> None:
    destination = DrivenDestination()
    destination.put("a a b")
    destination.take(7)
    assert destination.heads() == []
    assert destination.state.units["a"].owner is destination.state.owners[7]
    destination.settle(7, 1, 1)
    assert destination.heads() == [(1, 0b010)]
    assert destination.state.units["a"].owner is None
    destination.settle(7, 2, 2)
    assert "b" not in destination.state.units, "a unit of which nothing is left is forgotten"


def test_what_follows_a_message_that_cannot_go_waits_for_it() -> None:
    destination = DrivenDestination()
    blocked = destination.block("a -")
    destination.state.hold_place(blocked)
    destination.put("a b")
    assert destination.heads() == [(2, 0b10)]
    destination.pending.drop_blocked(1, 0b01)
    destination.state.refresh()
    assert destination.heads() == [(2, 0b11)]


def test_an_earlier_message_that_becomes_visible_takes_the_place_of_the_later_one() -> None:
    destination = DrivenDestination()
    sent = destination.block("a")
    destination.put("a")
    assert destination.heads() == [(2, 0b1)]
    destination.pending.reserve(sent)
    destination.state.refresh()
    assert destination.heads() == []
    assert destination.state.reserved == {1: 0b1}
    destination.pending.put_back(sent)
    destination.state.refresh()
    assert (destination.heads(), destination.state.reserved, destination.state.behind) == ([(1, 0b1)], {}, 1)


def test_a_rolled_back_send_leaves_its_place() -> None:
    destination = DrivenDestination()
    destination.pending.reserve(destination.block("a a"))
    destination.put("a")
    destination.pending.unreserve(1, 0b11)
    destination.state.refresh()
    assert (destination.heads(), destination.state.reserved) == ([(2, 0b1)], {})


def test_a_unit_with_acknowledgements_in_a_transaction_stands_still_until_it_ends() -> None:
    destination = DrivenDestination()
    destination.put("a a")
    destination.take(7)
    (item,) = destination.consumer(7).unsettled
    destination.pending.stage([item], TXN)
    assert destination.pending.staged_elsewhere([item], TXN) is None
    assert destination.pending.staged_elsewhere([item], TXN + 1) == "a"
    destination.pending.stage([item], TXN, -1)
    destination.settle(7, 1, 1)
    assert destination.heads() == [(1, 0b10)]


def test_what_is_removed_lets_the_next_of_its_unit_go() -> None:
    destination = DrivenDestination()
    destination.put("a a a")
    assert [(run.ordinal, run.mask) for run in destination.pending.remove({1: 0b011})] == [(1, 0b001), (1, 0b010)]
    destination.state.refresh()
    assert (destination.heads(), destination.state.behind) == ([(1, 0b100)], 0)


def test_a_purge_keeps_the_places_of_open_transactions() -> None:
    destination = DrivenDestination()
    destination.put("a a b")
    destination.pending.reserve(destination.block("a"))
    assert sum(run.count for run in destination.pending.clear()) == 3
    destination.state.refresh()
    assert (list(destination.state.units), destination.state.count) == (["a"], 0)
    destination.put("a")
    assert destination.heads() == [], "the transaction's message is first"


def test_blocks_wait_unopened_until_somebody_wants_them() -> None:
    destination = DrivenDestination()
    destination.pending = UnitPending(1, destination.plain, destination.step, destination.held, 0)
    destination.state = destination.pending.state
    destination.put("a a")
    assert (
        destination.heads(),
        destination.state.units,
        destination.state.unopened.count,
        destination.state.count,
    ) == ([], {}, 2, 2)


def test_sessions_without_messages_are_forgotten_when_their_consumers_have_left() -> None:
    destination = DrivenDestination()
    destination.put("a")
    destination.take(7)
    destination.consumer(7).owner = "session"
    destination.state.owner_of(destination.consumer(7))
    destination.pending.consumer_left()
    assert set(destination.state.owners) == {7, "session"}
    destination.settle(7, 1, 1)
    destination.consumers.by_attachment.clear()
    destination.pending.consumer_left()
    assert destination.state.owners == {}
