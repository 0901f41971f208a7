"""A unit of order: what is next of it, what is blocked, and which of an owner's units comes first."""

from __future__ import annotations

import pytest

from raybroker.core.delivery.backlog import ANY
from raybroker.core.delivery.run import Run
from raybroker.core.unit_of_order.unit import _TRIM, Unit, UnitOwner, by_unit


def run(ordinal: int, mask: int, *, priority: int = 4, attempts: int = 0) -> Run:
    return Run(ordinal, ordinal, mask, attempts, 0, priority)


def unit_of(*runs: Run, name: str = "u") -> Unit:
    unit = Unit(name)
    for one in runs:
        unit.insert(one)
    return unit


def places(unit: Unit) -> list[tuple[int, int]]:
    return [(one.ordinal, one.mask) for one in unit.waiting()]


@pytest.mark.parametrize(
    ("there", "comes", "expected"),
    [
        ([], (2, 0b1), [(2, 0b1)]),
        ([(2, 0b1)], (3, 0b1), [(2, 0b1), (3, 0b1)]),
        ([(2, 0b1)], (1, 0b1), [(1, 0b1), (2, 0b1)]),
        ([(1, 0b1), (3, 0b1)], (2, 0b1), [(1, 0b1), (2, 0b1), (3, 0b1)]),
        ([(2, 0b100), (3, 0b1)], (2, 0b001), [(2, 0b101), (3, 0b1)]),
        ([(2, 0b001)], (2, 0b100), [(2, 0b101)]),
    ],
)
def test_what_comes_goes_to_its_place(
    there: list[tuple[int, int]], comes: tuple[int, int], expected: list[tuple[int, int]]
) -> None:
    unit = unit_of(*(run(*place) for place in there))
    unit.insert(run(*comes))
    assert places(unit) == expected


def test_messages_of_one_block_that_differ_stay_in_order() -> None:
    unit = unit_of(run(1, 0b101), run(1, 0b010, attempts=1))
    assert [(one.mask, one.attempts) for one in unit.waiting()] == [(0b001, 0), (0b010, 1), (0b100, 0)]


def test_what_leaves_makes_way_for_the_next_and_what_comes_back_goes_before_it() -> None:
    unit = unit_of(run(1, 0b11), run(2, 0b1))
    unit.remove_first(0b01)
    assert unit.next() == run(1, 0b10)
    unit.remove_first(0b10)
    assert unit.next() == run(2, 0b1)
    unit.insert(run(1, 0b10, attempts=1))
    assert places(unit) == [(1, 0b10), (2, 0b1)]
    for _ in range(2):
        unit.remove_first(0b11)
    assert (unit.next(), places(unit)) == (None, [])


def test_however_many_have_left_the_others_are_there() -> None:
    count = 4 * _TRIM
    unit = unit_of(*(run(ordinal, 0b1) for ordinal in range(1, count + 1)))
    for ordinal in range(1, count):
        unit.remove_first(0b1)
        assert unit.next() == run(ordinal + 1, 0b1)
        assert len(unit.runs) <= max(2 * (count - ordinal), count - _TRIM) + _TRIM
    unit.insert(run(1, 0b1))
    assert places(unit) == [(1, 0b1), (count, 0b1)]


@pytest.mark.parametrize(
    ("blocked", "front"),
    [([], 0b1101), ([(1, 0)], None), ([(2, 0)], None), ([(2, 2)], 0b0001), ([(2, 3)], 0b0101), ([(3, 0)], 0b1101)],
)
def test_nothing_goes_beyond_what_is_blocked(blocked: list[tuple[int, int]], front: int | None) -> None:
    unit = unit_of(run(2, 0b1101))
    for place in blocked:
        unit.hold_place(*place)
    assert unit.front() == (None if front is None else run(2, front))


def test_without_messages_behind_there_is_no_front() -> None:
    unit = Unit("u")
    unit.hold_place(1, 0)
    assert (unit.front(), unit.next()) == (None, None)


@pytest.mark.parametrize(
    ("behind", "blocked", "overtaken"),
    [
        (None, None, False),
        ((2, 0b010), None, False),
        ((2, 0b001), None, True),
        ((1, 0b1000), None, True),
        (None, (2, 1), False),
        (None, (2, 0), True),
        (None, (1, 9), True),
        ((3, 0b1), (3, 1), False),
    ],
)
def test_a_head_is_overtaken_by_what_is_before_it(
    behind: tuple[int, int] | None, blocked: tuple[int, int] | None, overtaken: bool
) -> None:
    unit = unit_of(*([run(*behind)] if behind else []))
    unit.head = 2, 0b010
    if blocked:
        unit.hold_place(*blocked)
    assert unit.overtaken() is overtaken


def test_a_place_is_held_once_in_order_and_given_up_once() -> None:
    unit = Unit("u")
    for place in ((2, 1), (1, 5), (2, 0), (2, 1)):
        unit.hold_place(*place)
    assert unit.blocked == [(1, 5), (2, 0), (2, 1)]
    assert [unit.unblock(2, 0), unit.unblock(2, 0), unit.unblock(9, 0)] == [True, False, False]
    assert unit.blocked == [(1, 5), (2, 1)]


def test_chosen_messages_of_a_block_are_taken_out() -> None:
    unit = unit_of(run(1, 0b1), run(2, 0b011), run(2, 0b100, attempts=1), run(3, 0b1))
    assert unit.remove(2, 0b1010) == [run(2, 0b010)]
    assert unit.remove(9, 0b1) == []
    assert [one[1:4] for one in unit.waiting()] == [(1, 1, 0), (2, 0b001, 0), (2, 0b100, 1), (3, 1, 0)]
    unit.remove_first(0b1)
    assert unit.remove(1, 0b1) == [], "what has left is not here"
    for ordinal in (2, 3):
        unit.remove(ordinal, -1)
    assert (unit.next(), places(unit)) == (None, [])


def test_a_purge_leaves_only_the_places_of_what_is_not_visible_yet() -> None:
    unit = unit_of(run(1, 0b1), run(3, 0b1))
    unit.head, unit.batched = (1, 0b1), 2
    unit.remove_first(0b1)
    for place in ((2, 0), (2, 1), (4, 0)):
        unit.hold_place(*place)
    unit.clear({2: 0b10})
    assert (places(unit), unit.head, unit.batched, unit.blocked) == ([], None, 0, [(2, 1)])
    unit.insert(run(5, 0b1))
    assert unit.next() == run(5, 0b1)


# ---- owners ----------------------------------------------------------------------------------------------------------


def test_the_earliest_of_the_highest_priority_is_served_first() -> None:
    owner = UnitOwner("s")
    nexts = {"late": run(3, 0b1), "second": run(2, 0b10), "first": run(2, 0b01), "high": run(9, 0b1, priority=5)}
    for name, one in nexts.items():
        owner.add(Unit(name), one, 0)
    served = []
    while (entry := owner.first(ANY)) is not None:
        owner.pop(entry)
        assert entry[4].listed is None
        served.append(entry[4].name)
    assert (served, owner.ready) == (["high", "first", "second", "late"], {})


def test_a_selector_sees_only_the_units_whose_next_message_matches_it() -> None:
    owner = UnitOwner("s")
    owner.add(Unit("other"), run(1, 0b1), 0b001)
    owner.add(Unit("mine"), run(2, 0b1), 0b110)
    for selector, name in ((0, "other"), (1, "mine"), (2, "mine"), (ANY, "other")):
        entry = owner.first(selector)
        assert entry is not None
        assert entry[4].name == name
    assert owner.first(3) is None


def test_a_unit_is_served_once_by_what_is_next_of_it_now() -> None:
    owner, unit = UnitOwner("s"), Unit("u")
    owner.add(unit, run(1, 0b1), 0)
    owner.add(unit, run(1, 0b1), 0)
    assert sum(map(len, owner.ready.values())) == 1
    owner.add(unit, run(1, 0b1, priority=9), 0)
    entry = owner.first(ANY)
    assert entry is not None
    assert entry[3] == (9, 0)
    owner.pop(entry)
    assert owner.first(ANY) is None


def test_messages_are_grouped_by_their_units() -> None:
    assert by_unit(("a", None, "b", "a"), 0b1111) == {"a": 0b1001, "b": 0b0100}
    assert by_unit(("a", None, "b", "a"), 0b0110) == {"b": 0b0100}
    assert by_unit(None, 0b11) == {}
