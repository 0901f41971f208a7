"""The folder of a copy: its head and the journal with its log; what the machine has saved goes here, in its order.

    directory/        0700
      lock            flock of the holder
      copy.head       see ``copy_head``
      log-N           the journal in force, N as the head says; others were damaged, or belonged to another copy
      image-N         files of a leader's log that come, to be the next journal

A journal that is damaged is set aside, never emptied or guessed at: the copy notes first that it may lack what it has
answered for, and then begins another one.  All methods but ``free`` belong to whoever saves, one at a time.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from raybroker.copies.copy_head import ID_BYTES, CopyHead, HeadFile
from raybroker.copies.entry_form import EntryNote, entry_of, is_note, note_of, noted
from raybroker.copies.image_form import image_of_bytes
from raybroker.model.blocks.record import CHECKPOINT, EntryRun, LogEntry
from raybroker.model.errors import StoreDamagedError, StoreError
from raybroker.replication.copy_state import SavedCopy
from raybroker.replication.positions import BEGINNING, Body, EntryKind, LogPosition, ReplicatedEntry, Term
from raybroker.replication.replica_set import ReplicaSet, unpacked_set
from raybroker.store.fileio import FileIO
from raybroker.store.journal import SEGMENT_BYTES, Journal
from raybroker.store.journal.batches import StoredBatch
from raybroker.store.journal.format import Packed
from raybroker.store.journal.image import LogEnd, LogImage, write_anchors
from raybroker.store.journal.lockfile import LOCK_NAME, LockFile
from raybroker.store.journal.own_files import OwnFileOptions
from raybroker.store.locations import BlockKey

LOG_PREFIX: Final = "log-"
IMAGE_PREFIX: Final = "image-"
ENDS_KEPT: Final = 1024
"""Of entries that are committed it is known so long where their batches end."""
GROUP_BYTES_MAX: Final = 4 << 20
"""Entries that a copy has missed are written together up to so much."""


class CopyBeginsAnewError(StoreError):
    """The log could not go on as it is: the copy has begun another one, and says that it may lack something."""

    code = StoreError.code


@dataclass(frozen=True, slots=True)
class SavedEnd:
    """The place of an entry's batch in the journal."""

    index: int
    first_seq: int
    end: LogEnd


class JournalOptions(NamedTuple):
    """How journals are opened: see :class:`raybroker.store.journal.Journal`."""

    monotonic_ns: Callable[[], int]
    entropy: Callable[[int], bytes]
    segment_bytes: int = SEGMENT_BYTES
    io: FileIO | None = None


class CopyFolder:
    """The open folder of one copy.  ``node``: where it is, as of a name that no other node has.

    damaged  lines about what was found damaged, for the log
    Raises StoreError if it is open elsewhere or cannot be used.
    """

    def __init__(self, directory: Path, node: str, options: JournalOptions) -> None:
        self.directory = directory
        self.damaged: list[str] = []
        self._options = options
        self._io = io = options.io or FileIO()
        self._ends: deque[SavedEnd] = deque()
        self._members: ReplicaSet
        self._checkpoint_index = self._committed = 0
        """The latest entry with a checkpoint, and what is known to be final."""
        self._copying = 0
        """How many copies of the journal's files are under way."""
        self._held = False
        try:
            if not io.exists(directory):
                io.make_directory(directory)
                io.fsync_dir(directory.parent)
            if io.mode(directory) & 0o077:
                raise StoreError(f"{directory} is for its owner alone (chmod go= {directory})")
            if not io.exists(directory / LOCK_NAME):
                io.close(io.create(directory / LOCK_NAME))
            self._lock = LockFile(io, directory)
        except OSError as error:
            raise StoreError(f"the copy {directory} cannot be opened: {error}") from error
        try:
            self._file = HeadFile(io, directory, node)
            self._open()
        except OSError as error:
            self._lock.release()
            raise StoreError(f"the copy {directory} cannot be opened: {error}") from error
        except BaseException:
            self._lock.release()
            raise

    # ---- what there is

    @property
    def head(self) -> CopyHead:
        assert self._file.head is not None
        return self._file.head

    def load(self) -> SavedCopy:
        """What the disk holds, read; once, after opening."""
        head = self.head
        try:
            base, members, entries = self._read_tail()
        except (StoreDamagedError, OSError) as error:
            self._note_damage(str(error))
            head = self.head
            base, members, entries = BEGINNING, head.members, []
        changes = [entry for entry in entries if entry.kind is EntryKind.MEMBERS]
        self._members = unpacked_set(b"".join(changes[-1].body)) if changes else members
        committed = max(self._committed, base.index)
        self.hold()
        return SavedCopy(head.promised, base, members, tuple(entries), committed, head.damage, head.lost)

    def live_spans(self, index: int, after: BlockKey, upto: BlockKey) -> Mapping[int, Sequence[tuple[int, int]]]:
        """Destination → live blocks in a stretch that came with an entry up to ``index``, as far as is known which
        these are: first and last of ordinals that follow each other, ascending."""
        end = next((end for end in reversed(self._ends) if end.index <= index), None)
        return {} if end is None else self.journal.live_spans(after, upto, end.end)

    # ---- what the machine saves

    def found(self, members: ReplicaSet) -> None:
        """The first replica set of a log that begins here."""
        self._file.write(replace(self.head, members=members))
        self._members = members

    def promise(self, term: Term, damage: int) -> None:
        """See SavePromise."""
        head = self.head
        lost = head.lost if damage else None
        self._file.write(replace(head, promised=term, damage=damage, lost=lost))

    def save_all(self, entries: Iterable[ReplicatedEntry], committed: int, own: Packed | None = None) -> None:
        """Append entries; durable on return.  ``own``: the batch of the only one, where it was made here.

        StoreFullError: what is missing may be tried again, with those before.
        """
        last = self._ends[-1].index if self._ends else 0
        group, nbytes = list[ReplicatedEntry](), 0
        for entry in entries:
            if entry.at.index <= last:
                continue
            if group and (entry.at.index > committed or nbytes + entry.nbytes > GROUP_BYTES_MAX):
                self._save_group(group, committed, None)
                group, nbytes = [], 0
            group.append(entry)
            nbytes += entry.nbytes
        if group:
            self._save_group(group, committed, own)

    def _save_group(self, group: Sequence[ReplicatedEntry], committed: int, own: Packed | None) -> None:
        """Append one entry, or several that are committed, which take one sync."""
        entry, members = group[-1], self._members
        for one in group:
            if one.kind is EntryKind.MEMBERS:
                members = unpacked_set(b"".join(one.body))
        packed = noted(group, committed, members, own)
        first_seq = self.journal.log_end.seq
        if packed.checkpoint:
            self._checkpoint_index, before = entry.at.index, self._checkpoint_index
            self.hold()
            try:
                self.journal.commit_packed(packed)
            except BaseException:
                self._checkpoint_index = before
                raise
        else:
            self.journal.commit_packed(packed)
        self._members = members
        self._ends.append(SavedEnd(entry.at.index, first_seq, self.journal.log_end))

    def cut(self, index: int) -> None:
        """Entries behind ``index`` go."""
        gone = next((end for end in self._ends if end.index == index + 1), None)
        if gone is None:
            return
        if self.journal.moved_seq > gone.first_seq:
            # Survivors of older segments stand behind the cut, and nowhere else.
            reason = f"its log has to be cut at entry {index}, behind which survivors of older segments were copied"
            self._note_damage(reason)
            raise CopyBeginsAnewError(f"the copy {self.directory} begins anew: {reason}")
        self.journal.close()
        self._open_journal(self.head.log, gone.first_seq)
        self._checkpoint_index = 0
        _, members, entries = self._read_tail()
        changes = [entry for entry in entries if entry.kind is EntryKind.MEMBERS]
        self._members = unpacked_set(b"".join(changes[-1].body)) if changes else members
        self.hold()

    def install(self, at: LogPosition, members: ReplicaSet, content: Body) -> None:
        """The journal is replaced by the image that ``content`` names, whose files are here."""
        image, number = image_of_bytes(b"".join(content))
        path = self.directory / f"{IMAGE_PREFIX}{number}"
        log, before = self._next_log(), self.head.log
        write_anchors(self._io, path, image)
        self._io.rename(path, self.directory / f"{LOG_PREFIX}{log}")
        self._io.fsync_dir(self.directory)
        self.journal.close()
        self._open_journal(log)
        self._committed, self._checkpoint_index, self._copying = at.index, 0, 0
        base, found, entries = self._read_tail()
        if base != at or found != members or entries:
            raise StoreError(f"the log that came ends at {base}, and not at {at}")
        self._file.write(replace(self.head, log=log))
        self._members = members
        self.hold()
        shutil.rmtree(self.directory / f"{LOG_PREFIX}{before}", ignore_errors=True)

    # ---- space

    def commit(self, committed: int) -> None:
        """Entries up to there are final."""
        if committed > self._committed:
            self._committed = committed
            ends = self._ends
            while len(ends) > ENDS_KEPT and ends[1].index <= committed:
                ends.popleft()
            if self._held:
                self.hold()

    def hold(self) -> None:
        """Space is reclaimed unless the last checkpoint may be cut off again, or files are being copied."""
        held = self._checkpoint_index > self._committed or self._copying > 0
        self._held = held
        self.journal.hold_space(held=held)

    def hold_files(self, *, held: bool) -> None:
        """The journal's files stay as they are while somebody copies them; to be called once more for each end."""
        self._copying = max(0, self._copying + (1 if held else -1))
        self.hold()

    def image(self, committed: int) -> tuple[int, LogImage] | None:
        """The image of the log up to the latest entry that is committed, and that entry; None without one."""
        found = next((end for end in reversed(self._ends) if end.index <= committed), None)
        return None if found is None else (found.index, self.journal.image(found.end))

    def free(self, destination: int, ordinals: Iterable[int]) -> None:
        """Blocks are dead; unknown ones are passed over."""
        self.journal.free(destination, ordinals)

    def reopen(self) -> Iterator[LogEntry | EntryRun]:
        """Open the journal as after a restart, and give back what is in it, without the notes of entries."""
        self.journal.close()
        self._open_journal(self.head.log, recovered=False)
        for entry in self.journal.recover_runs():
            if isinstance(entry, EntryRun) or not is_note(entry.kind, entry.destination, entry.meta):
                yield entry
        self.hold()

    def release(self) -> None:
        try:
            self.journal.close()
        finally:
            self._file.release()
            self._lock.release()

    # ---- inside

    def _open(self) -> None:
        file = self._file
        if file.head is None:
            log = self._next_log()
            self._open_journal(log)
            file.begin_folder(CopyHead(self._options.entropy(ID_BYTES).hex(), file.seal, log=log))
            if file.before is not None:
                self.damaged.append(
                    f"{self.directory} was the folder of copy {file.before.id}, on another node or disk"
                )
            return
        path = self.directory / f"{LOG_PREFIX}{file.head.log}"
        try:
            if not self._io.exists(path) or not self._io.names(path):
                raise StoreDamagedError(f"{path} is not there")
            self._open_journal(file.head.log)
        except StoreDamagedError as error:
            self._note_damage(str(error))

    def _note_damage(self, reason: str) -> None:
        """What this copy has answered for may be missing: it says so from now on, and begins another log."""
        self.damaged.append(f"copy {self.head.id} is damaged, and has to be brought up to date: {reason}")
        journal = getattr(self, "journal", None)
        if journal is not None:
            journal.close()
        head, log = self.head, self._next_log()
        self._ends.clear()
        self._checkpoint_index = self._committed = 0
        self._open_journal(log)
        damages = head.damages + 1
        self._file.write(replace(head, damages=damages, damage=damages, lost=None, log=log))

    def _next_log(self) -> int:
        """Return a number that no journal has had here."""
        numbers = [
            int(name.removeprefix(LOG_PREFIX))
            for name in self._io.names(self.directory)
            if name.startswith(LOG_PREFIX) and name.removeprefix(LOG_PREFIX).isdecimal()
        ]
        return 1 + max(numbers, default=0)

    def _open_journal(self, log: int, end_seq: int = -1, *, recovered: bool = True) -> None:
        self.journal = self._make_journal(self.directory / f"{LOG_PREFIX}{log}", end_seq)
        if recovered:
            try:
                deque(self.journal.recover_runs(), maxlen=0)
            except BaseException:
                self.journal.close()
                raise

    def _make_journal(self, path: Path, end_seq: int = -1) -> Journal:
        options = self._options
        return Journal(
            path,
            monotonic_ns=options.monotonic_ns,
            entropy=options.entropy,
            segment_bytes=options.segment_bytes,
            own_files=OwnFileOptions(record_bytes=-1),
            io=options.io,
            end_seq=end_seq,
        )

    def _read_tail(self) -> tuple[LogPosition, ReplicaSet, list[ReplicatedEntry]]:
        """The position of the last entry that is known to be committed, the set as of it, and the entries behind it."""
        tail: list[tuple[EntryNote, StoredBatch]] = []
        committed = self._committed
        for batches in self.journal.batches_back():
            noted_ = [(note, batch) for batch in batches if (note := note_of(batch.rows)) is not None]
            tail = noted_ + tail
            if tail:
                committed = max(committed, tail[-1][0].committed)
                if tail[0][0].at.index <= committed:
                    break
        base, members, after = BEGINNING, self.head.members, tail
        if tail and (committed or tail[0][0].at.index > 1):
            # What is missing before the first was let go with its segments, and only what is committed is.
            known = [note for note, _ in tail if note.at.index <= max(committed, tail[0][0].at.index)]
            base, members = known[-1].at, known[-1].members
            after = [(note, batch) for note, batch in tail if note.at.index > base.index]
        self._ends.clear()
        for note, batch in tail:
            if note.at.index >= base.index:
                self._ends.append(SavedEnd(note.at.index, batch.first_seq, batch.end))
                if any(row.kind == CHECKPOINT for row in batch.rows):
                    self._checkpoint_index = note.at.index
        self._committed = max(committed, base.index)
        return base, members, [entry_of(note, batch.rows, self.journal.batch_payload(batch)) for note, batch in after]
