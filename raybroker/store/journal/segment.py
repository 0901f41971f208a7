"""Segments, and the pool of files that they are in.

Files are allocated before they are used and used again when their segment is dead: a sync after overwriting blocks that
were written before costs about two thirds of one into fresh allocations, because the file system has no metadata to
write.  A few more allocated files are the *reserve*, see ``reserve``: when the disk is full, producers are refused and
consumers go on.

A file has its full length from the beginning, and keeps it while the manifest names it.  What has a place on the disk
is its *room*, from its start to some end: more is allocated before it is written, and what is behind the last byte of
meaning may be given back at any time, which leaves zeros there.  Neither needs to be ordered against anything: these
bytes are of no meaning in any image of the disk.  ``sizing`` says how much room there should be.

``reclaim`` decides which segment is dead, ``log`` when to start a new one.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from raybroker.model.errors import StoreFullError
from raybroker.store.fileio import FileIO, RoomIO, read_whole, write_all
from raybroker.store.journal.anchors import SegmentRecord
from raybroker.store.journal.format import (
    ROW_BYTES,
    SECTOR_BYTES,
    JournalBlockRow,
    Packed,
    SummaryWriter,
    padded,
)
from raybroker.store.journal.read_ahead import ReadAhead
from raybroker.store.journal.reserve import FULL_ERRNOS, RESERVE_FILES, Use

SEGMENT_PREFIX: Final = "segment-"
FREE_FILES_KEPT: Final = 6
"""Free files kept for reuse; more than that is given back to the file system.  A file that was written before is the
cheapest to write again: while a queue's length goes up and down by a few segments none has to be made or removed."""

OPEN_FILES_MAX: Final = 128
"""Descriptors kept for reading and writing: half a GiB of them would not help, and a process has 1,024."""


@dataclass(slots=True)
class Segment:
    """One segment of the log.  ``data_end`` is where its next batch goes, always a whole sector; ``room_end`` is how
    far its file is allocated.

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
    room_end: int = 0
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

    @property
    def used_end(self) -> int:
        """Return where what it holds ends, with its summary, also if that is not written yet."""
        return padded(self.data_end + self.summary_bytes)

    def note_block(self, block: JournalBlockRow, base_offset: int) -> None:
        """Take a block into the summary to be written; its offset counts from ``base_offset``."""
        self.summary_bytes += self.summary.add(block, base_offset)
        self.blocks += 1

    def compacted_bytes(self) -> int:
        """Return about what the live blocks would take if they were written together."""
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

    ``pin`` and ``unpin`` are for any thread; the rest belongs to the committing one.
    """

    def __init__(self, io: FileIO, directory: Path, segment_bytes: int, reserve_bytes: int = 0) -> None:
        self._io = io
        self._room_io: RoomIO = io
        self._ahead = ReadAhead()
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._lock = threading.Lock()
        self._open: dict[int, int] = {}
        self._pins: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._rooms: dict[int, int] = {}
        """How far each file is allocated: never further than it is long."""
        self.can_punch = True
        """False once the file system has said that it cannot give back a part of a file."""
        self.free: list[int] = []
        self.reserve: list[int] = []
        self.reserve_bytes = reserve_bytes
        """Wanted size of a file of the reserve; smaller files are kept while there is no room for that."""
        self._reserve_least = reserve_bytes
        self._short = False
        """The disk had not the room that was asked for last."""

    def path(self, slot: int) -> Path:
        return self._directory / segment_name(slot)

    def other(self, name: str) -> bytes | None:
        """What is in another file of the directory; None when there is none of that name."""
        try:
            return read_whole(self._io, self._directory / name)
        except FileNotFoundError:
            return None

    def discover(self) -> dict[int, int]:
        """slot → size of every segment file there is."""
        for name in self._io.names(self._directory):
            slot = slot_of(name)
            if slot is not None:
                fd = self.pin(slot)
                self._sizes[slot] = self._io.size(fd)
                self._rooms[slot] = min(self._room_io.allocated(fd), self._sizes[slot])
                self.unpin(slot)
        return dict(self._sizes)

    def sort_out(self, used: set[int]) -> None:
        """Keep some of the files that no segment uses, the reserve first, and remove the others: also those of which
        nobody knows how far they are allocated."""
        sizes = self._sizes
        spare = [slot for slot in sizes if slot not in used]
        for slot in sorted(spare, key=lambda slot: (sizes[slot] == self._segment_bytes, -sizes[slot])):
            if sizes[slot] and self._rooms[slot] == sizes[slot] and self.extend(slot, sizes[slot]):
                self.give_back(slot)
            else:
                self._remove(slot)

    def take_file(self, nbytes: int, use: Use, step_bytes: int) -> int:
        """A file for a segment with at least ``nbytes`` of room, and a step of it where that can be had.

        A free file, else a new one, else one of the reserve as far as ``use`` may; StoreFullError if none is left.
        """
        room = max(nbytes, min(step_bytes, self._segment_bytes))
        while True:
            if nbytes <= self._segment_bytes and self.free:
                slot = self.free.pop()
                if self.extend(slot, nbytes):
                    return slot
                self._remove(slot)
                continue
            try:
                return self._create(max(nbytes, self._segment_bytes), room)
            except OSError as error:
                if error.errno not in FULL_ERRNOS:
                    raise
                if self.free:  # They are too small; their space may do.
                    self._remove(self.free.pop())
                    continue
                if room > nbytes:
                    room = nbytes
                    continue
                fitting = [slot for slot in self.reserve if self._rooms[slot] >= nbytes]
                if fitting and len(self.reserve) > use.leaves:
                    slot = min(fitting, key=self._rooms.__getitem__)
                    self.reserve.remove(slot)
                    return slot
                raise StoreFullError(f"no room for another segment of {nbytes} bytes in {self._directory}") from error

    def give_back(self, slot: int) -> None:
        """The file's segment is durably out of the manifest: keep the file for later, or remove it."""
        room = self._rooms[slot]
        if len(self.reserve) < RESERVE_FILES and room >= self._reserve_least:
            self.reserve.append(slot)
            return
        smallest = min(self.reserve, key=self._rooms.__getitem__, default=slot)
        if self._rooms[smallest] < min(room, self.reserve_bytes):
            self.reserve[self.reserve.index(smallest)] = slot
            slot = smallest
        if self._sizes[slot] == self._segment_bytes and len(self.free) < FREE_FILES_KEPT:
            self.free.append(slot)
            return
        self._remove(slot)

    def _remove(self, slot: int) -> None:
        with self._lock:
            fd = self._open.pop(slot, -1)
        if fd >= 0:
            self._io.close(fd)
        del self._sizes[slot], self._rooms[slot]
        self._io.unlink(self.path(slot))

    def size(self, slot: int) -> int:
        return self._sizes[slot]

    def room(self, slot: int) -> int:
        """How far a file is allocated."""
        return self._rooms[slot]

    def extend(self, slot: int, room_end: int) -> bool:
        """Allocate a file up to there; False, and it is as it was, if the disk is full."""
        before = self._rooms[slot]
        fd = self.pin(slot)
        try:
            self._io.fallocate(fd, room_end)
        except OSError as error:
            if error.errno not in FULL_ERRNOS:
                raise
            self._short = True
            self._sizes[slot] = self._io.size(fd)  # Part of it may have been allocated.
            self._punch(fd, before, min(room_end, self._sizes[slot]))
            return False
        finally:
            self.unpin(slot)
        self._rooms[slot] = max(before, room_end)
        self._sizes[slot] = max(self._sizes[slot], room_end)
        return True

    def short_of(self, nbytes: int) -> bool:
        """Whether the disk, which had no room before, still has not so much: to ask it costs nothing, and a file
        system that tries to allocate what it has not takes milliseconds to find out and to undo it."""
        self._short = self._short and self._room_io.free_bytes(self._directory) < nbytes
        return self._short

    def fill(self, slot: int, start: int, end: int) -> bool:
        """Allocate a stretch behind the room of a file and write zeros to it, durably: later syncs of what is written
        there are as cheap as in a file that is used again.  False if the disk is full."""
        if not self.extend(slot, end):
            return False
        fd = self.pin(slot)
        try:
            write_all(self._io, fd, [bytes(end - start)], start)
            self._io.fdatasync(fd)
        finally:
            self.unpin(slot)
        return True

    def cut(self, slot: int, room_end: int) -> bool:
        """Give back the room of a file from there on; False where the file system cannot."""
        end = self._rooms[slot]
        fd = self.pin(slot)
        try:
            if not self._punch(fd, room_end, end):
                return False
        finally:
            self.unpin(slot)
        self._rooms[slot] = room_end
        return True

    def _punch(self, fd: int, start: int, end: int) -> bool:
        if self.can_punch and end > start:
            self.can_punch = self._room_io.punch(fd, start, end)
        return self.can_punch

    def fill_reserve(self) -> bool:
        """Have ``RESERVE_FILES`` files of ``reserve_bytes`` in the reserve; False if there is no room for that.

        Free files go when their space is needed for it.
        """
        while True:
            if self._fill_reserve():
                return True
            if not self.free:
                return False
            self._remove(self.free.pop())

    def _fill_reserve(self) -> bool:
        missing = self.missing_bytes(self.reserve_bytes)
        if missing and self.short_of(missing):
            return False
        for slot in self.reserve:
            if self._rooms[slot] < self.reserve_bytes and not self.extend(slot, self.reserve_bytes):
                return False
        try:
            while len(self.reserve) < RESERVE_FILES:
                self.reserve.append(self._create(self.reserve_bytes, self.reserve_bytes))
        except OSError as error:
            if error.errno not in FULL_ERRNOS:
                raise
            return False
        return True

    def shrink_reserve(self, most_bytes: int) -> None:
        """Remove files of the reserve that are larger than that."""
        for slot in [slot for slot in self.reserve if self._rooms[slot] > most_bytes]:
            self.reserve.remove(slot)
            self._remove(slot)

    def trim(self) -> bool:
        """Remove the free files; true when there were any."""
        found = bool(self.free)
        while self.free:
            self._remove(self.free.pop())
        return found

    def missing_bytes(self, wanted: int) -> int:
        """Bytes that the reserve lacks for ``RESERVE_FILES`` files of ``wanted`` bytes."""
        slots, reserve = self._rooms, tuple(self.reserve)
        missing = (RESERVE_FILES - len(reserve)) * wanted
        for slot in reserve:
            nbytes = slots.get(slot, 0)
            if nbytes < wanted:
                missing += wanted - nbytes
        return missing

    def prepare(self, room: int, budget_bytes: int) -> bool:
        """Have a free file with so much room, writing at most ``budget_bytes``; True if more is to do."""
        if self.short_of(budget_bytes):
            return False
        if not self.free:
            try:
                self.free.append(self._create(self._segment_bytes, 0))
            except OSError as error:
                if error.errno in FULL_ERRNOS:
                    return False
                raise
        slot = self.free[-1]
        start, end = self._rooms[slot], min(room, self._segment_bytes)
        if start >= end:
            return False
        part = min(start + budget_bytes, end)
        return self.fill(slot, start, part) and part < end

    def free_room(self) -> tuple[int, int]:
        """(bytes that all free files have allocated, that the one has which is taken next)."""
        rooms = [self._rooms.get(slot, 0) for slot in tuple(self.free)]
        return sum(rooms), rooms[-1] if rooms else 0

    def reserved_bytes(self) -> int:
        return sum(list(self._rooms.values()))

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

    def fetch(self, fd: int, segment: Segment, destination: int, offset: int, nbytes: int) -> None:
        """These bytes of a destination are read now: fetch what comes next, if it reads in order."""
        with self._lock:
            start, some = self._ahead.next(destination, segment.number, offset, nbytes, segment.data_end)
        if some:
            self._room_io.fetch(fd, start, some)

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

    def _create(self, size_bytes: int, room: int) -> int:
        """A new file of that length, of which so much is allocated."""
        slot = max(self._sizes, default=0) + 1
        path = self.path(slot)
        fd = self._io.create(path)
        try:
            if room < size_bytes:
                self._room_io.truncate(fd, size_bytes)
            if room:
                self._io.fallocate(fd, room)
            self._io.fsync_dir(self._directory)
        except OSError as error:
            self._short = self._short or error.errno in FULL_ERRNOS
            self._io.close(fd)
            self._io.unlink(path)
            raise
        with self._lock:
            self._evict()
            self._open[slot] = fd
        self._sizes[slot] = size_bytes
        self._rooms[slot] = room
        return slot
