"""Sockets to connection services: connected directly, or through a proxy (``proxy.py``)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

Connect = Callable[[str, int], Awaitable[socket.socket]]
"""A connected socket, which does not block, to a host and port; raises OSError, TimeoutError and BrokerError."""


def within(connect: Connect, timeout_s: float) -> Connect:
    """Connect in the same way; raises TimeoutError after so long."""

    async def bounded(host: str, port: int) -> socket.socket:
        async with asyncio.timeout(timeout_s):
            return await connect(host, port)

    return bounded


async def direct(host: str, port: int) -> socket.socket:
    """Connect to the first address of the host that answers; raises OSError."""
    loop = asyncio.get_running_loop()
    failure: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, address)
            return sock
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
    raise failure
