"""Tasks of one connection, and work that is tried again while its broker cannot be reached.

A task ends when the connection is closed.  Whoever waits for work that has to be done whole, such as a commit, may give
up waiting without ending it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from raybroker.client.cluster.addresses import reconnect_time
from raybroker.client.io.io_thread import log_failure
from raybroker.config.config import Config
from raybroker.model.errors import BrokerError, ConnectionLostError, NotOpenError, StartingError
from raybroker.system.supervision import Run, Supervisor
from raybroker.transport.loops import sleep_waited_for

T = TypeVar("T")
RETRY_FIRST_S: Final = 0.02


class StartProgress:
    """What a broker that starts has told of itself to one who waits for it."""

    def __init__(self) -> None:
        self._steps: set[str] = set()

    def made(self, error: BrokerError) -> bool:
        """Whether an answer shows that the broker gets on: a StartingError that says what none has said before."""
        if not isinstance(error, StartingError) or str(error) in self._steps:
            return False
        self._steps.add(str(error))
        return True


class Tasks:
    """The tasks of a connection, on the IO loop. ``attributes``: how long and how often work is tried again, and with
    which pauses."""

    def __init__(self, attributes: Config) -> None:
        self.closed = False
        """The connection is closed: nothing is tried again, and no failure is news."""
        self._limits = reconnect_time(attributes)
        self._interval_s: float = attributes["imqReconnectInterval"] / 1000
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loops = Supervisor("a connection")

    def keep(self, name: str, run: Run) -> asyncio.Task[None]:
        """Run a loop until the connection is closed; started again when it fails. It may return."""
        return self._loops.attempt(name, run)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something until it ends or the connection is closed."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """A task that nobody waits for is over."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.closed:
            log_failure("a task of a connection has failed", error)

    async def to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something whole even when whoever waits for it gives up meanwhile."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Whoever waits may have given up: then its error is no news to anybody.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def pause(self) -> None:
        """Sleep as long as between two attempts to connect: somebody waits for what comes then, and the loop runs."""
        await sleep_waited_for(self._interval_s)

    async def rest(self) -> None:
        """Sleep as long between two looks that nobody waits for: the loop may stand still meanwhile."""
        await asyncio.sleep(self._interval_s)

    async def with_retry(
        self, what: str, work: Callable[[], Awaitable[T]], failed: Callable[[BrokerError], None] | None = None
    ) -> T:
        """Do ``work`` again and again while it fails with ConnectionLostError, or with NotOpenError since its broker
        is about to start, until the reconnect time is over.  That begins anew while the broker gets on with its start:
        whenever a StartingError says what none has said before.  A broker has so many hosts, and so it has an end.

        ``failed`` is called with each of these errors. Raises what else ``work`` raises, NotOpenError, or
        ConnectionLostError saying how long ``what`` was tried.
        """
        loop = asyncio.get_running_loop()
        attempts, since_s, pause_s = 0, loop.time(), RETRY_FIRST_S
        progress = StartProgress()
        while True:
            try:
                return await work()
            except (ConnectionLostError, NotOpenError) as error:
                if self.closed:
                    raise
                if failed is not None:
                    failed(error)
                if progress.made(error):
                    attempts, since_s = 0, loop.time()
                if over := self._limits.over(loop.time() + pause_s - since_s, attempts):
                    if isinstance(error, NotOpenError):
                        raise
                    raise ConnectionLostError(f"{what} cannot be reached; {over}: {error}") from None
            attempts += 1
            await sleep_waited_for(pause_s)
            pause_s = min(pause_s * 2, self._interval_s)

    def cancel_all(self) -> None:
        """Cancel everything that runs."""
        self.closed = True
        self._loops.close()
        for task in list(self._tasks):
            task.cancel()
