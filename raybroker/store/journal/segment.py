"""Segments, and the pool of files that they are in.

Files are allocated before they are used and used again when their segment is dead: a sync after overwriting blocks that
were written before costs about two thirds of one into fresh allocations, because the file system has no metadata to
write.  A few more allocated files are the *reserve*, see ``reserve``: when the disk is full, producers are refused and
consumers go on.

``reclaim`` decides which segment is dead, ``log`` when to start a new one.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from raybroker.model.errors import StoreFullError
from raybroker.store.journal.anchors import SegmentRecord
from raybroker.store.journal.fileio import FileIO, read_exact, write_all
from raybroker.store.journal.format import (
    ROW_BYTES,
    SECTOR_BYTES,
    BlockRow,
    Packed,
    SummaryWriter,
    padded,
)
from raybroker.store.journal.reserve import FULL_ERRNOS, RESERVE_FILES, Use

SEGMENT_PREFIX: Final = "segment-"
FREE_FILES_MADE: Final = 1
"""Free files made in advance."""
FREE_FILES_KEPT: Final = 6
"""Free files kept for reuse; more than that is given back to the file system.  A file that was written before is the
cheapest to write again: while a queue's length goes up and down by a few segments none has to be made or removed."""

OPEN_FILES_MAX: Final = 128
"""Descriptors kept for reading and writing: half a GiB of them would not help, and a process has 1,024."""


@dataclass(slots=True)
class Segment:
    """One segment of the log.  ``data_end`` is where its next batch goes, always a whole sector.

    ``live_blocks`` and ``live_bytes`` count blocks (and their payloads) not freed yet; ``freed_seq`` is where the log
    ended when one was freed last; ``stuck`` means that a survivor cannot be read, so that the segment is kept as it is
    for whoever repairs it.
    """

    number: int
    slot: int
    size_bytes: int
    first_seq: int
    first_chain: int
    next_seq: int
    chain: int
    data_end: int = SECTOR_BYTES
    sealed: bool = False
    checkpoint_offset: int = 0
    summary_offset: int = 0
    summary_bytes: int = 0
    summary_crc: int = 0
    blocks: int = 0
    live_blocks: int = 0
    live_bytes: int = 0
    freed_seq: int = 0
    stuck: bool = False
    summary: SummaryWriter = field(default_factory=SummaryWriter)

    @staticmethod
    def started(number: int, slot: int, size_bytes: int, first_seq: int, chain: int) -> Segment:
        """An empty segment."""
        return Segment(number, slot, size_bytes, first_seq, chain, first_seq, chain)

    @staticmethod
    def of_record(record: SegmentRecord) -> Segment:
        """A segment from its row in the manifest."""
        segment = Segment.started(record.number, record.slot, record.size_bytes, record.first_seq, record.chain)
        if record.sealed:
            segment.sealed = True
            segment.next_seq = record.end_seq
            segment.chain = record.end_chain
            segment.data_end = record.data_end
            segment.checkpoint_offset = record.checkpoint_offset
            segment.summary_offset = record.summary_offset
            segment.summary_bytes = record.summary_bytes
            segment.summary_crc = record.summary_crc
            segment.blocks = record.blocks
        return segment

    def record(self) -> SegmentRecord:
        """The row of this segment for the manifest."""
        start = SegmentRecord(self.number, self.slot, self.size_bytes, self.first_seq, self.first_chain)
        if not self.sealed:
            return start
        return SegmentRecord(
            self.number,
            self.slot,
            self.size_bytes,
            self.first_seq,
            self.first_chain,
            True,
            self.next_seq,
            self.chain,
            self.data_end,
            self.checkpoint_offset,
            self.summary_offset,
            self.summary_bytes,
            self.summary_crc,
            self.blocks,
        )

    def note_block(self, block: BlockRow, base_offset: int) -> None:
        """Take a block into the summary to be written; its offset counts from ``base_offset``."""
        self.summary_bytes += self.summary.add(block, base_offset)
        self.blocks += 1

    def compacted_bytes(self) -> int:
        """About what the live blocks would take if they were written together."""
        if not self.live_blocks:
            return 0
        return self.live_bytes + self.live_blocks * (ROW_BYTES + self.summary_bytes // max(self.blocks, 1))


def size_for(packed: Packed) -> int:
    """Size of a segment that holds just this batch, its header and its summary."""
    return padded(SECTOR_BYTES + packed.nbytes + packed.summary_bytes)


def segment_name(slot: int) -> str:
    """The file name of a slot."""
    return f"{SEGMENT_PREFIX}{slot:06d}"


def slot_of(name: str) -> int | None:
    """The slot of a segment file's name, or None for other files."""
    digits = name.removeprefix(SEGMENT_PREFIX)
    if digits == name or not digits.isdecimal() or name != segment_name(int(digits)):
        return None
    return int(digits)


class SegmentFiles:
    """The segment files of a directory, by slot number; which are free and which are open.

    ``take``, ``give_back`` and ``prepare`` belong to the committing thread; ``pin`` and ``unpin`` to any.
    """

    def __init__(self, io: FileIO, directory: Path, segment_bytes: int, reserve_bytes: int = 0) -> None:
        self._io = io
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._lock = threading.Lock()
        self._open: dict[int, int] = {}
        self._pins: dict[int, int] = {}
        self._slots: dict[int, int] = {}
        self._zeroed: dict[int, int] = {}
        self.free: list[int] = []
        self.reserve: list[int] = []
        self.reserve_bytes = reserve_bytes
        """Wanted size of a file of the reserve; smaller files are kept while there is no room for that."""
        self._reserve_least = reserve_bytes

    def path(self, slot: int) -> Path:
        return self._directory / segment_name(slot)

    def other(self, name: str) -> bytes | None:
        """What is in another file of the directory; None when there is none of that name."""
        try:
            fd = self._io.open(self._directory / name, write=False)
        except FileNotFoundError:
            return None
        try:
            return read_exact(self._io, fd, self._io.size(fd), 0)
        finally:
            self._io.close(fd)

    def discover(self) -> dict[int, int]:
        """slot → size of every segment file there is."""
        for name in self._io.names(self._directory):
            slot = slot_of(name)
            if slot is not None:
                fd = self.pin(slot)
                self._slots[slot] = self._io.size(fd)
                self.unpin(slot)
        return dict(self._slots)

    def sort_out(self, used: set[int]) -> None:
        """Keep some of the files that no segment uses, the reserve first, and remove the others."""
        sizes = self._slots
        spare = [slot for slot in sizes if slot not in used]
        for slot in sorted(spare, key=lambda slot: (sizes[slot] == self._segment_bytes, -sizes[slot])):
            self.give_back(slot)

    def take(self, nbytes: int, use: Use) -> int:
        """A file for a segment of at least ``nbytes``, allocated on the disk.

        A free file, else a new one, else one of the reserve as far as ``use`` may; StoreFullError if none is left.
        """
        if nbytes <= self._segment_bytes and self.free:
            return self._pop_free()
        while True:
            try:
                return self._create(max(nbytes, self._segment_bytes))
            except OSError as error:
                if error.errno not in FULL_ERRNOS:
                    raise
                if self.free:  # They are too small; their space may do.
                    self._remove(self._pop_free())
                    continue
                fitting = [slot for slot in self.reserve if self._slots[slot] >= nbytes]
                if fitting and len(self.reserve) > use.leaves:
                    slot = min(fitting, key=self._slots.__getitem__)
                    self.reserve.remove(slot)
                    return slot
                raise StoreFullError(
                    f"no room for another segment of {nbytes} bytes in {self._directory}"
                ) from error

    def give_back(self, slot: int) -> None:
        """The file's segment is durably out of the manifest: keep the file for later, or remove it."""
        size = self._slots[slot]
        if len(self.reserve) < RESERVE_FILES and size >= self._reserve_least:
            self.reserve.append(slot)
            return
        smallest = min(self.reserve, key=self._slots.__getitem__, default=slot)
        if self._slots[smallest] < min(size, self.reserve_bytes):
            self.reserve[self.reserve.index(smallest)] = slot
            slot, size = smallest, self._slots[smallest]
        if size == self._segment_bytes and len(self.free) < FREE_FILES_KEPT:
            self.free.append(slot)
            return
        self._remove(slot)

    def _remove(self, slot: int) -> None:
        with self._lock:
            fd = self._open.pop(slot, -1)
        if fd >= 0:
            self._io.close(fd)
        del self._slots[slot]
        self._io.unlink(self.path(slot))

    def size(self, slot: int) -> int:
        return self._slots[slot]

    def fill_reserve(self) -> bool:
        """Have ``RESERVE_FILES`` files of ``reserve_bytes`` in the reserve; False if there is no room for that.

        Free files go when their space is needed for it.
        """
        while True:
            try:
                for slot in self.reserve:
                    if self._slots[slot] < self.reserve_bytes:
                        self._grow(slot)
                while len(self.reserve) < RESERVE_FILES:
                    self.reserve.append(self._create(self.reserve_bytes))
            except OSError as error:
                if error.errno not in FULL_ERRNOS:
                    raise
                if not self.free:
                    return False
                self._remove(self._pop_free())
            else:
                return True

    def _grow(self, slot: int) -> None:
        fd = self.pin(slot)
        try:
            self._io.fallocate(fd, self.reserve_bytes)
        finally:  # Also when it failed: part of it may have been allocated.
            self._slots[slot] = self._io.size(fd)
            self.unpin(slot)

    def shrink_reserve(self, most_bytes: int) -> None:
        """Remove files of the reserve that are larger than that."""
        for slot in [slot for slot in self.reserve if self._slots[slot] > most_bytes]:
            self.reserve.remove(slot)
            self._remove(slot)

    def trim(self) -> bool:
        """Remove free files but those that are made in advance; true when there were any."""
        extra = self.free[: max(len(self.free) - FREE_FILES_MADE, 0)]
        for slot in extra:
            self.free.remove(slot)
            self._zeroed.pop(slot, None)
            self._remove(slot)
        return bool(extra)

    def missing_bytes(self, wanted: int) -> int:
        """Bytes that the reserve lacks for ``RESERVE_FILES`` files of ``wanted`` bytes."""
        slots, reserve = self._slots, tuple(self.reserve)
        missing = (RESERVE_FILES - len(reserve)) * wanted
        for slot in reserve:
            nbytes = slots.get(slot, 0)
            if nbytes < wanted:
                missing += wanted - nbytes
        return missing

    def prepare(self, budget_bytes: int) -> bool:
        """Get the next free file ready, writing at most ``budget_bytes``; True if more is to do.

        Filling it with zeros once, while nobody waits, makes the syncs of its first life as cheap as later ones.
        """
        if len(self.free) < FREE_FILES_MADE:
            try:
                slot = self._create(self._segment_bytes)
            except OSError as error:
                if error.errno in FULL_ERRNOS:
                    return False
                raise
            self.free.insert(0, slot)
            self._zeroed[slot] = 0
        for slot in self.free:
            done = self._zeroed.get(slot)
            if done is not None:
                part = min(budget_bytes, self._segment_bytes - done)
                fd = self.pin(slot)
                write_all(self._io, fd, [bytes(part)], done)
                self._io.fdatasync(fd)
                self.unpin(slot)
                self._zeroed[slot] = done + part
                if done + part == self._segment_bytes:
                    del self._zeroed[slot]
                return bool(self._zeroed) or len(self.free) < FREE_FILES_MADE
        return False

    def reserved_bytes(self) -> int:
        return sum(list(self._slots.values()))

    def pin(self, slot: int) -> int:
        """A descriptor that stays open until ``unpin``."""
        with self._lock:
            self._pins[slot] = self._pins.get(slot, 0) + 1
            fd = self._open.get(slot, -1)
            if fd < 0:
                try:
                    fd = self._io.open(self.path(slot))
                except OSError:
                    self._unpin(slot)
                    raise
                self._evict()
                self._open[slot] = fd
            return fd

    def unpin(self, slot: int) -> None:
        with self._lock:
            self._unpin(slot)

    def pinned(self, slot: int) -> bool:
        with self._lock:
            return slot in self._pins

    def close(self) -> None:
        with self._lock:
            while self._open:
                self._io.close(self._open.popitem()[1])

    def _unpin(self, slot: int) -> None:
        left = self._pins[slot] - 1
        if left:
            self._pins[slot] = left
        else:
            del self._pins[slot]

    def _evict(self) -> None:
        if len(self._open) >= OPEN_FILES_MAX:
            for slot in self._open:
                if slot not in self._pins:
                    self._io.close(self._open.pop(slot))
                    return

    def _pop_free(self) -> int:
        slot = self.free.pop()
        self._zeroed.pop(slot, None)
        return slot

    def _create(self, size_bytes: int) -> int:
        slot = max(self._slots, default=0) + 1
        path = self.path(slot)
        fd = self._io.create(path)
        try:
            self._io.fallocate(fd, size_bytes)
            self._io.fsync_dir(self._directory)
        except OSError:
            self._io.close(fd)
            self._io.unlink(path)
            raise
        with self._lock:
            self._evict()
            self._open[slot] = fd
        self._slots[slot] = size_bytes
        return slot
