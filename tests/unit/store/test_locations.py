"""Locations in columns against a dictionary."""

from __future__ import annotations

from array import array
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from raybroker.store.locations import PACKED_KEPT, PAGE, Locations, location, location_parts


def each_of(spans: list[tuple[int, int]]) -> list[int]:
    assert all(last < first - 1 for (_, last), (first, _) in pairwise(spans)), "those that touch are one"
    return [number for a, b in spans for number in range(a, b + 1)]


VALUES = st.tuples(
    st.integers(1, 2**32 - 1), st.integers(512, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)
)


@given(VALUES)
def test_a_location_has_its_parts(parts: tuple[int, int, int, int]) -> None:
    assert location_parts(location(*parts)) == parts


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("fill", "put", "pop", "all", "look")), st.integers(0, 3 * PAGE), st.integers(1, 600)
        ),
        max_size=25,
    ),
    VALUES,
)
def test_locations_are_a_dictionary(steps: list[tuple[str, int, int]], parts: tuple[int, int, int, int]) -> None:
    found, plain, value = Locations(), dict[int, int](), location(*parts)
    for what, first, count in steps:
        ordinals = range(first, first + count)
        free = not any(o in plain for o in ordinals)
        assert found.any_between(first, count) == (not free)
        if what == "fill":
            for ordinal in ordinals:
                found[ordinal] = plain[ordinal] = value
        elif what == "put":
            found[first] = plain[first] = location(1, 512 + count, count, 7)
        elif what == "pop":
            for ordinal in ordinals:
                assert found.pop(ordinal) == plain.pop(ordinal, None)
        elif what == "all" and free:
            columns = [array("I", [base + n for n in range(count)]) for base in (512, 0, 3)]
            found.put_all(first, 9, *columns)
            plain.update({first + n: location(9, 512 + n, n, 3 + n) for n in range(count)})
        assert [found.get(o) for o in ordinals] == [plain.get(o) for o in ordinals]
        assert each_of(found.spans()) == sorted(plain)
        end = location(1, 512 + count, 0, 0)
        some = [o for o in sorted(plain) if first < o <= first + PAGE and plain[o] < end]
        assert each_of(found.spans(first, first + PAGE, end)) == some
        assert found.spans(first, most=2) == found.spans(first)[:2]
        assert len(found) == len(plain)
        assert bool(found) == bool(plain)
        assert (first in found) == (first in plain)


def test_neighbours_share_a_page_and_a_few_survivors_do_not() -> None:
    found = Locations()
    for ordinal in range(4 * PAGE):
        found[ordinal] = location(1, 512, 1, 1)
    assert len(found._pages) == 3
    for ordinal in range(PAGE, 2 * PAGE - PACKED_KEPT + 1):
        assert found.pop(ordinal) is not None
    assert len(found._pages) == 2
    assert found[2 * PAGE - 1] == location(1, 512, 1, 1)
