"""The journal: a durable store in an append-only log of segment files.

This file is the Store contract (``raybroker.engine.ports``) and the index of live blocks; it leaves the bytes to
``format``, writing to ``log``, what a crash left behind to ``recovery``, and space to ``reclaim``.

    directory/            0700, every file 0600
      lock                flock and pid of the holder
      manifest.0, .1      which segments there are; the newer valid one counts
      commit.mark         how far the log was durable at least
      segment-NNNNNN      segments and free files
      body-, free-…       payloads of large blocks, and free files for them: ``own_files``

Threads: ``commit``, ``maintain`` and ``close`` belong to one thread; ``read``, ``free`` and the rest to any.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from raybroker.model.blocks.block import BLOCK_BYTES_MAX
from raybroker.model.blocks.large_block import LargeBlock
from raybroker.model.blocks.record import CHECKPOINT, EntryRun, LogEntry, StoreStats
from raybroker.model.errors import StoreDamagedError, StoreError, StoreFullError
from raybroker.store.fileio import FileIO, read_exact
from raybroker.store.journal.anchors import MANIFEST_NAMES, MARK_NAME, Manifest, ManifestFiles, Mark, MarkFile
from raybroker.store.journal.batches import StoredBatch
from raybroker.store.journal.format import SECTOR_BYTES, SEGMENT_BYTES_MAX, Packed, pack_entries, padded
from raybroker.store.journal.image import LogEnd, LogImage, image_of
from raybroker.store.journal.large_files import NewBody, StoredBody, has_large, keep_bodies, put_out
from raybroker.store.journal.lockfile import LockFile
from raybroker.store.journal.log import BatchSyncs, LogWriter
from raybroker.store.journal.own_files import OwnFileOptions, OwnFiles, Reference
from raybroker.store.journal.reclaim import LastCheckpoint, Reclaimer
from raybroker.store.journal.recovery import JournalRecovery, newest_manifest
from raybroker.store.journal.reserve import RESERVE_FILES, CheckpointEstimate, Use
from raybroker.store.journal.segment import Segment, SegmentFiles, slot_of
from raybroker.store.journal.set_aside import check_not_begun, notices
from raybroker.store.journal.sizing import Sizing
from raybroker.store.locations import (
    FIRST_KEY,
    LAST_KEY,
    NOWHERE_BEHIND,
    ORDINAL_LAST,
    BlockKey,
    Locations,
    location_parts,
)

SEGMENT_BYTES: Final = 64 << 20
_STORE_ID_BYTES: Final = 16
_SPARE_BYTES: Final = 1 << 20
"""What a disk has to have free besides before a batch with blocks is let in."""
RESERVE_EXCESS: Final = 4
"""A file of the reserve that is so many times larger than needed is replaced."""


class Journal:
    """An open journal; constructing one opens (or creates) it and holds it until ``close``.

    directory      created if missing; must belong to its owner alone (0700)
    monotonic_ns   clock for measuring syncs
    entropy        source of the store's id, used once, at creation
    sync           False leaves durability to the operating system: a killed process loses nothing, a power cut may lose
                   the end of the log (``imq.persist.file.sync.enabled``)
    segment_bytes  length of a segment file, rounded up to whole sectors (4 KiB to 4 GiB); a larger batch gets a file
                   of its own, and what nothing is written in takes no place on the disk
    own_files      which blocks have files of their own, and what becomes of those files
    end_seq        what was written from this entry on is cut off, which is the first of a batch; -1: nothing is

    Raises StoreError if it is open elsewhere or its permissions are too wide, StoreDamagedError if what was durable is
    not there, StoreFullError if a new store has no room for its first segment.
    """

    def __init__(
        self,
        directory: Path,
        *,
        monotonic_ns: Callable[[], int],
        entropy: Callable[[int], bytes],
        sync: bool = True,
        segment_bytes: int = SEGMENT_BYTES,
        own_files: OwnFileOptions = OwnFileOptions(),  # noqa: B008 - a tuple
        io: FileIO | None = None,
        end_seq: int = -1,
    ) -> None:
        segment_bytes = padded(min(max(segment_bytes, 8 * SECTOR_BYTES), SEGMENT_BYTES_MAX - SECTOR_BYTES))
        self.directory = directory
        self._io = io or FileIO()
        self._segment_bytes = segment_bytes
        self._sizing = Sizing(segment_bytes)
        self._lock = threading.Lock()
        self._ready = False
        self._closed = False
        self._full_notice = ""
        self._compaction_asked = False
        self._record_bytes = own_files.record_bytes if own_files.record_bytes >= 0 else BLOCK_BYTES_MAX
        self._own_files_due = False
        """A checkpoint would free own files worth a segment."""
        self._bytes_since_checkpoint = 0
        self._checkpoint_bytes = 0
        try:
            self._open_directory()
            self._lock_file = LockFile(self._io, directory)
        except OSError as error:
            raise StoreError(f"the store {directory} cannot be opened: {error}") from error
        self._estimate = CheckpointEstimate(segment_bytes)
        self._files = SegmentFiles(self._io, directory, segment_bytes, self._estimate.roomy_bytes())
        self._own = OwnFiles(self._io, directory, own_files, self._files.trim)
        self._refused = False
        self._crowded = False
        """The disk has not room for a segment, for whichever store; looked at about once a second."""
        self._manifests = ManifestFiles(self._io, directory)
        self._mark_file = MarkFile(self._io, directory)
        try:
            check_not_begun(self._io, directory)
            self._open_log(entropy, sync, monotonic_ns, end_seq)
        except OSError as error:
            self._release()
            raise StoreError(f"the store {directory} cannot be opened: {error}") from error
        except BaseException:
            self._release()
            raise

    def recover(self) -> Iterator[LogEntry]:
        """The stored entries; to be exhausted once before any other call.  See ``recovery`` for the order.

        Every block given back counts as live until it is freed.
        """
        for found in self._recovered(runs=False):
            assert isinstance(found, LogEntry)
            yield found

    def recover_runs(self) -> Iterator[LogEntry | EntryRun]:
        """Do what :meth:`recover` does, in its place, with blocks that are side by side together; in order within each
        destination."""
        return self._recovered(runs=True)

    def _recovered(self, *, runs: bool) -> Iterator[LogEntry | EntryRun]:
        assert not self._ready, "a store is recovered once"
        self._log.check()
        try:
            for entry in self._recovery.entries(runs=runs):
                if isinstance(entry, LogEntry) and entry.kind == CHECKPOINT:
                    self._estimate.checkpoint(len(entry.meta))
                yield entry
        except (OSError, StoreDamagedError) as error:
            self._log.dead = f"the store {self.directory} cannot be read: {error}"
            raise error if isinstance(error, StoreError) else StoreError(self._log.dead) from error
        self._adopt_own_files()
        self._recovery.forget_tail()
        self._ready = True
        self._estimate.written(self._recovery.replayed_bytes, blocks=True)
        self._bytes_since_checkpoint = self._recovery.log_bytes
        self._shrink_reserve()
        if not self._grow_reserve():
            self._full_notice = (
                f"{self.directory}: the disk is full; messages can be consumed and acknowledged, and none is taken"
                " before there is room"
            )

    def commit(self, entries: Sequence[LogEntry]) -> Callable[[], None] | None:
        """Write one batch; on return it is durable.  Gives back what writes the commit mark, see ``log``.

        StoreFullError: nothing was written and the store lives on (a batch without blocks may still succeed, and one
        with only a checkpoint makes room for more).  Any other StoreError: the store is dead, nothing of the batch may
        be acknowledged.
        """
        self._check()
        if not entries:
            return None
        self._commit(pack_entries(entries), entries)
        return self._log.write_mark if self._log.syncs.each else None

    def commit_packed(self, packed: Packed) -> None:
        """Do what :meth:`commit` does, with a batch that is packed, and whose payloads all go into the log itself.
        :meth:`write_mark` is to follow, when those who wait were told."""
        self._check()
        self._commit(packed, ())

    def write_mark(self) -> None:
        """Note how far the log is durable; nobody has to wait for that."""
        self._log.write_mark()

    def _commit(self, packed: Packed, entries: Sequence[LogEntry]) -> None:
        if packed.compressed:
            self._log.declare(compressed=True)
        references: dict[tuple[int, int], Reference] = {}
        if entries and (packed.payload_bytes > self._record_bytes or self._own.claimed):
            # Their files are written and synced before the log refers to them: no reference is found without its file.
            packed, references = self._put_out(entries, packed)
        blocks, index = packed.blocks, self._index
        for block in blocks:
            assert block.ordinal not in index.get(block.destination, ()), f"stored already: {block[:2]}"
        try:
            segment, base = self._append(packed)
        except StoreFullError:
            self._give_up(references)
            raise
        for key, reference in references.items():
            self._own.put(key, reference)
        if references:
            keep_bodies(entries)
        if blocks:
            prefix = segment.number << 96
            with self._lock:
                for ordinal, destination, offset, nbytes, crc, _, _ in blocks:
                    known = index.get(destination)
                    if known is None:
                        known = index[destination] = Locations()
                    known[ordinal] = prefix | base + offset << 64 | nbytes << 32 | crc
                segment.live_blocks += len(blocks)
                segment.live_bytes += packed.payload_bytes
        if packed.checkpoint:
            self._checkpoint = LastCheckpoint(segment.number, segment.next_seq - packed.count)
            if self._own or self._reclaimer.compact_before:
                self._collect_own_files()
            self._checkpoint_bytes = packed.nbytes
            self._bytes_since_checkpoint = 0
            self._estimate.checkpoint(packed.nbytes)
            self._work = True
            if self._refused or len(self._files.reserve) < RESERVE_FILES:
                self._refused = False
                self._reclaimer.retire(self._checkpoint)
            self._shrink_reserve()
            return
        self._bytes_since_checkpoint += packed.nbytes
        self._estimate.written(packed.summary_bytes if blocks else len(packed.body), blocks=bool(blocks))
        if blocks and self._estimate.reserve_bytes() > self._files.reserve_bytes:
            self._grow_reserve()

    def read(self, destination: int, ordinal: int) -> bytes:
        """The payload of a live block, verified.

        KeyError if there is no such live block; StoreDamagedError if its bytes are not what was written, StoreError if
        its file cannot be opened.  The store lives on in any case.
        """
        self._check()
        with self._lock:
            number, offset, nbytes, crc = location_parts(self._index[destination][ordinal])
            own = self._own.get((destination, ordinal))
            segment = self._log.segments[number]
        if own is not None:
            return self._own.read((destination, ordinal), own)
        with self._lock:
            try:
                fd = self._files.pin(segment.slot)
            except OSError as error:
                raise StoreError(f"{self._files.path(segment.slot)} cannot be opened: {error}") from error
        try:
            self._files.fetch(fd, segment, destination, offset, nbytes)
            return self._recovery.payload(segment, destination, ordinal, offset, nbytes, crc, fd)
        finally:
            self._files.unpin(segment.slot)

    @property
    def bodies(self) -> Journal | None:
        """Return where large bodies may come in pieces: here, unless no block is to have a file of its own."""
        return self if self._record_bytes < BLOCK_BYTES_MAX else None

    def large(self, destination: int, ordinal: int) -> LargeBlock | None:
        """A live block whose body came in pieces, which is not read yet; None for any other block."""
        reference = self._own.get((destination, ordinal))
        if reference is None or not reference.front:
            return None
        return LargeBlock(reference.front, StoredBody(self._own, reference))

    def begin_body(self, nbytes: int) -> NewBody:
        """The file of a body that comes in pieces, in any thread; raises StoreFullError and StoreError."""
        self._check()
        return NewBody(self._own, self._io, nbytes)

    def salvage(self, destination: int, ordinal: int) -> bytes:
        """The present bytes in the place of a live block, not verified; as many as can be read.

        KeyError if there is no such live block, StoreError if its file cannot be read.
        """
        self._check()
        with self._lock:
            number, offset, nbytes, _ = location_parts(self._index[destination][ordinal])
            own = self._own.get((destination, ordinal))
            slot = self._log.segments[number].slot
        if own is not None:
            return self._own.read((destination, ordinal), own, verified=False)
        try:
            fd = self._files.pin(slot)
            try:
                return read_exact(self._io, fd, nbytes, offset)
            finally:
                self._files.unpin(slot)
        except OSError as error:
            raise StoreError(f"{self._files.path(slot)} cannot be read: {error}") from error

    def free(self, destination: int, ordinals: Iterable[int]) -> None:
        """Mark blocks as dead; an unknown one is passed over."""
        self._check()
        segments = self._log.segments
        now = self._log.active.next_seq
        own = self._own or None
        with self._lock:
            known = self._index.get(destination)
            if known is None:
                return
            for ordinal in ordinals:
                value = known.pop(ordinal)
                if value is not None:
                    segment = segments[value >> 96]
                    segment.live_blocks -= 1
                    segment.live_bytes -= value >> 32 & 0xFFFFFFFF
                    segment.freed_seq = now
                    if own is not None:
                        own.free((destination, ordinal), now)
            if not known:
                del self._index[destination]
            self._work = True
        if own is not None and own.freed_bytes >= self._segment_bytes:
            self._own_files_due = True

    def checkpoint_due(self) -> bool:
        """True once the log has gone on to another segment since the last checkpoint.

        A checkpoint larger than a segment does not ask for the next one at once: twice its size has to be written.
        On a full disk there is no such wait, because only a checkpoint frees segments, and the active one is freed too
        once nothing in it is live.
        """
        if self._own_files_due or (self._refused and (self._own.freed_bytes > 0 or self._frees_segments())):
            return True
        if (self._refused or self._crowded) and self._emptied():
            return True
        if self._log.active.number == self._checkpoint.segment:
            return False
        if len(self._files.reserve) < RESERVE_FILES:
            return True
        return self._bytes_since_checkpoint >= 2 * self._checkpoint_bytes

    def checkpoint_helps(self) -> bool:
        """True when a checkpoint made now would free segments of more than twice its size."""
        last, active = self._checkpoint, self._log.active.number
        freed = sum(
            s.room_end
            for s in list(self._log.segments.values())
            if not s.live_blocks and s.number < active and (s.number >= last.segment or s.freed_seq > last.seq)
        )
        if self._emptied():
            freed += self._log.active.room_end
        return freed > 2 * self._checkpoint_bytes

    def maintain(self, budget_bytes: int) -> bool:
        """Remove dead segments, copy survivors out of sparse ones, prepare the next file: a step of that many bytes."""
        self._check()
        self._log.write_mark()
        if self._work:
            self._work = False
            if self._reclaimer.step(self._checkpoint, budget_bytes):
                self._work = True
                return True
        self._log.follow_time(crowded=self._crowded)
        if self._log.roomy:
            self._log.trim()
        return self._log.prepare(budget_bytes)

    def tidy_helps(self) -> bool:
        """True when ``maintain`` would give back room that the log does not need as it is used now; in any thread."""
        with suppress(OSError):  # The next commit says what is wrong with the disk.
            self._crowded = self._io.free_bytes(self.directory) < self._segment_bytes
        self._log.follow_time(crowded=self._crowded)
        return self._ready and self._log.roomy

    def compact(self) -> None:
        """Give back all space that can be.

        The next checkpoint goes into a new segment; then the survivors of all segments before it that are less than
        three quarters full are copied, and free files removed, by ``maintain``.
        """
        self._check()
        self._compaction_asked = True

    @property
    def compacting(self) -> bool:
        return self._compaction_asked or self._reclaimer.compact_before > 0

    @property
    def log_end(self) -> LogEnd:
        """Return where the log ends."""
        active = self._log.active
        return LogEnd(active.number, active.data_end, active.next_seq)

    @property
    def moved_seq(self) -> int:
        """The log ended here when a survivor was copied last, in this opening."""
        return self._reclaimer.moved_seq

    def hold_space(self, *, held: bool) -> None:
        """Reclaim no space while ``held``, so that the log can be cut before its last checkpoint, or its files copied;
        committing thread."""
        self._reclaimer.held = held
        self._work = True

    def batches_back(self) -> Iterator[list[StoredBatch]]:
        """The batches of each segment, in their order; the newest segment first."""
        for number in sorted(self._log.segments, reverse=True):
            yield self._recovery.stored_batches(self._log.segments[number])

    def batch_payload(self, batch: StoredBatch) -> bytes:
        """Return the payloads of a batch, one behind the other, not verified; raises OSError."""
        return self._recovery.batch_payload(batch)

    def image(self, end: LogEnd) -> LogImage:
        """The files of the log up to a place where a batch has ended, for a copy of it; see :meth:`hold_space`."""
        return image_of(self._log.manifest, self._log.segments.values(), end)

    def live_spans(
        self, after: BlockKey = FIRST_KEY, upto: BlockKey = LAST_KEY, before: LogEnd | None = None, most: int = 0
    ) -> dict[int, list[tuple[int, int]]]:
        """Destination → its live blocks in a stretch, as :meth:`raybroker.store.locations.Locations.spans` has them;
        destinations ascend.  ``before``: those that stand before it alone; ``most``: no more spans, 0: all."""
        end = NOWHERE_BEHIND if before is None else before.segment << 96 | before.offset << 64
        found: dict[int, list[tuple[int, int]]] = {}
        left = most
        with self._lock:
            for destination in sorted(number for number in self._index if after[0] <= number <= upto[0]):
                low = after[1] if destination == after[0] else -1
                high = upto[1] if destination == upto[0] else ORDINAL_LAST
                spans = self._index[destination].spans(low, high, end, left)
                if spans:
                    found[destination] = spans
                left -= len(spans)
                if most and not left:
                    break
        return found

    def usage(self) -> dict[int, tuple[int, int]]:
        """Destination → (live blocks, bytes of their payloads)."""
        found = {}
        for destination in list(self._index):
            with self._lock:
                known = self._index.get(destination)
                if known is None:
                    continue
                blocks, nbytes = known.usage()
            found[destination] = blocks, nbytes + (self._own.usage(destination) if self._own else 0)
        return found

    def plain_because(self) -> str:
        return ""

    def has_room(self, nbytes: int) -> bool:
        """True when a batch of about ``nbytes`` with blocks would be taken now and leave the reserve whole."""
        needed = -(-nbytes // SECTOR_BYTES) * SECTOR_BYTES + SECTOR_BYTES
        missing = self._files.missing_bytes(self._estimate.reserve_bytes(nbytes >> 4))
        if not missing and nbytes <= self._record_bytes:
            active = self._log.active
            if active.data_end + active.summary_bytes + needed <= active.room_end:
                return True
            if needed + SECTOR_BYTES <= self._files.free_room()[1]:
                return True
        space = self._io.free_bytes(self.directory) + self._files.free_room()[0] + self._own.pool()[1]
        room = space > missing + self._sizing.least_bytes + needed + min(self._segment_bytes, _SPARE_BYTES)
        self._refused = not room
        return room

    @property
    def incarnation(self) -> int:
        """Number of this opening of the store: durably larger with every one."""
        return self._log.manifest.incarnation

    def stats(self) -> StoreStats:
        log = self._log
        with self._lock:
            segments = list(log.segments.values())
        (own_files, own_bytes), (free_files, free_bytes) = self._own.live(), self._own.pool()
        own_used = own_bytes + self._own.freed_bytes
        return StoreStats(
            reserved_bytes=self._files.reserved_bytes() + own_used + free_bytes,
            used_bytes=sum([s.data_end + (s.summary_bytes if s.sealed else 0) for s in segments]) + own_used,
            live_bytes=sum([s.live_bytes for s in segments]) + own_bytes,
            segments=len(segments),
            own_files=own_files,
            own_bytes=own_bytes,
            free_files=free_files,
            free_bytes=free_bytes,
            commits=log.commits,
            syncs=log.syncs.count,
            sync_ns=log.syncs.total_ns,
            sync_ns_last=log.syncs.last_ns,
            sync_ns_max=log.syncs.max_ns,
        )

    def notices(self) -> list[str]:
        """Notices for the log of the host: a full disk, damage that could be read around, and what was set aside."""
        aside = notices(self._io, self.directory)
        return [*aside, *self._recovery.notices, *([self._full_notice] if self._full_notice else [])]

    def close(self) -> None:
        """Write the mark of a clean end and release the directory; twice is harmless.

        A dead store only releases it.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._log.write_end_mark()
            self._own.close()
        except OSError as error:
            raise self._log.died(error) from error
        finally:
            self._log.dead = self._log.dead or f"the store {self.directory} is closed"
            self._release()

    def _append(self, packed: Packed) -> tuple[Segment, int]:
        """Append to the log; when it is full, once more after dead segments have gone."""
        use = Use.BLOCKS if packed.blocks else Use.CHECKPOINT if packed.checkpoint else Use.NOTES
        if packed.blocks and len(self._files.reserve) < RESERVE_FILES:
            self._grow_reserve()
        if packed.checkpoint and self._compaction_asked:
            self._begin_compaction()
        elif packed.checkpoint and self._emptied():
            self._leave_active()
        try:
            return self._log.append(packed, use)
        except StoreFullError:
            if not self._drop_own_pool() | self._reclaimer.retire(self._checkpoint):
                raise
        return self._log.append(packed, use)

    def _put_out(self, entries: Sequence[LogEntry], packed: Packed) -> tuple[Packed, dict[tuple[int, int], Reference]]:
        """The batch with references to files of their own in the place of large payloads, and those."""
        references: dict[tuple[int, int], Reference] = {}
        if not has_large(entries, packed, self._record_bytes):
            return packed, references
        self._log.declare(own_files=True)
        try:
            return put_out(entries, packed, self._own, self._record_bytes, references), references
        except StoreFullError:
            self._give_up(references)
            raise
        except OSError as error:
            raise self._log.died(error) from error

    def _drop_own_pool(self) -> bool:
        """Give up the free own files, whose room is needed; true when there were any."""
        try:
            return self._own.drop_pool()
        except OSError as error:
            raise self._log.died(error) from error

    def _give_up(self, references: Mapping[tuple[int, int], Reference]) -> None:
        """Own files that were written, and that nothing will refer to, are free; bodies that came in pieces wait."""
        try:
            self._own.give_up([reference.number for reference in references.values() if not reference.crcs])
        except OSError as error:
            raise self._log.died(error) from error

    def _adopt_own_files(self) -> None:
        """Know the own files that recovery found references to; the others are free."""
        found, whole = self._recovery.references()
        try:
            self._own.adopt(self.incarnation, found, whole=whole)
        except OSError as error:
            raise self._log.died(error) from error

    def _collect_own_files(self) -> None:
        """A checkpoint is durable: own files of blocks that were dead before it are free."""
        self._own_files_due = False
        try:
            self._log.sync()
            self._own.collect(self._checkpoint.seq)
            if self._reclaimer.compact_before:
                self._own.drop_pool()
        except OSError as error:
            raise self._log.died(error) from error

    def _begin_compaction(self) -> None:
        """The checkpoint that comes goes into a new segment, so that all before it can be reclaimed."""
        if self._log.active.data_end > SECTOR_BYTES:
            self._leave_active()
        self._reclaimer.compact_before = self._log.active.number
        self._compaction_asked = False
        self._work = True

    def _emptied(self) -> bool:
        """Whether nothing in the active segment is live, and a checkpoint in another one would free a step of room.
        Not without a checkpoint in it already: so a busy log does not go from segment to segment."""
        active = self._log.active
        return (
            not active.live_blocks
            and active.number == self._checkpoint.segment
            and active.data_end > self._sizing.least_bytes + 2 * self._checkpoint_bytes
        )

    def _leave_active(self) -> None:
        """What comes goes into a new segment, so that the active one can be reclaimed."""
        with suppress(StoreFullError):  # Then it is left as it is.
            self._log.go_on()

    def _grow_reserve(self) -> bool:
        """Make the reserve as large as the next checkpoint may need it; False if there is no room for that."""
        files = self._files
        if self._estimate.reserve_bytes() > files.reserve_bytes:
            files.reserve_bytes = self._estimate.roomy_bytes()
        try:
            return files.fill_reserve() or (self._own.drop_pool() and files.fill_reserve())
        except OSError as error:
            raise self._log.died(error) from error

    def _shrink_reserve(self) -> None:
        """Give back files of the reserve that are far larger than the next checkpoint needs."""
        files, most = self._files, RESERVE_EXCESS * self._estimate.roomy_bytes()
        if files.reserve_bytes > most or any(files.size(slot) > most for slot in files.reserve):
            files.reserve_bytes = self._estimate.roomy_bytes()
            files.shrink_reserve(most)
            self._grow_reserve()

    def _frees_segments(self) -> bool:
        """True when a checkpoint made now would free segments."""
        last, active = self._checkpoint, self._log.active.number
        if self._bytes_since_checkpoint <= self._checkpoint_bytes:
            return False
        return any(
            not s.live_blocks and s.number < active and (s.number >= last.segment or s.freed_seq > last.seq)
            for s in list(self._log.segments.values())
        )

    def _check(self) -> None:
        self._log.check()
        assert self._ready, "recover() comes first"

    def _release(self) -> None:
        self._files.close()
        self._manifests.close()
        self._mark_file.close()
        self._lock_file.release()

    def _open_directory(self) -> None:
        io = self._io
        if not io.exists(self.directory):
            io.make_directory(self.directory)
            io.fsync_dir(self.directory.parent)
        for path in [self.directory, *(self.directory / name for name in io.names(self.directory))]:
            mode = io.mode(path)
            if mode & 0o077:
                raise StoreError(f"{path} has mode {mode:03o}: a store is for its owner alone (chmod go= {path})")

    def _open_log(
        self, entropy: Callable[[int], bytes], sync: bool, monotonic_ns: Callable[[], int], end_seq: int
    ) -> None:
        mark, faults = self._load_anchors(entropy)
        manifest = newest_manifest(self._manifests, faults, mark, self.directory)
        self._recovery = JournalRecovery(self._io, self._files, manifest, mark, end_seq)
        self._recovery.find_end()
        self._index = self._recovery.index
        self._log = LogWriter(
            self._io,
            self.directory,
            self._files,
            self._manifests,
            self._mark_file,
            self._recovery.segments,
            BatchSyncs(self._io, monotonic_ns, each=sync),
            self._sizing,
        )
        self._log.begin_incarnation()
        found = [segment.number for segment in self._log.segments.values() if segment.checkpoint_offset]
        self._checkpoint = LastCheckpoint(max(found, default=1))
        self._reclaimer = Reclaimer(
            self._log, self._files, self._recovery, self._index, self._lock, self._segment_bytes
        )
        self._work = True

    def _load_anchors(self, entropy: Callable[[int], bytes]) -> tuple[Mark, list[str]]:
        """The manifest and the mark; a directory without any segment may be a store whose creation was cut short."""
        names = self._io.names(self.directory)
        anchors: list[str] = [name for name in (*MANIFEST_NAMES, MARK_NAME) if name in names]
        if any(slot_of(name) is not None for name in names):
            if len(anchors) < 3:
                missing = sorted({*MANIFEST_NAMES, MARK_NAME} - set(anchors))
                raise StoreDamagedError(f"{self.directory}: {', '.join(missing)} is missing: what it held is unknown")
            faults = self._manifests.load()
            return self._mark_file.load(), faults
        generation = 0
        with suppress(FileNotFoundError):
            self._manifests.load()
        with suppress(FileNotFoundError, StoreDamagedError):
            generation = self._mark_file.load().generation
        if generation > 1:
            raise StoreDamagedError(f"{self.directory}: its segments are missing, every one of them")
        return self._create(anchors, entropy)

    def _create(self, anchors: list[str], entropy: Callable[[int], bytes]) -> tuple[Mark, list[str]]:
        """Create a store, unless the files in the directory belong to an older one that has lost its segments."""
        found = self._manifests.current
        if found is not None and found.segments:
            raise StoreDamagedError(f"{self.directory}: its segments are missing, every one of them")
        self._manifests.close()
        self._mark_file.close()
        if anchors:  # A segment's file that the last process removed must not come back without them.
            self._io.fsync_dir(self.directory)
        for name in anchors:
            self._io.unlink(self.directory / name)
        self._manifests = ManifestFiles(self._io, self.directory)
        self._mark_file = MarkFile(self._io, self.directory)
        manifest = Manifest(1, entropy(_STORE_ID_BYTES), 0, 0, False, ())
        mark = Mark(manifest.store, 1, 0, True, 0, 0, 0)
        self._manifests.create(manifest)
        self._mark_file.create(mark)
        self._io.fsync_dir(self.directory)
        return mark, []
