"""Sockets that are accepted: one after another, their first bytes, and an event loop that takes them over."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from raybroker.model.errors import ProtocolError
from raybroker.services.listening.bounds import AS_SET, Bounds

LOG: Final = logging.getLogger("raybroker.services")
BACKLOG: Final = 512
"""Connections that the system holds until they are accepted."""
RETRY_S: Final = 0.5
"""How long a machine without free descriptors waits before it accepts again."""
TLS_SHUTDOWN_S: Final = 5.0
KEEPALIVE_PROBES: Final = 4


async def accepting(
    bound: socket.socket, arrived: Callable[[socket.socket, str], None], bounds: Bounds = AS_SET
) -> None:
    """Call ``arrived(socket, "address:port")`` for each connection, for ever; a machine out of descriptors waits.

    A client whose machine is gone is noticed, see raybroker.service.keepalive.
    """
    bound.setblocking(False)
    while True:
        try:
            # Not sock_accept of the loop: one that is cancelled may have taken a connection, which would be lost.
            taken, address = bound.accept()
        except BlockingIOError:
            await _readable(bound)
            continue
        except OSError as error:
            LOG.warning("[B2099] no connection could be accepted: %s", error)
            await asyncio.sleep(RETRY_S)
            continue
        taken.setblocking(False)
        with suppress(OSError):
            keep_alive(taken, bounds)
        arrived(taken, f"{address[0]}:{address[1]}")
        await asyncio.sleep(0)


def keep_alive(taken: socket.socket, bounds: Bounds) -> None:
    """Let the system notice a machine that is gone: it asks after so long without a byte, for as long again, and waits
    as long for it to acknowledge bytes, unless a client may leave bytes unread for ever."""
    after_s = bounds.keepalive_s
    if bounds.unread_s > 0:
        ends_ms = int(1000 * max(2 * after_s, bounds.unread_s))
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, ends_ms)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, after_s)
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, after_s // KEEPALIVE_PROBES))
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)


async def ended(
    task: asyncio.Task[None],
    bound: socket.socket,
    arrived: Callable[[socket.socket, str], None],
    bounds: Bounds = AS_SET,
) -> None:
    """End :func:`accepting` at a socket, and close it; connections that wait there are taken before."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    with suppress(OSError):  # BlockingIOError: nobody waits.
        for _ in range(BACKLOG):
            taken, address = bound.accept()
            taken.setblocking(False)
            with suppress(OSError):
                keep_alive(taken, bounds)
            arrived(taken, f"{address[0]}:{address[1]}")
    bound.close()


async def exactly(taken: socket.socket, size: int) -> bytes:
    """Receive so many bytes and not one more: what follows belongs to who gets the socket."""
    loop, data = asyncio.get_running_loop(), b""
    while len(data) < size:
        more = await loop.sock_recv(taken, size - len(data))
        if not more:
            raise ProtocolError("it ended before it said what it wants")
        data += more
    return data


async def first_byte(taken: socket.socket) -> int:
    """The first byte that a non-blocking socket has, which stays there; -1 at its end."""
    while True:
        try:
            data = taken.recv(1, socket.MSG_PEEK)
            return data[0] if data else -1
        except BlockingIOError:
            await _readable(taken)


async def _readable(one: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    loop.add_reader(one, _tell, readable)  # By itself, and not by its number: whoever closes it does so after that.
    try:
        await readable
    finally:
        loop.remove_reader(one)


def _tell(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)


async def take_over(
    make: Callable[[], asyncio.BaseProtocol], taken: socket.socket, context: ssl.SSLContext | None, handshake_s: float
) -> None:
    """Serve an accepted socket on this loop; with a ``context`` the client begins with TLS, within the handshake's
    time. Raises OSError, which a failed handshake is too."""
    options: dict[str, Any] = {}
    if context is not None:
        options = {"ssl": context, "ssl_handshake_timeout": handshake_s, "ssl_shutdown_timeout": TLS_SHUTDOWN_S}
    await asyncio.get_running_loop().connect_accepted_socket(make, taken, **options)
