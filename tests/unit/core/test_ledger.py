"""The ledger against a plain dictionary of messages."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.core.ledger import Ledger, spans
from raybroker.core.notes import Part, pack_sizes


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=8), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_the_ledger_is_what_its_twin_is(blocks: list[list[int]], rng: object) -> None:
    ledger = Ledger()
    twin: dict[tuple[int, int], int] = {}
    peak = 0
    for sizes in blocks:
        ordinal = ledger.accept(pack_sizes(sizes), len(sizes), persistent=True)
        ledger.note_peak()
        twin |= {(ordinal, i): size for i, size in enumerate(sizes)}
        peak = max(peak, len(twin))
        while twin and rng.random() < 0.5:  # type: ignore[attr-defined]
            chosen, start = rng.choice(sorted(twin))  # type: ignore[attr-defined]
            end = start + 1
            while (chosen, end) in twin and rng.random() < 0.5:  # type: ignore[attr-defined]
                end += 1
            was_last = {i for o, i in twin if o == chosen} == set(range(start, end))
            assert ledger.settle(Part(chosen, start, end)) == was_last
            for index in range(start, end):
                del twin[chosen, index]
        assert ledger.messages == len(twin)
        assert ledger.bytes_held == sum(twin.values())
        parts = [part for ordinal in ledger.held for part in ledger.open_parts(ordinal)]
        assert {(part.ordinal, i) for part in parts for i in range(part.start, part.end)} == set(twin)
    assert ledger.peak_messages == peak


def test_ordinals_are_given_out_once() -> None:
    ledger = Ledger()
    first = ledger.accept(1, 1, persistent=True)
    assert ledger.settle(Part(first, 0, 1))
    assert ledger.accept(1, 1, persistent=True) == first + 1


def test_settling_twice_is_a_bug() -> None:
    ledger = Ledger()
    ledger.accept(1, 2, persistent=True)
    ledger.settle(Part(1, 0, 1))
    with pytest.raises(AssertionError, match="twice"):
        ledger.settle(Part(1, 0, 2))


def test_live_spans_are_of_one_kind() -> None:
    ledger = Ledger()
    for persistent in (True, True, False, True):
        ledger.accept(1, 1, persistent=persistent)
    assert ledger.live_spans(persistent=True) == [(1, 2), (4, 4)]
    assert ledger.live_spans(persistent=False) == [(3, 3)]


@given(st.sets(st.integers(0, 40)))
def test_spans_cover_exactly_their_numbers(numbers: set[int]) -> None:
    found = spans(sorted(numbers))
    assert {n for first, last in found for n in range(first, last + 1)} == numbers
    assert all(b[0] > a[1] + 1 for a, b in pairwise(found))


def test_sizes_are_kept_as_one_number_when_they_are_equal() -> None:
    assert pack_sizes([7, 7, 7]) == 7
    assert list(pack_sizes([7, 8])) == [7, 8]  # type: ignore[arg-type]
