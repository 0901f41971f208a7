"""Bit masks against plain sets of integers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from raybroker.core.blocks import message_mask as pk

SETS = st.sets(st.integers(0, 70)) | st.tuples(st.integers(0, 1000), st.integers(1, 24)).map(
    lambda run: set(range(run[0], run[0] + run[1]))
)


def mask_of(numbers: set[int]) -> int:
    return pk.of_indexes(numbers)


@given(SETS)
def test_indexes_are_what_went_in(numbers: set[int]) -> None:
    mask = mask_of(numbers)
    assert pk.indexes(mask) == sorted(numbers)
    assert mask.bit_count() == len(numbers)
    if numbers:
        assert pk.first_of(mask) == min(numbers)


@given(SETS)
def test_runs_are_the_set_cut_at_its_gaps(numbers: set[int]) -> None:
    runs = list(pk.runs_of(mask_of(numbers)))
    assert [n for a, b in runs for n in range(a, b)] == sorted(numbers)
    assert all(after[0] > before[1] for before, after in pairwise(runs))
    assert pk.of_ranges(runs) == mask_of(numbers)


@given(SETS.filter(bool))
def test_the_extent_is_of_messages_side_by_side_only(numbers: set[int]) -> None:
    low, high = min(numbers), max(numbers) + 1
    assert pk.extent(mask_of(numbers)) == ((low, high) if len(numbers) == high - low else None)


@given(SETS, st.integers(1, 80))
def test_the_lowest_are_the_first_of_the_sorted(numbers: set[int], count: int) -> None:
    assert pk.indexes(pk.lowest(mask_of(numbers), count)) == sorted(numbers)[:count]


@given(st.integers(0, 100), st.integers(0, 100))
def test_a_span_is_a_half_open_range(start: int, count: int) -> None:
    assert pk.indexes(pk.span(start, start + count)) == list(range(start, start + count))


@given(st.lists(SETS, max_size=6), st.binary(max_size=4))
def test_masks_are_read_as_they_were_packed(sets: list[set[int]], before: bytes) -> None:
    data = before + b"".join(pk.pack(mask_of(numbers)) for numbers in sets)
    at = len(before)
    for numbers in sets:
        mask, at = pk.unpack(data, at)
        assert mask == mask_of(numbers)
    assert at == len(data)


def test_the_mask_of_the_largest_block_fits_its_length() -> None:
    everything = pk.span(0, 1024)
    assert pk.unpack(pk.pack(everything), 0) == (everything, 130)


@given(st.lists(st.integers(0, 255), min_size=1, max_size=80).map(bytes), st.integers(0, 255))
def test_the_messages_of_a_value_are_where_the_column_has_it(column: bytes, value: int) -> None:
    found = {index for index, other in enumerate(column) if other == value}
    assert pk.of_value(column, value) == mask_of(found)
