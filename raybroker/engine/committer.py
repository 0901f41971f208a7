"""Group commit: one thread makes batches durable while the engine's thread collects the next.

Exactly one commit is in flight, so completions come in order.  What waits is bounded: past ``PENDING_BYTES_HIGH`` the
committer says it is ``overloaded`` and whoever reads from producers must stop until ``relieved``.  Any error ends the
thread for good and is reported once: nothing of the failed batch, and nothing after it, is ever called done.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from raybroker.engine.ports import Store
from raybroker.model.errors import BrokerError, StoreError
from raybroker.model.record import Entry

COMMIT_BYTES_MAX: Final = 4 << 20
"""A commit takes at most this much of what waits: larger ones only make the next one wait."""
PENDING_BYTES_HIGH: Final = 64 << 20
PENDING_BYTES_LOW: Final = 16 << 20
MAINTAIN_BYTES: Final = 4 << 20
"""Survivors copied between two looks at the queue."""

Done = Callable[[], None]


def entry_bytes(entries: Sequence[Entry]) -> int:
    """How much a batch will add to a log, to the nearest few bytes an entry."""
    return sum(len(e.meta) + 64 + sum(memoryview(p).nbytes for p in e.payload) for e in entries)


class InlineCommitter:
    """Commits in the caller's thread: for stores that do not wait for a disk."""

    def __init__(self, store: Store, *, failed: Callable[[BrokerError], None]) -> None:
        self._store = store
        self._failed = failed
        self._dead = False
        self.overloaded = False
        self.pending_bytes = 0

    def submit(self, entries: Sequence[Entry], done: Done) -> None:
        if self._dead:
            return
        try:
            if entries:
                self._store.commit(entries)
        except StoreError as error:
            self._dead = True
            self._failed(error)
            return
        done()

    def close(self) -> None:
        """Nothing is ever left to do."""


class ThreadCommitter:
    """Commits in a thread of its own; ``post`` runs a callable in the engine's thread."""

    def __init__(
        self, store: Store, *, post: Callable[[Done], None], relieved: Done, failed: Callable[[BrokerError], None]
    ) -> None:
        self._store = store
        self._post = post
        self._relieved = relieved
        self._failed = failed
        self._waiting: deque[tuple[Sequence[Entry], int, Done]] = deque()
        self.pending_bytes = 0
        self._wake = threading.Condition()
        self._closing = False
        self._dead = False
        self.overloaded = False
        self._thread = threading.Thread(target=self._run, name="raybroker-commit", daemon=True)
        self._thread.start()

    def submit(self, entries: Sequence[Entry], done: Done) -> None:
        """Called in the engine's thread only."""
        size = entry_bytes(entries)
        with self._wake:
            if self._dead or self._closing:
                return
            self._waiting.append((entries, size, done))
            self.pending_bytes += size
            if self.pending_bytes > PENDING_BYTES_HIGH:
                self.overloaded = True
            if len(self._waiting) == 1:
                self._wake.notify()

    def close(self) -> None:
        """Finish what waits, then end the thread."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._closing:
                    self._wake.wait()
                if not self._waiting:
                    return
                group, size = self._take()
            try:
                entries = [entry for batch, _, _ in group for entry in batch]
                if entries:
                    self._store.commit(entries)
            except Exception as error:  # noqa: BLE001 - whatever it is, nothing may be acknowledged after it
                self._die(error)
                return
            self._post(lambda group=group, size=size: self._finish(group, size))  # type: ignore[misc]
            self._tidy_up()

    def _take(self) -> tuple[list[tuple[Sequence[Entry], int, Done]], int]:
        group = [self._waiting.popleft()]
        size = group[0][1]
        while self._waiting and size + self._waiting[0][1] <= COMMIT_BYTES_MAX:
            group.append(self._waiting.popleft())
            size += group[-1][1]
        return group, size

    def _tidy_up(self) -> None:
        """Reclaim space while nobody waits for a commit."""
        try:
            while not self._waiting and not self._closing and self._store.maintain(MAINTAIN_BYTES):
                pass
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing may be acknowledged after it
            self._die(error)

    def _die(self, error: Exception) -> None:
        with self._wake:
            self._dead = True
            self._waiting.clear()
        reason = error if isinstance(error, BrokerError) else StoreError(f"the store failed: {error!r}")
        self._post(lambda: self._failed(reason))

    def _finish(self, group: list[tuple[Sequence[Entry], int, Done]], size: int) -> None:
        with self._wake:
            self.pending_bytes -= size
            relieved = self.overloaded and self.pending_bytes < PENDING_BYTES_LOW
            if relieved:
                self.overloaded = False
        for _, _, done in group:
            done()
        if relieved:
            self._relieved()
