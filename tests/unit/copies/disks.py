"""Folders of copies for tests: entries as a leader makes them, and journals small enough to have several segments."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from raybroker.copies.copy_folder import CopyFolder, JournalOptions
from raybroker.copies.entry_form import body_of
from raybroker.model.blocks.record import BLOCK, CHECKPOINT, NOTE, LogEntry
from raybroker.replication.positions import BEGINNING, EntryKind, LogPosition, ReplicatedEntry, Term, following
from raybroker.store.fileio import FileIO
from raybroker.store.journal import Journal
from raybroker.store.journal.format import pack_entries

TERM = Term(1, 77)
SEGMENT = 64 << 10


def opened(directory: Path, node: str = "n1", io: FileIO | None = None) -> CopyFolder:
    return CopyFolder(directory, node, JournalOptions(time.monotonic_ns, os.urandom, SEGMENT, io))


def block(ordinal: int, nbytes: int = 100, destination: int = 1) -> LogEntry:
    return LogEntry(BLOCK, destination, ordinal, b"meta%d" % ordinal, (bytes([ordinal % 251]) * nbytes, b"end"))


def note(text: bytes) -> LogEntry:
    return LogEntry(NOTE, 1, 0, text)


def checkpoint(text: bytes) -> LogEntry:
    return LogEntry(CHECKPOINT, 0, 0, text)


class Made:
    """A log as a leader makes it."""

    def __init__(self, last: LogPosition = BEGINNING) -> None:
        self.last = last

    def entry(self, *entries: LogEntry, term: Term = TERM) -> ReplicatedEntry:
        made = following(self.last, term, EntryKind.BATCH, body_of(pack_entries(entries)))
        self.last = made.at
        return made

    def many(self, ordinals: Iterable[int], nbytes: int = 100, term: Term = TERM) -> list[ReplicatedEntry]:
        return [self.entry(block(ordinal, nbytes), term=term) for ordinal in ordinals]


def content(folder: CopyFolder) -> list[tuple[int, int, bytes]]:
    """What a host would find: (destination, ordinal, payload) of blocks, in order."""
    return [
        (destination, ordinal, folder.journal.read(destination, ordinal))
        for destination, ordinals in live(folder.journal).items()
        for ordinal in ordinals
    ]


def live(journal: Journal) -> dict[int, list[int]]:
    """Destination → ordinals of its live blocks."""
    return each_of(journal.live_spans())


def each_of(spans: Mapping[int, Iterable[tuple[int, int]]]) -> dict[int, list[int]]:
    return {key: [number for a, b in found for number in range(a, b + 1)] for key, found in spans.items()}
