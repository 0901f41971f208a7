"""Copies of one broker as actors: the CopyMaker of raybroker.broker.copies.copy_port.

A copy is on the disk of its broker, in ``copies/`` of the broker's directory, and its process on the broker's node.  It
is told apart from a clone by the broker's name and the file itself, so that it stays the same when Ray starts anew.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from raybroker.actors import runtime
from raybroker.actors.broker_spec import BrokerSpec
from raybroker.actors.hosts.host_spec import HostSpec
from raybroker.actors.hosts.remote import HostHandle, RemoteHost
from raybroker.broker.copies.copy_port import (
    CHANGE_S,
    LED_CALL,
    LED_WHERE,
    Address,
    AskBroker,
    CopyPort,
    KeptCopy,
)
from raybroker.broker.destinations.destination_registry import Key
from raybroker.hosting.host_port import HostPort, Row
from raybroker.model.errors import BrokerError
from raybroker.model.naming.names import check_destination_type
from raybroker.store.catalogue import Catalogue
from raybroker.system import entropy
from raybroker.transport.daemon_calls import in_daemon_thread
from raybroker.wire.native.connection import TOKEN_BYTES

HOSTING: Final = "dedicated"
COPIES: Final = "copies"
STOP_S: Final = 10.0


class RemoteCopy(RemoteHost):
    """``actor`` is the handle of a CopyHost."""

    async def copy_row(self) -> Row:
        return dict(await runtime.call(self.actor.copy_row))

    async def until_unled(self, timeout_s: float) -> bool:
        longest_s = timeout_s + runtime.CALL_TIMEOUT_S
        return bool(await runtime.call(self.actor.until_unled, timeout_s, timeout_s=longest_s))

    async def know(self, addresses: Mapping[str, Address]) -> None:
        await runtime.call(self.actor.know, dict(addresses))

    async def found(self, copies: Sequence[str], min_in_sync: int) -> None:
        await runtime.call(self.actor.found, list(copies), min_in_sync)

    async def lead(self) -> None:
        await runtime.call(self.actor.lead)

    async def change(self, change: str, copy: str) -> str:
        return str(await runtime.call(self.actor.change, change, copy, timeout_s=CHANGE_S + runtime.CALL_TIMEOUT_S))

    async def require(self, min_in_sync: int) -> str:
        return str(await runtime.call(self.actor.require, min_in_sync, timeout_s=CHANGE_S + runtime.CALL_TIMEOUT_S))

    async def hand_over(self, copy: str, *, quiet: bool) -> str:
        return str(await runtime.call(self.actor.hand_over, copy, quiet))


class LedHost(HostHandle):
    """The host of a log that is led at another broker, which is asked for it; see AskBroker."""

    def __init__(self, spec: HostSpec, ask: AskBroker) -> None:
        super().__init__(spec)
        self._ask = ask

    async def where(self) -> tuple[str, int, int, bytes]:
        """Return what RemoteHost.where does."""
        found: tuple[str, int, int, bytes] = await self._ask(LED_WHERE, {})
        return found

    async def call_role(self, role: str, method: str, *args: Any) -> Any:
        return await self._ask(LED_CALL, {"role": role, "method": method, "args": args})


class RayCopies:
    """``save`` writes the catalogue."""

    def __init__(
        self, spec: BrokerSpec, node: str, catalogue: Callable[[], Catalogue], save: Callable[[], Awaitable[None]]
    ) -> None:
        self.node = node
        self._spec = spec
        self._catalogue = catalogue
        self._save = save

    # ---- the catalogue

    def kept(self) -> Mapping[str, KeptCopy]:
        return {log: _kept(row) for log, row in self._catalogue().copies.items()}

    async def keep(self, log: str, kept: KeptCopy | None) -> None:
        copies = self._catalogue().copies
        before = dict(copies)
        if kept is None:
            copies.pop(log, None)
        else:
            copies[log] = [kept.secret.hex(), *kept.key, kept.record]
        if copies == before:
            return
        try:
            await self._save()
        except BrokerError:
            copies.clear()
            copies.update(before)
            raise

    # ---- processes

    def new_secret(self) -> bytes:
        return entropy.token(TOKEN_BYTES)

    def _host_spec(self, broker: str, log: str, secret: bytes) -> HostSpec:
        spec, host = self._spec, host_of(log)
        directory = str(Path(spec.directory) / COPIES / host)
        return HostSpec(spec.cluster, broker, host, HOSTING, directory, secret, spec.config, spec.tenure, log)

    def _name(self, broker: str, log: str) -> str:
        return runtime.host_name(self._spec.cluster, broker, host_of(log), self._spec.tenure)

    async def open(self, log: str, secret: bytes) -> RemoteCopy:
        from raybroker.actors.hosts.copy_host import CopyHost  # Few brokers keep copies.

        spec = self._spec
        made = self._host_spec(spec.broker, log, secret)
        make = partial(
            runtime.create_actor,
            CopyHost,
            made,
            f"{spec.cluster}/{spec.broker}",
            name=self._name(spec.broker, log),
            node=self.node,
        )
        return RemoteCopy(await in_daemon_thread(make), made)

    async def end_copy(self, log: str, *, remove: bool) -> None:
        actor: Any = await in_daemon_thread(runtime.find_actor, self._name(self._spec.broker, log))
        if actor is not None:
            try:
                await runtime.call(actor.stop, timeout_s=STOP_S)
            except BrokerError:
                pass  # It is killed, which loses nothing that was confirmed.
            await in_daemon_thread(runtime.kill, actor)
        if remove:
            directory = Path(self._spec.directory) / COPIES / host_of(log)
            await in_daemon_thread(partial(shutil.rmtree, directory, ignore_errors=True))

    def host(self, copy: CopyPort) -> HostPort:
        assert isinstance(copy, RemoteCopy)
        return copy

    def host_elsewhere(self, broker: str, log: str, secret: bytes, ask: AskBroker) -> LedHost:
        return LedHost(self._host_spec(broker, log, secret), ask)


def host_of(log: str) -> str:
    """The name of the host of a log's copy, at whichever broker."""
    return log.replace("/", ".")


def _kept(row: Sequence[str]) -> KeptCopy:
    secret, type_, name, *record = row
    key: Key = (check_destination_type(type_), name)
    return KeptCopy(bytes.fromhex(secret), key, *record)
