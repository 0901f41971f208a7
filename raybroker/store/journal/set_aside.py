"""Setting aside what of a store is damaged, so that the rest of it opens again.

Segments with lost ranges are written anew, without these, and a segment is begun that has one checkpoint; whole
segments stay as they are.  The damaged files, and copies of the anchors, are kept in a folder of the store:

    set-aside-N/record.json   what was set aside, and why
    set-aside-N/…             the files

While this is being done, a file names the folder, and the store does not open.  After an interruption
:func:`undo` makes all of it as it was; only then it can be done again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from raybroker.model.blocks.record import LogEntry
from raybroker.model.errors import StoreDamagedError, StoreError
from raybroker.store.fileio import FileIO, read_exact, read_whole, write_all
from raybroker.store.journal.anchors import COMPRESSED, MANIFEST_NAMES, MARK_NAME, Manifest, Mark, SegmentRecord
from raybroker.store.journal.format import (
    SECTOR_BYTES,
    SEGMENT_BYTES_MAX,
    Packed,
    SegmentHeader,
    SummaryWriter,
    batch_head,
    first_chain,
    pack_entries,
    pack_rows,
    padded,
)
from raybroker.store.journal.own_files import BODY_PREFIX, Reference, body_name, number_of
from raybroker.store.journal.segment import SegmentFiles, segment_name

if TYPE_CHECKING:
    from raybroker.store.journal.lenient import Anchors, FoundBatch, LenientRecovery

FOLDER_PREFIX: Final = "set-aside-"
RECORD_NAME: Final = "record.json"
BEGUN_NAME: Final = "set-aside.begun"
_ANCHORS: Final = (*MANIFEST_NAMES, MARK_NAME)
_MANIFEST_BYTES: Final = 64 << 10
_ACTIVE_BYTES: Final = 64 << 20
"""Length of the new segment, where no other one says how long they are; what is not written in takes no place."""
_PIECE_BYTES: Final = 1 << 20


def begun(io: FileIO, directory: Path) -> Path | None:
    """The folder of a setting aside that was interrupted."""
    if not io.exists(directory / BEGUN_NAME):
        return None
    try:
        return directory / str(json.loads(read_whole(io, directory / BEGUN_NAME))["folder"])
    except (ValueError, KeyError, TypeError):
        raise StoreDamagedError(f"{directory / BEGUN_NAME} is damaged; restore the store from a backup") from None


def check_not_begun(io: FileIO, directory: Path) -> None:
    """Raises StoreDamagedError after an interruption, which is undone first."""
    folder = begun(io, directory)
    if folder is not None:
        raise StoreDamagedError(f"{directory}: setting aside what is damaged was interrupted ({folder}); do it again")


def notices(io: FileIO, directory: Path) -> list[str]:
    """What was set aside before, a line for each folder that is still there."""
    found = []
    for name in io.names(directory):
        if name.startswith(FOLDER_PREFIX):
            with suppress(OSError, ValueError, KeyError, TypeError):
                record = json.loads(read_whole(io, directory / name / RECORD_NAME))
                found.append(
                    f"{directory / name} has what was set aside at {record['at']}: {record['summary']};"
                    " remove it when it is not needed any more"
                )
    return found


def undo(io: FileIO, directory: Path, folder: Path) -> None:
    """Make the store what it was before a setting aside that did not come to its end."""
    for name in io.names(folder) if io.exists(folder) else ():
        if name in _ANCHORS:
            _write(io, directory / name, read_whole(io, folder / name))
        elif name != RECORD_NAME and not io.exists(directory / name):
            io.rename(folder / name, directory / name)
    for name in _ANCHORS:
        if io.exists(folder) and not io.exists(folder / name) and io.exists(directory / name):
            io.unlink(directory / name)  # There was none.
    io.fsync_dir(directory)
    io.unlink(directory / BEGUN_NAME)
    io.fsync_dir(directory)
    _remove(io, folder)


def _remove(io: FileIO, folder: Path) -> None:
    for name in io.names(folder) if io.exists(folder) else ():
        io.unlink(folder / name)
    with suppress(OSError):
        folder.rmdir()


def body_names(io: FileIO, directory: Path) -> dict[str, int]:
    """The own files of blocks → their numbers."""
    numbers = {name: number_of(name, BODY_PREFIX) for name in io.names(directory)}
    return {name: number for name, number in numbers.items() if number is not None}


class SettingAside:
    """One setting aside; ``plan`` says which files go into the folder."""

    def __init__(
        self, io: FileIO, directory: Path, files: SegmentFiles, reader: LenientRecovery, anchors: Anchors
    ) -> None:
        self._io = io
        self._directory = directory
        self._files = files
        self._reader = reader
        self._anchors = anchors
        self._next_slot = max(reader.sizes, default=0) + 1
        numbers = [int(name.removeprefix(FOLDER_PREFIX)) for name in io.names(directory) if _is_folder(name)]
        self.folder = directory / f"{FOLDER_PREFIX}{max(numbers, default=0) + 1}"

    def moved(self, bodies: list[str]) -> list[str]:
        """The files that go into the folder: damaged segments, and ``bodies`` that nothing refers to."""
        reader = self._reader
        damaged = {reader.segments[n].slot for n, pieces in reader.found.items() if _is_damaged(pieces)}
        damaged |= {slot for slot in reader.sizes if any(segment_name(slot) in fault for fault in reader.faults)}
        lost = {lost.file for lost in reader.ranges if lost.segment in reader.lost_segments}
        kept = {segment_name(s.slot) for s in reader.segments.values() if s.number not in reader.found}
        names = {*map(segment_name, damaged), *lost} - {""} - kept
        return sorted(name for name in (*names, *bodies) if self._io.exists(self._directory / name))

    def needed_bytes(self, checkpoint: LogEntry) -> int:
        """Return about how much room it takes."""
        sizes = [self._reader.segments[number].data_end for number in self._reader.found]
        return sum(sizes) + 2 * len(checkpoint.meta) + (1 << 20)

    def carry_out(self, checkpoint: LogEntry, record: Mapping[str, Any], moved: list[str]) -> None:
        """Raises StoreError, and the store is as it was then."""
        io, directory = self._io, self._directory
        try:
            io.make_directory(self.folder)
            for name in _ANCHORS:
                with suppress(FileNotFoundError):
                    _write(io, self.folder / name, read_whole(io, directory / name))
            io.fsync_dir(self.folder)
            io.fsync_dir(directory)
            _write(io, directory / BEGUN_NAME, _json({"folder": self.folder.name}))
            io.fsync_dir(directory)
        except OSError as error:
            self.give_up()
            raise StoreError(f"{self.folder} cannot be made: {error}") from error
        try:
            self._write_log(checkpoint)
            for name in moved:
                io.rename(directory / name, self.folder / name)
            _write(io, self.folder / RECORD_NAME, _json(record))
            io.fsync_dir(self.folder)
            io.fsync_dir(directory)
        except OSError as error:
            self.give_up()
            raise StoreError(f"{directory}: what is intact cannot be written: {error}; it is as it was") from error

    def finish(self) -> None:
        """What was written opens: from now on it is the store."""
        self._io.unlink(self._directory / BEGUN_NAME)
        self._io.fsync_dir(self._directory)

    def give_up(self) -> None:
        """Make all of it as it was."""
        with suppress(OSError):
            if self._io.exists(self._directory / BEGUN_NAME):
                undo(self._io, self._directory, self.folder)
            else:
                _remove(self._io, self.folder)

    # ---- the log

    def _write_log(self, checkpoint: LogEntry) -> None:
        reader, io = self._reader, self._io
        incarnation = reader.incarnation + 1
        records: list[SegmentRecord] = []
        for number, segment in sorted(reader.segments.items()):
            pieces = reader.found.get(number)
            if pieces is None:
                records.append(segment.record())
            elif any(not isinstance(piece, int) for piece in pieces):
                records.append(self._rewrite(number, pieces))
        last = max([*reader.segments, *reader.lost_segments, self._anchors.mark.segment], default=0) + 1
        active, end = self._begin_segment(last, checkpoint, incarnation)
        records.append(active)
        form = max(reader.manifest.form, COMPRESSED if self._anchors.stale else 0)
        generation = self._anchors.generation + 2
        for one in (generation - 1, generation):
            manifest = Manifest(one, reader.manifest.store, incarnation, active.first_seq, False, tuple(records), form)
            data = manifest.encode()
            room = -(-len(data) // _MANIFEST_BYTES) * _MANIFEST_BYTES
            _write(io, self._directory / MANIFEST_NAMES[one & 1], data.ljust(room, b"\0"))
        mark = Mark(reader.manifest.store, generation, incarnation, True, active.first_seq + 1, last, end)
        _write(io, self._directory / MARK_NAME, mark.encode().ljust(SECTOR_BYTES, b"\0") * 2)
        io.fsync_dir(self._directory)

    def _rewrite(self, number: int, pieces: list[FoundBatch | int]) -> SegmentRecord:
        """What a segment has, in a new file, sealed."""
        segment = self._reader.segments[number]
        io, slot = self._io, self._new_slot()
        source = self._files.pin(segment.slot)
        fd = io.create(self._directory / segment_name(slot))
        try:
            summary, checkpoint = SummaryWriter(), 0
            at, seq, chain = SECTOR_BYTES, segment.first_seq, segment.first_chain
            for piece in pieces:
                if isinstance(piece, int):
                    continue
                packed = pack_rows(piece.rows)
                incarnation = piece.header.incarnation if piece.header is not None else self._reader.incarnation
                head, chain = batch_head(packed, segment.number, incarnation, seq, chain)
                write_all(io, fd, [head], at)
                self._copy(source, fd, piece, at + len(head), packed)
                checkpoint = at if packed.checkpoint else checkpoint
                for block in packed.blocks:
                    summary.add(block, at + len(head))
                at, seq = at + packed.nbytes, seq + packed.count
            data = summary.encode()
            size = max(padded(at + len(data)), 8 * SECTOR_BYTES)
            if size > SEGMENT_BYTES_MAX:
                raise OSError(27, f"segment {segment.number} would have {size} bytes")
            header = SegmentHeader(
                self._reader.manifest.store,
                segment.number,
                slot,
                self._reader.incarnation,
                segment.first_seq,
                size,
                segment.first_chain,
            )
            write_all(io, fd, [data], at)
            write_all(io, fd, [header.encode()], 0)
            io.truncate(fd, size)
            io.fdatasync(fd)
        finally:
            io.close(fd)
            self._files.unpin(segment.slot)
        return SegmentRecord(
            segment.number,
            slot,
            size,
            segment.first_seq,
            segment.first_chain,
            True,
            seq,
            chain,
            at,
            checkpoint,
            at,
            len(data),
            crc32(data),
            summary.blocks,
        )

    def _copy(self, source: int, fd: int, piece: FoundBatch, at: int, packed: Packed) -> None:
        """The payloads of a batch as they are, damaged or not; what is not there is zeros."""
        spans = [(piece.offset + row.offset, row.nbytes) for row in piece.rows]
        if piece.header is not None:
            spans = [(spans[0][0], packed.payload_bytes)]
        for start, nbytes in spans:
            for begin in range(start, start + nbytes, _PIECE_BYTES):
                some = min(_PIECE_BYTES, start + nbytes - begin)
                data = read_exact(self._io, source, some, begin).ljust(some, b"\0")
                write_all(self._io, fd, [data], at)
                at += some

    def _begin_segment(self, number: int, checkpoint: LogEntry, incarnation: int) -> tuple[SegmentRecord, int]:
        """The segment that the log goes on with, and where its checkpoint ends."""
        io, slot, store = self._io, self._new_slot(), self._reader.manifest.store
        packed = pack_entries([checkpoint])
        usual = max([s.size_bytes for s in self._reader.segments.values()], default=_ACTIVE_BYTES)
        size = max(usual, padded(SECTOR_BYTES + packed.nbytes) + 8 * SECTOR_BYTES)
        seq, chain = self._reader.next_seq, first_chain(store, number, 0)
        header = SegmentHeader(store, number, slot, incarnation, seq, size, chain)
        head, _ = batch_head(packed, number, incarnation, seq, chain)
        fd = io.create(self._directory / segment_name(slot))
        try:
            io.truncate(fd, size)
            write_all(io, fd, [header.encode()], 0)
            write_all(io, fd, [head], SECTOR_BYTES)
            io.fdatasync(fd)
        finally:
            io.close(fd)
        return SegmentRecord(number, slot, size, seq, chain), SECTOR_BYTES + packed.nbytes

    def _new_slot(self) -> int:
        self._next_slot += 1
        return self._next_slot - 1


def damaged_body(files: SegmentFiles, reference: Reference) -> str:
    """Why the payload that a reference names cannot be read; "" when it can."""
    name = body_name(reference.number)
    found = files.other(name)
    if found is None:
        return f"{name} is not there"
    whole = len(found) >= reference.nbytes and crc32(memoryview(found)[: reference.nbytes]) == reference.crc
    return "" if whole else f"{name} is damaged"


def _is_damaged(pieces: list[FoundBatch | int]) -> bool:
    return any(isinstance(piece, int) for piece in pieces)


def _is_folder(name: str) -> bool:
    return name.startswith(FOLDER_PREFIX) and name.removeprefix(FOLDER_PREFIX).isdecimal()


def _write(io: FileIO, path: Path, data: bytes) -> None:
    """A whole file, in place of one that may be there, on disk but for its name."""
    new = path.with_name(path.name + ".new")
    with suppress(FileNotFoundError):
        io.unlink(new)
    fd = io.create(new)
    try:
        write_all(io, fd, [data], 0)
        io.fdatasync(fd)
    finally:
        io.close(fd)
    io.rename(new, path)


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=2).encode() + b"\n"
