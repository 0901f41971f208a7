"""A journal that is read in runs gives back, and indexes, what it does when it is read block by block."""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybroker.model.blocks.record import BLOCK, CHECKPOINT, NOTE, EntryRun, LogEntry
from raybroker.store.journal import Journal
from raybroker.store.journal.segment import Segment
from tests.store_faults.script import UnsyncedIO, abandon, open_journal


def write(journal: Journal, rng: Random, steps: int, metas: tuple[int, ...]) -> None:
    """Blocks of three destinations, some freed soon, some never, with notes, checkpoints and survivors that move."""
    list(journal.recover())
    nexts, live = {1: 1, 2: 5_000, 3: 2**32 - 30}, list[tuple[int, int]]()
    for step in range(steps):
        entries = []
        for _ in range(rng.choice((1, 1, 5, 40))):
            destination = rng.choice((1, 1, 1, 2, 3)) if step % 3 else 1
            ordinal = nexts[destination]
            nexts[destination] += rng.choice((1,) * 30 + (7,))
            live.append((destination, ordinal))
            body = bytes([ordinal & 0xFF]) * rng.choice((0, 60, 300) * 9 + (6_000,))
            entries.append(LogEntry(BLOCK, destination, ordinal, bytes([ordinal % 251]) * rng.choice(metas), (body,)))
            if rng.random() < 0.02:
                entries.append(LogEntry(NOTE, destination, 0, b"note %d" % ordinal))
        journal.commit(entries)
        freed = [key for key in live if rng.random() < rng.choice((0, 0, 0.3, 0.9))]
        for destination, ordinal in freed:
            journal.free(destination, [ordinal])
        live = [key for key in live if key not in set(freed)]
        if journal.checkpoint_due() or rng.random() < 0.01:
            journal.commit([LogEntry(NOTE, 1, 0, b"before"), LogEntry(CHECKPOINT, 0, 0, b"state %d" % step)])
        journal.maintain(rng.choice((1, 20_000)))


def read(directory: Path, *, runs: bool) -> tuple[dict[int, list[LogEntry]], Any, int]:
    """What a journal gives back by destination, what it knows then, and how many runs there were."""
    journal = open_journal(directory, UnsyncedIO())
    found: dict[int, list[LogEntry]] = {}
    count = 0
    for entry in journal.recover_runs() if runs else journal.recover():
        if isinstance(entry, EntryRun):
            count += 1
            found.setdefault(entry.destination, []).extend(entry.entries())
        else:
            found.setdefault(entry.destination, []).append(entry)
    known = {
        destination: [(o, locations[o]) for a, b in locations.spans() for o in range(a, b + 1)]
        for destination, locations in journal._index.items()
    }
    segments: list[Segment] = list(journal._log.segments.values())
    totals = [(segment.number, segment.live_blocks, segment.live_bytes) for segment in segments]
    due = journal._bytes_since_checkpoint, journal._estimate.reserve_bytes()
    own = dict(journal._own._references)
    for destination, rows in known.items():
        for ordinal, _ in rows[:: max(len(rows) // 20, 1)]:
            if (destination, ordinal) not in own:  # A file of its own may be another's by now: some of these are freed.
                assert journal.read(destination, ordinal).strip(bytes([ordinal & 0xFF])) == b""
    abandon(journal)
    return found, (known, totals, due, own), count


def split(entries: list[LogEntry]) -> tuple[list[LogEntry], list[LogEntry]]:
    """Blocks that stand before the first note, whose order says nothing, by ordinal; and the rest."""
    at = next((i for i, entry in enumerate(entries) if entry.kind != BLOCK), len(entries))
    return sorted(entries[:at]), entries[at:]


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(1, 120), st.sampled_from(((26,), (26, 26, 26, 35), (0, 26))))
def test_runs_are_what_single_entries_are(seed: int, steps: int, metas: tuple[int, ...]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        journal = open_journal(path, UnsyncedIO())
        write(journal, Random(seed), steps, metas)
        abandon(journal)
        single, known, none = read(path, runs=False)
        together, known_too, count = read(path, runs=True)
    assert none == 0
    assert known == known_too
    assert single.keys() == together.keys()
    for destination, entries in single.items():
        assert split(together[destination]) == split(entries)
    assert count or sum(map(len, single.values())) < 50


def test_a_damaged_summary_is_read_in_runs_from_its_batches(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "store", UnsyncedIO())
    list(journal.recover())
    for first in range(1, 400, 20):
        journal.commit([LogEntry(BLOCK, 1, ordinal, b"m" * 26, (bytes(100),)) for ordinal in range(first, first + 20)])
    journal.commit([LogEntry(CHECKPOINT, 0, 0, b"state")])
    sealed = next(segment for segment in journal._log.segments.values() if segment.sealed)
    path = journal._files.path(sealed.slot)
    abandon(journal)
    with path.open("r+b") as file:
        file.seek(sealed.summary_offset)
        file.write(b"\xff")
    again = open_journal(tmp_path / "store", UnsyncedIO())
    found = list(again.recover_runs())
    assert isinstance(found[1], EntryRun)
    assert sum(run.blocks for run in found if isinstance(run, EntryRun)) == 400
    assert any("summary is damaged" in notice for notice in again.notices())
    again.close()


def test_a_store_is_recovered_once(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "store", UnsyncedIO())
    list(journal.recover_runs())
    with pytest.raises(AssertionError, match="recovered once"):
        next(journal.recover_runs())
    journal.close()
