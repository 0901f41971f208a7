"""A cluster in this process whose brokers keep copies of logs, over real disks and sockets between the copies.

They have a host for each destination that asks for one of its own.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from raybroker.broker.copies.copy_port import AskBroker, CopyPort, KeptCopy
from raybroker.broker.copies.leader_watch import until_unled
from raybroker.copies.copy import Copy, CopyEvents, CopyPlace
from raybroker.copies.links import Address
from raybroker.copies.replicated_store import ReplicatedStore
from raybroker.engine.ports import Store
from raybroker.hosting.host_port import HostPort
from raybroker.hosting.host_service import HostBroker, HostService, HostStorage
from raybroker.model.errors import ConnectionLostError
from raybroker.replication.replica_set import MemberChange
from raybroker.system import entropy
from raybroker.system.clock import SystemClock
from raybroker.wire.native.connection import TOKEN_BYTES
from tests.contracts.cluster_rig import ClusterRig, RigBroker

_processes = itertools.count(1)


class RigCopy:
    """A copy, and the host where it leads."""

    def __init__(self, broker: RigBroker, log: str, secret: bytes) -> None:
        self.key = log
        self.token = secret
        self.host: HostService | None = None
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._asked: dict[int, asyncio.Future[str]] = {}
        self._pid = next(_processes)
        events = CopyEvents(leads=self._leads, ended=self._ended, changed=self._changed)
        folder = broker.rig.directory / broker.name / f"copy-{log.replace('/', '.')}"
        self.copy = Copy(CopyPlace(folder, broker.name, log, segment_bytes=1 << 20), secret, events)
        self._address = self.copy.serve()
        self._work: set[asyncio.Task[None]] = set()

    # ---- what the copy tells, in another thread

    def _leads(self, term: object) -> None:
        self._loop.call_soon_threadsafe(self._begin, self._open)

    def _ended(self, reason: str) -> None:
        self._loop.call_soon_threadsafe(self._begin, self._close)

    def _changed(self, request: int, reason: str) -> None:
        self._loop.call_soon_threadsafe(self._asked.pop(request).set_result, reason)

    def _begin(self, work: Callable[[], Any]) -> None:
        task = self._loop.create_task(work())
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _open(self) -> None:
        store = ReplicatedStore(self.copy)
        host = HostService(
            HostStorage(cast(Store, store), store.incarnation, copies=store),
            SystemClock(),
            self._broker.config,
            token=self.token,
            key=self.key,
            hosting="dedicated",
            broker=HostBroker(self._broker.name),
        )
        await host.start(threaded=True)
        self.host = host

    async def _close(self) -> None:
        host, self.host = self.host, None
        if host is not None:
            for connection in list(host.service.connections):
                connection.link.abort()
            await host.close()

    # ---- CopyPort

    async def where(self) -> tuple[str, int, int, bytes]:
        raise AssertionError("clients of this rig are given hosts")

    async def copy_row(self) -> dict[str, Any]:
        row = self.copy.status().as_row()
        return {**row, "address": self._address, "pid": self._pid, "serves": self.copy.leads and self.host is not None}

    async def until_unled(self, timeout_s: float) -> bool:
        return await until_unled(self.copy.is_led, timeout_s)

    async def know(self, addresses: Mapping[str, Address]) -> None:
        self.copy.know(addresses)

    async def found(self, copies: Sequence[str], min_in_sync: int) -> None:
        self.copy.found(copies, min_in_sync)

    async def lead(self) -> None:
        self.copy.lead()

    async def change(self, change: str, copy: str) -> str:
        return await self._answer_to(partial(self.copy.change, MemberChange(change), copy))

    async def require(self, min_in_sync: int) -> str:
        return await self._answer_to(partial(self.copy.require, min_in_sync))

    async def hand_over(self, copy: str, *, quiet: bool) -> str:
        return self.copy.hand_over(copy, quiet=quiet)

    async def _answer_to(self, ask: Callable[[int], None]) -> str:
        request = max(self._asked, default=0) + 1
        waiting = self._asked[request] = self._loop.create_future()
        ask(request)
        return await waiting

    async def end(self) -> None:
        await self._close()
        await asyncio.to_thread(self.copy.shut_down)


class RigCopies:
    """The CopyMaker of one broker, on a node of its own."""

    def __init__(self, broker: RigBroker) -> None:
        self.node = f"node of {broker.name}"
        self.ports: dict[str, RigCopy] = {}
        self._broker = broker
        self._kept: dict[str, KeptCopy] = {}

    def new_secret(self) -> bytes:
        return entropy.token(TOKEN_BYTES)

    async def open(self, log: str, secret: bytes) -> RigCopy:
        if log not in self.ports:
            self.ports[log] = RigCopy(self._broker, log, secret)
        return self.ports[log]

    async def end_copy(self, log: str, *, remove: bool) -> None:
        if (port := self.ports.pop(log, None)) is not None:
            await port.end()

    def host(self, copy: CopyPort) -> HostPort:
        assert isinstance(copy, RigCopy)
        return copy.host or cast(HostPort, copy)  # Of one that does not lead nothing is asked.

    def host_elsewhere(self, broker: str, log: str, secret: bytes, ask: AskBroker) -> HostPort:
        other = self._broker.rig.reachable(self._broker.name, broker)
        if other is None or not isinstance(other.maker, RigCopies) or log not in other.maker.ports:
            raise ConnectionLostError(f"the copy of {log} at broker {broker} does not run now")
        return other.maker.host(other.maker.ports[log])

    def kept(self) -> Mapping[str, KeptCopy]:
        return self._kept

    async def keep(self, log: str, kept: KeptCopy | None) -> None:
        self._kept.pop(log, None)
        if kept is not None:
            self._kept[log] = kept


class CopyingBroker(RigBroker):
    """A broker that keeps copies, with the hosts that it has made."""

    def __init__(self, rig: ClusterRig, name: str) -> None:
        super().__init__(rig, name)
        self.copies = RigCopies(self)
        self.maker = self.copies
        self._own_hosts: list[HostService] = []
        self._loops: list[asyncio.Task[None]] = []

    async def start(self, host: HostService | None = None) -> None:
        await super().start(host)
        loop = asyncio.get_running_loop()
        self._loops = [loop.create_task(self.cluster.copies.run()), loop.create_task(self.cluster.moves.run())]

    async def host_of(self, hosting: str) -> HostPort:
        if hosting != "dedicated":
            return self.host
        name = f"h{2 + len(self._own_hosts)}"
        made = await self._make_host(self.rig.directory / self.name, SystemClock(), name, hosting)
        self._own_hosts.append(made)
        return made

    async def drop_host(self, host: HostPort) -> None:
        assert isinstance(host, HostService)
        if host is not self.host:
            await host.close()

    async def stop(self, *, kill: bool, with_host: bool = True) -> None:
        for loop in self._loops:
            loop.cancel()
        for log in list(self.copies.ports):
            await self.copies.end_copy(log, remove=False)
        await super().stop(kill=kill, with_host=with_host)


class CopiesRig(ClusterRig):
    """Brokers that keep copies."""

    kind = CopyingBroker
