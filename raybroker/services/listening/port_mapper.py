"""The port mapper: whoever connects is told the ports of the connection services, and the connection ends.

What a client says is not looked at: clients of MQ say the version that they want. It is read all the same, for at most
LINGER_S and SAID_BYTES_MAX, since a socket that is closed with unread bytes takes back what it has sent.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

from raybroker.services.listening.accepting import accepting, ended
from raybroker.services.listening.arrivals import Arrivals
from raybroker.system.supervision import Supervisor
from raybroker.wire.port_map import MAPPER, ServicePort, port_map

LOG: Final = logging.getLogger("raybroker.services")
TIMEOUT_S: Final = 5.0
LINGER_S: Final = 1.0
SAID_BYTES_MAX: Final = 4096


class PortMapper:
    """``doors``: the services and their ports now; ``refused``: is told of an address that is not answered, and why;
    ``most``: connections at once, ``of_address``: of one address. ``port``: its own; 0 before it listens. ``accepted``:
    connections so far; ``refused_count``: those of them that were not answered."""

    def __init__(
        self,
        broker: str,
        version: str,
        doors: Callable[[], list[ServicePort]],
        refused: Callable[[str, str], None],
        *,
        most: int,
        of_address: int,
    ) -> None:
        self.port = 0
        self.accepted = self.refused_count = 0
        self._broker = broker
        self._version = version
        self._doors = doors
        self._refused = refused
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._loops = Supervisor(f"the port mapper of broker {broker}")
        self._telling = Arrivals(most, of_address)

    def start(self, bound: socket.socket) -> None:
        """Answer at a socket that listens; it is the mapper's from now on."""
        bound.setblocking(False)
        self._socket, self.port = bound, bound.getsockname()[1]
        self._accepting = self._loops.keep("accepting", lambda: accepting(bound, self._arrived))

    async def move(self, bound: socket.socket) -> None:
        """Answer at another socket, and then at the one before no more; who has connected there is answered."""
        before, accepting_before = self._socket, self._accepting
        self.start(bound)
        if before is not None and accepting_before is not None:
            await ended(accepting_before, before, self._arrived)

    def _arrived(self, taken: socket.socket, peer: str) -> None:
        self.accepted += 1
        # One that makes room has been answered, or does not read: there is nothing to tell.
        if not self._telling.start(peer.rpartition(":")[0], lambda: self._tell(taken), taken.close):
            taken.close()
            self.refused_count += 1
            self._refused(peer, f"the port mapper answers {len(self._telling)} connections already")

    async def _tell(self, taken: socket.socket) -> None:
        doors = [ServicePort(MAPPER, "tcp", "PORTMAPPER", self.port), *self._doors()]
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await loop.sock_sendall(taken, port_map(self._broker, self._version, doors))
            taken.shutdown(socket.SHUT_WR)
            said = 0
            async with asyncio.timeout(LINGER_S):
                while said < SAID_BYTES_MAX and (data := await loop.sock_recv(taken, SAID_BYTES_MAX)):
                    said += len(data)
        except (OSError, TimeoutError):
            LOG.debug("a client of the port mapper did not read the map, or did not end")
        finally:
            taken.close()

    def close(self) -> None:
        self._loops.close()
        self._telling.cancel()
        if self._socket is not None:
            self._socket.close()
