"""Ranges against plain sets of integers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raybroker.core.blocks import ranges

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda s: (s[0], s[0] + s[1])), max_size=20)


def made(spans: list[tuple[int, int]]) -> tuple[ranges.Ranges, set[int]]:
    rows: ranges.Ranges = []
    for start, end in spans:
        ranges.add(rows, start, end)
    return rows, {n for start, end in spans for n in range(start, end)}


def assert_same(rows: ranges.Ranges, numbers: set[int]) -> None:
    assert {n for a, b in rows for n in range(a, b)} == numbers
    before = -1
    for start, end in rows:
        assert before < start < end, f"not sorted, disjoint and joined: {rows}"
        before = end


@given(SPANS)
def test_adding_is_a_union(spans: list[tuple[int, int]]) -> None:
    rows, numbers = made(spans)
    assert_same(rows, numbers)
    assert ranges.total(rows) == len(numbers)


@given(SPANS, st.integers(0, 70), st.integers(0, 20))
def test_missing_is_a_difference(spans: list[tuple[int, int]], start: int, count: int) -> None:
    rows, numbers = made(spans)
    assert ranges.has(rows, start) == (start in numbers)
    gaps = list(ranges.missing(rows, start, start + count))
    assert_same(gaps, set(range(start, start + count)) - numbers)


@given(SPANS, st.integers(0, 75))
def test_dropping_forgets_what_is_below(spans: list[tuple[int, int]], floor: int) -> None:
    rows, numbers = made(spans)
    ranges.drop_below(rows, floor)
    assert_same(rows, {n for n in numbers if n >= floor})


def test_numbers_that_come_in_order_are_one_range() -> None:
    rows, _ = made([(1, 5), (5, 9), (9, 10)])
    assert rows == [(1, 10)]


def test_an_empty_range_adds_nothing() -> None:
    assert made([(3, 3)])[0] == []
