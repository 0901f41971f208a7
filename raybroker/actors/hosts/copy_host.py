"""A host whose log has copies: the process keeps one copy, and serves where that one leads.

It begins as a copy that follows: it decides nothing and has no destinations, so that it costs little, and a restarted
process whose copies have another leader meanwhile is one of them.  Told to lead it asks the others for their promise; a
majority makes it the host, which reads its journal as after a restart.  A process that leads no more ends: whoever asks
it is told to come again, and the next process follows.

    id, address ← ``copy_place``   of the copy, for the others
    ``know``, ``found``           where the others are; which copies begin the log
    ``held``, ``lead``            what it has, for whoever decides; lead now
    ``copy_row``                  all that, for the broker that keeps it
    ``until_unled``               waits until it hears its leader no more
    ``change``, ``require``       another copy is added, gets its vote, or goes; how many have to have an entry
    ``hand_over``                 another copy leads in this one's place
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from raybroker.actors import runtime
from raybroker.actors.hosts.host import DestinationHost
from raybroker.actors.hosts.host_spec import HostSpec
from raybroker.broker.copies.copy_port import CHANGE_S
from raybroker.broker.copies.leader_watch import until_unled
from raybroker.broker.services.link_security import cluster_tls
from raybroker.copies.copy import Copy, CopyEvents, CopyMeans, CopyPlace
from raybroker.copies.link import LinkTls
from raybroker.copies.links import Address, CopyTls
from raybroker.model.errors import ConnectionLostError
from raybroker.replication.replica_set import MemberChange
from raybroker.security.tls import ServerTls


def copy_tls(tls: ServerTls | None) -> CopyTls | None:
    """Return how links are encrypted where the cluster has its connections encrypted."""
    if tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # What it shows is part of the proof that follows.
    return CopyTls(lambda: LinkTls(tls.context(), tls.certificate()), lambda: LinkTls(context))


def _answer(waiting: asyncio.Future[str], reason: str) -> None:
    if not waiting.done():
        waiting.set_result(reason)


class CopyHost(DestinationHost):
    """See the module.  ``node``: where this is, by a name that no other node has."""

    def __init__(self, spec: HostSpec, node: str, stands_by: str = "") -> None:
        self._node = node
        self._copy: Copy | None = None
        self._address: Address | None = None
        self._asked: dict[int, asyncio.Future[str]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        super().__init__(spec, stands_by)

    def _open_copy(self, spec: HostSpec) -> Copy:
        directory = Path(spec.directory)
        tls = copy_tls(cluster_tls(spec.config, directory.parent.parent.parent))
        place = CopyPlace(
            directory,
            self._node,
            spec.key,
            runtime.node_ip(),
            spec.config["raybroker.data.ports"],
            spec.config["raybroker.store.segment_bytes"],
        )
        events = CopyEvents(
            ended=partial(self._end_process, False),
            failed=partial(self._end_process, True),
            changed=self._changed,
        )
        copy = self._copy = Copy(place, spec.token, events, CopyMeans(tls=tls))
        self._address = copy.serve()
        return copy

    def _end_process(self, waiting: bool, reason: str) -> None:
        """The copy leads no more, or has ended, which ends also what waits for it to lead."""
        plane = self._plane
        if plane is not None:
            plane.loop.call_soon_threadsafe(partial(plane.end_process, ConnectionLostError(reason), waiting=waiting))

    def _changed(self, request: int, reason: str) -> None:
        loop, waiting = self._loop, self._asked.pop(request, None)
        if loop is not None and waiting is not None:
            loop.call_soon_threadsafe(_answer, waiting, reason)

    def _kept_copy(self) -> Copy:
        if self._copy is None:
            raise ConnectionLostError("this process stands by, and keeps no copy yet")
        return self._copy

    async def copy_place(self) -> tuple[str, str, int]:
        """Id of the copy, and where the others reach it."""
        copy = self._kept_copy()
        assert self._address is not None
        return (copy.id, *self._address)

    async def know(self, addresses: Mapping[str, Address]) -> None:
        """The other copies are there."""
        self._kept_copy().know(addresses)

    async def found(self, copies: Sequence[str], min_in_sync: int) -> None:
        """These copies, all of them new, begin the log; raises ConfigError."""
        self._kept_copy().found(copies, min_in_sync)

    async def held(self) -> dict[str, Any]:
        """The row of :class:`raybroker.copies.copy_status.CopyStatus`."""
        return self._kept_copy().status().as_row()

    async def copy_row(self) -> dict[str, Any]:
        """What ``held`` says, with the address for the other copies, the process, and whether it serves clients."""
        copy, plane = self._kept_copy(), self._begun()
        assert self._address is not None
        serves = copy.leads and plane.failure is None and plane.address is not None
        return {**copy.status().as_row(), "address": self._address, "pid": os.getpid(), "serves": serves}

    async def until_unled(self, timeout_s: float) -> bool:
        """Wait until the copy hears no leader; False: it still does after ``timeout_s`` seconds."""
        return await until_unled(self._kept_copy().is_led, timeout_s)

    async def lead(self) -> None:
        """Ask the others for their promise; what came of it is in ``held``."""
        self._kept_copy().lead()

    async def hand_over(self, copy: str, quiet: bool) -> str:
        """Have another copy lead at once; returns why not, "" when this one has handed its lead over, and ends."""
        return self._kept_copy().hand_over(copy, quiet=quiet)

    async def change(self, change: str, copy: str) -> str:
        """Have a copy added, promoted or removed; returns why not, "" when it is final."""
        return await self._answer_to(partial(self._kept_copy().change, MemberChange(change), copy))

    async def require(self, min_in_sync: int) -> str:
        """Have so many voters need an entry, 0 for a majority; returns as :meth:`change`."""
        return await self._answer_to(partial(self._kept_copy().require, min_in_sync))

    async def _answer_to(self, ask: Callable[[int], None]) -> str:
        """Ask for a change of the set, by the number that it is given, and wait for what came of it."""
        self._loop = asyncio.get_running_loop()
        request = max(self._asked, default=0) + 1
        waiting = self._asked[request] = self._loop.create_future()
        ask(request)
        try:
            return await asyncio.wait_for(waiting, CHANGE_S)
        except TimeoutError:
            self._asked.pop(request, None)
            return f"no majority has confirmed it within {CHANGE_S:.0f} s: look, and ask again"
