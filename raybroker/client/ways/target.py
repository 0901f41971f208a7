"""The target of a connection: the port of its address, or the one that the port mapper there tells."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from raybroker.client.ways.service_address import ServiceAddress
from raybroker.client.ways.sockets import Connect, direct
from raybroker.model.errors import BrokerError, ConnectionLostError, NoClusterError
from raybroker.model.settings.setting_services import WITH_TLS
from raybroker.wire.port_map import MAP_BYTES_MAX, MAPPER, read_map

CONNECT_TIMEOUT_S: Final = 10.0


class Target:
    """The place where a service listens, as far as is known; made by :meth:`resolve`. ``connect``: how sockets are
    connected."""

    def __init__(self, address: ServiceAddress, host: str, port: int, connect: Connect) -> None:
        self.address = address
        self.host = host
        self.port = port
        self.connect = connect

    @classmethod
    async def resolve(cls, address: ServiceAddress, connect: Connect = direct) -> Target:
        """Raises OSError, TimeoutError and BrokerError."""
        return cls(address, *await resolved(address, connect), connect)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    async def socket(self) -> socket.socket:
        """One that is connected. Where nothing listens any more the port mapper, if there is one, is asked again: an
        administrator may have given the service another port."""
        try:
            return await self.connect(self.host, self.port)
        except ConnectionError:
            if not self.address.mapped or not await self.moved(self.address):
                raise
        return await self.connect(self.host, self.port)

    async def moved(self, address: ServiceAddress) -> bool:
        """Whether the port mapper at the address tells another port now, which holds from then on."""
        try:
            found = await resolved(address, self.connect)
        except (OSError, BrokerError):
            return False
        before = self.host, self.port
        self.host, self.port = found
        return found != before


async def resolved(address: ServiceAddress, connect: Connect = direct) -> tuple[str, int]:
    """Return where the service listens, by the port mapper where the address means one."""
    if not address.mapped:
        return address.host, address.port
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(sock=await connect(address.host, address.port))
            try:
                text = b""
                while len(text) < MAP_BYTES_MAX and (more := await reader.read(MAP_BYTES_MAX - len(text))):
                    text += more
            finally:
                writer.close()
    except TimeoutError:
        raise ConnectionLostError("the port mapper does not answer in time") from None
    doors = read_map(text)
    door = doors.get(address.service)
    if door is None:
        there = ", ".join(name for name in doors if name != MAPPER) or "none"
        raise NoClusterError(f"there is no service {address.service!r}; the port mapper names {there}")
    if (door.protocol in WITH_TLS) != address.secure:
        raise NoClusterError(f"service {address.service!r} has {door.protocol} there, and the address means otherwise")
    return address.host, door.port
