"""The broker behind the connections of AMQP clients: it lets them in, and bounds what they all have under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from raybroker.client.ways.logging_in import Challenged, Credentials, RelayedDigest
from raybroker.model.errors import BrokerError, NotSupportedError
from raybroker.security.mechanism import BASIC, DIGEST, DIGEST_512, TOKEN, require_private
from raybroker.services.amqp.counts import AmqpCounts
from raybroker.services.amqp.limits import AmqpServiceLimits
from raybroker.services.amqp.login import (
    ANONYMOUS,
    EXTERNAL,
    GUEST,
    PLAIN,
    SCRAM,
    SCRAM_512,
    XOAUTH2,
    Claim,
    OfferedLogins,
    plain_parts,
    scram_user,
    token_parts,
)
from raybroker.services.amqp.output import AmqpOutput
from raybroker.services.gateways.answers import Answers
from raybroker.services.gateways.gateway import Gateway, LoggedIn
from raybroker.services.gateways.unfinished import Unfinished
from raybroker.system.own_address import is_own
from raybroker.system.supervision import Supervisor
from raybroker.wire.amqp.performatives import SaslInit

SECURE: Final = "amqps"
DIGESTS: Final = {SCRAM: DIGEST, SCRAM_512: DIGEST_512}
"""Mechanism of SASL → that of the broker."""


class AmqpBroker:
    """``version``: of the broker; ``refused``: notes who was refused, and why; ``logins``: those that are offered.

    unfinished  messages of all connections that have not ended
    answers     large messages of all connections that are being sent
    loops       the tasks of all connections
    """

    def __init__(
        self,
        gateway: Gateway,
        limits: AmqpServiceLimits,
        version: str,
        refused: Callable[[str, str], None],
        logins: OfferedLogins,
        *,
        counts: AmqpCounts,
        answers: Answers | None = None,
    ) -> None:
        self.limits = limits
        self.version = version
        self.refused = refused
        self.answers = answers or Answers(timeout_s=None)
        self.loops = Supervisor(f"clients of {gateway.service}")
        self.unfinished: Unfinished[AmqpOutput] = Unfinished(
            limits.frames_bytes_max, self._give_up, "raybroker.amqp.frames_bytes_max"
        )
        self.gateway = gateway
        self.counts = counts
        self.tls = logins.tls
        self._logins = logins

    def mechanisms(self, peer: str, *, certified: bool) -> tuple[str, ...]:
        """What a client from there is offered. ``certified``: it has shown a certificate."""
        private = self.tls or self.limits.unencrypted or is_own(peer.rpartition(":")[0])
        kinds = self._logins.kinds
        digest, passwords = DIGEST in kinds, not {DIGEST, BASIC}.isdisjoint(kinds)
        offered = (
            (EXTERNAL, certified),
            (SCRAM_512, digest and self._logins.sha512()),
            (SCRAM, digest),
            (PLAIN, passwords and private),
            (XOAUTH2, TOKEN in kinds and private),
            (ANONYMOUS, passwords),
        )
        return tuple(name for name, offers in offered if offers)

    def claim(self, init: SaslInit, peer: str, challenged: Challenged) -> Claim:
        """Who a client says that it is; raises SecurityError, ProtocolError, and NotSupportedError for a mechanism that
        is not offered."""
        gateway, response = self.gateway, init.initial_response
        if init.mechanism in DIGESTS:
            user, first = scram_user(response)
            return Claim(user, RelayedDigest(user, first, challenged, DIGESTS[init.mechanism]), None)
        if init.mechanism == EXTERNAL:
            return Claim("", Credentials.of_certificate(passed_on=True), None)
        if init.mechanism == ANONYMOUS:
            return Claim(GUEST, gateway.credentials(GUEST, GUEST, peer=peer), GUEST)
        if init.mechanism not in (PLAIN, XOAUTH2):
            raise NotSupportedError(f"the mechanism {init.mechanism!r:.40} is not supported")
        require_private(peer.rpartition(":")[0], self.tls or self.limits.unencrypted, SECURE)
        if init.mechanism == PLAIN:
            user, password = plain_parts(response)
            return Claim(user, gateway.credentials(user, password, peer=peer), user)
        user, token = token_parts(response)
        return Claim(user, gateway.credentials("", "", token=token, peer=peer), user or token)

    async def log_in(
        self, claim: Claim, peer: str, ended: Callable[[BrokerError], object], certificate: bytes | None
    ) -> LoggedIn:
        """Raises SecurityError, and what the service answers that is paused or full."""
        return await self.gateway.log_in_as(
            claim.credentials,
            peer=peer,
            client="AMQP 1.0",
            ended=ended,
            turn=claim.turn,
            certificate=certificate,
            elsewhere=self.limits.redirects,
        )

    def together(self, work: Callable[[], object]) -> None:
        """Do some work; what it hands over to the connections behind leaves at its end, in one go."""
        self.gateway.io.together(work)

    def _give_up(self, output: AmqpOutput, why: str) -> None:
        self.refused(output.peer, why)
        output.abort()
