"""Handing an accepted socket to another process of the same machine and user, over a Unix socket.

A host listens at an address in the abstract name space, which is no file; who connects must be a process of the same
user, as the kernel says. One message is one socket: its name of the service as data, the descriptor beside it.
"""

from __future__ import annotations

import array
import asyncio
import os
import socket
import struct
from collections.abc import Callable
from typing import Final

from raybroker.model.errors import ConnectionLostError

MESSAGE_BYTES_MAX: Final = 64
BACKLOG: Final = 16
HAND_TIMEOUT_S: Final = 5.0
_CREDENTIALS: Final = struct.Struct("3i")


class SocketReceiver:
    """``take(socket, service)`` is called for each socket, on the loop that :meth:`start` was called on."""

    def __init__(self, address: str, take: Callable[[socket.socket, str], None]) -> None:
        self.address = address
        self._take = take
        self._listening: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        if self._listening is not None:
            return
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind("\0" + self.address)
        listening.listen(BACKLOG)
        listening.setblocking(False)
        self._listening = listening
        asyncio.get_running_loop().add_reader(listening.fileno(), self._accept)

    def _accept(self) -> None:
        assert self._listening is not None
        try:
            peer, _ = self._listening.accept()
        except OSError:
            return
        raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, user, _ = _CREDENTIALS.unpack(raw)
        if user != os.getuid():
            peer.close()
            return
        peer.setblocking(False)
        asyncio.get_running_loop().add_reader(peer.fileno(), self._readable, peer)

    def _readable(self, peer: socket.socket) -> None:
        """A socket has come, or whoever hands them has gone."""
        try:
            data, ancillary, _, _ = peer.recvmsg(MESSAGE_BYTES_MAX, socket.CMSG_SPACE(4))
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        if not data:
            asyncio.get_running_loop().remove_reader(peer.fileno())
            peer.close()
            return
        for level, kind, raw in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                (descriptor,) = array.array("i", raw)
                taken = socket.socket(fileno=descriptor)
                taken.setblocking(False)
                self._take(taken, data.decode())

    def close(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening.fileno())
            self._listening.close()
            self._listening = None


class SocketSender:
    """Hands sockets to one receiver; connects when it is first needed, and again when that host was restarted."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._peer: socket.socket | None = None

    async def hand(self, given: socket.socket, service: str) -> None:
        """The socket is the other's then, and closed here. Raises ConnectionLostError when nobody takes it."""
        failure: Exception = OSError("it was not tried")
        for fresh in (False, True):
            try:
                async with asyncio.timeout(HAND_TIMEOUT_S):
                    await self._hand(given, service, fresh)
            except (OSError, TimeoutError) as error:
                failure = error
                self.close()
                continue
            given.close()
            return
        raise ConnectionLostError(f"the host does not take connections: {failure}")

    async def _hand(self, given: socket.socket, service: str, fresh: bool) -> None:
        loop = asyncio.get_running_loop()
        if self._peer is None or fresh:
            self.close()
            peer = self._peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            peer.setblocking(False)
            await loop.sock_connect(peer, "\0" + self._address)
        assert self._peer is not None
        while True:
            try:
                socket.send_fds(self._peer, [service.encode()], [given.fileno()])
                return
            except BlockingIOError:
                await asyncio.sleep(0.001)  # Its queue is full: it has more than BACKLOG of them to take.

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None
