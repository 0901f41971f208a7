"""Positions compare logs, and the chain sees every bit."""

from __future__ import annotations

import pytest

from raybroker.replication.positions import BEGINNING, EntryKind, Term, following, intact


def test_the_later_term_is_more_recent_then_the_longer_log() -> None:
    old = following(BEGINNING, Term(1, 0), EntryKind.BATCH, (b"a",))
    longer = following(old.at, Term(1, 0), EntryKind.BATCH, (b"b",))
    later = following(BEGINNING, Term(2, 0), EntryKind.BATCH, (b"a",))
    assert later.at.as_recent_as(longer.at)
    assert not longer.at.as_recent_as(later.at)
    assert longer.at.as_recent_as(old.at)
    assert not old.at.as_recent_as(longer.at)
    assert old.at.as_recent_as(old.at)


@pytest.mark.parametrize(
    "changed",
    [
        lambda entry: entry._replace(body=(b"ax",)),
        lambda entry: entry._replace(kind=EntryKind.MEMBERS),
        lambda entry: entry._replace(at=following(entry.at, Term(1, 1), EntryKind.BATCH, (b"a",)).at),
        lambda entry: following(BEGINNING, Term(1, 2), EntryKind.BATCH, (b"a",))._replace(at=entry.at, body=(b"b",)),
    ],
)
def test_a_changed_entry_does_not_follow(changed: object) -> None:
    entry = following(BEGINNING, Term(1, 1), EntryKind.BATCH, (b"a",))
    assert intact(BEGINNING, entry)
    assert not intact(BEGINNING, changed(entry))  # type: ignore[operator]
    assert not intact(entry.at, entry)


def test_a_body_in_parts_is_the_body() -> None:
    whole = following(BEGINNING, Term(1, 1), EntryKind.BATCH, (b"abc",))
    parts = following(BEGINNING, Term(1, 1), EntryKind.BATCH, (b"a", bytearray(b"b"), memoryview(b"c")))
    assert parts.at == whole.at
    assert parts.nbytes == whole.nbytes == 3
