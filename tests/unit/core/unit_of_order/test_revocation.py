"""What comes back of a unit brings everything later of it along, and its session is told."""

from __future__ import annotations

from raybroker.core.blocks.block_entry import BlockEntry, Columns
from raybroker.core.command import AttachConsumer
from raybroker.core.delivery.consumers import Consumer, Consumers, Delivery
from raybroker.core.delivery.run import Run
from raybroker.core.outcome import Outcome, Withdrawn
from raybroker.core.unit_of_order.revocation import first_overtaken, first_returned, revoke, void
from raybroker.core.unit_of_order.unit import Unit, UnitOwner


class Sessions:
    """Consumers that have messages of units; a block is written as the units of its messages, "-" for none."""

    def __init__(self, *blocks: str) -> None:
        self.held: dict[int, BlockEntry] = {}
        self.units: dict[str, Unit] = {}
        self.consumers = Consumers()
        for ordinal, text in enumerate(blocks, 1):
            names = tuple(None if name == "-" else name for name in text.split())
            self.held[ordinal] = BlockEntry(len(names), 4, True, Columns(units=names))

    def consumer(self, number: int, *runs: tuple[int, int], owner: str = "") -> Consumer:
        """It has room for as many messages as it gets, and has these."""
        count = sum(mask.bit_count() for _, mask in runs)
        one = Consumer(AttachConsumer(number, "prefetch", limit=count or 1, no_ack=False, held=False, owner=owner))
        self.consumers.attach(one, active_max=-1, backup_max=0, name="d")
        one.active = one.serving = True
        for ordinal, mask in runs:
            one.handed(Run(ordinal, ordinal, mask, 0, 0, 4), 0, self.held[ordinal])
            for index, name in enumerate(self.held[ordinal].columns.units or ()):
                if name is not None and mask >> index & 1:
                    unit = self.units.setdefault(name, Unit(name))
                    unit.held += 1
                    unit.owner = unit.owner or UnitOwner(owner or number)
        return one

    def returned(self, one: Consumer, first: int, last: int) -> tuple[list[tuple[int, int]], Outcome]:
        """Deliveries go back; what comes with them."""
        found = first_returned(self.units, self.held, list(one.settle_tags(first, last)))
        out = Outcome()
        revoked = revoke(self.units, self.held, self.consumers, found, out)
        return [(item.run.ordinal, item.run.mask) for item in revoked], out


def tags(one: Consumer) -> list[int]:
    return [tag for item in one.unsettled for tag in range(item.tag, item.tag + item.count)]


def test_later_messages_of_its_unit_come_back_and_no_others() -> None:
    sessions = Sessions("a a b -", "a b a")
    one = sessions.consumer(7, (1, 0b1111), (2, 0b111))
    revoked, out = sessions.returned(one, 2, 2)
    assert revoked == [(2, 0b001), (2, 0b100)]
    assert out.after_durable == [Withdrawn(7, ((5, 5), (7, 7)))]
    assert tags(one) == [1, 3, 4, 6], "what was before it stays"
    assert (sessions.units["a"].held, sessions.units["b"].held) == (1, 2)


def test_the_first_of_several_that_come_back_counts() -> None:
    sessions = Sessions("a a a")
    one = sessions.consumer(7, (1, 0b111))
    found = first_returned(sessions.units, sessions.held, [*one.settle_tags(3, 3), *one.settle_tags(1, 1)])
    assert found == {sessions.units["a"]: (1, 0)}
    assert sessions.units["a"].held == 1


def test_neighbouring_tags_are_told_as_one_range_and_give_room_and_a_turn() -> None:
    sessions = Sessions("a a a b")
    one = sessions.consumer(7, (1, 0b1111))
    assert one.room() == 0
    _, out = sessions.returned(one, 1, 1)
    assert out.after_durable == [Withdrawn(7, ((2, 3),))]
    assert (one.room(), list(sessions.consumers.turn)) == (2, [one])


def test_all_consumers_of_the_session_lose_it_and_other_sessions_nothing() -> None:
    sessions = Sessions("a b", "a b")
    one = sessions.consumer(7, (1, 0b01), owner="s")
    twin = sessions.consumer(8, (2, 0b01), owner="s")
    other = sessions.consumer(9, (1, 0b10), (2, 0b10))
    revoked, out = sessions.returned(one, 1, 1)
    assert (revoked, out.after_durable) == ([(2, 0b01)], [Withdrawn(8, ((1, 1),))])
    assert (tags(twin), tags(other)) == ([], [1, 2])


def test_nothing_comes_along_when_nothing_is_left_or_only_what_a_transaction_has() -> None:
    sessions = Sessions("a a")
    one = sessions.consumer(7, (1, 0b01))
    assert sessions.returned(one, 1, 1) == ([], Outcome())
    sessions = Sessions("a a")
    one = sessions.consumer(7, (1, 0b11))
    sessions.units["a"].staged = 1
    assert sessions.returned(one, 1, 1) == ([], Outcome())
    assert tags(one) == [2]


def test_what_has_no_unit_brings_nothing() -> None:
    sessions = Sessions("- - a")
    one = sessions.consumer(7, (1, 0b111))
    assert sessions.returned(one, 1, 2) == ([], Outcome())


def test_what_nobody_had_overtakes_only_what_somebody_has() -> None:
    sessions = Sessions("a b c -", "a b")
    sessions.consumer(7, (2, 0b11))
    sessions.units["b"].staged = 1
    run = Run(1, 1, 0b1111, 0, 0, 4)
    found = first_overtaken(sessions.units, sessions.held, [run])
    assert found == {sessions.units["a"]: (1, 0)}, "b is with a transaction, and of c nobody has anything"
    assert sessions.units["a"].held == 1, "what comes back was not held"
    out = Outcome()
    assert len(revoke(sessions.units, sessions.held, sessions.consumers, found, out)) == 1
    assert out.after_durable == [Withdrawn(7, ((1, 1),))]


def test_a_consumer_that_kept_messages_for_too_long_gets_nothing_before_it_is_heard_of() -> None:
    sessions = Sessions("- - -")
    one = sessions.consumer(7, (1, 0b111))
    items: list[Delivery] = [*one.settle_tags(3, 3), *one.settle_tags(1, 1)]
    out = Outcome()
    void(one, items, out)
    assert out.after_durable == [Withdrawn(7, ((1, 1), (3, 3)))]
    assert (one.stalled, one.room(), one.window.room()) == (True, 0, 2)
