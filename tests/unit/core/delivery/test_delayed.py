"""The timetable against a plain list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raybroker.core.delivery.delayed import Delayed
from raybroker.core.delivery.run import Run


def run(ordinal: int, mask: int = 1) -> Run:
    return Run(ordinal, ordinal, mask, 0, 0, 4)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 7)), max_size=20), st.lists(st.integers(0, 25), max_size=6)
)
def test_what_is_due_comes_in_order_of_time_then_of_arrival(adds: list[tuple[int, int]], moments: list[int]) -> None:
    table = Delayed()
    twin: list[tuple[int, Run]] = []
    for ordinal, (due_ms, mask) in enumerate(adds, start=1):
        table.add(due_ms, run(ordinal, mask))
        twin.append((due_ms, run(ordinal, mask)))
    twin.sort(key=lambda row: row[0])
    for now_ms in sorted(moments):
        expected = [one for due_ms, one in twin if due_ms <= now_ms]
        twin = [row for row in twin if row[0] > now_ms]
        assert list(table.due(now_ms)) == expected
        assert list(table.runs()) == twin
        assert table.count == sum(one.mask.bit_count() for _, one in twin)
        assert table.next_ms == (twin[0][0] if twin else None)
        assert bool(table) == bool(twin)


def test_messages_are_taken_out_by_block_and_pick() -> None:
    table = Delayed()
    for ordinal in (3, 1, 2):
        table.add(10 * ordinal, run(ordinal, 0b111))
    assert table.remove({9: 1}) == []
    removed = table.remove({1: 0b111, 3: 0b010, 9: 1})
    assert sorted(removed) == [run(1, 0b111), run(3, 0b010)]
    assert list(table.runs()) == [(20, run(2, 0b111)), (30, run(3, 0b101))]
    assert table.count == 5
    assert table.next_ms == 20


def test_clearing_gives_everything_in_order() -> None:
    table = Delayed()
    table.add(9, run(1))
    table.add(3, run(2))
    assert table.clear() == [run(2), run(1)]
    assert not table
    assert table.count == 0
