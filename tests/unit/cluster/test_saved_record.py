"""The frames of a record file say what was saved, and a frame that says anything else is named."""

from __future__ import annotations

import pytest

from raybroker.cluster.change_record import ChangeRecord
from raybroker.cluster.saved_record import (
    Saved,
    SavedOffer,
    claim_frame,
    entry_frame,
    life_frame,
    load_frames,
    master_frame,
)
from raybroker.cluster.term import Leadership
from raybroker.model.errors import StoreDamagedError
from tests.unit.cluster.parts import queue

CLAIM = Leadership(3, "b2", "r")


def record(*names: str) -> ChangeRecord:
    found = ChangeRecord("r", "c", 3)
    for name in names:
        found.propose(queue(name))
    return found


def test_nothing_saved_is_a_broker_that_never_followed_anybody() -> None:
    assert load_frames([]) == Saved()
    assert Saved(4, "c").frames() == (life_frame(4, "c"),)


def test_all_of_it_comes_back() -> None:
    saved = Saved(
        4, "c", CLAIM, "b1", ("b2", 9), record("q1"), SavedOffer(Leadership(4, "b1", "r"), record("q1", "q2"))
    )
    again = load_frames(saved.frames())
    assert (again.incarnation, again.cluster, again.claim, again.configured) == (4, "c", CLAIM, "b1")
    assert again.instance == ("b2", 9)
    assert again.record is not None
    assert again.offer is not None
    assert (again.record.digest, again.offer.claim.term, again.offer.record.number) == (record("q1").digest, 4, 2)


def test_a_later_frame_holds_and_entries_continue_the_record() -> None:
    entry = record("q1", "q2").entries[1]
    frames = [*Saved(4, "c", CLAIM, "", ("b2", 9), record("q1")).frames(), entry_frame(entry), life_frame(5, "d")]
    again = load_frames([*frames, claim_frame(Leadership(4, "b1", "r"), "b1"), master_frame("b3", 1)])
    assert again.record is not None
    assert (again.record.number, again.record.digest) == (2, record("q1", "q2").digest)
    assert (again.incarnation, again.cluster, again.instance) == (5, "d", ("b3", 1))
    assert (again.claim, again.configured) == (Leadership(4, "b1", "r"), "b1")


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"{",
        b"7",
        b"[]",
        b'["life"]',
        b'["life","1","c"]',
        b'["claim",1,"b1","r"]',
        b'["new",1]',
        b'["record","no backup"]',
        b'["offer",1,"b1","r","no backup"]',
        b'["past",[["queue","q"]]]',
        entry_frame(record("q1").entries[0]),
    ],
)
def test_a_frame_that_cannot_be_used_is_named(frame: bytes) -> None:
    with pytest.raises(StoreDamagedError, match="frame 1 of the configuration record cannot be used"):
        load_frames([life_frame(1, "c"), frame])


def test_an_entry_that_does_not_follow_is_damage() -> None:
    entry = record("q1", "q2").entries[1]
    with pytest.raises(StoreDamagedError, match="frame 2"):
        load_frames([*Saved(record=record()).frames(), entry_frame(entry)])
