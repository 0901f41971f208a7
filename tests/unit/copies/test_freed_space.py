"""Hints about blocks that are dead: applied once they are sure, and never to a block that came later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from raybroker.copies import freed_space
from raybroker.copies.freed_space import FreedBlocks, SpaceHints, living, spans_of
from raybroker.copies.message_form import Freed, Living
from tests.unit.copies.disks import Made, opened


class Blocks:
    """``came``: destination → ordinal → the entry that it came with."""

    def __init__(self, came: Mapping[int, Mapping[int, int]]) -> None:
        self.came = {destination: dict(blocks) for destination, blocks in came.items()}
        self.hints = SpaceHints(self.free, self.live)

    def free(self, destination: int, ordinals: Iterable[int]) -> None:
        for ordinal in ordinals:
            self.came[destination].pop(ordinal, None)

    def live(self, index: int) -> Mapping[int, Sequence[int]]:
        return {d: sorted(o for o, at in blocks.items() if at <= index) for d, blocks in self.came.items()}


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
    for part in living(4, {1: [2]}):
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
    parts = list(living(4, live))
    assert [part.after for part in parts[1:]] == [part.upto for part in parts[:-1]]
    for part in parts:
        assert isinstance(part, Living)
        blocks.hints.add(part, last=4, committed=4)
    assert {d: sorted(found) for d, found in blocks.came.items() if found} == live


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
    assert folder.live_ordinals(4) == {1: [1, 2, 3, 4]}
    assert folder.live_ordinals(11) == {1: list(range(1, 12))}
    folder.release()
