"""The spare host: a host that serves nothing yet, kept ready for the next destination with a host of its own.

To start a process takes a second or more; to create a destination on one that runs, a few milliseconds.  A broker keeps
at most one spare.  It costs the memory of an idle host, about 90 MB, so ``raybroker.hosting.spare`` is off by default.
The catalogue has it as a dedicated host without destinations: a broker that restarts ends such hosts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from raybroker.actors.hosts.remote import RemoteHost
from raybroker.model.errors import BrokerError
from raybroker.system.supervision import Supervisor

ANSWER_WAIT_S: Final = 2.0
"""How long a spare may take to answer when it is taken; another host is started instead of one that does not."""

CLOSE_WAIT_S: Final = 5.0
"""How long a broker that stops waits for a spare that is just starting."""

log = logging.getLogger("raybroker.broker")


class SpareHost:
    """``start`` starts a host and waits until it answers, and leaves nothing behind where it raises a BrokerError;
    ``end`` ends one, and does not raise; ``wanted`` says whether a spare is to be kept."""

    def __init__(
        self,
        start: Callable[[], Awaitable[RemoteHost]],
        end: Callable[[RemoteHost], Awaitable[None]],
        wanted: Callable[[], bool],
    ) -> None:
        self._start = start
        self._end = end
        self._wanted = wanted
        self._starting: asyncio.Task[RemoteHost] | None = None
        self._loops = Supervisor("the spare host")

    @property
    def hosts(self) -> list[RemoteHost]:
        """The spare, when there is one that runs."""
        task = self._starting
        done = task is not None and task.done() and not task.cancelled() and task.exception() is None
        return [task.result()] if task is not None and done else []

    async def keep(self) -> None:
        """Have one started when it is wanted and there is none, and ended when it is not wanted any more; does not wait
        for a start. One that could not be started is tried again with the next call."""
        task = self._starting
        if task is not None and task.done() and not self.hosts:
            log.warning("no spare host: %s", task.exception())
            self._starting = task = None
        if task is None and self._wanted():
            self._starting = asyncio.create_task(self._start_spare())
        elif not self._wanted() and (spares := self.hosts):
            self._starting = None
            await self._end(spares[0])

    async def _start_spare(self) -> RemoteHost:
        return await self._start()

    async def take_host(self, changed: Mapping[str, Any]) -> RemoteHost | None:
        """The spare, which is nobody else's then; None when there is none, or it does not answer.

        One that is just starting is waited for: that is sooner than starting another. ``changed``: the properties as
        they are now, which it is told.
        """
        task, self._starting = self._starting, None
        if task is None:
            return None
        try:
            host = await asyncio.shield(task)
        except asyncio.CancelledError:
            self._give_back(task)
            raise
        except BrokerError as error:
            log.warning("no spare host: %s", error)
            return None
        try:
            await asyncio.wait_for(host.process.configure(dict(changed)), ANSWER_WAIT_S)
        except asyncio.CancelledError:
            self._give_back(task)
            raise
        except (BrokerError, TimeoutError) as error:
            log.warning("the spare host %s does not answer and is ended: %s", host.key, error)
            await self._end(host)
            return None
        return host

    async def close(self) -> None:
        """Start none any more, and wait a moment for one that is just starting, so that it can be ended with the
        others."""
        self._wanted = lambda: False
        if self._starting is not None:
            await asyncio.wait({self._starting}, timeout=CLOSE_WAIT_S)

    def _give_back(self, task: asyncio.Task[RemoteHost]) -> None:
        """Whoever asked has gone: it is the spare again, or is ended where there is another one by now."""
        if self._starting is None:
            self._starting = task
            return
        self._loops.once("a spare that nobody took ends", self._end_started(task))

    async def _end_started(self, task: asyncio.Task[RemoteHost]) -> None:
        try:
            host = await task
        except BrokerError:
            return
        await self._end(host)
