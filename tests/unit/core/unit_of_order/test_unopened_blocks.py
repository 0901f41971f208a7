"""New messages stand in the order of their blocks; some have only their place."""

from __future__ import annotations

import pytest

from raybroker.core.delivery.run import Run
from raybroker.core.unit_of_order.unopened_blocks import UnopenedBlocks


def run(ordinal: int, mask: int, priority: int = 4) -> Run:
    return Run(ordinal, ordinal, mask, 0, 0, priority)


def unopened(*places: tuple[int, int]) -> UnopenedBlocks:
    """Messages that can go, after block 4."""
    found = UnopenedBlocks(4)
    for place in places:
        found.add(run(*place))
    return found


def queued(found: UnopenedBlocks) -> list[tuple[int, int]]:
    return [(one.ordinal, one.mask) for one in found.queue]


def ready(found: UnopenedBlocks) -> list[tuple[int, int]]:
    return [(one.ordinal, one.mask) for one in found.runs()]


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]])
def test_runs_stand_by_block_and_by_first_message(order: list[int]) -> None:
    places = [(5, 0b001), (5, 0b110), (6, 0b1), (7, 0b1)]
    found = unopened(*(places[at] for at in order))
    assert (queued(found), found.count, bool(found)) == (places, 5, True)


def test_what_is_blocked_has_its_place_and_does_not_count() -> None:
    found = unopened((6, 0b1))
    found.hold_place(run(5, 0b11))
    found.hold_place(run(5, 0b01))
    assert (queued(found), found.blocked, found.count) == ([(5, 0b11), (6, 0b1)], {5: 0b11}, 1)
    assert ready(found) == [(6, 0b1)]
    found.add(run(5, 0b110))
    assert (ready(found), found.blocked, found.count) == ([(5, 0b10), (5, 0b100), (6, 0b1)], {5: 0b01}, 3)
    found.add(run(5, 0b001))
    assert (ready(found)[0], found.blocked, found.count) == ((5, 0b11), {}, 4)


def test_only_what_is_blocked_can_be_forgotten() -> None:
    found = unopened((5, 0b100))
    found.hold_place(run(5, 0b011))
    found.drop_blocked(5, 0b101)
    assert (queued(found), found.blocked, found.count) == ([(5, 0b010), (5, 0b100)], {5: 0b010}, 1)
    found.drop_blocked(9, 0b1)
    assert queued(found) == [(5, 0b010), (5, 0b100)]


def test_only_what_can_go_and_was_not_opened_is_taken_out() -> None:
    found = unopened((5, 0b110), (6, 0b1))
    found.hold_place(run(5, 0b001))
    assert found.remove({4: 0b1, 5: 0b011, 9: 0b1}) == [run(5, 0b010)]
    assert (ready(found), found.blocked, found.count) == ([(5, 0b100), (6, 0b1)], {5: 0b001}, 2)
    assert found.remove({7: 0b1}) == []
    found.opened = 6
    assert found.remove({6: 0b1}) == []


def test_the_runs_of_one_block_are_opened_together_with_what_is_blocked_of_it() -> None:
    found = unopened((5, 0b100), (6, 0b1))
    found.hold_place(run(5, 0b010))
    found.add(run(5, 0b001, priority=9))
    assert found.open() == ([run(5, 0b001, priority=9), run(5, 0b010), run(5, 0b100)], 0b010)
    assert (found.opened, found.count, found.blocked, queued(found)) == (5, 1, {}, [(6, 0b1)])
    found.open()
    assert (found.opened, found.count, bool(found)) == (6, 0, False)


def test_a_purge_keeps_the_places_of_what_is_not_visible_yet() -> None:
    found = unopened((5, 0b100), (6, 0b1))
    found.hold_place(run(5, 0b011))
    found.keep_only({4: 0b1, 5: 0b001})
    assert (queued(found), found.blocked, found.count) == ([(5, 0b001)], {5: 0b001}, 0)


def test_it_knows_when_what_waits_has_several_priorities() -> None:
    found = unopened((5, 0b1), (6, 0b1))
    assert (found.mixed, found.priority) == (False, 4)
    found.hold_place(run(7, 0b1, priority=5))
    assert found.mixed
    found.open()
    assert found.mixed, "the others may wait elsewhere by now"
    found.begin_anew()
    found.meet(9)
    assert (found.mixed, found.priority) == (False, 9)
    found.meet(8)
    found.meet(9)
    assert found.mixed


def test_the_lowest_priority_is_one_too() -> None:
    found = unopened()
    found.meet(0)
    found.meet(5)
    assert (found.mixed, found.priority) == (True, 0)
