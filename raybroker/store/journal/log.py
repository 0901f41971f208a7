"""Appending to the log: the only file that writes batches, seals segments and changes the manifest.

The order of writes makes every crash recoverable:

    append   the commit mark of the batch before, unless that was written; batch into the active segment, one fdatasync
    mark     the commit mark (not synced), behind the confirmations of the batch
    roll     take an allocated file; summary into the old segment, sync; header into the new file, sync;
             manifest naming both, sync; only then batches into the new segment
    retire   (a sync if commits do not sync: copies must be durable before what they were copied from goes)
             manifest without the segments, sync; only then are their files free or removed
    room     allocated ahead of the end, or given back behind it, at any time: these bytes have no meaning

A failure in between leaves the log dead (fail-stop): after a failed sync nobody knows what the kernel has dropped,
so nothing is retried, nothing of that batch is acknowledged, and only reading the files anew can tell what is there.
The one exception is a lack of room for a new segment, which is found out before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from zlib import crc32

from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import StoreError
from raybroker.store.fileio import FileIO, write_all
from raybroker.store.journal.anchors import COMPRESSED, OWN_FILES, PLAIN, Manifest, ManifestFiles, Mark, MarkFile
from raybroker.store.journal.format import (
    SECTOR_BYTES,
    SEGMENT_BYTES_MAX,
    ZEROS,
    Packed,
    SegmentHeader,
    batch_head,
    first_chain,
    padded,
)
from raybroker.store.journal.reserve import FULL_ERRNOS, Use
from raybroker.store.journal.segment import Segment, SegmentFiles, size_for
from raybroker.store.journal.sizing import Sizing

_MANIFEST_SPARE_ROWS = 8
_SEGMENT_LEAST_BYTES = 8 * SECTOR_BYTES
"""Room that a segment is begun with, if there is no more."""
_SCANTY_SHIFT = 4
"""Where the disk has not a step of room, that part of the least one is taken ahead, so that not every acknowledgement
asks for its own sector."""


class BatchSyncs:
    """How batches are made durable: ``each`` of them is synced before it is confirmed, or the operating system is left
    to it. Syncs of batches are counted and timed, in nanoseconds by the clock ``now_ns``."""

    def __init__(self, io: FileIO, monotonic_ns: Callable[[], int], *, each: bool) -> None:
        self.each = each
        self.count = self.total_ns = self.last_ns = self.max_ns = 0
        self._io = io
        self.now_ns = monotonic_ns

    def sync(self, fd: int) -> None:
        began = self.now_ns()
        self._io.fdatasync(fd)
        took = self.now_ns() - began
        self.count += 1
        self.total_ns += took
        self.last_ns = took
        if took > self.max_ns:
            self.max_ns = took


class LogWriter:
    """The end of the log.  All methods belong to the committing thread."""

    def __init__(
        self,
        io: FileIO,
        directory: Path,
        files: SegmentFiles,
        manifests: ManifestFiles,
        mark: MarkFile,
        segments: dict[int, Segment],
        syncs: BatchSyncs,
        sizing: Sizing,
    ) -> None:
        self._io = io
        self._directory = directory
        self._files = files
        self._manifests = manifests
        self._mark = mark
        self.syncs = syncs
        self._sizing = sizing
        self._loose: list[Segment] = []
        """Sealed segments with room behind their summary."""
        self._fd = -1
        self._durable_seq = 0
        self._unmarked = False
        """A batch is durable, and no commit mark says so yet."""
        self.segments = segments
        self.dead: str | None = None
        self.commits = 0

    def begin_incarnation(self) -> None:
        """Start a new incarnation at the end that recovery found.

        Manifest, tail and new names are synced first: after the death of the last process they may be in memory only.
        Files that no segment uses are removed after that.  A mark of a clean end is withdrawn before the first write to
        a manifest: one that is torn would be damage as long as it says that nothing was under way.
        """
        manifest = self.manifest
        try:
            self._manifests.sync()
            # Segments that are cut off stay until no manifest names them: the next opening removes their files.
            named = {record.slot for record in manifest.segments}
            self._files.sort_out(named | {segment.slot for segment in self.segments.values()})
            self._io.fsync_dir(self._directory)
            if self.segments:
                self.active = self.segments[max(self.segments)]
                self._fd = self._files.pin(self.active.slot)
                self._io.fdatasync(self._fd)
                self._find_room()
            else:
                self.active = self._start_segment(1, 0, 0, _SEGMENT_LEAST_BYTES, Use.BLOCKS, manifest.incarnation + 1)
            self._durable_seq = self.active.next_seq
            self._mark.withdraw()
            self._manifests.write(
                replace(
                    manifest,
                    generation=manifest.generation + 1,
                    incarnation=manifest.incarnation + 1,
                    base_seq=self.active.next_seq,
                    relaxed=not self.syncs.each,
                    segments=tuple(segment.record() for segment in self.segments.values()),
                )
            )
            self._write_mark()
            self._files.fill_reserve()
        except OSError as error:
            raise self.died(error) from error

    @property
    def manifest(self) -> Manifest:
        """The manifest in force."""
        assert self._manifests.current is not None
        return self._manifests.current

    def append(self, packed: Packed, use: Use) -> tuple[Segment, int]:
        """Make one batch durable; gives back its segment and where in it the payloads start.

        StoreFullError: nothing was written, the log lives on.  StoreError: the log is dead.
        """
        if self.dead is not None:
            self.check()
        if self._unmarked:
            self.write_mark()
        segment, nbytes = self.active, packed.nbytes
        end = segment.data_end + nbytes + segment.summary_bytes + packed.summary_bytes
        if (end > segment.room_end and not self._extend(end)) or (
            use is Use.BLOCKS and self._keep_free_of_blocks(segment)
        ):
            size = size_for(packed)
            assert size <= SEGMENT_BYTES_MAX, f"a batch of {nbytes} bytes is too large for a segment"
            segment = self._roll(size, use)
        try:
            offset = segment.data_end
            head, chain = batch_head(
                packed,
                segment.number,
                self._manifests.current.incarnation,  # type: ignore[union-attr]  # an open log has a manifest
                segment.next_seq,
                segment.chain,
            )
            base = offset + len(head)
            buffers: list[Buffer] = [head, *packed.payloads]
            padding = offset + nbytes - base - packed.payload_bytes
            if padding:
                buffers.append(ZEROS[:padding])
            write_all(self._io, self._fd, buffers, offset, nbytes)
            if self.syncs.each:
                self.syncs.sync(self._fd)
            segment.data_end = offset + nbytes
            self._sizing.written += nbytes
            segment.next_seq += packed.count
            segment.chain = chain
            if packed.checkpoint:
                segment.checkpoint_offset = offset
            for block in packed.blocks:
                segment.note_block(block, base)
            self.commits += 1
            if self.syncs.each:
                self._durable_seq = segment.next_seq
                self._unmarked = True
        # Whatever it was, nobody knows how much of the batch is on the disk.
        except BaseException as error:
            raise self.died(error) from error
        return segment, base

    def write_mark(self) -> None:
        """Note how far the log is durable, if a batch has become so since; nobody waits for that, since recovery allows
        for an older mark."""
        if self._unmarked and self.dead is None:
            self._unmarked = False
            active = self.active
            try:
                self._mark.advance(self._durable_seq, active.number, active.data_end)
            except OSError as error:
                raise self.died(error) from error

    def retire(self, segments: Iterable[Segment]) -> None:
        """Take dead segments out of the log and free their files."""
        self.check()
        gone = list(segments)
        try:
            if not self.syncs.each:  # what is to go may have been copied into batches that nobody has synced
                self._io.fdatasync(self._fd)
                self._durable_seq = self.active.next_seq
            for segment in gone:
                del self.segments[segment.number]
            self._loose = [segment for segment in self._loose if segment.number in self.segments]
            self._write_manifest()
            before = self._files.reserved_bytes()
            for segment in gone:
                self._files.give_back(segment.slot)
            if self._files.reserved_bytes() != before:
                self._io.fsync_dir(self._directory)
        except BaseException as error:
            raise self.died(error) from error

    def declare(self, *, own_files: bool = False, compressed: bool = False) -> None:
        """Give the store a format that says that such blocks are in it, before they are written for the first time."""
        self.check()
        manifest = self.manifest
        form = COMPRESSED if compressed else OWN_FILES if own_files else PLAIN
        if manifest.form < form:
            try:
                self._manifests.write(replace(manifest, generation=manifest.generation + 1, form=form))
                self._write_mark()
            except OSError as error:
                raise self.died(error) from error

    def sync(self) -> None:
        """Sync what was appended, unless that is done already."""
        if not self.syncs.each:
            try:
                self._io.fdatasync(self._fd)
                self._durable_seq = self.active.next_seq
            except OSError as error:
                raise self.died(error) from error

    def trim(self) -> None:
        """Give all room back to the file system that nothing is written in, but a little."""
        try:
            if self._files.trim():
                self._io.fsync_dir(self._directory)
            active, least = self.active, self._sizing.least_bytes
            if self._sizing.excess(active.room_end, active.used_end + least):
                self._cut(active, active.used_end + least)
            for segment in self._loose:
                self._cut(segment, segment.used_end)
            self._loose.clear()
        except OSError as error:
            raise self.died(error) from error

    def calm(self) -> None:
        """Nothing is to be written for a while: :meth:`trim`, whatever was written lately."""
        self._sizing.calm()
        self.trim()

    def follow_time(self, *, crowded: bool) -> None:
        """See what time it is, and whether others need the room of the disk; for :attr:`roomy`."""
        self._sizing.follow_time(self.syncs.now_ns(), crowded=crowded)

    @property
    def roomy(self) -> bool:
        """Whether there is room to give back that a log as busy as this one does not need."""
        if self._sizing.busy:
            return False
        active, sizing, files = self.active, self._sizing, self._files
        if files.free:
            return True
        ahead = active.used_end + sizing.least_bytes
        return files.can_punch and (bool(self._loose) or sizing.excess(active.room_end, ahead))

    def prepare(self, budget_bytes: int) -> bool:
        """Have the reserve, and a step of room for what comes next; True if there is more to do."""
        self.check()
        try:
            if not self._files.fill_reserve():
                return False
            active = self.active
            left = active.room_end - active.used_end
            if left * 2 >= self._sizing.segment_bytes:
                return False
            step = self._step()
            if left * 2 >= step:
                return False
            end = active.room_end
            if end == active.size_bytes:
                return self._files.prepare(step, budget_bytes)
            part = min(end + budget_bytes, end + step, active.size_bytes)
            if self._files.short_of(part - end) or not self._files.fill(active.slot, end, part):
                return False
            active.room_end = part
            return (part - active.used_end) * 2 < step
        except OSError as error:
            raise self.died(error) from error

    def write_end_mark(self) -> None:
        """Write the mark of a clean end, unless the log is dead."""
        if self.dead is not None:
            return
        try:
            self._io.fdatasync(self._fd)
            self._durable_seq = self.active.next_seq
            self._mark.write_clean(self._mark_now())
        except OSError as error:
            raise self.died(error) from error

    def check(self) -> None:
        """Raise if the log is dead."""
        if self.dead is not None:
            raise StoreError(self.dead)

    def _keep_free_of_blocks(self, segment: Segment) -> bool:
        """True when the segment has to be free again after the next checkpoint, see ``reserve``."""
        return not segment.live_blocks and len(self._files.reserve) < Use.BLOCKS.leaves

    def go_on(self) -> None:
        """Seal the active segment, so that its space can be reclaimed; StoreFullError leaves it as it was."""
        self.check()
        self._roll(_SEGMENT_LEAST_BYTES, Use.BLOCKS)

    def _step(self) -> int:
        live = sum([segment.live_bytes for segment in list(self.segments.values())])
        return self._sizing.step_bytes(live)

    def _extend(self, end: int) -> bool:
        """Room in the active segment up to there, and a step of it if that can be had; False: it cannot."""
        active, end = self.active, padded(end)
        if end > active.size_bytes:
            return False
        try:
            steps = (self._step(), self._sizing.least_bytes >> _SCANTY_SHIFT, 0)
            for room in [min(padded(end + step), active.size_bytes) for step in steps]:
                # Asked first: file systems take milliseconds to try, and to undo, what they have no room for, and on a
                # full disk that would be for each acknowledgement.
                if room > end and self._files.short_of(room - active.room_end):
                    continue
                if self._files.extend(active.slot, room):
                    active.room_end = room
                    return True
        except OSError as error:
            raise self.died(error) from error
        return False

    def _find_room(self) -> None:
        """How far the files are allocated that were found."""
        files = self._files
        for segment in self.segments.values():
            segment.room_end = files.room(segment.slot)
            if segment.sealed and self._sizing.excess(segment.room_end, segment.used_end):
                self._loose.append(segment)
        active = self.active
        # What a file takes on the disk tells how far it is allocated, but not to the last block.
        for room in (max(active.room_end, active.used_end), active.used_end):
            if room <= active.size_bytes and files.extend(active.slot, room):
                active.room_end = room
                return
        active.room_end = active.data_end

    def _cut(self, segment: Segment, room_end: int) -> None:
        """Give the room of a segment back from there on."""
        if self._files.cut(segment.slot, room_end):
            segment.room_end = room_end

    def _roll(self, size_bytes: int, use: Use) -> Segment:
        """Seal the active segment and start one of at least that size."""
        old = self.active
        try:
            new = self._start_segment(
                old.number + 1,
                old.next_seq,
                old.chain,
                size_bytes,
                use,
                self.manifest.incarnation,
            )
            summary = old.summary.encode()
            write_all(self._io, self._fd, [summary], old.data_end)
            self._io.fdatasync(self._fd)
            old.summary_offset, old.summary_bytes, old.summary_crc = old.data_end, len(summary), crc32(summary)
            old.sealed = True
            if self._sizing.excess(old.room_end, old.used_end):
                self._loose.append(old)
            old.summary = type(old.summary)()
            self._files.unpin(old.slot)
            self._fd = self._files.pin(new.slot)
            self.active = new
            # The sync of the summary was one of the whole file: also batches that were not synced are durable now.
            self._durable_seq = old.next_seq
            self._write_manifest()
        except StoreError:
            raise
        except BaseException as error:
            raise self.died(error) from error
        return new

    def _start_segment(
        self, number: int, first_seq: int, chain_before: int, size_bytes: int, use: Use, incarnation: int
    ) -> Segment:
        """A new segment with its header on disk, not yet in the manifest.  StoreFullError leaves all as it was."""
        # A lack of room has to show before anything is written: then the log goes on as it was.
        self._make_manifest_room()
        slot = self._files.take_file(size_bytes, use, self._step())
        store = self.manifest.store
        segment = Segment.started(
            number, slot, self._files.size(slot), first_seq, first_chain(store, number, chain_before)
        )
        segment.room_end = self._files.room(slot)
        header = SegmentHeader(store, number, slot, incarnation, first_seq, segment.size_bytes, segment.chain)
        fd = self._files.pin(slot)
        try:
            write_all(self._io, fd, [header.encode()], 0)
            self._io.fdatasync(fd)
        finally:
            self._files.unpin(slot)
        self.segments[number] = segment
        if self._fd < 0:
            self._fd = self._files.pin(slot)
        return segment

    def _make_manifest_room(self) -> None:
        rows = len(self.segments) + 1
        try:
            self._manifests.reserve(rows + _MANIFEST_SPARE_ROWS)
        except OSError as error:
            if error.errno not in FULL_ERRNOS:
                raise
            self._manifests.must_hold(rows)

    def _write_manifest(self) -> None:
        manifest = self.manifest
        records = tuple([segment.record() for segment in self.segments.values()])
        self._manifests.write(replace(manifest, generation=manifest.generation + 1, segments=records))
        self._write_mark()

    def _mark_now(self) -> Mark:
        manifest = self.manifest
        active = self.active
        return Mark(
            manifest.store,
            manifest.generation,
            manifest.incarnation,
            False,
            self._durable_seq,
            active.number,
            active.data_end,
        )

    def _write_mark(self) -> None:
        self._unmarked = False
        self._mark.write(self._mark_now())

    def died(self, error: BaseException) -> StoreError:
        """Declare the log dead."""
        if self.dead is None:
            self.dead = f"the store {self._directory} failed and was stopped: {error!r}"
        return StoreError(self.dead)
