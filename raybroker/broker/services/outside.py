"""The outside of a broker: what its connection services ask of it, and how sockets reach its hosts.

The same for a broker actor and for the loopback: what differs is how a broker is asked (``Asked``), and how a socket is
handed to a host.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from raybroker.hosting.host_port import HostPort, Row
from raybroker.model.errors import BrokerError, ConnectionLostError, SecurityError
from raybroker.model.listing import DestinationCount
from raybroker.model.settings.settings import settings_of
from raybroker.services.listening.socket_handing import SocketSender


class Asked(Protocol):
    """A broker: the methods of the broker actor, by name."""

    async def placed(self, kind: str, name: str, create: bool, guest: bool) -> tuple[HostPort, str, Row]:
        """(host, broker, traits) of this broker's member of a destination."""
        ...

    def exists(self, kind: str, name: str) -> bool: ...

    def hosts(self) -> Iterable[HostPort]: ...

    def given(self) -> Row:
        """Properties that the configuration sets."""
        ...

    def whole(self) -> bool:
        """All hosts have said what they serve."""
        ...

    async def counts(self) -> list[DestinationCount]:
        """What the broker's own destinations hold and have counted."""
        ...

    async def answer_service(self, method: str, args: list[Any]) -> Any: ...

    async def admin(self, verb: str, args: Row) -> Any: ...


BrokerDoors = dict[str, tuple[str, dict[str, int]]]


class Doors(Protocol):
    """A function that says where the services of the other brokers are; ``inside``: for gateways; ``taking``: those
    that take new clients now."""

    async def __call__(self, *, inside: bool, taking: bool = False) -> BrokerDoors: ...


AskVoucher = Callable[[str, Row], Awaitable[str]]
"""Asks the broker that has given a voucher out whose it is, see security.vouching."""
Hand = Callable[[HostPort, socket.socket, str], Awaitable[None]]


class Outside:
    """services.listening.connection_services.Backend. ``vouched``: asks other brokers; None: there are none, and never
    will be."""

    def __init__(self, asked: Asked, hand: Hand, doors: Doors, vouched: AskVoucher | None = None) -> None:
        self._vouched = vouched
        self._asked = asked
        self._hosts = asked.hosts
        self._hand = hand
        self._doors = doors
        self._factory = frozenset(setting.name for setting in settings_of("factory") if not setting.secret)

    async def locate(
        self, kind: str, name: str, create: bool, guest: bool, secret: bytes, claims: Row
    ) -> tuple[str, str, Row]:
        host, owner, traits = await self._asked.placed(kind, name, create, guest)
        await host.guests.expect(secret, {**claims, "host": host.key})
        return host.key, owner, traits

    def exists(self, kind: str, name: str) -> bool:
        return self._asked.exists(kind, name)

    def whole(self) -> bool:
        return self._asked.whole()

    async def answer_service(self, method: str, args: list[Any]) -> Any:
        return await self._asked.answer_service(method, args)

    async def admin(self, verb: str, args: Row) -> Any:
        return await self._asked.admin(verb, args)

    async def hand(self, key: str, given: socket.socket, service: str) -> None:
        host = next((host for host in self._hosts() if host.key == key), None)
        if host is None:
            raise ConnectionLostError(f"there is no host {key!r:.80} here")
        await self._hand(host, given, service)

    async def guests(self) -> list[Row]:
        found: list[Row] = []
        for host in self._hosts():
            try:
                found += await host.guests.connection_rows()
            except BrokerError:
                continue  # It restarts, and has none.
        return found

    async def guest_traffic(self) -> dict[str, Row]:
        found: dict[str, Counter[str]] = {}
        for host in self._hosts():
            try:
                for service, counts in (await host.guests.traffic()).items():
                    found.setdefault(service, Counter()).update(counts)
            except BrokerError:
                continue  # It restarts, and counts from zero.
        return {service: dict(counts) for service, counts in found.items()}

    async def close_guest(self, connection: str, reason: str) -> None:
        for host in self._hosts():
            try:
                await host.guests.end_connections(connection, reason)
            except BrokerError:
                continue  # It restarts: its connections are gone.

    async def pause_guests(self, service: str, paused: bool) -> None:
        for host in self._hosts():
            await host.guests.pause(service, paused)

    async def vouched(self, broker: str, args: Row) -> str:
        """The user of a voucher that another broker has given out; raises SecurityError."""
        if self._vouched is None:
            raise SecurityError(f"there is no broker {broker!r:.140} beside this one")
        return await self._vouched(broker, args)

    async def doors(self, *, inside: bool, taking: bool = False) -> BrokerDoors:
        return await self._doors(inside=inside, taking=taking)

    def settings(self) -> Row:
        """Attributes of connections alone: what else is configured is nobody's business outside."""
        return {name: value for name, value in self._asked.given().items() if name in self._factory}


class SocketHands:
    """Hands sockets to hosts that are other processes of this machine. ``security``: the broker's directory of it;
    ``hosts``: those that there are."""

    def __init__(self, security: Path | None, hosts: Callable[[], Iterable[HostPort]]) -> None:
        self._hosts = hosts
        self._security = "" if security is None else str(security)
        self._senders: dict[str, SocketSender] = {}

    async def __call__(self, host: HostPort, given: socket.socket, service: str) -> None:
        sender = self._senders.get(host.key)
        if sender is not None:
            try:
                await sender.hand(given, service)
                return
            except ConnectionLostError:
                sender.close()  # The host was restarted, and has another address.
        self._forget_gone()
        sender = self._senders[host.key] = SocketSender(await host.guests.address(self._security))
        await sender.hand(given, service)

    def _forget_gone(self) -> None:
        there = {host.key for host in self._hosts()}
        for key in self._senders.keys() - there:
            self._senders.pop(key).close()
