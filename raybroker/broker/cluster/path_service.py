"""The path service: one for the cluster, it knows the member of every unit of order.

``PathService`` is the service itself, run by one actor; ``Paths`` is how brokers reach it.  An answer goes out when
what it assigned is on disk; assignments that come while the disk works share its next sync.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from raybroker.cluster.unit_routing import UNITS_MAX, PathMap
from raybroker.engine.measured_time import MeasuredTime
from raybroker.engine.ports import Clock
from raybroker.model.errors import BrokerError, OrderError
from raybroker.system.failpoint import failpoint
from raybroker.system.supervision import Supervisor

SWEEP_S: Final = 2.0
"""How often units without a producer are looked at."""

log = logging.getLogger("raybroker.paths")

Live = Callable[[str, str, str, list[str]], Awaitable[list[str]]]
"""(broker, type, destination, units) → those with live messages in that broker's member."""


class Paths(Protocol):
    """What a broker asks; raises OrderError when the path service cannot be asked."""

    async def routes(
        self, type: str, name: str, units: list[str], owner: str, live: Sequence[str]
    ) -> dict[str, str]: ...

    async def renew(self, owner: str) -> bool: ...
    async def release(self, type: str, name: str, units: list[str], owner: str) -> None: ...
    async def drop_member(self, member: str) -> None: ...


class PathLog(Protocol):
    """The file of the path map; all methods block."""

    def append(self, frames: Sequence[bytes]) -> None: ...
    def replace(self, frames: Sequence[bytes]) -> None: ...
    def close(self) -> None: ...


class PathService:
    """``frames``: what the log held when it was opened; ``failed``: the log cannot be written, and all ends."""

    def __init__(
        self,
        frames: Sequence[bytes],
        file: PathLog,
        clock: Clock,
        *,
        lease_ms: int,
        live: Live,
        failed: Callable[[str], None],
    ) -> None:
        self._now_ms = MeasuredTime(clock).now_ms
        self._map = PathMap.load(frames, self._now_ms(), lease_ms=lease_ms)
        self._file = file
        self._live = live
        self._failed = failed
        self._waiting: list[tuple[tuple[bytes, ...], asyncio.Future[None]]] = []
        self._bell = asyncio.Event()
        self._writing = False
        self._next = 0
        self._loops = Supervisor("the path service")

    def start(self) -> None:
        self._loops.attempt("the log", self._write)  # It returns when nothing can be written any more.
        self._loops.keep("units without a producer", self._sweep)

    async def close(self) -> None:
        for task in self._loops.close():
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await asyncio.to_thread(self._file.close)

    # ---- what brokers ask

    async def routes(self, type: str, name: str, units: list[str], owner: str, live: Sequence[str]) -> dict[str, str]:
        """Unit → broker; a new unit goes to the next of the live brokers in turn. The producer holds them from now on.

        Raises OrderError when no broker is live.
        """
        if not live:
            raise OrderError(f"{type} {name}: no broker is up that could take new units of order")
        found: dict[str, str] = {}
        for start in range(0, len(units), UNITS_MAX):
            some = units[start : start + UNITS_MAX]
            resolved = self._map.resolve((type, name), some, owner, lambda _: self._choose(live), self._now_ms())
            found |= resolved.where
            await self._durable(resolved.frames)
        return found

    def _choose(self, live: Sequence[str]) -> str:
        self._next += 1
        return live[self._next % len(live)]

    async def renew(self, owner: str) -> bool:
        """False: the producer is not known (any more) and has to ask for its units again."""
        return self._map.renew(owner, self._now_ms())

    async def release(self, type: str, name: str, units: list[str], owner: str) -> None:
        """The producer does not use these units any more, without any: none of the destination."""
        self._map.release((type, name), owner, units or None)

    async def drop_member(self, member: str) -> None:
        """The broker was removed for good."""
        await self._durable(self._map.drop_member(member))

    async def path_row(self) -> dict[str, Any]:
        return {"units": self._map.count, "members": self._map.by_member()}

    # ---- the log

    async def _durable(self, frames: tuple[bytes, ...]) -> None:
        """Wait until these are on disk, and what was assigned before: it may be part of the same answer."""
        if frames or self._waiting or self._writing:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((frames, future))
            self._bell.set()
            await future

    async def _write(self) -> None:
        while True:
            await self._bell.wait()
            self._bell.clear()
            waiting, self._waiting = self._waiting, []
            self._writing = True
            failpoint("paths.write")
            try:
                if self._map.compaction_due:
                    await asyncio.to_thread(self._file.replace, self._map.snapshot())
                else:
                    await asyncio.to_thread(self._file.append, [frame for frames, _ in waiting for frame in frames])
            except Exception as error:  # noqa: BLE001 - whatever it is, what was to be durable is not
                self._failed(f"the path map cannot be written: {error}")
                return
            failpoint("paths.written")
            self._writing = False
            for _, future in waiting:
                if not future.done():
                    future.set_result(None)

    async def _sweep(self) -> None:
        """Forget units that no producer holds and that have no messages."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self._map.expire(self._now_ms())
            for candidate in self._map.candidates(self._now_ms()):
                kind, name = candidate.destination
                try:
                    live = await self._live(candidate.member, kind, name, list(candidate.units))
                except BrokerError:
                    continue  # It may have messages: they stay where they are until it can be asked.
                frames = self._map.settle_units(candidate, live)
                try:
                    await self._durable(frames)
                except BrokerError:
                    log.exception("units could not be forgotten")
