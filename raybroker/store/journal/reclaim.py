"""Reclaiming space: removing dead segments, and copying the survivors out of sparse ones.

A segment can go when it is sealed, older than the segment of the last checkpoint (so that no note in it counts), and
all of its blocks were freed before that checkpoint: so recovery gives back every block that the checkpoint speaks of,
and what a later note did to it.

When the log takes more than twice what its live blocks would, plus a few segments, the sparsest segment's survivors are
appended again, flagged as copies, and the segment is then dead.  A copy carries the same destination and ordinal, so
that recovery gives the block back once; that it was freed meanwhile is known from the notes and checkpoints, which a
copy does not change.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from raybroker.model.blocks.record import BLOCK, LogEntry
from raybroker.model.errors import StoreDamagedError, StoreFullError
from raybroker.store.journal.format import OWN_FILE, RELOCATED, pack_entries, with_flag
from raybroker.store.journal.log import LogWriter
from raybroker.store.journal.recovery import Index, JournalRecovery
from raybroker.store.journal.reserve import Use
from raybroker.store.journal.segment import Segment, SegmentFiles
from raybroker.store.locations import location

SLACK_SEGMENTS: Final = 4
"""Segments beyond twice the live data before anything is copied: copying a little garbage away is not worth it."""

COMPACT_FILL: Final = 0.75
"""An administrator's compaction copies the survivors of segments that are filled less than that with live blocks."""

_COPY_BATCH_BYTES: Final = 1 << 20

_Block = tuple[int, int, int, int, int, bytes, int]


@dataclass(frozen=True, slots=True)
class LastCheckpoint:
    """The segment of the last checkpoint, and the number of the first entry of its batch; 0 if not known."""

    segment: int
    seq: int = 0


def dead_segments(segments: Iterable[Segment], checkpoint: LastCheckpoint) -> list[Segment]:
    """Segments without anything that is still needed."""
    return [
        s
        for s in segments
        if s.sealed and s.number < checkpoint.segment and not s.live_blocks and s.freed_seq <= checkpoint.seq
    ]


def sparsest_segment(segments: Iterable[Segment], checkpoint: LastCheckpoint, segment_bytes: int) -> Segment | None:
    """The segment whose survivors should be copied next, or None if the log is compact enough."""
    every = list(segments)
    total = sum(s.size_bytes for s in every)
    live = sum(s.compacted_bytes() for s in every)
    if total <= 2 * live + SLACK_SEGMENTS * segment_bytes:
        return None
    movable = [
        s
        for s in every
        if s.sealed
        and s.number < checkpoint.segment
        and s.live_blocks
        and not s.stuck
        and s.compacted_bytes() * 2 < s.size_bytes
    ]
    return min(movable, key=lambda s: s.compacted_bytes() / s.size_bytes, default=None)


def compactable_segment(segments: Iterable[Segment], checkpoint: LastCheckpoint, before: int) -> Segment | None:
    """The sparsest segment numbered below ``before`` that is worth copying when an administrator asks for it."""
    movable = [
        s
        for s in segments
        if s.sealed
        and s.number < min(before, checkpoint.segment)
        and s.live_blocks
        and not s.stuck
        and s.compacted_bytes() < COMPACT_FILL * s.data_end
    ]
    return min(movable, key=lambda s: s.compacted_bytes() / s.data_end, default=None)


class Reclaimer:
    """Frees space in small steps, in the committing thread; ``lock`` guards ``index`` and the segments' counts."""

    def __init__(
        self,
        log: LogWriter,
        files: SegmentFiles,
        reader: JournalRecovery,
        index: Index,
        lock: threading.Lock,
        segment_bytes: int,
    ) -> None:
        self._log = log
        self._files = files
        self._reader = reader
        self._index = index
        self._lock = lock
        self._segment_bytes = segment_bytes
        self._source: Segment | None = None
        self._blocks: Iterator[_Block] = iter(())
        self.compact_before = 0
        """Segments numbered lower are to be compacted, since an administrator asked for it; 0: none asked."""
        self.held = False
        """Nothing goes and nothing moves: the last checkpoint may be cut off again, or the files are being copied."""
        self.moved_seq = 0
        """The log ended here when survivors were copied last."""

    def step(self, checkpoint: LastCheckpoint, budget_bytes: int) -> bool:
        """Retire what is dead and copy at most ``budget_bytes`` (but at least one block); True if more is to do."""
        if self.held:
            return False
        self.retire(checkpoint)
        if self._source is None:
            with self._lock:
                segments = list(self._log.segments.values())
                self._source = sparsest_segment(segments, checkpoint, self._segment_bytes)
                if self._source is None and self.compact_before:
                    self._source = compactable_segment(segments, checkpoint, self.compact_before)
            if self._source is None:
                if self.compact_before:
                    self._log.calm()
                    self.compact_before = 0
                return False
            self._blocks = self._reader.summary(self._source)
        try:
            done = self._copy(self._source, budget_bytes)
        except StoreFullError:
            self.compact_before = 0
            return False
        except OSError as error:
            raise self._log.died(error) from error
        if done:
            self._source.stuck = self._source.live_blocks > 0
            self._source = None
            self.retire(checkpoint)
        return True

    def retire(self, checkpoint: LastCheckpoint) -> bool:
        """Take dead segments out of the log; true when there were any."""
        if self.held:
            return False
        with self._lock:
            dead = dead_segments(self._log.segments.values(), checkpoint)
            dead = [s for s in dead if s is not self._source and not self._files.pinned(s.slot)]
        if dead:
            self._log.retire(dead)
        return bool(dead)

    def _copy(self, source: Segment, budget_bytes: int) -> bool:
        """Append survivors of ``source`` until the budget is used up; True when there are none left."""
        copied = 0
        while copied < budget_bytes:
            rows, nbytes, done = self._survivors(source, min(_COPY_BATCH_BYTES, budget_bytes - copied))
            if rows:
                self._append(source, rows)
            if done:
                return True
            copied += nbytes
        return False

    def _survivors(self, source: Segment, limit_bytes: int) -> tuple[list[tuple[_Block, bytes]], int, bool]:
        """The next live blocks with their verified payloads, their size, and whether they are the last."""
        found: list[tuple[_Block, bytes]] = []
        nbytes = 0
        for block in self._blocks:
            ordinal, destination, offset, size, crc, _, _ = block
            known = self._index.get(destination)
            if known is None or known.get(ordinal) != location(source.number, offset, size, crc):
                continue
            try:
                payload = self._reader.payload(source, destination, ordinal, offset, size, crc)
            except StoreDamagedError:
                continue  # it stays where it is, named whenever it is read, and its segment with it
            found.append((block, payload))
            nbytes += size
            if nbytes >= limit_bytes:
                return found, nbytes, False
        return found, nbytes, True

    def _append(self, source: Segment, rows: list[tuple[_Block, bytes]]) -> None:
        entries = [LogEntry(BLOCK, row[1], row[0], row[5], (payload,)) for row, payload in rows]
        packed = pack_entries(entries, RELOCATED)
        references = [at for at, (row, _) in enumerate(rows) if row[6] & OWN_FILE]
        if references:
            packed = with_flag(packed, references, references, OWN_FILE)
        try:
            segment, base = self._log.append(packed, Use.BLOCKS)
        except StoreFullError:
            self._source = None
            raise
        self.moved_seq = segment.next_seq
        with self._lock:
            for (ordinal, destination, offset, size, crc, _, _), block in zip(
                [row for row, _ in rows], packed.blocks, strict=True
            ):
                known = self._index.get(destination)
                if known is None or known.get(ordinal) != location(source.number, offset, size, crc):
                    continue  # freed while it was being copied
                known[ordinal] = location(segment.number, base + block.offset, size, crc)
                source.live_blocks -= 1
                source.live_bytes -= size
                segment.live_blocks += 1
                segment.live_bytes += size
