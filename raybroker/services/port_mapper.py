"""The port mapper: whoever connects is told the ports of the connection services, and the connection ends."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

from raybroker.services.accepting import accepting
from raybroker.wire.port_map import MAPPER, Door, port_map

LOG: Final = logging.getLogger("raybroker.services")
MAPPED_MAX: Final = 64
"""Clients that are being answered; further ones are not."""
TIMEOUT_S: Final = 5.0


class PortMapper:
    """``doors``: the services and their ports now. ``port``: its own; 0 before it listens."""

    def __init__(self, broker: str, version: str, doors: Callable[[], list[Door]]) -> None:
        self.port = 0
        self._broker = broker
        self._version = version
        self._doors = doors
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._telling: set[asyncio.Task[None]] = set()

    def start(self, bound: socket.socket) -> None:
        """Answer at a socket that listens; it is the mapper's from now on."""
        bound.setblocking(False)
        self._socket, self.port = bound, bound.getsockname()[1]
        self._accepting = asyncio.get_running_loop().create_task(accepting(bound, self._arrived))

    def _arrived(self, taken: socket.socket, peer: str) -> None:
        if len(self._telling) >= MAPPED_MAX:
            taken.close()
            return
        task = asyncio.get_running_loop().create_task(self._tell(taken))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, taken: socket.socket) -> None:
        doors = [Door(MAPPER, "tcp", "PORTMAPPER", self.port), *self._doors()]
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await asyncio.get_running_loop().sock_sendall(taken, port_map(self._broker, self._version, doors))
        except (OSError, TimeoutError):
            LOG.debug("a client of the port mapper did not read the map")
        finally:
            taken.close()

    def close(self) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
        if self._socket is not None:
            self._socket.close()
