"""Lenient reading of a damaged store: what is intact, and which stretches of the log are not.

Recovery stops at damage that it cannot contain.  This reads on: behind a batch that is broken it looks for the next one
whose head is whole, takes an older manifest, or the headers of the segments, where the newest manifest is not to be
read, and goes on without a segment that is not there.  Nothing is changed.

A body may contain bytes that look like a batch.  So the next batch is looked for where the broken one says that it
ends; else that one is taken from which the chain goes on to the known end of the segment, if there is such a one.

Blocks of a lost batch are not lost where the summary of their segment knows them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from raybroker.model.blocks.record import BLOCK, CHECKPOINT, LOST
from raybroker.model.errors import StoreDamagedError, StoreError
from raybroker.store.fileio import FileIO, read_exact, read_whole
from raybroker.store.journal.anchors import COMPRESSED, MANIFEST_NAMES, MARK_NAME, Manifest, Mark
from raybroker.store.journal.format import (
    ROW_BYTES,
    SECTOR_BYTES,
    BatchHeader,
    FormatError,
    JournalRow,
    SegmentHeader,
    SummaryRow,
    decode_batch_header,
    iter_summary,
    padded,
)
from raybroker.store.journal.recovery import JournalRecovery
from raybroker.store.journal.scan import SegmentScan
from raybroker.store.journal.segment import Segment, SegmentFiles, segment_name
from raybroker.store.locations import location_parts

NO_MARK: Final = Mark(bytes(16), 0, 0, False, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class LostRange:
    """A stretch of the log that cannot be read.

    first_seq … end_seq   numbers of its entries, the last exclusive
    blocks_kept           blocks of it that the summary of the segment knows, so that they are not lost
    blocks_lost           (destination, ordinal) of those that it knows, and whose bytes are not there
    """

    file: str
    segment: int
    offset: int
    nbytes: int
    first_seq: int
    end_seq: int
    why: str
    blocks_kept: int = 0
    blocks_lost: tuple[tuple[int, int], ...] = ()

    @property
    def entries(self) -> int:
        return max(self.end_seq - self.first_seq, 0)


class Numbered(Protocol):
    """A segment, for whoever asks only which it is."""

    number: int


class FoundBatch(NamedTuple):
    """An intact batch, or blocks of a lost one that the summary knows (``header`` is None); see ``JournalRow`` for
    offsets."""

    offset: int
    header: BatchHeader | None
    rows: list[JournalRow]


class _Run(NamedTuple):
    """Batches that follow each other: where they begin, and what would come behind them."""

    first: BatchHeader
    offset: int
    end: int
    chain: int
    seq: int


@dataclass(frozen=True, slots=True)
class Anchors:
    """The anchors as far as they can be read. ``stale``: a newer manifest was in force, or may have been."""

    manifest: Manifest | None
    mark: Mark
    stale: bool
    faults: tuple[str, ...]
    generation: int


def read_anchors(io: FileIO, directory: Path) -> Anchors:
    """The newest manifest and commit mark that are valid, and what is wrong with the others."""
    faults: list[str] = []
    found: list[Manifest] = []
    for name in MANIFEST_NAMES:
        try:
            found.append(Manifest.decode(read_whole(io, directory / name)))
        except (FormatError, OSError) as error:
            faults.append(f"{name}: {error}")
    marks: list[Mark] = []
    try:
        data = read_whole(io, directory / MARK_NAME)
    except OSError as error:
        data = b""
        faults.append(f"{MARK_NAME}: {error}")
    for slot in (0, SECTOR_BYTES) if data else ():
        try:
            marks.append(Mark.decode(data[slot : slot + SECTOR_BYTES]))
        except FormatError as error:
            faults.append(f"{MARK_NAME} at {slot}: {error}")
    manifest = max(found, key=lambda one: one.generation, default=None)
    mark = max(marks, key=lambda one: (one.incarnation, one.seq, one.generation, one.clean), default=NO_MARK)
    if manifest is not None and marks and mark.store != manifest.store:
        faults.append(f"{MARK_NAME}: it is of another store")
        mark, marks = NO_MARK, []
    generation = max(manifest.generation if manifest is not None else 0, mark.generation)
    stale = manifest is None or mark.generation > manifest.generation or (not marks and len(found) < 2)
    return Anchors(manifest, mark, stale, tuple(faults), generation)


@dataclass
class LenientRecovery(JournalRecovery):
    """``read`` first, then ``entries``, without runs.

    ranges   what is lost; an entry of the kind LOST stands at the place of each that is behind the last checkpoint
    found    segment → what it has; of all but those that are sealed and whole, which need nothing
    faults   what else is wrong, for people
    """

    ranges: list[LostRange] = field(default_factory=list)
    found: dict[int, list[FoundBatch | int]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    lost_segments: dict[int, int] = field(default_factory=dict)
    """Segment that is not there → its range."""
    sizes: dict[int, int] = field(default_factory=dict)
    incarnation: int = 0
    """The largest that was seen."""
    next_seq: int = 0
    """Behind every entry, also of lost ones."""

    @classmethod
    def from_directory(cls, io: FileIO, directory: Path, files: SegmentFiles, anchors: Anchors) -> LenientRecovery:
        """Raises StoreError for a directory in which nothing says which store it is."""
        sizes = _sizes(files)
        headers = _headers(io, files, sizes)
        manifest = anchors.manifest
        if manifest is None:
            stores = {header.store for header in headers.values()}
            if anchors.mark.generation:
                stores = {anchors.mark.store}
            if len(stores) != 1:
                raise StoreError(
                    f"{directory}: no manifest, no commit mark and no segment of one store can be read; restore it"
                    " from a backup"
                )
            manifest = Manifest(0, stores.pop(), anchors.mark.incarnation, 0, False, (), COMPRESSED)
        reader = cls(io, files, manifest, anchors.mark)
        reader.sizes = sizes
        reader.faults += anchors.faults
        reader.incarnation = max(manifest.incarnation, anchors.mark.incarnation)
        by_number = {
            header.number: (slot, header) for slot, header in headers.items() if header.store == manifest.store
        }
        reader._list_segments(by_number, stale=anchors.stale)
        return reader

    def read(self) -> None:
        """Look at every segment."""
        headers = _headers(self.io, self.files, self.sizes)
        for number in sorted(self.segments):
            self._read_segment(number, headers)
        self.next_seq = max([s.next_seq for s in self.segments.values()] + [r.end_seq for r in self.ranges], default=0)
        self.next_seq = max(self.next_seq, self.mark.seq)
        self._end_lost()
        if not self.manifest.generation:
            self._gaps()

    def _gaps(self) -> None:
        """Note the segments that are missing between two that are there, of which nobody knows without a manifest; they
        may be over, or lost."""
        numbers = sorted({*self.segments, *self.lost_segments})
        for before, after in pairwise(numbers):
            if after > before + 1 and before in self.segments and after in self.segments:
                first, end = self.segments[before].next_seq, self.segments[after].first_seq
                why = f"no file has segments {before + 1} to {after - 1}: they were given back before, or are lost"
                self.ranges.append(LostRange("", before + 1, 0, 0, first, end, why))
                self.lost_segments[before + 1] = len(self.ranges) - 1

    def _list_segments(self, by_number: dict[int, tuple[int, SegmentHeader]], *, stale: bool) -> None:
        """The segments of the manifest, and where it is not the newest those that have come since."""
        for record in self.manifest.segments:
            self.segments[record.number] = Segment.of_record(record)
        last = max(self.segments, default=0)
        for number, (slot, header) in sorted(by_number.items()):
            if stale and number > last:
                self.segments[number] = Segment.started(number, slot, header.size_bytes, header.first_seq, header.chain)
        for number, segment in self.segments.items():
            slot = by_number[number][0] if number in by_number else segment.slot
            if slot != segment.slot:
                self.faults.append(f"{segment_name(slot)}: this is segment {number}: the files were exchanged")
                segment.slot = slot

    def _read_segment(self, number: int, headers: dict[int, SegmentHeader]) -> None:
        segment = self.segments[number]
        name, size = segment_name(segment.slot), self.sizes.get(segment.slot)
        if size is None:
            self._lose_segment(number, "the file is missing")
            return
        damaged = False
        header = headers.get(segment.slot)
        if header is None or (header.number, header.slot, header.first_seq, header.chain) != (
            segment.number,
            segment.slot,
            segment.first_seq,
            segment.first_chain,
        ):
            damaged = True
            self.faults.append(f"{name}: its header is damaged, or that of another segment")
        if size != segment.size_bytes:
            damaged = True
            self.faults.append(f"{name}: {size} bytes instead of {segment.size_bytes}")
        before = len(self.ranges)
        pieces = self._scan(number)
        if (
            not any(isinstance(piece, FoundBatch) for piece in pieces)
            and header is not None
            and (header.number != segment.number)
        ):
            del self.ranges[before:]
            self._lose_segment(number, f"its file is that of segment {header.number}")
            return
        if damaged or len(self.ranges) > before or not segment.sealed:
            self.found[segment.number] = pieces
            segment.checkpoint_offset = 0
            for piece in pieces:
                if isinstance(piece, FoundBatch) and any(row.kind == CHECKPOINT for row in piece.rows):
                    segment.checkpoint_offset = piece.offset

    def _lose_segment(self, number: int, why: str) -> None:
        segment = self.segments[number]
        known = segment.next_seq if segment.sealed else self._known_end(number)
        self.ranges.append(
            LostRange(segment_name(segment.slot), segment.number, 0, segment.size_bytes, segment.first_seq, known, why)
        )
        self.lost_segments[segment.number] = len(self.ranges) - 1
        del self.segments[segment.number]

    def _end_lost(self) -> None:
        """The commit mark knows of entries behind everything that was found: their segment is not there at all."""
        ended = max([s.next_seq for s in self.segments.values()] + [r.end_seq for r in self.ranges], default=0)
        if ended < self.mark.seq:
            number = max([*self.segments, *self.lost_segments, self.mark.segment])
            self.ranges.append(LostRange("", number, 0, 0, ended, self.mark.seq, "no file has it"))
            self.lost_segments[number + 1] = len(self.ranges) - 1

    def _known_end(self, number: int) -> int:
        """What number comes behind a segment that is not sealed, as far as others say."""
        segment = self.segments[number]
        later = [other for other in self.segments if other > segment.number]
        if not later:
            return max(self.mark.seq, segment.next_seq)
        return self.segments[min(later)].first_seq if min(later) == segment.number + 1 else segment.next_seq

    # ---- one segment

    def _scan(self, number: int) -> list[FoundBatch | int]:
        """Its batches in order, with the places of lost ranges in between; an unsealed one learns its end."""
        segment = self.segments[number]
        fd = self.files.pin(segment.slot)
        try:
            limit = segment.data_end if segment.sealed else segment.size_bytes
            scan = SegmentScan(self.io, fd, segment.number, limit)
            pieces: list[FoundBatch | int] = []
            at, chain, seq = SECTOR_BYTES, segment.first_chain, segment.first_seq
            while at < limit:
                why = "this batch does not follow the one before it"
                try:
                    header, rows = scan.batch(at)
                    if (header.chain_before, header.first_seq) == (chain, seq) and not self._stale(header):
                        if not self._torn(scan, number, header, rows, at):
                            pieces.append(FoundBatch(at, header, rows))
                            self.incarnation = max(self.incarnation, header.incarnation)
                            at, chain = at + padded(header.nbytes), header.chain
                            seq += header.entries
                            continue
                        why = "its payload is torn"
                except FormatError as error:
                    why = str(error)
                run = self._resume(scan, number, at, seq, limit)
                end_seq = run.first.first_seq if run is not None else self._end_of(number, seq)
                if run is None and end_seq == seq and not segment.sealed:
                    break  # So a log may end.
                end = run.offset if run is not None else limit
                pieces += self._lose(number, at, end, seq, end_seq, why)
                if run is None:
                    at, seq = limit, end_seq
                    break
                at, chain, seq = run.offset, run.first.chain_before, run.first.first_seq
            if not segment.sealed:
                segment.next_seq, segment.data_end = seq, at
            return pieces
        finally:
            self.files.unpin(segment.slot)

    def _end_of(self, number: int, seq: int) -> int:
        segment = self.segments[number]
        return segment.next_seq if segment.sealed else max(self._known_end(number), seq)

    def _stale(self, header: BatchHeader) -> bool:
        return header.first_seq >= self.manifest.base_seq and header.incarnation < self.manifest.incarnation

    def _torn(self, scan: SegmentScan, number: int, header: BatchHeader, rows: list[JournalRow], at: int) -> bool:
        """Whether this is the last batch, which may be torn, and never was acknowledged; as in recovery."""
        segment = self.segments[number]
        seq = header.first_seq + header.entries
        if segment.sealed or seq <= self._known_end(number) or not scan.bad_payloads(rows, at):
            return False
        segment.next_seq = header.first_seq
        return self.manifest.relaxed or self._later(scan, segment, at) is None

    def _resume(self, scan: SegmentScan, number: int, at: int, seq: int, limit: int) -> _Run | None:
        """Find where the log goes on behind something that cannot be read; None: nowhere in this segment."""
        segment = self.segments[number]
        known = self._end_of(number, seq)
        if not segment.sealed and self.manifest.relaxed and seq >= known:
            return None  # Its end may be lost in any order.
        guess = self._said_end(scan, number, at, seq)
        if guess is not None:
            if guess >= limit or (segment.number, guess) == (self.mark.segment, self.mark.offset):
                return None
            run = self._run(scan, guess, limit)
            if run is not None and run.first.first_seq > seq:
                return run
        runs: list[_Run] = []
        for offset, header in scan.later_batches(at):
            if runs and offset < runs[-1].end:
                continue
            if not 0 < header.first_seq - seq <= (offset - at) // ROW_BYTES or self._stale(header):
                continue
            run = self._run(scan, offset, limit)
            if run is None:
                continue
            runs.append(run)
            if (
                (run.end, run.chain, run.seq) == (segment.data_end, segment.chain, segment.next_seq)
                if (segment.sealed)
                else run.seq >= known > seq
            ):
                before = [other for other in runs[:-1] if other.seq <= run.first.first_seq]
                return before[0] if before else run
        return runs[0] if runs else None

    def _said_end(self, scan: SegmentScan, number: int, at: int, seq: int) -> int | None:
        """Return where a broken batch ends by its own header, if that makes sense."""
        segment = self.segments[number]
        try:
            header = decode_batch_header(
                scan.header_bytes(at), 0, segment=segment.number, room_bytes=segment.size_bytes - at
            )
        except FormatError:
            return None
        return at + padded(header.nbytes) if header.first_seq == seq else None

    def _run(self, scan: SegmentScan, offset: int, limit: int) -> _Run | None:
        """The batches that follow each other from there on."""
        first, end, chain, seq = None, offset, 0, 0
        try:
            for at, header, _ in scan.batches(offset, None, None):
                if first is not None and (header.chain_before, header.first_seq) != (chain, seq):
                    break
                first = first or header
                end, chain, seq = at + padded(header.nbytes), header.chain, header.first_seq + header.entries
        except FormatError:
            pass  # What is behind them is looked at when they have been read.
        return None if first is None or end > padded(limit) else _Run(first, offset, end, chain, seq)

    def _lose(self, number: int, at: int, end: int, seq: int, end_seq: int, why: str) -> list[FoundBatch | int]:
        """A lost range: blocks of it that the summary knows, then its place."""
        segment = self.segments[number]
        kept: list[JournalRow] = []
        gone: list[tuple[int, int]] = []
        data = self._summary_data(segment) if segment.sealed else None
        size = self.sizes[segment.slot]
        for ordinal, destination, offset, nbytes, crc, meta, flags in (
            iter_summary(data, segment.blocks) if data is not None else ()
        ):
            if at <= offset < end:
                if offset + nbytes <= size:
                    kept.append(JournalRow(BLOCK, flags, destination, ordinal, meta, offset - at, nbytes, crc))
                else:
                    gone.append((destination, ordinal))
        self.ranges.append(
            LostRange(
                segment_name(segment.slot), segment.number, at, end - at, seq, end_seq, why, len(kept), tuple(gone)
            )
        )
        pieces: list[FoundBatch | int] = [FoundBatch(at, None, kept)] if kept else []
        return [*pieces, len(self.ranges) - 1]

    # ---- what recovery asks for

    def summary(self, segment: Numbered) -> Iterator[SummaryRow]:
        if segment.number not in self.found:
            yield from super().summary(self.segments[segment.number])
            return
        for base, rows in self._batches_of(segment, SECTOR_BYTES):
            for row in rows:
                if row.kind == BLOCK:
                    at = base + row.offset
                    yield row.ordinal, row.destination, at, row.nbytes, row.crc, row.meta, row.flags

    def _batches_of(self, segment: Numbered, offset: int) -> Iterator[tuple[int, list[JournalRow]]]:
        pieces = self.found.get(segment.number)
        if pieces is None:
            return super()._batches_of(self.segments[segment.number], offset)
        return iter([(p.offset, p.rows) for p in pieces if isinstance(p, FoundBatch) and p.offset >= offset])

    def _since(self, start: tuple[int, int] | None) -> Iterator[tuple[Segment, int, JournalRow]]:
        """Read the rows as recovery does, with a row of the kind LOST at the place of each range."""
        anyone = next(iter(self.segments.values()), None)
        for number in sorted({*self.segments, *self.lost_segments}):
            if number in self.lost_segments and anyone is not None and (start is None or number > start[0]):
                yield anyone, 0, _lost_row(self.lost_segments[number])
            segment = self.segments.get(number)
            if segment is None or (start is not None and number < start[0]):
                continue
            offset = start[1] if start is not None and number == start[0] else SECTOR_BYTES
            for piece in self._pieces(number, offset):
                if isinstance(piece, int):
                    yield segment, 0, _lost_row(piece)
                    continue
                base, rows = piece
                begin = max(i for i, row in enumerate(rows) if row.kind == CHECKPOINT) if start == (number, base) else 0
                for row in rows[begin:]:
                    yield segment, base, row

    def _pieces(self, number: int, offset: int) -> Iterator[tuple[int, list[JournalRow]] | int]:
        pieces = self.found.get(number)
        if pieces is None:
            yield from super()._batches_of(self.segments[number], offset)
            return
        for piece in pieces:
            if isinstance(piece, int):
                if self.ranges[piece].offset >= offset:
                    yield piece
            elif piece.offset >= offset:
                yield piece.offset, piece.rows

    @property
    def has_checkpoint(self) -> bool:
        return self._checkpoint() is not None

    def damaged_payload(self, destination: int, ordinal: int) -> str:
        """Why the payload of a block that was found cannot be read; "" when it can."""
        known = self.index.get(destination)
        place = known.get(ordinal) if known is not None else None
        if place is None:
            return "it is not there"
        number, offset, nbytes, crc = location_parts(place)
        try:
            self.payload(self.segments[number], destination, ordinal, offset, nbytes, crc)
        except StoreDamagedError as error:
            return str(error)
        return ""


def _lost_row(place: int) -> JournalRow:
    return JournalRow(LOST, 0, 0, place, b"", 0, 0, 0)


def _sizes(files: SegmentFiles) -> dict[int, int]:
    return files.discover()


def _headers(io: FileIO, files: SegmentFiles, sizes: dict[int, int]) -> dict[int, SegmentHeader]:
    """Slot → the header of its file, where that is valid."""
    found: dict[int, SegmentHeader] = {}
    for slot in sizes:
        fd = files.pin(slot)
        try:
            found[slot] = SegmentHeader.decode(read_exact(io, fd, SECTOR_BYTES, 0))
        except FormatError:
            pass
        finally:
            files.unpin(slot)
    return found
