"""The server of the services ``amqp`` and ``amqps``: accepts clients, on the loop of the gateways."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from raybroker.model.bounds import message_bytes_max
from raybroker.model.settings.settings import ConfigView
from raybroker.security.authentication import offered_by
from raybroker.services.amqp.broker import AmqpBroker
from raybroker.services.amqp.connection import AmqpConnection
from raybroker.services.amqp.counts import AmqpCounts
from raybroker.services.amqp.limits import AmqpServiceLimits
from raybroker.services.amqp.login import OfferedLogins
from raybroker.services.gateways.answers import Answers
from raybroker.services.gateways.client_server import ClientServer, Known
from raybroker.services.gateways.gateway import Gateway
from raybroker.services.listening.bounds import Bounds
from raybroker.services.native.native import RefusalLog
from raybroker.wire.amqp.limits import AmqpLimits


def amqp_server(
    config: ConfigView,
    version: str,
    now_ns: Callable[[], int],
    tls: Callable[[], ssl.SSLContext] | None = None,
    *,
    sha512: Callable[[], bool],
    counts: AmqpCounts,
    inside_tls: bool = False,
) -> Callable[[Gateway], AmqpServer]:
    """Makes the server of a gateway; ``version``: of the broker, ``now_ns``: a clock that never goes back, ``tls``:
    gives the context for a new client, None for a service without TLS; ``sha512()``: whether users can log in by
    SCRAM-SHA-512; ``counts``: of all AMQP services of the broker; ``inside_tls``: clients come over WebSocket, within
    HTTP over TLS."""
    limits = amqp_limits(config)

    def make(gateway: Gateway) -> AmqpServer:
        broker = AmqpBroker(
            gateway,
            limits,
            version,
            RefusalLog(now_ns).count_refusal,
            OfferedLogins(tls is not None or inside_tls, offered_by(config, gateway.service), sha512),
            counts=counts,
            answers=Answers.from_config(config, timeout_s=None),
        )
        return AmqpServer(broker, tls)

    return make


def amqp_limits(config: ConfigView) -> AmqpServiceLimits:
    most = message_bytes_max(config["imq.message.max_size"])
    wire = AmqpLimits(
        frame_bytes_max=config["raybroker.amqp.frame_bytes_max"],
        login_bytes_max=config["raybroker.amqp.login_bytes_max"],
        channel_max=config["raybroker.amqp.sessions_max"] - 1,
        handle_max=config["raybroker.amqp.links_max"] - 1,
        message_bytes_max=most,
        incomplete_bytes_max=2 * most,
    )
    return AmqpServiceLimits(
        wire,
        config["raybroker.handshake.timeout_ms"] / 1000,
        config["raybroker.authentication.unencrypted"],
        config["raybroker.amqp.idle_timeout_ms"] / 1000,
        config["raybroker.amqp.unsettled_max"],
        config["raybroker.amqp.frames_bytes_max"],
        config["raybroker.service.prefetch_bytes_max"],
        Bounds.from_config(config),
        config["raybroker.amqp.redirect"],
    )


class AmqpServer(ClientServer):
    """``tls``: what holds for a new client, None for a service without TLS.

    Bounds: those of every server of a gateway, those of AmqpServiceLimits for each connection, and
    ``AmqpServiceLimits.frames_bytes_max`` bytes of messages that have not ended, of all clients.
    """

    def __init__(self, broker: AmqpBroker, tls: Callable[[], ssl.SSLContext] | None = None) -> None:
        def make(peer: str, known: Known, gone: Known) -> AmqpConnection:
            return AmqpConnection(broker, peer, known=known, gone=gone)

        super().__init__("AMQP", make, broker.refused, broker.limits.bounds, tls, over=broker.loops.close)
