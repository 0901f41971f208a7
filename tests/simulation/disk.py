"""A store that can lose what was not synced, and a committer that syncs late.

``SimDisk`` is the platter: it survives a crash of the host.  ``SimStore`` is one life over it and keeps the Store's
contract.  ``SimCommitter`` keeps the Committer's: when a commit is durable and when the engine hears of it are two
events, and a crash can come between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any

from raybroker.core.durable import records
from raybroker.engine.path.committer import entry_bytes
from raybroker.model.blocks.large_block import LargeBlock, LargePayload
from raybroker.model.blocks.record import (
    BLOCK,
    CHECKPOINT,
    NOTE,
    NOTE_BYTES_MAX,
    EntryRun,
    LogEntry,
    StoreStats,
    in_runs,
)
from raybroker.model.errors import BrokerError, StoreDamagedError, StoreError
from tests.simulation.events import Loop
from tests.simulation.large import SimBody, StoredBody


class SimDisk:
    """``log``: entries that are durable, with the ordinal and destination of a block as its key.

    ``fronts``: bytes before the body, of blocks whose bodies came in pieces.
    """

    def __init__(self) -> None:
        self.log: list[LogEntry] = []
        self.blocks: dict[tuple[int, int], bytes] = {}
        self.damaged: set[tuple[int, int]] = set()
        self.fronts: dict[tuple[int, int], int] = {}

    def append(self, entries: Iterable[LogEntry]) -> None:
        for entry in entries:
            if entry.kind == BLOCK:
                key = entry.destination, entry.ordinal
                assert key not in self.blocks, f"block {key} is stored twice"
                self.blocks[key] = b"".join(entry.payload)
                if type(entry.payload) is LargePayload:
                    body = entry.payload.large
                    assert isinstance(body, SimBody), "the body of one block is given to another"
                    assert body.finished, "a block refers to a body that is not durable"
                    self.fronts[key] = len(self.blocks[key])
                    self.blocks[key] += body.data
            else:
                assert entry.kind == CHECKPOINT or len(entry.meta) <= NOTE_BYTES_MAX
            self.log.append(LogEntry(entry.kind, entry.destination, entry.ordinal, entry.meta))


class SimStore:
    """The Store contract over a disk. ``dead``: the disk reports errors. ``gone``: the host that used it is no more."""

    def __init__(self, disk: SimDisk, rng: Random, *, checkpoint_entries: int, relocation: float) -> None:
        self.disk = disk
        self.freed: set[tuple[int, int]] = set()
        self.fresh = 0
        self.want_checkpoint = False
        self.on_free: Callable[[int, int], None] = lambda destination, ordinal: None
        self.roomy: Callable[[], bool] = lambda: True
        self.dead = False
        self.gone = False
        self._rng = rng
        self._checkpoint_entries = checkpoint_entries
        self._relocation = relocation

    def recover(self) -> Iterator[LogEntry]:
        log = self.disk.log
        cut = self._cut()
        if cut >= 0:
            yield log[cut]
            yield from [e for e in log[:cut] if e.kind == BLOCK]
        yield from log[cut + 1 :]
        self.fresh = len(log) - cut - 1

    def recover_runs(self) -> Iterator[LogEntry | EntryRun]:
        """As :meth:`recover`, in its place, with neighbours together, as the journal gives them."""
        return in_runs(self.recover())

    def commit(self, entries: Sequence[LogEntry]) -> None:
        if self.dead:
            raise StoreError("the disk is broken")
        self.disk.append(entries)
        self.fresh += len(entries)
        if any(e.kind == CHECKPOINT for e in entries):
            self.fresh = 0
            self.want_checkpoint = False

    def read(self, destination: int, ordinal: int) -> bytes:
        if self.dead:
            raise StoreError("the disk is broken")
        found = self.disk.blocks.get((destination, ordinal))
        if (destination, ordinal) in self.disk.damaged:
            raise StoreDamagedError(f"block {ordinal} of destination {destination} is damaged")
        if found is None or (destination, ordinal) in self.freed:
            raise AssertionError(f"block {ordinal} of destination {destination} is read and not stored")
        return found

    def begin_body(self, nbytes: int) -> SimBody:
        return SimBody(self, nbytes)

    def large(self, destination: int, ordinal: int) -> LargeBlock | None:
        key = destination, ordinal
        front = self.disk.fronts.get(key)
        if front is None or key in self.freed:
            return None
        data = self.disk.blocks[key]
        return LargeBlock(data[:front], StoredBody(len(data) - front, front, lambda: self._still(key)))

    def _still(self, key: tuple[int, int]) -> bytes:
        """A block that may have been freed since: its file may be another's by now."""
        if key in self.freed:
            raise StoreDamagedError(f"the file of block {key} is another's")
        return self.read(*key)

    def salvage(self, destination: int, ordinal: int) -> bytes:
        return self.disk.blocks.get((destination, ordinal), b"")

    def free(self, destination: int, ordinals: Iterable[int]) -> None:
        for ordinal in ordinals:
            self.on_free(destination, ordinal)
            self.freed.add((destination, ordinal))

    def checkpoint_due(self) -> bool:
        return self.want_checkpoint or self.fresh >= self._checkpoint_entries

    def checkpoint_helps(self) -> bool:
        return False

    def tidy_helps(self) -> bool:
        return False

    def maintain(self, budget_bytes: int) -> bool:
        """Drop what a checkpoint superseded, and move some survivors to the end of the log."""
        cut = self._cut()
        if cut <= 0:
            return False
        log = self.disk.log
        kept, moved = [], []
        for entry in log[:cut]:
            key = entry.destination, entry.ordinal
            if entry.kind != BLOCK:
                continue
            if key in self.freed:
                self.disk.blocks.pop(key, None)
                self.disk.fronts.pop(key, None)
            elif self._rng.random() < self._relocation:
                moved.append(entry)
            else:
                kept.append(entry)
        self.disk.log = kept + log[cut:] + moved
        return False

    def plain_because(self) -> str:
        return ""

    def has_room(self, nbytes: int) -> bool:
        return self.roomy()

    def stats(self) -> StoreStats:
        return StoreStats()

    def close(self) -> None:
        self.dead = True

    def _cut(self) -> int:
        log = self.disk.log
        return next((i for i in range(len(log) - 1, -1, -1) if log[i].kind == CHECKPOINT), -1)


class Batch:
    """One submission: what it writes, what that changes on disk as the watch knows it, and whom to tell."""

    __slots__ = ("deltas", "done", "entries", "size")

    def __init__(self, entries: Sequence[LogEntry], deltas: list[Any], done: Callable[[], None]) -> None:
        self.entries = entries
        self.deltas = deltas
        self.done = done
        self.size = entry_bytes(entries)


class SimCommitter:
    """One commit in flight. ``stop`` is a crash: a commit in flight is kept whole or lost whole.

    ``deltas`` are added by whoever is about to submit and go with the next batch; ``snapshot`` gives those of a
    checkpoint, which holds more than what was written down before it.
    """

    in_flight_max = 1

    def __init__(
        self,
        loop: Loop,
        rng: Random,
        store: SimStore,
        *,
        sync_max: int,
        lag_max: int,
        failed: Callable[[BrokerError], None],
        durable: Callable[[Any], None],
        snapshot: Callable[[], list[Any]],
    ) -> None:
        self._loop = loop
        self._rng = rng
        self._store = store
        self._sync_max = sync_max
        self._lag_max = lag_max
        self._failed = failed
        self._durable = durable
        self._snapshot = snapshot
        self._waiting: list[Batch] = []
        self._syncing: list[list[Batch]] = []
        self._told_until = 0
        self._dead = False
        self.deltas: list[Any] = []
        self.leaving: dict[int, Any] = {}
        """Destinations that are about to be destroyed → what that changes on disk, with the record that says so: who
        waits for room in them is refused before."""
        self.overloaded = False
        self.pending_bytes = 0

    def submit(self, entries: Sequence[LogEntry], done: Callable[[], None]) -> None:
        if any(entry.kind == CHECKPOINT for entry in entries):
            self.deltas += self._snapshot()
        for entry in entries if self.leaving else ():
            if entry.kind == NOTE and records.kind_of(entry.meta) == records.GONE:
                self.deltas.append(self.leaving.pop(entry.destination))
        batch = Batch(entries, self.deltas, done)
        self.deltas = []
        assert entries or not batch.deltas, "a change was decided and nothing of it was recorded"
        if not self._dead:
            self._waiting.append(batch)
            self.pending_bytes += batch.size
            self._start()

    def close(self) -> None:
        self._dead = True

    def _start(self) -> None:
        """Take some of what waits, in order, and sync it."""
        if self._waiting and len(self._syncing) < self.in_flight_max and not self._dead:
            count = len(self._waiting)
            if count > 1 and self._rng.random() < 0.3:
                count = 1 + self._rng.randrange(count)
            group, self._waiting = self._waiting[:count], self._waiting[count:]
            self._syncing.append(group)
            self._loop.after(self._rng.randrange(self._sync_max), self._synced, group)

    def _synced(self, group: list[Batch]) -> None:
        if self._dead:
            return
        try:
            self._write(group)
        except StoreError as error:
            self._dead = True
            self._later(self._fail, error)
            return
        self._syncing.remove(group)
        self._later(self._tell, group)
        if not self._waiting:
            self._store.maintain(0)
        self._start()

    def _write(self, group: list[Batch]) -> None:
        entries = [entry for batch in group for entry in batch.entries]
        if entries:
            self._store.commit(entries)
        for batch in group:
            for delta in batch.deltas:
                self._durable(delta)

    def _later(self, run: Callable[..., None], argument: Any) -> None:
        self._told_until = max(self._told_until, self._loop.now + self._rng.randrange(self._lag_max))
        self._loop.at(self._told_until, run, argument)

    def _fail(self, error: BrokerError) -> None:
        if not self._store.gone:
            self._failed(error)

    def _tell(self, group: list[Batch]) -> None:
        if not self._store.gone:
            for batch in group:
                self.pending_bytes -= batch.size
                batch.done()

    def stop(self) -> None:
        """The host dies now: what is being synced may have reached the disk, what waits has not."""
        if not self._dead and self._syncing and self._rng.random() < 0.5 and not self._store.dead:
            self._write(self._syncing[0])
        self._dead = self._store.gone = True

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._syncing
