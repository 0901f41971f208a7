"""Opening a service over HTTP: its users, its terms and its server, for one gateway."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from raybroker.model.settings.settings import ConfigView
from raybroker.security.authentication import offered_by
from raybroker.security.mechanism import TOKEN, UNENCRYPTED
from raybroker.services.gateways.gateway import Gateway
from raybroker.services.http.http_bounds import Guard
from raybroker.services.http.http_server import HttpServer
from raybroker.services.listening.bounds import Bounds
from raybroker.services.native.native import RefusalLog
from raybroker.services.web.application import Terms, WebApplication
from raybroker.services.web.credentials import Offer
from raybroker.services.web.origins import PROPERTY, Origins
from raybroker.services.web.users import Connect, Opened, WebUsers
from raybroker.system.clock import SystemClock

if TYPE_CHECKING:
    from raybroker.services.http.web_socket import ServedWebSocket

U = TypeVar("U", bound=Opened)
Tls = Callable[[], ssl.SSLContext] | None
"""Gives the context of https; None for http."""


def users_of(
    config: ConfigView,
    gateway: Gateway,
    make: Callable[[Callable[[], float]], U],
    *,
    by_address: bool = False,
    bodies_bytes: int = 0,
) -> WebUsers[U]:
    """``make(now_s)`` makes what uses the connection of one who asks; ``bodies_bytes``: large bodies that its consumers
    may have in memory, 0: any; see Users for the rest."""
    clock = SystemClock()

    def now_s() -> float:
        return clock.monotonic_ns() / 1e9

    kinds = offered_by(config, gateway.service)
    offer = Offer(passwords=kinds != [TOKEN], tokens=TOKEN in kinds)
    most = max(1, config[f"imq.{gateway.service}.max_threads"] // 2)
    connect: Connect = partial(gateway.connect_as, bodies_bytes=bodies_bytes) if bodies_bytes else gateway.connect_as
    return WebUsers(connect, lambda: make(now_s), most=most, now_s=now_s, offer=offer, by_address=by_address)


def terms_of(config: ConfigView, broker: str, version: str, *, secure: str, pull_s: int = -1) -> Terms:
    return Terms(
        broker,
        version,
        config["raybroker.http.body_bytes_max"],
        config[UNENCRYPTED],
        pull_s=pull_s,
        secure=secure,
        requests_max=config["raybroker.http.requests_max"],
        bodies_bytes_max=config["raybroker.http.bodies_bytes_max"],
        body_timeout_s=config["raybroker.http.body_timeout"],
        web_sockets_max=config["raybroker.http.websockets_max"],
        origins=Origins.parse(config[PROPERTY]),
    )


def server_of(
    config: ConfigView,
    application: WebApplication[U],
    tls: Tls,
    *,
    web_socket: type[ServedWebSocket] | None = None,
) -> HttpServer:
    bounds = Bounds.from_config(config)
    ws_bytes = config["raybroker.http.websocket_bytes_max"]
    guard = Guard(
        RefusalLog(SystemClock().monotonic_ns).count_refusal,
        most=config["raybroker.http.connections_max"],
        of_address=config["raybroker.http.address_connections_max"],
        headers_s=config["raybroker.http.headers_timeout"],
        headers_bytes=config["raybroker.http.headers_bytes_max"],
        unread_s=bounds.unread_s,
    )
    return HttpServer(
        application.app,
        guard=guard,
        ended=application.close,
        tls=tls,
        bounds=bounds,
        web_socket=None if web_socket is None else partial(web_socket, application.app, guard, ws_bytes),
    )
