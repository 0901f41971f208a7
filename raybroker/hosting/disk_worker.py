"""The disk worker: a thread that writes and reads bodies in pieces, so that the event loop waits for no disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

from raybroker.model.errors import BrokerError, StoreError

Job = Callable[[], bytes | None]
Done = Callable[[bytes | None, BrokerError | None], None]


class DiskWorker:
    """Implements the engine's Worker; ``post`` runs a function on the loop from any thread.

    What waits is bounded by those who ask: each has a bound of its own.
    """

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        self._post = post
        self._jobs: SimpleQueue[tuple[Job, Done] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def run(self, job: Job, done: Done) -> None:
        """Have the job done; call it in the loop's thread. The thread begins with the first job: most hosts never have
        one."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="raybroker-bodies", daemon=True)
            self._thread.start()
        self._jobs.put((job, done))

    def close(self) -> None:
        """Do what waits, then end; not on the loop's thread."""
        self._closed = True
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()

    def _work(self) -> None:
        while (found := self._jobs.get()) is not None:
            job, done = found
            found = None
            result: bytes | None = None
            error: BrokerError | None = None
            try:
                result = job()
            except BrokerError as failure:
                error = failure
            except Exception as failure:  # noqa: BLE001 - whoever asked has to be told
                error = StoreError(f"a body in pieces: {failure!r}")
            self._tell(partial(done, result, error))
            job = done = error = result = None  # type: ignore[assignment]  # A body goes with the last reference to it.

    def _tell(self, done: Callable[[], None]) -> None:
        try:
            self._post(done)
        except RuntimeError:  # The loop has ended, and everybody who asked with it.
            if not self._closed:
                raise
