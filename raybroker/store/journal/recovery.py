"""Recovery: reads the files of a store that is opened, finds the end of the log, and names damage.

Legal states, and all that a crash or power cut can leave behind:

* The last batch may be torn: any subset of its sectors is there.  If it was never acknowledged it is cut off silently.
  Only one batch is ever under way, so nothing valid can stand behind a torn one.
* The commit mark may be older than the log, never newer.
* The newer manifest may be torn while it is being written; then the older one is in force.  Segment files that no
  manifest names are leftovers and empty of meaning.

Everything else is damage and is named: a log that ends before the mark, a valid batch behind an invalid one, a segment
file that is missing, shortened, or another one.  A store that is damaged where the damage cannot be contained is not
opened, and not changed: what is not known is never taken for absent.  Damage to a single payload is contained: the
block is there, and reading it raises.

The order of recovery: the last checkpoint, the blocks before it from the summaries, then everything after it from the
batches themselves.  A relocated copy of a block stands where the block itself did: before the checkpoint, unless the
block itself is found behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from zlib import crc32

from raybroker.model.blocks.record import BLOCK, CHECKPOINT, EntryRun, LogEntry
from raybroker.model.errors import StoreDamagedError
from raybroker.store.fileio import FileIO, read_exact
from raybroker.store.journal.anchors import MANIFEST_NAMES, Manifest, ManifestFiles, Mark, SegmentRecord
from raybroker.store.journal.batches import StoredBatch
from raybroker.store.journal.format import (
    OWN_FILE,
    RELOCATED,
    SECTOR_BYTES,
    SUMMARY_ROW_BYTES,
    BatchHeader,
    FormatError,
    JournalBlockRow,
    JournalRow,
    SegmentHeader,
    SummaryRow,
    iter_summary,
    padded,
)
from raybroker.store.journal.image import LogEnd
from raybroker.store.journal.own_files import Reference
from raybroker.store.journal.scan import SegmentScan
from raybroker.store.journal.segment import Segment, SegmentFiles
from raybroker.store.journal.stretches import Gatherer, Stretch, gathered, summary_pieces
from raybroker.store.locations import Locations, location, location_parts

Index = dict[int, Locations]
"""By destination."""
RUN_BLOCKS_LEAST: Final = 4
"""Fewer blocks that are side by side are given back one by one."""


def newest_manifest(manifests: ManifestFiles, faults: list[str], mark: Mark, directory: Path) -> Manifest:
    """The manifest in force, or StoreDamagedError if it was in force and cannot be read."""
    manifest = manifests.current
    if manifest is None:
        raise StoreDamagedError(f"{directory}: no valid manifest ({'; '.join(faults)})")
    if manifest.generation < mark.generation:
        what = "; ".join(faults) or "an old copy of it was put back"
        raise StoreDamagedError(
            f"{directory}/{MANIFEST_NAMES[mark.generation & 1]}: manifest {mark.generation} was in force and is not"
            f" there ({what}); the newest is {manifest.generation}"
        )
    if manifest.store != mark.store:
        raise StoreDamagedError(f"{directory}: manifest and commit mark are of different stores")
    return manifest


@dataclass
class JournalRecovery:
    """The log of one directory, read with the manifest and mark in force.

    ``find_end`` first, then ``entries``; both fill ``segments`` and ``index``.
    """

    io: FileIO
    files: SegmentFiles
    manifest: Manifest
    mark: Mark
    end_seq: int = -1
    """What was written from this entry on is cut off; -1: nothing is."""
    segments: dict[int, Segment] = field(default_factory=dict)
    index: Index = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    tail: list[tuple[int, list[JournalRow]]] = field(default_factory=list)
    own: set[tuple[int, int]] = field(default_factory=set)
    """Blocks whose payload is a reference to a file of its own."""
    replayed_bytes: int = 0
    """Rows and metas behind the last checkpoint, as far as they make the next one larger."""
    log_bytes: int = 0
    """About how much of the log is behind the last checkpoint."""

    def __post_init__(self) -> None:
        """A mark of an earlier opening says nothing of what the present one has cut off."""
        manifest, mark = self.manifest, self.mark
        if mark.incarnation < manifest.incarnation:
            mark = mark._replace(seq=min(mark.seq, manifest.base_seq))
        if self.end_seq >= 0:
            kept = [record for record in manifest.segments if record.first_seq < self.end_seq]
            if kept:  # The last one goes on, also if it was sealed.
                last = kept[-1]
                kept[-1] = SegmentRecord(last.number, last.slot, last.size_bytes, last.first_seq, last.chain)
            self.manifest = replace(manifest, segments=tuple(kept))
            mark = mark._replace(seq=min(mark.seq, self.end_seq), clean=False)
        self.mark = mark

    def find_end(self) -> None:
        """Check every segment file against the manifest and find where the log ends."""
        sizes = self.files.discover()
        for record in self.manifest.segments:
            segment = self.segments[record.number] = Segment.of_record(record)
            size = sizes.get(segment.slot)
            if size is None:
                raise self._damage(segment, 0, "the file is missing", segment.first_seq, None)
            if size != segment.size_bytes:
                raise self._damage(segment, size, f"{size} bytes instead of {segment.size_bytes}", None, None)
            self._check_header(segment)
        if self.segments:
            self.scan_tail(self.segments[max(self.segments)])
        if self.end_seq > 0 and (not self.segments or self.segments[max(self.segments)].next_seq != self.end_seq):
            raise StoreDamagedError(f"{self.files.path(0).parent}: no batch ends before entry {self.end_seq}")

    def entries(self, *, runs: bool = True) -> Iterator[LogEntry | EntryRun]:
        """Entries in the order of the contract; the index is complete when it is exhausted.

        ``runs``: blocks that are side by side come together, in order within each destination.
        """
        start = self._checkpoint()
        before = [s for s in self.segments.values() if start is not None and s.number <= start[0]]
        replay = list(self._gathered(self._since(start)) if runs else self._since(start))
        fresh: dict[int, set[int]] = {}
        moved: dict[tuple[int, int], bytes] = {}
        for _, _, found in replay:
            if isinstance(found, Stretch):
                fresh.setdefault(found.destination, set()).update(range(found.first, found.end))
            elif found.kind == BLOCK and not found.flags & RELOCATED:
                fresh.setdefault(found.destination, set()).add(found.ordinal)
        for segment, base, found in replay:
            if isinstance(found, Stretch):
                self._take_stretch(segment, found)
            elif found.kind == BLOCK:
                self._put(segment, found.destination, found.ordinal, base + found.offset, found.nbytes, found.crc)
                if found.flags & OWN_FILE:
                    self.own.add((found.destination, found.ordinal))
                if found.flags & RELOCATED and found.ordinal not in fresh.get(found.destination, ()):
                    moved[found.destination, found.ordinal] = found.meta
        if start is not None:
            checkpoint = replay.pop(0)[2]
            assert isinstance(checkpoint, JournalRow)
            assert checkpoint.kind == CHECKPOINT, "replay begins with a checkpoint"
            yield LogEntry(CHECKPOINT, checkpoint.destination, 0, checkpoint.meta)
            for segment in before:
                yield from self._old_blocks(segment, start, fresh, moved, runs=runs)
            for (destination, ordinal), meta in moved.items():
                yield LogEntry(BLOCK, destination, ordinal, meta)
        for _, _, found in replay:
            if isinstance(found, Stretch):
                rows_bytes = SUMMARY_ROW_BYTES * len(found.offsets) + len(found.metas)
                self.replayed_bytes += rows_bytes
                self.log_bytes += rows_bytes + sum(found.sizes)
                yield EntryRun(found.destination, found.first, len(found.offsets), found.metas)
            elif found.kind != BLOCK or not found.flags & RELOCATED:
                assert found.kind != CHECKPOINT, "replay begins with the last checkpoint"
                nbytes = SUMMARY_ROW_BYTES + len(found.meta)
                self.replayed_bytes += nbytes if found.kind == BLOCK else len(found.meta) >> 2
                self.log_bytes += nbytes + found.nbytes
                yield LogEntry(found.kind, found.destination, found.ordinal, found.meta)

    def _gathered(
        self, rows: Iterator[tuple[Segment, int, JournalRow]]
    ) -> Iterator[tuple[Segment, int, JournalRow | Stretch]]:
        """Rows behind the last checkpoint with new blocks gathered, in order within each destination."""
        gatherer, at = Gatherer(), None
        for segment, base, row in rows:
            if segment is not at:
                if at is not None:
                    yield from ((at, 0, stretch) for stretch in gatherer.rest())
                at = segment
            if row.kind == BLOCK and not row.flags:
                ended = gatherer.add(row.ordinal, row.destination, base + row.offset, row.nbytes, row.crc, row.meta)
                if ended is not None:
                    yield segment, 0, ended
                continue
            ended = gatherer.take_stretch(row.destination)
            if ended is not None:
                yield segment, 0, ended
            yield segment, base, row
        if at is not None:
            yield from ((at, 0, stretch) for stretch in gatherer.rest())

    def summary(self, segment: Segment) -> Iterator[SummaryRow]:
        """The blocks of a sealed segment, from its summary or, if that is damaged, from its batches."""
        data = self._summary_data(segment)
        if data is not None:
            yield from iter_summary(data, segment.blocks)
            return
        self.notices.append(f"{self.files.path(segment.slot)}: the summary is damaged; its batches were read instead")
        for base, rows in self._batches(segment, SECTOR_BYTES, segment.first_chain, segment.first_seq):
            for row in rows:
                if row.kind == BLOCK:
                    at = base + row.offset
                    yield row.ordinal, row.destination, at, row.nbytes, row.crc, row.meta, row.flags

    def _summary_data(self, segment: Segment) -> bytes | None:
        """The bytes of the summary of a sealed segment; None if they are damaged."""
        fd = self.files.pin(segment.slot)
        try:
            data = read_exact(self.io, fd, segment.summary_bytes, segment.summary_offset)
        finally:
            self.files.unpin(segment.slot)
        return data if len(data) == segment.summary_bytes and crc32(data) == segment.summary_crc else None

    def payload(
        self, segment: Segment, destination: int, ordinal: int, offset: int, nbytes: int, crc: int, fd: int = -1
    ) -> bytes:
        """The verified payload of a block; ``fd`` is the segment's file if the caller has pinned it."""
        reason = "its checksum is wrong"
        data = b""
        pin = fd < 0
        try:
            if pin:
                fd = self.files.pin(segment.slot)
            data = read_exact(self.io, fd, nbytes, offset)
        except OSError as error:
            reason = str(error)
        finally:
            if pin and fd >= 0:
                self.files.unpin(segment.slot)
        if len(data) != nbytes or crc32(data) != crc:
            raise StoreDamagedError(
                f"{self.files.path(segment.slot)}: {nbytes} bytes at offset {offset} (segment {segment.number},"
                f" destination {destination}, block {ordinal}) are damaged: {reason}"
            )
        return data

    def references(self) -> tuple[list[tuple[tuple[int, int], Reference]], bool]:
        """The references to own files after recovery, and whether all of them could be read."""
        found, whole = [], True
        for key in sorted(self.own):
            number, offset, nbytes, crc = location_parts(self.index[key[0]][key[1]])
            try:
                found.append((key, Reference.decode(self.payload(self.segments[number], *key, offset, nbytes, crc))))
            except StoreDamagedError as error:
                whole = False
                self.notices.append(f"{error}; files that nothing refers to are kept")
        self.own.clear()
        return found, whole

    def forget_tail(self) -> None:
        """Drop what was read for recovery, which is over."""
        self.tail.clear()

    def _check_header(self, segment: Segment) -> None:
        fd = self.files.pin(segment.slot)
        try:
            header = SegmentHeader.decode(read_exact(self.io, fd, SECTOR_BYTES, 0))
        except FormatError as error:
            raise self._damage(segment, 0, str(error), None, None) from error
        finally:
            self.files.unpin(segment.slot)
        if (header.store, header.number, header.slot, header.size_bytes, header.first_seq, header.chain) != (
            self.manifest.store,
            segment.number,
            segment.slot,
            segment.size_bytes,
            segment.first_seq,
            segment.first_chain,
        ):
            raise self._damage(segment, 0, f"this is segment {header.number}: the files were exchanged", None, None)

    def scan_tail(self, segment: Segment) -> None:
        """Follow the batches of the last segment to its end and judge what comes behind them."""
        fd = self.files.pin(segment.slot)
        try:
            scan = SegmentScan(self.io, fd, segment.number, segment.size_bytes)
            reason = "the segment is full"
            try:
                for offset, header, rows in scan.batches(SECTOR_BYTES, segment.chain, segment.next_seq):
                    if 0 <= self.end_seq <= header.first_seq:
                        raise FormatError("what follows is cut off")
                    end_seq = header.first_seq + header.entries
                    if self._stale(header):
                        raise FormatError("a batch of an earlier incarnation")
                    torn = end_seq > self.mark.seq and scan.bad_payloads(rows, offset)
                    if torn and (self.manifest.relaxed or self._later(scan, segment, offset) is None):
                        raise FormatError("its payload is torn")
                    self._accept(segment, offset, header.chain, end_seq, padded(header.nbytes), rows)
            except FormatError as error:
                reason = str(error)
            self._judge_end(segment, scan, reason)
        finally:
            self.files.unpin(segment.slot)

    def _accept(self, segment: Segment, offset: int, chain: int, seq: int, nbytes: int, rows: list[JournalRow]) -> None:
        self.tail.append((offset, rows))
        for row in rows:
            if row.kind == BLOCK:
                block = JournalBlockRow(
                    row.ordinal, row.destination, offset + row.offset, row.nbytes, row.crc, row.meta, row.flags
                )
                segment.note_block(block, 0)
            elif row.kind == CHECKPOINT:
                segment.checkpoint_offset = offset
        segment.chain = chain
        segment.next_seq = seq
        segment.data_end = offset + nbytes

    def _judge_end(self, segment: Segment, scan: SegmentScan, reason: str) -> None:
        """Raise if the log cannot legally end here."""
        mark = self.mark
        if segment.next_seq < mark.seq:
            raise self._damage(segment, segment.data_end, reason, segment.next_seq, mark.seq)
        if mark.clean and mark.incarnation == self.manifest.incarnation:
            if (segment.next_seq, segment.number, segment.data_end) != (mark.seq, mark.segment, mark.offset):
                raise self._damage(segment, segment.data_end, "the log does not end where it was closed", None, None)
            return
        if self.manifest.relaxed or self.end_seq >= 0:
            return
        later = self._later(scan, segment, segment.data_end)
        if later is not None:
            raise self._damage(segment, segment.data_end, reason, segment.next_seq, later.first_seq)

    def _stale(self, header: BatchHeader) -> bool:
        """True when a batch was left by an earlier incarnation behind the end of the log at which this one began."""
        return header.first_seq >= self.manifest.base_seq and header.incarnation != self.manifest.incarnation

    def _later(self, scan: SegmentScan, segment: Segment, offset: int) -> BatchHeader | None:
        """A batch behind ``offset`` that belongs to the log: proof that the batch at ``offset`` was acknowledged."""
        for _, header in scan.later_batches(offset):
            if header.first_seq >= segment.next_seq and not self._stale(header):
                return header
        return None

    def _checkpoint(self) -> tuple[int, int] | None:
        """(segment, offset of the batch) of the last checkpoint."""
        for segment in reversed(self.segments.values()):
            if segment.checkpoint_offset:
                return segment.number, segment.checkpoint_offset
        return None

    def _since(self, start: tuple[int, int] | None) -> Iterator[tuple[Segment, int, JournalRow]]:
        """(segment, offset of the batch, row) from the last checkpoint entry on, or from the beginning."""
        for segment in self.segments.values():
            if start is not None and segment.number < start[0]:
                continue
            offset = start[1] if start is not None and segment.number == start[0] else SECTOR_BYTES
            for base, rows in self._batches_of(segment, offset):
                begin = 0
                if start == (segment.number, base):
                    begin = max(i for i, row in enumerate(rows) if row.kind == CHECKPOINT)
                for row in rows[begin:]:
                    yield segment, base, row

    def _batches_of(self, segment: Segment, offset: int) -> Iterator[tuple[int, list[JournalRow]]]:
        if not segment.sealed:
            return iter([batch for batch in self.tail if batch[0] >= offset])
        whole = offset == SECTOR_BYTES
        return self._batches(
            segment, offset, segment.first_chain if whole else None, segment.first_seq if whole else None
        )

    def _batches(
        self, segment: Segment, offset: int, chain: int | None, seq: int | None
    ) -> Iterator[tuple[int, list[JournalRow]]]:
        """The batches of a sealed segment; StoreDamagedError where they break."""
        fd = self.files.pin(segment.slot)
        at, next_seq, last = offset, seq, chain
        try:
            scan = SegmentScan(self.io, fd, segment.number, segment.data_end)
            for base, header, rows in scan.batches(offset, chain, seq):
                yield base, rows
                at, next_seq, last = base + padded(header.nbytes), header.first_seq + header.entries, header.chain
            if last is not None and (last, next_seq) != (segment.chain, segment.next_seq):
                raise FormatError("the chain does not end as the manifest says")
        except FormatError as error:
            raise self._damage(segment, at, str(error), next_seq, segment.next_seq) from error
        finally:
            self.files.unpin(segment.slot)

    def stored_batches(self, segment: Segment) -> list[StoredBatch]:
        """The batches of a segment, in their order; raises StoreDamagedError where they break."""
        fd = self.files.pin(segment.slot)
        found, at = list[StoredBatch](), SECTOR_BYTES
        try:
            scan = SegmentScan(self.io, fd, segment.number, segment.data_end)
            for base, header, rows in scan.batches(at, segment.first_chain, segment.first_seq):
                at = base + padded(header.nbytes)
                end = LogEnd(segment.number, at, header.first_seq + header.entries)
                payload_bytes = header.nbytes - header.head_bytes
                found.append(
                    StoredBatch(rows, header.first_seq, end, segment.slot, base + header.head_bytes, payload_bytes)
                )
        except FormatError as error:
            raise self._damage(segment, at, str(error), None, None) from error
        finally:
            self.files.unpin(segment.slot)
        return found

    def batch_payload(self, batch: StoredBatch) -> bytes:
        """The payloads of a batch, one behind the other, not verified; raises OSError."""
        fd = self.files.pin(batch.slot)
        try:
            return read_exact(self.io, fd, batch.payload_bytes, batch.payload_at)
        finally:
            self.files.unpin(batch.slot)

    def _old_blocks(
        self,
        segment: Segment,
        start: tuple[int, int],
        fresh: dict[int, set[int]],
        moved: dict[tuple[int, int], bytes],
        *,
        runs: bool,
    ) -> Iterator[LogEntry | EntryRun]:
        """The blocks of a segment that stand before the last checkpoint, each once."""
        if not runs:
            yield from self._old_rows(segment, self._rows_before(segment, start), fresh, moved)
            return
        data = self._summary_data(segment) if segment.number != start[0] else None
        pieces: Iterable[Stretch | Iterable[SummaryRow]]
        pieces = [self._rows_before(segment, start)] if data is None else summary_pieces(data, segment.blocks)
        for piece in gathered(pieces):
            if not isinstance(piece, Stretch):
                yield from self._old_rows(segment, iter(piece), fresh, moved)
            elif len(piece.offsets) >= RUN_BLOCKS_LEAST and not self._knows_any(piece):
                self._take_stretch(segment, piece)
                yield EntryRun(piece.destination, piece.first, len(piece.offsets), piece.metas)
            else:
                yield from self._old_rows(segment, piece.block_rows(), fresh, moved)

    def _rows_before(self, segment: Segment, start: tuple[int, int]) -> Iterator[SummaryRow]:
        """The rows of blocks of a segment that stand before the last checkpoint."""
        return self._blocks_before(segment, start[1]) if segment.number == start[0] else self.summary(segment)

    def _knows_any(self, stretch: Stretch) -> bool:
        known = self.index.get(stretch.destination)
        return known is not None and known.any_between(stretch.first, len(stretch.offsets))

    def _take_stretch(self, segment: Segment, stretch: Stretch) -> None:
        """Index blocks together, where none of them is known yet."""
        if self._knows_any(stretch):
            for ordinal, destination, offset, nbytes, crc, _, _ in stretch.block_rows():
                self._put(segment, destination, ordinal, offset, nbytes, crc)
            return
        known = self.index.get(stretch.destination)
        if known is None:
            known = self.index[stretch.destination] = Locations()
        known.put_all(stretch.first, segment.number, stretch.offsets, stretch.sizes, stretch.crcs)
        segment.live_blocks += len(stretch.offsets)
        segment.live_bytes += sum(stretch.sizes)

    def _old_rows(
        self,
        segment: Segment,
        rows: Iterator[SummaryRow],
        fresh: dict[int, set[int]],
        moved: dict[tuple[int, int], bytes],
    ) -> Iterator[LogEntry]:
        index = self.index
        prefix = segment.number << 96
        blocks = nbytes_live = 0
        for ordinal, destination, offset, nbytes, crc, meta, flags in rows:
            known = index.get(destination)
            if known is None:
                known = index[destination] = Locations()
            old = known.get(ordinal)
            if old is not None:
                key = destination, ordinal
                if key in moved:
                    yield LogEntry(BLOCK, destination, ordinal, moved.pop(key))
                if ordinal in fresh.get(destination, ()) or old >> 96 > segment.number:
                    continue
                self._drop(old)
            known[ordinal] = prefix | offset << 64 | nbytes << 32 | crc
            if flags & OWN_FILE:
                self.own.add((destination, ordinal))
            blocks += 1
            nbytes_live += nbytes
            if old is None:
                yield LogEntry(BLOCK, destination, ordinal, meta)
        segment.live_blocks += blocks
        segment.live_bytes += nbytes_live

    def _blocks_before(self, segment: Segment, checkpoint_offset: int) -> Iterator[SummaryRow]:
        """The blocks of the checkpoint's own segment that stand before it."""
        for base, rows in self._batches_of(segment, SECTOR_BYTES):
            if base > checkpoint_offset:
                return
            last = len(rows)
            if base == checkpoint_offset:
                last = max(i for i, row in enumerate(rows) if row.kind == CHECKPOINT)
            for row in rows[:last]:
                if row.kind == BLOCK:
                    at = base + row.offset
                    yield row.ordinal, row.destination, at, row.nbytes, row.crc, row.meta, row.flags

    def _put(self, segment: Segment, destination: int, ordinal: int, offset: int, nbytes: int, crc: int) -> None:
        known = self.index.get(destination)
        if known is None:
            known = self.index[destination] = Locations()
        old = known.get(ordinal)
        if old is not None:
            self._drop(old)
        known[ordinal] = location(segment.number, offset, nbytes, crc)
        segment.live_blocks += 1
        segment.live_bytes += nbytes

    def _drop(self, old: int) -> None:
        number, _, nbytes, _ = location_parts(old)
        self.segments[number].live_blocks -= 1
        self.segments[number].live_bytes -= nbytes

    def _damage(
        self, segment: Segment, offset: int, reason: str, seq: int | None, end_seq: int | None
    ) -> StoreDamagedError:
        """The error that names the damage."""
        first = segment.first_seq if seq is None else seq
        lost = f"entries {first} to {end_seq - 1}" if end_seq is not None else f"entries from {first} on"
        return StoreDamagedError(
            f"{self.files.path(segment.slot)}: segment {segment.number} is damaged at offset {offset}: {reason};"
            f" {lost} are unknown"
        )
