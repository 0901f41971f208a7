"""The server of the service ``stomp``: accepts clients, on the loop of the gateways."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Final

from raybroker.model.bounds import message_bytes_max
from raybroker.model.errors import BrokerError, ConnectionLostError
from raybroker.model.settings.settings import ConfigView
from raybroker.services.gateways.answers import Answers
from raybroker.services.gateways.gateway import Gateway
from raybroker.services.listening.accepting import accepting, ended, take_over
from raybroker.services.listening.arrivals import MAKES_ROOM
from raybroker.services.listening.bounds import Bounds
from raybroker.services.native.native import RefusalLog
from raybroker.services.stomp.broker import StompBroker
from raybroker.services.stomp.connection import StompConnection
from raybroker.services.stomp.limits import StompLimits
from raybroker.system.supervision import Supervisor

LOG: Final = logging.getLogger("raybroker.services")
CLOSE_TIMEOUT_S: Final = 3.0
TLS_TIMEOUT_S: Final = 10.0


def stomp_server(
    config: ConfigView, version: str, now_ns: Callable[[], int], tls: Callable[[], ssl.SSLContext] | None = None
) -> Callable[[Gateway], StompServer]:
    """Makes the server of a gateway; ``version``: of the broker, ``now_ns``: a clock that never goes back, ``tls``:
    gives the context for a new client, None for a service without TLS."""
    limits = StompLimits(
        message_bytes_max(config["imq.message.max_size"]),
        config["raybroker.handshake.timeout_ms"] / 1000,
        config["raybroker.authentication.unencrypted"],
        config["raybroker.stomp.login_bytes_max"],
        config["raybroker.stomp.headers_bytes_max"],
        config["raybroker.stomp.frames_bytes_max"],
        config["raybroker.service.prefetch_bytes_max"],
        Bounds.from_config(config),
    )

    def make(gateway: Gateway) -> StompServer:
        answers = Answers.from_config(config, timeout_s=None)
        broker = StompBroker(
            gateway, limits, version, RefusalLog(now_ns).count_refusal, tls=tls is not None, answers=answers
        )
        return StompServer(broker, tls)

    return make


class StompServer:
    """``tls``: what holds for a new client, None for a service without TLS.

    Bounds: ``Bounds.arriving`` clients that have not logged in, of which a silent one makes room for the next, and of
    them ``arriving_of_address`` from one address; the others by imq.<service>.max_threads, and by address and by user
    as clients of every service, since each has a connection to the broker of its own; ``StompLimits.frames_bytes_max``
    bytes of frames that have not ended.
    """

    def __init__(self, broker: StompBroker, tls: Callable[[], ssl.SSLContext] | None = None) -> None:
        self._broker = broker
        self._bounds = broker.limits.bounds
        self._tls = tls
        self._accepting: asyncio.Task[None] | None = None
        self._bound: socket.socket | None = None
        self._unknown: dict[StompConnection, str] = {}
        """Clients that have not logged in → address."""
        self._connections: set[StompConnection] = set()
        self._coming: dict[StompConnection, asyncio.Task[None]] = {}
        self._loops = Supervisor("a server of STOMP")

    async def start(self, bound: socket.socket) -> None:
        self._bound = bound
        self._accepting = self._loops.keep("accepting", lambda: accepting(bound, self._arrived, self._bounds))

    async def move(self, bound: socket.socket) -> None:
        before, task = self._bound, self._accepting
        await self.start(bound)
        if before is not None and task is not None:
            await ended(task, before, self._arrived, self._bounds)

    def _arrived(self, taken: socket.socket, peer: str) -> None:
        address = peer.rpartition(":")[0]
        of_address = Counter(self._unknown.values())[address]
        if of_address >= self._bounds.arriving_of_address or not self._has_room():
            taken.close()
            self._broker.refused(peer, f"{of_address} connections of {address} have not logged in yet")
            return
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = StompConnection(self._broker, peer, known=self._known, gone=self._gone)
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
        self._broker.refused(silent.output.peer, MAKES_ROOM)
        del self._unknown[silent]
        coming = self._coming.get(silent)
        if coming is not None:
            coming.cancel()
        silent.output.abort()
        return True

    async def _take_socket(self, taken: socket.socket, connection: StompConnection) -> None:
        try:
            await take_over(lambda: connection, taken, self._tls() if self._tls is not None else None, TLS_TIMEOUT_S)
        except (OSError, BrokerError) as error:
            taken.close()
            self._gone(connection)
            self._broker.refused(
                connection.output.peer, f"TLS failed: {error}" if self._tls is not None else str(error)
            )
        except BaseException:
            taken.close()
            self._gone(connection)
            raise
        finally:
            self._coming.pop(connection, None)

    def _known(self, connection: StompConnection) -> None:
        self._unknown.pop(connection, None)

    def _gone(self, connection: StompConnection) -> None:
        self._broker.unfinished.ends(connection.output)
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
            LOG.info("some STOMP clients have not ended in time")
        for connection in connections:
            connection.output.abort()
