"""A running host: engine, committer and listening service on one event loop, with what a broker asks of it.

The same object serves in a destination host actor and in the loopback; what differs is the store it is given and
whether it listens on a network address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from raybroker.engine import inspect
from raybroker.engine.committer import InlineCommitter, ThreadCommitter
from raybroker.engine.host import Host
from raybroker.engine.ports import Clock, Committer, Store
from raybroker.model.errors import BrokerError
from raybroker.model.setting import PortRange
from raybroker.model.settings import ConfigView, destination_attributes
from raybroker.services.native import NativeService

TICK_S: Final = 1.0


class HostService:
    """Everything here runs on the loop on which :meth:`start` was awaited."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        config: ConfigView,
        *,
        token: bytes,
        incarnation: int,
        failed: Callable[[BrokerError], None] | None = None,
        forgotten: Callable[[str], None] | None = None,
    ) -> None:
        self._forgotten = forgotten
        self._when_failed = failed
        self._awaited: set[asyncio.Future[None]] = set()
        """Changes that administrators wait for."""
        self.host = Host(store, clock, config, incarnation=incarnation, idle=self._idle, failed=self._failed)
        self.service = NativeService(self.host, token=token)
        self._store = store
        self._committer: Committer | None = None
        self._ticker: asyncio.Task[None] | None = None

    async def start(self, *, threaded: bool) -> None:
        """Recover and take commands. ``threaded``: commits wait for a disk, in a thread of their own."""
        loop = asyncio.get_running_loop()
        committer: Committer
        if threaded:
            committer = ThreadCommitter(
                self._store,
                post=loop.call_soon_threadsafe,
                soon=loop.call_soon,
                monotonic_ns=self.host.clock.monotonic_ns,
                relieved=self.service.relieved,
                failed=self.host.fail,
            )
        else:
            committer = InlineCommitter(self._store, failed=self.host.fail)
        self._committer = committer
        self.service.use(committer)
        self.host.start(committer)
        self._ticker = asyncio.create_task(self._tick())

    async def listen(self, ip: str, ports: PortRange) -> tuple[str, int]:
        return await self.service.listen(ip, ports)

    async def close(self) -> None:
        """Stop cleanly: connections end, what was submitted becomes durable, the store is closed."""
        if self._ticker is not None:
            self._ticker.cancel()
        await self.service.close()
        await asyncio.sleep(0)
        if self._committer is not None:
            await asyncio.to_thread(self._committer.close)
        self._store.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.host.tick()

    def _failed(self, error: BrokerError) -> None:
        """The store is dead: what is not durable by now never will be (P-05)."""
        for future in self._awaited:
            if not future.done():
                future.set_exception(error)
        if self._when_failed is not None:
            self._when_failed(error)

    def _idle(self, name: str) -> None:
        """An auto-created queue was unused for its reap time (D-22)."""

        def gone() -> None:
            if self._forgotten is not None:
                self._forgotten(name)

        self.host.destroy(name, gone)

    # ---- what a broker asks ----------------------------------------------------------------------------------------

    async def create(self, name: str, attributes: dict[str, Any], auto_created: bool) -> None:
        await self._durable(
            lambda done: self.host.create(
                name, destination_attributes(attributes), auto_created=auto_created, done=done
            )
        )

    async def update(self, name: str, changes: dict[str, Any]) -> None:
        await self._durable(lambda done: self.host.update(name, changes, done))

    async def destroy(self, name: str) -> None:
        await self._durable(lambda done: self.host.destroy(name, done))

    async def purge(self, name: str) -> None:
        await self._durable(lambda done: self.host.purge(name, done))

    async def query(self, name: str) -> dict[str, Any]:
        return inspect.describe(self.host, name)

    async def names(self) -> dict[str, bool]:
        """Destinations of this host: name → auto-created."""
        return {d.name: d.auto_created for d in self.host.definitions.values()}

    async def consumers(self, name: str | None) -> list[dict[str, Any]]:
        return inspect.consumers(self.host, name)

    async def state(self) -> dict[str, Any]:
        return inspect.host_state(self.host)

    async def _durable(self, start: Callable[[Callable[[], None]], None]) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited.add(future)
        try:
            start(lambda: None if future.done() else future.set_result(None))
            await future
        finally:
            self._awaited.discard(future)
