"""Which parts a unit of work takes, when it is complete, and what leaves it."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from raybroker.core import command as cmd
from raybroker.core.blocks.block_entry import BlockEntry, Columns
from raybroker.core.blocks.block_index import BlockIndex
from raybroker.core.delivery.run import Run
from raybroker.core.durable.records import PartColumn, PartKey, Sizes
from raybroker.core.unit_of_work import PART_BYTES, PARTS_MAX, UnitOfWork, UnitsOfWork
from raybroker.model.settings.settings import DestinationAttributes

QUEUE = 3
AT_MS = 500


def keys(text: str, unit: str = "u") -> list[PartKey | None]:
    """ "1 - 3." is part 1, a message that is none, and part 3, the last."""
    return [None if word == "-" else PartKey(unit, int(word.rstrip(".")), word.endswith(".")) for word in text.split()]


def columns(*parts: PartKey | None, **more: Any) -> Columns:
    return Columns(works=PartColumn(AT_MS, parts), **more)


class Units:
    """Units of work over a block index."""

    def __init__(self) -> None:
        self.index = BlockIndex()
        self.works = UnitsOfWork(self.index)

    def admit(self, given: Columns, *, bytes_max: int = -1, size: int = 10) -> list[tuple[int, str]]:
        """(index, text) of what is refused."""
        assert given.works is not None
        count = len(given.works.keys)
        command = cmd.Send(1, 2, 1, [size] * count, True, 1, columns=given)
        taken, refused = self.works.admit(command, [(0, count)], bytes_max)
        assert sum(b - a for a, b in taken) + len(refused) == count
        assert all(row.end == row.start + 1 for row in refused)
        return [(row.start, row.text) for row in refused]

    def block(self, given: Columns, sizes: Sizes = 10) -> tuple[BlockEntry, int, int]:
        """A held block: itself, its ordinal, and all its messages."""
        assert given.works is not None
        block = BlockEntry(len(given.works.keys), sizes, True, given)
        return block, self.index.accept(block), block.everything

    def keep(self, text: str, unit: str = "u", **more: Any) -> int:
        """Messages of a new block wait; returns which of them are no parts."""
        _, ordinal, mask = self.block(columns(*keys(text, unit), **more))
        return self.works.keep(QUEUE, Run(ordinal, ordinal, mask, 0, 0, 4)).mask

    def complete(self) -> list[tuple[str, list[tuple[int, int]]]]:
        return [(unit, [(run.ordinal, run.mask) for run in runs]) for unit, runs in self.works.take_complete()]


FAULTS = [
    ("1", "1", "its message 1 is there already"),
    ("3.", "4.", "its end is message 3 already, and cannot be 4 too"),
    ("3.", "4", "it ends with message 3; 4 is beyond that"),
    ("5", "4.", "message 4 cannot be its end: message 5 is there"),
]


@pytest.mark.parametrize(("there", "comes", "text"), FAULTS)
def test_a_message_that_does_not_fit_its_unit_is_refused(there: str, comes: str, text: str) -> None:
    units = Units()
    assert units.admit(columns(*keys(f"{there} {comes}"))) == [(1, f"unit of work 'u': {text}")]


@pytest.mark.parametrize(("there", "comes"), [("1", "2"), ("2", "1"), ("3.", "2"), ("5", "6.")])
def test_numbers_come_in_any_order_up_to_the_end(there: str, comes: str) -> None:
    assert Units().admit(columns(*keys(f"{there} {comes}"))) == []


@pytest.mark.parametrize(("number", "refused"), [(0, True), (1, False), (PARTS_MAX, False), (PARTS_MAX + 1, True)])
def test_a_number_is_from_one_to_the_most(number: int, refused: bool) -> None:
    found = Units().admit(columns(PartKey("u", number, False)))
    assert [f"from 1 to {PARTS_MAX}" in text for _, text in found] == [True] * refused


def test_a_unit_has_one_priority_and_one_delivery_mode() -> None:
    text = "unit of work 'u': all of its messages have the same delivery mode and priority"
    assert Units().admit(columns(*keys("1 2"), priorities=bytes((4, 5)))) == [(1, text)]
    one = UnitOfWork(0, persistent=True, priority=4)
    units = Units()
    units.admit(columns(*keys("1")))
    one = units.works.units["u"]
    assert one.fault(PartKey("u", 2, False), 1, -1, persistent=False, priority=4)[1] == text
    assert one.fault(PartKey("u", 2, False), 1, -1, persistent=True, priority=4) == ("", "")


def test_a_message_is_in_one_kind_of_unit() -> None:
    found = Units().admit(columns(*keys("1 2 -"), units=("a", None, "a")))
    assert found == [(0, "a message is in a unit of order or in a unit of work, not in both")]


def test_the_composed_message_grows_up_to_the_limit_and_not_beyond() -> None:
    most = 2 * (10 + PART_BYTES)
    assert Units().admit(columns(*keys("1 2")), bytes_max=most) == []
    units = Units()
    text = f"unit of work 'u' grows over {most - 1} bytes"
    assert units.admit(columns(*keys("1 2")), bytes_max=most - 1) == [(1, text)]
    units.admit(columns(*keys("3")))
    units.works.release(units.block(columns(*keys("1")))[0], 0b1)
    assert units.works.units["u"].nbytes == 10 + PART_BYTES, "what left it does not count"


def test_a_unit_is_complete_when_all_its_parts_are_here_and_goes_out_in_order() -> None:
    units = Units()
    assert units.keep("3. - 1") == 0b010
    assert (units.complete(), units.works.count, units.works.queue) == ([], 2, QUEUE)
    assert units.keep("2") == 0
    assert units.complete() == [("u", [(1, 0b100), (2, 0b1), (1, 0b001)])]
    assert (units.works.units, units.works.count, units.complete()) == ({}, 0, [])


def test_a_part_that_a_transaction_has_completes_nothing_until_it_waits_itself() -> None:
    units = Units()
    block, ordinal, _ = units.block(columns(*keys("2.")))
    units.works.restage(block, 0b1)
    units.keep("1")
    assert (units.complete(), units.works.count, len(units.works.units["u"].parts)) == ([], 1, 2)
    assert list(units.works.runs()) == [Run(2, 2, 0b1, 0, 0, 4)]
    units.works.keep(QUEUE, Run(ordinal, ordinal, 0b1, 0, 0, 4))
    assert [unit for unit, _ in units.complete()] == ["u"]


def test_a_rolled_back_part_was_never_there_and_neither_was_its_end() -> None:
    units = Units()
    units.admit(columns(*keys("1 2.")))
    units.works.release(units.block(columns(*keys("1 2.")))[0], 0b10)
    assert units.admit(columns(*keys("3."))) == []
    units.works.release(units.block(columns(*keys("1 3.")))[0], 0b11)
    assert units.works.units == {}


def test_what_was_complete_and_lost_a_part_before_it_was_taken_is_not() -> None:
    units = Units()
    units.keep("1 2.")
    (run,) = units.works.remove({1: 0b01})
    assert (run.mask, units.complete(), units.works.count) == (0b01, [], 1)


def test_only_incomplete_units_that_are_too_old_expire_and_they_say_how_many_they_had() -> None:
    attributes = DestinationAttributes(incompleteWorkExpirationTime=100)
    never = DestinationAttributes(incompleteWorkExpirationTime=-1)
    units = Units()
    assert units.works.due_ms(attributes) is None
    units.keep("1 3.")
    young = Columns(works=PartColumn(AT_MS + 1, tuple(keys("1", "v"))))
    _, ordinal, mask = units.block(young)
    units.works.keep(QUEUE, Run(ordinal, ordinal, mask, 0, 0, 4))
    assert (units.works.due_ms(attributes), units.works.due_ms(never)) == (AT_MS + 100, None)
    assert (
        list(units.works.take_expired(attributes, AT_MS + 99)) == list(units.works.take_expired(never, 1 << 50)) == []
    )
    dead = list(units.works.take_expired(attributes, AT_MS + 100))
    assert [(one.run.mask, one.reason) for one in dead] == [(0b01, "EXPIRED"), (0b10, "EXPIRED")]
    text = "unit of work 'u' is incomplete after incompleteWorkExpirationTime: 2 messages"
    assert {one.comment for one in dead} == {text}
    assert (list(units.works.units), units.works.count) == (["v"], 1)


def test_what_only_a_transaction_has_does_not_expire() -> None:
    attributes = DestinationAttributes(incompleteWorkExpirationTime=100)
    units = Units()
    units.works.restage(units.block(columns(*keys("1")))[0], 0b1)
    units.keep("1", "v")
    assert [one.run.ordinal for one in units.works.take_expired(attributes, 1 << 50)] == [2]
    assert list(units.works.units) == ["u"]


def test_taking_out_leaves_what_transactions_have() -> None:
    units = Units()
    block, ordinal, _ = units.block(columns(*keys("2 -")))
    units.works.restage(block, 0b01)
    units.keep("1")
    assert units.works.remove({ordinal: 0b11}) == []
    assert [run.ordinal for run in units.works.clear()] == [2]
    assert (list(units.works.units["u"].parts), units.works.count, units.works.clear()) == ([2], 0, [])


def test_sizes_are_those_of_each_message() -> None:
    units = Units()
    _, ordinal, mask = units.block(columns(*keys("1 2")), array("I", [10, 30]))
    units.works.keep(QUEUE, Run(ordinal, ordinal, mask, 0, 0, 4))
    assert units.works.units["u"].nbytes == 40 + 2 * PART_BYTES


def test_composing_once_begun_is_not_given_up() -> None:
    works = Units().works
    assert works.queue == -1
    works.enable(DestinationAttributes())
    assert not works.enabled
    works.enable(DestinationAttributes(unitOfWorkHandlingPolicy="SingleMessageDelivery"))
    works.enable(DestinationAttributes())
    assert works.enabled
