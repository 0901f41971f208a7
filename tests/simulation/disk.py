"""A store that can lose what was not synced, and a committer that syncs late.

``SimDisk`` is the platter: it survives a crash of the host.  ``SimStore`` is one life over it and keeps the Store
contract.  ``SimCommitter`` is the production committer without its thread: what it groups, counts and calls back is
production code, and when a commit is durable and when the engine hears of it are two events that a crash can part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any

from raybroker.engine.committer import ThreadCommitter
from raybroker.model.errors import StoreDamagedError, StoreError
from raybroker.model.record import BLOCK, CHECKPOINT, NOTE_BYTES_MAX, Entry, StoreStats
from tests.simulation.events import Loop



class SimDisk:
    """``log``: entries that are durable, with the ordinal and destination of a block as its key."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.blocks: dict[tuple[int, int], bytes] = {}

    def append(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.kind == BLOCK:
                key = entry.destination, entry.ordinal
                assert key not in self.blocks, f"block {key} is stored twice"
                self.blocks[key] = b"".join(entry.payload)
            else:
                assert entry.kind == CHECKPOINT or len(entry.meta) <= NOTE_BYTES_MAX
            self.log.append(Entry(entry.kind, entry.destination, entry.ordinal, entry.meta))


class SimStore:
    """The Store contract over a disk."""

    def __init__(self, disk: SimDisk, rng: Random, *, checkpoint_entries: int, relocation: float) -> None:
        self.disk = disk
        self.freed: set[tuple[int, int]] = set()
        self.fresh = 0
        self.want_checkpoint = False
        self.on_free: Callable[[int, int], None] = lambda destination, ordinal: None
        self.roomy: Callable[[], bool] = lambda: True
        self.dead = False
        self._rng = rng
        self._checkpoint_entries = checkpoint_entries
        self._relocation = relocation

    def recover(self) -> Iterator[Entry]:
        log = self.disk.log
        cut = self._cut()
        if cut >= 0:
            yield log[cut]
            yield from [e for e in log[:cut] if e.kind == BLOCK]
        yield from log[cut + 1 :]
        self.fresh = len(log) - cut - 1

    def commit(self, entries: Sequence[Entry]) -> None:
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
        if found is None or (destination, ordinal) in self.freed:
            raise StoreDamagedError(f"block {ordinal} of destination {destination} is not stored")
        return found

    def free(self, destination: int, ordinals: Iterable[int]) -> None:
        for ordinal in ordinals:
            self.on_free(destination, ordinal)
            self.freed.add((destination, ordinal))

    def checkpoint_due(self) -> bool:
        return self.want_checkpoint or self.fresh >= self._checkpoint_entries

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
            elif self._rng.random() < self._relocation:
                moved.append(entry)
            else:
                kept.append(entry)
        self.disk.log = kept + log[cut:] + moved
        return False

    def has_room(self, nbytes: int) -> bool:
        return self.roomy()

    def stats(self) -> StoreStats:
        return StoreStats()

    def close(self) -> None:
        self.dead = True

    def _cut(self) -> int:
        log = self.disk.log
        return next((i for i in range(len(log) - 1, -1, -1) if log[i].kind == CHECKPOINT), -1)


class _Wake:
    """Stands in for the committer's condition: being notified is an event of the loop."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.notify = wake

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


class SimCommitter(ThreadCommitter):
    """One commit in flight. ``stop`` is a crash: a commit in flight is kept whole or lost whole."""

    in_flight_max = 1

    def __init__(
        self, loop: Loop, rng: Random, store: SimStore, *, sync_max: int, lag_max: int,
        failed: Callable[[Any], None], durable: Callable[[Any], None],
    ) -> None:  # fmt: skip
        self._loop = loop
        self._rng = rng
        self._store = store
        self._sync_max = sync_max
        self._lag_max = lag_max
        self._failed = failed
        self._durable = durable
        self._relieved = lambda: None
        self._waiting = deque()
        self.pending_bytes = 0
        self._closing = False
        self._dead = False
        self.overloaded = False
        self.stopped = False
        self.delta: Any = None
        self._deltas: dict[int, Any] = {}
        self._syncing: list[list[Any]] = []
        self._wake = _Wake(self._pump)  # type: ignore[assignment]
        self._posted_until = 0

    def submit(self, entries: Sequence[Entry], done: Callable[[], None]) -> None:
        delta, self.delta = self.delta, None
        if delta is not None:
            assert entries, "a change was decided and nothing of it was recorded"
            self._deltas[id(done)] = delta
        super().submit(entries, done)

    def _pump(self) -> None:
        if self._waiting and len(self._syncing) < self.in_flight_max and not self.stopped and not self._dead:
            group, size = self._take()
            self._syncing.append(group)
            self._loop.after(self._rng.randrange(self._sync_max), self._synced, group, size)

    def _synced(self, group: list[Any], size: int) -> None:
        if self.stopped or self._dead:
            return
        try:
            self._commit(group)
        except StoreError as error:
            self._die(error)
            return
        self._syncing.remove(group)
        self._post(lambda: self._finish(group, size))
        self._tidy_up()
        self._pump()

    def _commit(self, group: list[Any]) -> None:
        entries = [entry for batch, _, _ in group for entry in batch]
        if entries:
            self._store.commit(entries)
        for _, _, done in group:
            delta = self._deltas.pop(id(done), None)
            if delta is not None:
                self._durable(delta)

    def _post(self, run: Callable[[], None]) -> None:
        self._posted_until = max(self._posted_until, self._loop.now + self._rng.randrange(self._lag_max))
        self._loop.at(self._posted_until, self._posted, run)

    def _posted(self, run: Callable[[], None]) -> None:
        if not self.stopped:
            run()

    def stop(self) -> None:
        """The host dies now: what is being synced may have reached the disk, what waits has not."""
        self.stopped = True
        for group in self._syncing[:1]:
            if not self._store.dead and self._rng.random() < 0.5:
                self._commit(group)

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._syncing


