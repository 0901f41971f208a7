"""The server of the service ``stomp``: accepts clients, on the loop of the gateways."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from raybroker.model.bounds import message_bytes_max
from raybroker.model.settings.settings import ConfigView
from raybroker.services.gateways.answers import Answers
from raybroker.services.gateways.client_server import ClientServer, Known
from raybroker.services.gateways.gateway import Gateway
from raybroker.services.listening.bounds import Bounds
from raybroker.services.native.native import RefusalLog
from raybroker.services.stomp.broker import StompBroker
from raybroker.services.stomp.connection import StompConnection
from raybroker.services.stomp.limits import StompLimits


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


class StompServer(ClientServer):
    """``tls``: what holds for a new client, None for a service without TLS.

    Bounds: those of every server of a gateway, and ``StompLimits.frames_bytes_max`` bytes of frames that have not
    ended.
    """

    def __init__(self, broker: StompBroker, tls: Callable[[], ssl.SSLContext] | None = None) -> None:
        def make(peer: str, known: Known, gone: Known) -> StompConnection:
            return StompConnection(broker, peer, known=known, gone=gone)

        self.unfinished = broker.unfinished
        super().__init__("STOMP", make, broker.refused, broker.limits.bounds, tls)
