"""The server of the service ``stomp``: accepts clients, on the loop of the gateways."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Final

from raybroker.client.connection.connection import ConnectionCore
from raybroker.model.bounds import message_bytes_max
from raybroker.model.errors import BrokerError, ConnectionLostError, ResourceAllocationError
from raybroker.model.settings.settings import ConfigView
from raybroker.security.mechanism import require_private
from raybroker.services.gateways.answers import Answers
from raybroker.services.gateways.gateway import Gateway
from raybroker.services.gateways.unfinished import Unfinished
from raybroker.services.listening.accepting import accepting, ended, take_over
from raybroker.services.listening.arrivals import MAKES_ROOM
from raybroker.services.listening.bounds import Bounds
from raybroker.services.native.native import RefusalLog
from raybroker.services.stomp.connection import StompConnection
from raybroker.services.stomp.limits import StompLimits
from raybroker.services.stomp.session import MakeSession, session_maker
from raybroker.system.supervision import Supervisor
from raybroker.wire.stomp.frame import Version

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
        Bounds.of(config),
    )
    return lambda gateway: StompServer(
        gateway, limits, version, RefusalLog(now_ns).refused, tls, Answers.of(config, timeout_s=None)
    )


class StompServer:
    """``version``: of the broker; ``tls``: what holds for a new client, None for a service without TLS.

    Bounds: ``Bounds.arriving`` clients that have not logged in, of which a silent one makes room for the next, and of
    them ``arriving_of_address`` from one address; the others by imq.<service>.max_threads, and by address and by user
    as clients of every service, since each has a connection to the broker of its own; ``StompLimits.frames_bytes_max``
    bytes of frames that have not ended.
    """

    def __init__(
        self,
        gateway: Gateway,
        limits: StompLimits,
        version: str,
        refused: Callable[[str, str], None],
        tls: Callable[[], ssl.SSLContext] | None = None,
        answers: Answers | None = None,
    ) -> None:
        self.limits = limits
        self.answers = answers or Answers(timeout_s=None)
        self.version = version
        self.refused = refused
        self._gateway = gateway
        self._tls = tls
        self._accepting: asyncio.Task[None] | None = None
        self._bound: socket.socket | None = None
        self._unknown: dict[StompConnection, str] = {}
        """Clients that have not logged in → address."""
        self._connections: set[StompConnection] = set()
        self._coming: dict[StompConnection, asyncio.Task[None]] = {}
        self._loops = Supervisor("a server of STOMP")
        self.unfinished: Unfinished[StompConnection] = Unfinished(
            limits.frames_bytes_max, self._give_up, "raybroker.stomp.frames_bytes_max"
        )

    async def start(self, bound: socket.socket) -> None:
        self._bound = bound
        self._accepting = self._loops.keep("accepting", lambda: accepting(bound, self._arrived, self.limits.bounds))

    async def move(self, bound: socket.socket) -> None:
        before, task = self._bound, self._accepting
        await self.start(bound)
        if before is not None and task is not None:
            await ended(task, before, self._arrived, self.limits.bounds)

    def _arrived(self, taken: socket.socket, peer: str) -> None:
        address = peer.rpartition(":")[0]
        of_address = Counter(self._unknown.values())[address]
        bounds = self.limits.bounds
        if of_address >= bounds.arriving_of_address or not self._has_room():
            taken.close()
            self.refused(peer, f"{of_address} connections of {address} have not logged in yet")
            return
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = StompConnection(self, peer)
        self._unknown[connection] = address
        self._connections.add(connection)
        self._coming[connection] = self._loops.once("a client comes in", self._take(taken, connection))

    def _has_room(self) -> bool:
        """Whether there is room for a client that has not logged in; the silent one that came first makes some."""
        if len(self._unknown) < self.limits.bounds.arriving:
            return True
        silent = next((connection for connection in self._unknown if connection.silent), None)
        if silent is None:
            return False
        self.refused(silent.peer, MAKES_ROOM)
        del self._unknown[silent]
        coming = self._coming.get(silent)
        if coming is not None:
            coming.cancel()
        silent.abort()
        return True

    async def _take(self, taken: socket.socket, connection: StompConnection) -> None:
        try:
            await take_over(lambda: connection, taken, self._tls() if self._tls is not None else None, TLS_TIMEOUT_S)
        except (OSError, BrokerError) as error:
            taken.close()
            self.gone(connection)
            self.refused(connection.peer, f"TLS failed: {error}" if self._tls is not None else str(error))
        except BaseException:
            taken.close()
            self.gone(connection)
            raise
        finally:
            self._coming.pop(connection, None)

    # ---- the Door of connections -------------------------------------------------------------------------------------

    async def connect(
        self,
        connection: StompConnection,
        user: str,
        password: str,
        client_id: str | None,
        version: Version,
        ended: Callable[[BrokerError], object],
    ) -> tuple[ConnectionCore, MakeSession]:
        allowed = self._tls is not None or self.limits.unencrypted
        require_private(connection.peer.rpartition(":")[0], allowed, "sslstomp")
        core = await self._gateway.core_as(
            user,
            password,
            peer=connection.peer,
            client_id=client_id,
            client=f"STOMP {version}",
            ended=ended,
            bodies_bytes=self.limits.prefetch_bytes,
        )
        return core, session_maker(core)

    def together(self, work: Callable[[], object]) -> None:
        self._gateway.io.together(work)

    def known(self, connection: StompConnection) -> None:
        self._unknown.pop(connection, None)

    def _give_up(self, connection: StompConnection, why: str) -> None:
        self.refused(connection.peer, why)
        connection.end(ResourceAllocationError(why))

    def gone(self, connection: StompConnection) -> None:
        self.unfinished.ends(connection)
        self._unknown.pop(connection, None)
        self._connections.discard(connection)

    async def close(self) -> None:
        """Tell all clients, and end."""
        self._loops.close()
        if self._bound is not None:
            self._bound.close()
        connections = list(self._connections)
        for connection in connections:
            connection.end(ConnectionLostError("the broker shuts down"))
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await asyncio.gather(*(connection.ended() for connection in connections))
        except TimeoutError:
            LOG.info("some STOMP clients have not ended in time")
        for connection in connections:
            connection.abort()
