"""Which of two claims about the master holds, and the term of a restored record."""

from __future__ import annotations

import pytest

from raybroker.cluster.term import Leadership, restored_term

ONE = Leadership(2, "b1", "r")


@pytest.mark.parametrize(
    ("other", "beats", "conflicts"),
    [
        (Leadership(2, "b1", "r"), False, False),
        (Leadership(2, "b1", ""), False, False),
        (Leadership(2, "b1", "other"), False, True),
        (Leadership(2, "b2", "r"), False, True),
        (Leadership(2, "b2", ""), False, True),
        (Leadership(1, "b2", "other"), True, False),
        (Leadership(3, "b2", "other"), False, False),
    ],
)
def test_a_higher_term_wins_and_within_one_there_is_one_master_with_one_record(
    other: Leadership, beats: bool, conflicts: bool
) -> None:
    assert (ONE.beats(other), ONE.conflicts(other), other.conflicts(ONE)) == (beats, conflicts, conflicts)


@pytest.mark.parametrize(
    ("known", "term"),
    [((0,), 1000), ((1,), 1000), ((999,), 1000), ((1000,), 2000), ((1001,), 2000), ((1, 2500, 7), 3000)],
)
def test_a_restored_record_begins_above_all_terms_that_are_known(known: tuple[int, ...], term: int) -> None:
    assert restored_term(*known) == term
