"""The broker behind the connections of STOMP clients: it lets them in, and bounds what they all have under way."""

from __future__ import annotations

from collections.abc import Callable

from raybroker.client.connection.connection import ConnectionCore
from raybroker.model.errors import BrokerError, ResourceAllocationError
from raybroker.security.mechanism import require_private
from raybroker.services.gateways.answers import Answers
from raybroker.services.gateways.gateway import Gateway
from raybroker.services.gateways.unfinished import Unfinished
from raybroker.services.stomp.limits import StompLimits
from raybroker.services.stomp.output import StompOutput
from raybroker.services.stomp.session import MakeSession, session_maker
from raybroker.wire.stomp.frame import Version


class StompBroker:
    """``version``: of the broker; ``refused``: notes who was refused, and why; ``tls``: clients come with TLS.

    unfinished  frames of all connections that have not ended
    answers     large messages of all connections that are being sent
    """

    def __init__(
        self,
        gateway: Gateway,
        limits: StompLimits,
        version: str,
        refused: Callable[[str, str], None],
        *,
        tls: bool = False,
        answers: Answers | None = None,
    ) -> None:
        self.limits = limits
        self.version = version
        self.refused = refused
        self.answers = answers or Answers(timeout_s=None)
        self.unfinished: Unfinished[StompOutput] = Unfinished(
            limits.frames_bytes_max, self._give_up, "raybroker.stomp.frames_bytes_max"
        )
        self._gateway = gateway
        self._private = tls or limits.unencrypted

    async def connect(
        self,
        peer: str,
        user: str,
        password: str,
        client_id: str | None,
        version: Version,
        ended: Callable[[BrokerError], object],
    ) -> tuple[ConnectionCore, MakeSession]:
        """Log in: the connection, and what makes sessions of it."""
        require_private(peer.rpartition(":")[0], self._private, "sslstomp")
        core = await self._gateway.core_as(
            user,
            password,
            peer=peer,
            client_id=client_id,
            client=f"STOMP {version}",
            ended=ended,
            bodies_bytes=self.limits.prefetch_bytes,
        )
        return core, session_maker(core)

    def together(self, work: Callable[[], object]) -> None:
        """Do some work; what it hands over to the connections behind leaves at its end, in one go."""
        self._gateway.io.together(work)

    def _give_up(self, output: StompOutput, why: str) -> None:
        self.refused(output.peer, why)
        output.fail(ResourceAllocationError(why), None)
