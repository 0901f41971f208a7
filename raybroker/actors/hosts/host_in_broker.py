"""Hosts in the broker's own process: of destinations with ``hosting=broker``.

Such a host works on the loop of the broker's gateways.  A message that comes in over STOMP or HTTP is stored where it
arrives, and two changes of process fewer lie between a send and its confirmation.  What is lost by it: the host, the
gateways and the broker share one processor core, and end together.  A store that fails ends the broker's process, which
Ray starts again, and its other hosts stay.  What was confirmed is in the journal, as with every host.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NamedTuple

from raybroker.actors import runtime
from raybroker.actors.hosts.host import SWITCH_S, DataPlane, KeptState
from raybroker.actors.hosts.host_spec import HostSpec
from raybroker.actors.hosts.remote import HostHandle
from raybroker.client.io.io_thread import IoThread
from raybroker.config.live import LiveConfig
from raybroker.hosting.host_port import Row, method_of
from raybroker.hosting.host_service import HostService
from raybroker.logs.messages import MessagesLog
from raybroker.model.errors import ConnectionLostError
from raybroker.services.native.guests import Guests
from raybroker.system.memory import keep_freed_memory
from raybroker.system.priority import normal_priority

THREAD: Final = "raybroker-gateways"


class OwnBroker(NamedTuple):
    """What a host asks of the broker, on the broker's loop."""

    forget: Callable[[str, str], Coroutine[Any, Any, None]]
    """A host has removed a destination by itself: type and name."""
    forward: Callable[[str, str, bytes], Coroutine[Any, Any, None]]
    """A host has a block for a destination of another host: type, name and block."""
    lease: Callable[[str, Row], Coroutine[Any, Any, Row]]
    """A host asks for more of a pool."""


class _Plane(DataPlane):
    """The data plane on a loop that runs already; the broker is asked without an actor call."""

    process_of_its_own = False

    def __init__(
        self,
        spec: HostSpec,
        kept: KeptState,
        life: MessagesLog,
        broker: OwnBroker,
        io: IoThread,
    ) -> None:
        self._asked = broker
        self._loop_of_broker = asyncio.get_running_loop()
        super().__init__(spec, kept, runtime.node_ip(), self._forget, life, loop=io.loop)
        self._starting: asyncio.Task[None] | None = None

    def start_serving(self) -> None:
        """Have the loop open the store and serve."""
        self.loop.call_soon_threadsafe(self._start_on_loop)

    def _start_on_loop(self) -> None:
        normal_priority()
        keep_freed_memory()
        sys.setswitchinterval(SWITCH_S)
        self._starting = self.loop.create_task(self._start())

    def _forget(self, type: str, name: str) -> None:
        asyncio.run_coroutine_threadsafe(self._asked.forget(type, name), self._loop_of_broker)

    async def _forward(self, type: str, name: str, block: bytes) -> None:
        await self._run_in_broker(self._asked.forward(type, name, block))

    async def _lease(self, row: Row) -> Row:
        answer: Row = await self._run_in_broker(self._asked.lease(self.spec.key, row))
        return answer

    async def _run_in_broker(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do the work on the broker's loop, for as long as an actor call may take."""
        return await _in_time(asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop_of_broker)))


async def _in_time(work: Awaitable[Any]) -> Any:
    """Wait as long as an actor call may take; raises ConnectionLostError then."""
    try:
        return await asyncio.wait_for(work, runtime.CALL_TIMEOUT_S)
    except TimeoutError:
        raise ConnectionLostError(f"no answer within {runtime.CALL_TIMEOUT_S:g} s") from None


class HostInBroker(HostHandle):
    """A host in the broker's process; it works on the broker's loop, but for :attr:`guests_in`."""

    def __init__(self, spec: HostSpec, plane: _Plane) -> None:
        super().__init__(spec)
        self._plane = plane

    @property
    def guests_in(self) -> Guests | None:
        """None until it serves."""
        service = self._plane.service
        return None if service is None or self._plane.address is None else service.guests

    async def _service(self) -> HostService:
        """Raises what keeps it from starting."""
        ready = self._plane.ready
        if not ready.is_set() and not await asyncio.to_thread(ready.wait, runtime.CALL_TIMEOUT_S):
            raise ConnectionLostError(f"host {self.key} has not started within {runtime.CALL_TIMEOUT_S:g} s")
        if self._plane.failure is not None:
            raise self._plane.failure
        assert self._plane.service is not None
        return self._plane.service

    async def where(self, timeout_s: float = runtime.CALL_TIMEOUT_S) -> tuple[str, int, int, bytes]:
        """(ip, port, process id, the certificate that it shows, b"" without TLS)."""
        await self._service()
        assert self._plane.address is not None
        tls = self._plane.tls
        return (*self._plane.address, os.getpid(), b"" if tls is None else tls.certificate())

    async def stop(self) -> None:
        """Close the store cleanly."""
        if self._plane.ready.is_set() and self._plane.failure is None:
            await _in_time(self._plane.on_loop((await self._service()).close()))

    async def call_role(self, role: str, method: str, *args: Any) -> Any:
        call = method_of(await self._service(), role, method)
        return await _in_time(self._plane.on_loop(call(*args)))


class HostsInBroker:
    """Those of one broker: services.gateways.gateway.Near. ``known()``: what hosts are told, as it is now."""

    def __init__(
        self,
        broker: OwnBroker,
        known: Callable[[], KeptState],
        messages_log: Callable[[HostSpec, LiveConfig], MessagesLog],
    ) -> None:
        self._broker = broker
        self._known = known
        self._messages_log = messages_log
        self._hosts: dict[str, HostInBroker] = {}
        self._io: IoThread | None = None

    @property
    def hosts(self) -> list[HostInBroker]:
        return list(self._hosts.values())

    def io(self) -> IoThread:
        self._io = self._io or IoThread(THREAD)
        return self._io

    def host(self, spec: HostSpec) -> HostInBroker:
        """The host of that name; it is started when it is first asked for."""
        found = self._hosts.get(spec.key)
        if found is None:
            kept = self._known()
            plane = _Plane(spec, kept, self._messages_log(spec, kept.config), self._broker, self.io())
            plane.start_serving()
            found = self._hosts[spec.key] = HostInBroker(spec, plane)
        return found

    def guests_of(self, key: str) -> Guests | None:
        found = self._hosts.get(key)
        return None if found is None else found.guests_in
