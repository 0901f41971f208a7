"""Verification of a closed store, byte by byte, without changing it.

Opening a store reads only anchors, summaries and the tail, and a payload is checked when it is read.  ``verify`` reads
every byte that has a meaning, including those that are needed only when others are damaged, and reports them as
``covered``: all others are padding, unused space or a free file, and damage there is harmless.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

from raybroker.model.blocks.record import BLOCK
from raybroker.model.errors import StoreDamagedError, StoreError
from raybroker.store.fileio import FileIO, read_exact
from raybroker.store.journal.anchors import (
    MANIFEST_NAMES,
    MARK_NAME,
    Manifest,
    ManifestFiles,
    Mark,
    MarkFile,
    mark_bytes,
)
from raybroker.store.journal.format import OWN_FILE, SECTOR_BYTES, FormatError, JournalRow, SegmentHeader, padded
from raybroker.store.journal.lockfile import LOCK_NAME, LockFile
from raybroker.store.journal.own_files import Reference, body_name
from raybroker.store.journal.recovery import JournalRecovery, newest_manifest
from raybroker.store.journal.scan import SegmentScan
from raybroker.store.journal.segment import Segment, SegmentFiles, segment_name


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that differ from those that were written."""

    file: str
    offset: int
    nbytes: int
    what: str

    def __str__(self) -> str:
        return f"{self.file} at {self.offset} ({self.nbytes} bytes): {self.what}"


@dataclass
class Report:
    """Result of ``verify``.  ``covered`` is file → [start, end) of the bytes that were checked."""

    damages: list[Damage] = field(default_factory=list)
    covered: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    segments: int = 0
    batches: int = 0
    blocks: int = 0
    next_seq: int = 0

    @property
    def sound(self) -> bool:
        return not self.damages

    def cover(self, file: str, offset: int, nbytes: int) -> None:
        self.covered.setdefault(file, []).append((offset, offset + nbytes))

    def add(self, file: str, offset: int, nbytes: int, what: str) -> None:
        self.damages.append(Damage(file, offset, nbytes, what))


def verify(directory: Path, io: FileIO | None = None) -> Report:
    """Check every byte of the store in ``directory``, which no process may have open.

    Raises StoreError if one has, or if there is no store; damage is in the report, not raised.
    """
    io = io or FileIO()
    if not io.exists(directory / LOCK_NAME):
        raise StoreError(f"there is no store in {directory}")
    lock = LockFile(io, directory)
    files = SegmentFiles(io, directory, 0)
    manifests = ManifestFiles(io, directory)
    mark_file = MarkFile(io, directory)
    report = Report()
    try:
        manifest, mark = _verify_anchors(directory, manifests, mark_file, report)
        if manifest is not None:
            _verify_segments(io, files, manifest, mark, report)
    finally:
        files.close()
        manifests.close()
        mark_file.close()
        lock.release()
    return report


def _verify_anchors(
    directory: Path, manifests: ManifestFiles, mark_file: MarkFile, report: Report
) -> tuple[Manifest | None, Mark | None]:
    faults: list[str] = []
    mark: Mark | None = None
    try:
        faults = manifests.load(write=False)
        mark = mark_file.load(write=False)
        newest_manifest(manifests, faults, mark, directory)
    except (FileNotFoundError, StoreDamagedError) as error:
        report.add(MARK_NAME if mark is None else MANIFEST_NAMES[mark.generation & 1], 0, 0, str(error))
    manifest = manifests.current
    clean = mark is not None and mark.clean and manifest is not None and mark.incarnation == manifest.incarnation
    if clean:
        # Nothing was under way, so that no torn write can excuse what is not valid.
        for fault in faults:
            report.add(fault.partition(":")[0], 0, 0, fault)
        if not faults and max(manifests.generations) - min(manifests.generations) > 1:
            stale = manifests.generations.index(min(manifests.generations))
            report.add(MANIFEST_NAMES[stale], 0, 0, "an old copy of it was put back")
        for slot in mark_file.invalid_slots:
            report.add(MARK_NAME, slot, mark_bytes(), "this copy of the commit mark is not valid")
    if manifest is not None:
        for name, nbytes in zip(MANIFEST_NAMES, manifests.valid_bytes, strict=False):
            report.cover(name, 0, nbytes)
    for slot in (0, SECTOR_BYTES):
        report.cover(MARK_NAME, slot, mark_bytes())
    return manifest, mark


def _verify_segments(io: FileIO, files: SegmentFiles, manifest: Manifest, mark: Mark | None, report: Report) -> None:
    files.discover()
    for record in manifest.segments:
        segment = Segment.of_record(record)
        name = segment_name(segment.slot)
        report.segments += 1
        try:
            fd = files.pin(segment.slot)
        except OSError as error:
            report.add(name, 0, segment.size_bytes, f"segment {segment.number} cannot be opened: {error}")
            continue
        size = io.size(fd)
        if size != segment.size_bytes:
            report.add(name, size, 0, f"{size} bytes instead of {segment.size_bytes}")
        _verify_header(io, fd, manifest, segment, report)
        if segment.sealed:
            _verify_sealed(io, files, fd, segment, report)
        files.unpin(segment.slot)
        if not segment.sealed:
            _verify_tail(io, files, manifest, mark, report)


def _verify_header(io: FileIO, fd: int, manifest: Manifest, segment: Segment, report: Report) -> None:
    name = segment_name(segment.slot)
    report.cover(name, 0, SECTOR_BYTES)
    try:
        header = SegmentHeader.decode(read_exact(io, fd, SECTOR_BYTES, 0))
        if (header.store, header.number, header.chain) != (manifest.store, segment.number, segment.first_chain):
            raise FormatError(f"this is segment {header.number} of store {header.store.hex()}")
    except FormatError as error:
        report.add(name, 0, SECTOR_BYTES, str(error))


def _verify_sealed(io: FileIO, files: SegmentFiles, fd: int, segment: Segment, report: Report) -> None:
    name = segment_name(segment.slot)
    at = SECTOR_BYTES
    scan = SegmentScan(io, fd, segment.number, segment.data_end)
    chain = segment.first_chain
    try:
        for offset, header, rows in scan.batches(SECTOR_BYTES, segment.first_chain, segment.first_seq):
            _verify_batch(scan, files, name, offset, rows, report)
            chain = header.chain
            at = offset + padded(header.nbytes)
        if chain != segment.chain:
            raise FormatError("the chain does not end as the manifest says")
    except FormatError as error:
        report.add(name, at, segment.data_end - at, f"batch: {error}")
        report.cover(name, at, segment.data_end - at)
    report.cover(name, segment.summary_offset, segment.summary_bytes)
    data = read_exact(io, fd, segment.summary_bytes, segment.summary_offset)
    if len(data) != segment.summary_bytes or crc32(data) != segment.summary_crc:
        report.add(name, segment.summary_offset, segment.summary_bytes, "the summary is damaged")
    report.next_seq = segment.next_seq


def _verify_tail(io: FileIO, files: SegmentFiles, manifest: Manifest, mark: Mark | None, report: Report) -> None:
    """The last segment, judged as opening the store would; then the payloads that opening does not read."""
    record = manifest.segments[-1]
    name = segment_name(record.slot)
    known = mark or Mark(manifest.store, 0, 0, False, 0, 0, 0)
    reader = JournalRecovery(io, files, manifest, known)
    reader.segments[record.number] = segment = Segment.of_record(record)
    try:
        reader.scan_tail(segment)
    except StoreDamagedError as error:
        report.add(name, segment.data_end, 0, str(error))
        report.cover(name, segment.data_end, record.size_bytes - segment.data_end)
    fd = files.pin(record.slot)
    scan = SegmentScan(io, fd, record.number, segment.data_end)
    for offset, rows in reader.tail:
        _verify_batch(scan, files, name, offset, rows, report)
    files.unpin(record.slot)
    report.next_seq = segment.next_seq


def _verify_batch(
    scan: SegmentScan, files: SegmentFiles, name: str, offset: int, rows: list[JournalRow], report: Report
) -> None:
    """The payloads of a batch whose head is good."""
    report.cover(name, offset, rows[-1].offset + rows[-1].nbytes)
    report.batches += 1
    report.blocks += sum(row.kind == BLOCK for row in rows)
    bad = scan.bad_payloads(rows, offset)
    for row in bad:
        what = f"payload of destination {row.destination}, block {row.ordinal}"
        report.add(name, offset + row.offset, row.nbytes, what)
    for row in rows:
        if row.flags & OWN_FILE and row not in bad:
            _verify_own_file(files, Reference.decode(scan.payload(row, offset)), row, report)


def _verify_own_file(files: SegmentFiles, reference: Reference, row: JournalRow, report: Report) -> None:
    """A file that a row refers to.  One that is not there belonged to a block that is dead, as far as the row tells:
    the loss of a living one is seen by whoever reads it."""
    name, nbytes = body_name(reference.number), reference.nbytes
    data = files.other(name)
    if data is None:
        return
    report.cover(name, 0, nbytes)
    if len(data) < nbytes or crc32(memoryview(data)[:nbytes]) != reference.crc:
        report.add(name, 0, nbytes, f"payload of destination {row.destination}, block {row.ordinal}")
