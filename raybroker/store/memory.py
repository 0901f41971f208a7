"""The memory store: the journal's twin without files, for tests, the simulator and the loopback.

It is exact about everything else in the contract: batches are atomic, a checkpoint
supersedes the notes before it, a block lives until it is freed, ``recover`` gives entries back in the same order as the
journal does.  ``crash`` is the simulator's power cut: a new store that holds what was committed and nothing more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence

from raybroker.model.blocks.record import (
    BLOCK,
    CHECKPOINT,
    NOTE,
    NOTE_BYTES_MAX,
    EntryRun,
    LogEntry,
    StoreStats,
    in_runs,
)
from raybroker.model.errors import StoreError


class MemoryStore:
    """The Store contract without a disk.

    ``fail_next_commit`` is the simulator's broken disk: the next commit raises StoreError and the store is dead, just
    as a journal whose sync failed; ``crash()`` still gives back what had been committed before.
    """

    def __init__(self, log: Iterable[LogEntry] = ()) -> None:
        self._log: list[LogEntry] = list(log)
        self._blocks: dict[tuple[int, int], bytes] = {}
        self._lock = threading.Lock()
        self._recovered = False
        self._dead: str | None = None
        self._fresh_notes = 0
        self._freed: set[tuple[int, int]] = set()
        self._commits = 0
        self.fail_next_commit: str | None = None
        self.checkpoint_after_entries = 10_000

    def recover(self) -> Iterator[LogEntry]:
        """The last checkpoint, the blocks before it, then blocks and notes after it; payloads are left out."""
        self._check()
        assert not self._recovered, "recover() is called once, before anything else"
        cut = max((i for i, e in enumerate(self._log) if e.kind == CHECKPOINT), default=-1)
        found: list[LogEntry] = [] if cut < 0 else [self._log[cut]]
        found += [e for e in self._log[: cut + 1] if e.kind == BLOCK]
        found += self._log[cut + 1 :]
        for entry in found:
            if entry.kind == BLOCK:
                self._blocks[entry.destination, entry.ordinal] = b"".join(entry.payload)
        self._fresh_notes = len(self._log) - cut - 1
        for entry in found:
            yield LogEntry(entry.kind, entry.destination, entry.ordinal, entry.meta)
        self._recovered = True

    def recover_runs(self) -> Iterator[LogEntry | EntryRun]:
        """Do what :meth:`recover` does, in its place, with blocks that follow each other together."""
        return in_runs(self.recover())

    def commit(self, entries: Sequence[LogEntry]) -> None:
        """Append one batch; it is as durable as this process."""
        self._check()
        assert self._recovered, "recover() comes first"
        if self.fail_next_commit is not None:
            self._dead = self.fail_next_commit
            self._check()
        kept = [_frozen(entry) for entry in entries]
        with self._lock:
            for entry in kept:
                if entry.kind == BLOCK:
                    key = entry.destination, entry.ordinal
                    assert key not in self._blocks, f"block {key} is stored already"
                    self._blocks[key] = entry.payload[0]  # type: ignore[assignment]  # _frozen made it bytes
            self._log.extend(kept)
            self._commits += 1
            self._fresh_notes += len(kept)
            if any(entry.kind == CHECKPOINT for entry in kept):
                self._fresh_notes = 0
                self._freed.clear()

    def read(self, destination: int, ordinal: int) -> bytes:
        """The payload of a live block; KeyError if it was never stored or is freed."""
        self._check()
        return self._blocks[destination, ordinal]

    def salvage(self, destination: int, ordinal: int) -> bytes:
        """The payload of a live block; KeyError if it was never stored or is freed."""
        return self.read(destination, ordinal)

    def free(self, destination: int, ordinals: Iterable[int]) -> None:
        """Mark blocks as dead; freeing one twice is harmless."""
        self._check()
        with self._lock:
            for ordinal in ordinals:
                if self._blocks.pop((destination, ordinal), None) is not None:
                    self._freed.add((destination, ordinal))

    def checkpoint_due(self) -> bool:
        return self._fresh_notes >= self.checkpoint_after_entries

    def checkpoint_helps(self) -> bool:
        """False: what is dead is no longer in memory."""
        return False

    def tidy_helps(self) -> bool:
        return False

    def maintain(self, budget_bytes: int) -> bool:
        """Drop superseded notes, and blocks that were freed before the last checkpoint."""
        self._check()
        with self._lock:
            cut = max((i for i, e in enumerate(self._log) if e.kind == CHECKPOINT), default=-1)
            kept = self._blocks.keys() | self._freed
            old = [e for e in self._log[: max(cut, 0)] if e.kind == BLOCK]
            self._log[: max(cut, 0)] = [e for e in old if (e.destination, e.ordinal) in kept]
        return False

    def compact(self) -> None:
        """Nothing to do: freed payloads are gone at once."""

    @property
    def compacting(self) -> bool:
        return False

    def usage(self) -> dict[int, tuple[int, int]]:
        """Destination → (live blocks, bytes of their payloads)."""
        found: dict[int, tuple[int, int]] = {}
        with self._lock:
            for (destination, _), payload in self._blocks.items():
                blocks, nbytes = found.get(destination, (0, 0))
                found[destination] = blocks + 1, nbytes + len(payload)
        return found

    def plain_because(self) -> str:
        return ""

    def has_room(self, nbytes: int) -> bool:
        """True: this store does not limit its memory."""
        return True

    def stats(self) -> StoreStats:
        live = sum(map(len, list(self._blocks.values())))
        return StoreStats(reserved_bytes=live, used_bytes=live, live_bytes=live, commits=self._commits)

    def close(self) -> None:
        self._dead = self._dead or "the store is closed"

    def crash(self) -> MemoryStore:
        """A new store, not yet recovered, holding exactly what was committed here; this one is dead from now on.

        Blocks that were freed and not yet reclaimed by ``maintain`` come back, as they do from files.
        """
        self._dead = "the store crashed"
        twin = MemoryStore(self._log)
        twin.checkpoint_after_entries = self.checkpoint_after_entries
        return twin

    def _check(self) -> None:
        if self._dead is not None:
            raise StoreError(self._dead)


def _frozen(entry: LogEntry) -> LogEntry:
    """A copy whose payload no caller can change any more."""
    assert entry.kind in (BLOCK, NOTE, CHECKPOINT), entry.kind
    assert entry.kind == BLOCK or (not entry.payload and entry.ordinal == 0), "only blocks have ordinal and payload"
    assert entry.kind != NOTE or len(entry.meta) <= NOTE_BYTES_MAX, "a note is small"
    payload = (b"".join(entry.payload),) if entry.kind == BLOCK else ()
    return LogEntry(entry.kind, entry.destination, entry.ordinal, bytes(entry.meta), payload)
