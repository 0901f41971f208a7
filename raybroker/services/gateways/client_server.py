"""A server of a gateway: accepts the clients of one service, on the loop of the gateways, and ends them."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Final

from raybroker.model.errors import BrokerError, ConnectionLostError
from raybroker.services.listening.accepting import accepting, ended, take_over
from raybroker.services.listening.arrivals import MAKES_ROOM
from raybroker.services.listening.bounds import Bounds
from raybroker.system.supervision import Supervisor

LOG: Final = logging.getLogger("raybroker.services")
CLOSE_TIMEOUT_S: Final = 3.0
TLS_TIMEOUT_S: Final = 10.0


class ClientConnection(asyncio.Protocol, ABC):
    """The connection of one client."""

    @property
    @abstractmethod
    def peer(self) -> str:
        """Address and port of the client."""

    @property
    @abstractmethod
    def silent(self) -> bool:
        """It has not logged in, and nothing is done for it."""

    @abstractmethod
    def end_with(self, error: BrokerError) -> None:
        """Tell the client why it is over, and end it."""

    @abstractmethod
    async def ended(self) -> None:
        """Wait until it has ended."""

    @abstractmethod
    def abort(self) -> None:
        """Cut it."""


Known = Callable[[ClientConnection], None]
"""Told of a client that has logged in, and of one that is gone."""
MakeConnection = Callable[[str, Known, Known], ClientConnection]
"""Makes the connection of a client: (peer, known, gone)."""


class ClientServer:
    """``protocol``: its name; ``refused``: notes who was refused, and why; ``tls``: what holds for a new client, None
    for a service without TLS; ``over``: called when all clients have ended.

    Bounds: ``Bounds.arriving`` clients that have not logged in, of which a silent one makes room for the next, and of
    them ``arriving_of_address`` from one address; the others by imq.<service>.max_threads, and by address and by user
    as clients of every service, since each has a connection to the broker of its own.
    """

    def __init__(
        self,
        protocol: str,
        make: MakeConnection,
        refused: Callable[[str, str], None],
        bounds: Bounds,
        tls: Callable[[], ssl.SSLContext] | None = None,
        over: Callable[[], object] = lambda: None,
    ) -> None:
        self._over = over
        self._protocol = protocol
        self._make = make
        self._refused = refused
        self._bounds = bounds
        self._tls = tls
        self._accepting: asyncio.Task[None] | None = None
        self._bound: socket.socket | None = None
        self._unknown: dict[ClientConnection, str] = {}
        """Clients that have not logged in → address."""
        self._connections: set[ClientConnection] = set()
        self._coming: dict[ClientConnection, asyncio.Task[None]] = {}
        self._loops = Supervisor(f"a server of {protocol}")

    async def start(self, bound: socket.socket) -> None:
        self._bound = bound
        self._accepting = self._loops.keep("accepting", lambda: accepting(bound, self._arrived, self._bounds))

    async def move(self, bound: socket.socket) -> None:
        before, task = self._bound, self._accepting
        await self.start(bound)
        if before is not None and task is not None:
            await ended(task, before, self._arrived, self._bounds)

    def take_client(self, taken: socket.socket, peer: str) -> None:
        """Serve a client that has come another way than by the port, on this loop."""
        self._arrived(taken, peer)

    def _arrived(self, taken: socket.socket, peer: str) -> None:
        address = peer.rpartition(":")[0]
        of_address = Counter(self._unknown.values())[address]
        if of_address >= self._bounds.arriving_of_address or not self._has_room():
            taken.close()
            self._refused(peer, f"{of_address} connections of {address} have not logged in yet")
            return
        if taken.family != socket.AF_UNIX:
            taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = self._make(peer, self._known, self._gone)
        self._unknown[connection] = address
        self._connections.add(connection)
        self._coming[connection] = self._loops.once("a client comes in", self._take_socket(taken, connection))

    def _has_room(self) -> bool:
        """Whether there is room for a client that has not logged in; the silent one that came first makes some."""
        if len(self._unknown) < self._bounds.arriving:
            return True
        silent = next((connection for connection in self._unknown if connection.silent), None)
        if silent is None:
            return False
        self._refused(silent.peer, MAKES_ROOM)
        del self._unknown[silent]
        coming = self._coming.get(silent)
        if coming is not None:
            coming.cancel()
        silent.abort()
        return True

    async def _take_socket(self, taken: socket.socket, connection: ClientConnection) -> None:
        try:
            await take_over(lambda: connection, taken, self._tls() if self._tls is not None else None, TLS_TIMEOUT_S)
        except (OSError, BrokerError) as error:
            taken.close()
            self._gone(connection)
            self._refused(connection.peer, f"TLS failed: {error}" if self._tls is not None else str(error))
        except BaseException:
            taken.close()
            self._gone(connection)
            raise
        finally:
            self._coming.pop(connection, None)

    def _known(self, connection: ClientConnection) -> None:
        self._unknown.pop(connection, None)

    def _gone(self, connection: ClientConnection) -> None:
        self._unknown.pop(connection, None)
        self._connections.discard(connection)

    async def close(self) -> None:
        """Tell all clients, and end."""
        self._loops.close()
        if self._bound is not None:
            self._bound.close()
        connections = list(self._connections)
        for connection in connections:
            connection.end_with(ConnectionLostError("the broker shuts down"))
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await asyncio.gather(*(connection.ended() for connection in connections))
        except TimeoutError:
            LOG.info("some clients of %s have not ended in time", self._protocol)
        for connection in connections:
            connection.abort()
        self._over()
