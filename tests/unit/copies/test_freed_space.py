"""Hints about blocks that are dead: applied once they are sure, and never to a block that came later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.copies import freed_space
from raybroker.copies.freed_space import FreedBlocks, SpaceHints, living, spans_of, without
from raybroker.copies.message_form import Freed, Living
from raybroker.store.locations import FIRST_KEY, LAST_KEY, BlockKey
from tests.unit.copies.disks import Made, opened


class Blocks:
    """``came``: destination → ordinal → the entry that it came with."""

    def __init__(self, came: Mapping[int, Mapping[int, int]]) -> None:
        self.came = {destination: dict(blocks) for destination, blocks in came.items()}
        self.hints = SpaceHints(self.free, self.live)

    def free(self, destination: int, ordinals: Iterable[int]) -> None:
        for ordinal in ordinals:
            self.came[destination].pop(ordinal, None)

    def live(self, index: int, after: BlockKey, upto: BlockKey) -> Mapping[int, Sequence[tuple[int, int]]]:
        return {
            d: spans_of(sorted(o for o, at in blocks.items() if at <= index and after < (d, o) <= upto))
            for d, blocks in self.came.items()
        }


def test_numbers_that_follow_each_other_are_spans() -> None:
    assert spans_of([]) == []
    assert spans_of([1, 2, 3, 7, 9, 10]) == [(1, 3), (7, 7), (9, 10)]


def test_a_hint_waits_until_its_entry_is_committed() -> None:
    blocks = Blocks({1: {1: 1, 2: 2}})
    assert blocks.hints.add(Freed(5, 1, ((1, 1),)), last=4, committed=4)
    blocks.hints.apply(5, 4)
    assert set(blocks.came[1]) == {1, 2}
    blocks.hints.apply(5, 5)
    assert set(blocks.came[1]) == {2}


def test_a_log_that_is_another_one_has_no_hints() -> None:
    blocks = Blocks({1: {1: 1}})
    blocks.hints.add(Freed(5, 1, ((1, 1),)), last=4, committed=4)
    blocks.hints.clear()
    blocks.hints.apply(9, 9)
    assert set(blocks.came[1]) == {1}


def test_what_does_not_live_at_the_leader_goes_and_what_came_later_stays() -> None:
    blocks = Blocks({1: {1: 1, 2: 2, 3: 3, 9: 7}, 2: {5: 2}, 3: {1: 8}})
    for part in living(4, FIRST_KEY, {1: [(2, 2)]}, whole=True):
        blocks.hints.add(part, last=8, committed=3)
    assert set(blocks.came[1]) == {1, 2, 3, 9}
    blocks.hints.apply(8, 4)
    assert set(blocks.came[1]) == {2, 9}
    assert (set(blocks.came[2]), set(blocks.came[3])) == (set(), {1})


@pytest.mark.parametrize("room", [1, 2, 3, 100])
def test_parts_follow_each_other_over_all_blocks(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed_space, "SPANS_MAX", room)
    live = {1: [1, 2, 5, 9, 11], 4: [3], 7: [1, 3, 5]}
    everything = {d: dict.fromkeys(range(15), 1) for d in (0, 1, 2, 4, 7, 9)}
    blocks = Blocks({d: {o: at for o, at in found.items() if o} for d, found in everything.items()})
    spans = {d: spans_of(ordinals) for d, ordinals in live.items()}
    parts = list(living(4, FIRST_KEY, spans, whole=True))
    assert [part.after for part in parts[1:]] == [part.upto for part in parts[:-1]]
    assert (parts[0].after, parts[-1].upto) == (FIRST_KEY, LAST_KEY)
    some = list(living(4, FIRST_KEY, {1: spans[1], 4: spans[4]}, whole=False))
    assert some[-1].upto == (4, 3), "nothing is said of what is behind"
    for part in parts:
        assert isinstance(part, Living)
        blocks.hints.add(part, last=4, committed=4)
    assert {d: sorted(found) for d, found in blocks.came.items() if found} == live


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)))
def test_what_is_in_spans_and_in_no_others(numbers: set[int], others: set[int]) -> None:
    found = without(spans_of(sorted(numbers)), spans_of(sorted(others)))
    assert found == spans_of(sorted(numbers - others)) or [
        number for first, last in found for number in range(first, last + 1)
    ] == sorted(numbers - others)


def test_too_many_hints_are_given_up_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed_space, "HINTS_MAX", 3)
    blocks = Blocks({1: {1: 1}})
    taken = [blocks.hints.add(Freed(9, 1, ((1, 1),)), last=1, committed=1) for _ in range(4)]
    assert taken == [True, True, True, False]
    blocks.hints.apply(9, 9)
    assert set(blocks.came[1]) == {1}


def test_what_was_freed_is_told_once() -> None:
    freed = FreedBlocks()
    freed.add(1, [5, 4])
    freed.add(1, [6])
    freed.add(2, [1])
    assert freed.hints(9) == [Freed(9, 1, ((4, 6),)), Freed(9, 2, ((1, 1),))]
    assert freed.hints(9) == []


def test_a_folder_knows_which_blocks_came_up_to_an_entry(tmp_path: Path) -> None:
    folder, made = opened(tmp_path / "c"), Made()
    folder.load()
    folder.save_all(made.many(range(1, 12), 20_000), 0)
    assert folder.live_spans(4, FIRST_KEY, LAST_KEY) == {1: [(1, 4)]}
    assert folder.live_spans(11, FIRST_KEY, LAST_KEY) == {1: [(1, 11)]}
    assert folder.live_spans(11, (1, 2), (1, 7)) == {1: [(3, 7)]}
    folder.release()
