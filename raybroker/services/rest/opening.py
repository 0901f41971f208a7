"""Puts the parts of the REST service together, for one gateway."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Protocol

from raybroker.model.setting_services import pull_property
from raybroker.model.settings import ConfigView
from raybroker.security.mechanism import UNENCRYPTED
from raybroker.services.bounds import Bounds
from raybroker.services.http_bounds import Guard
from raybroker.services.http_server import HttpServer
from raybroker.services.native import RefusalLog
from raybroker.services.rest.application import Application, Terms
from raybroker.services.rest.relay import Arrive
from raybroker.services.rest.users import Connect, Users
from raybroker.system.clock import SystemClock


class Gateway(Protocol):
    """The way to the broker."""

    service: str

    @property
    def state(self) -> Callable[[], str]: ...

    @property
    def connect_as(self) -> Connect: ...

    @property
    def arrive(self) -> Arrive: ...


def http_server(
    config: ConfigView, broker: str, version: str, tls: Callable[[], ssl.SSLContext] | None = None
) -> Callable[[Gateway], HttpServer]:
    """What makes the server of a gateway; ``tls``: gives the context of https, None for http."""

    def made(gateway: Gateway) -> HttpServer:
        clock = SystemClock()
        users = Users(
            gateway.connect_as, most=max(1, config[f"imq.{gateway.service}.max_threads"] // 2),
            now_s=lambda: clock.monotonic_ns() / 1e9,
        )  # fmt: skip
        terms = Terms(
            broker, version, config["raybroker.http.body_bytes_max"], config[UNENCRYPTED],
            config[pull_property(gateway.service)], requests_max=config["raybroker.http.requests_max"],
            bodies_bytes_max=config["raybroker.http.bodies_bytes_max"],
            body_timeout_s=config["raybroker.http.body_timeout"],
            web_sockets_max=config["raybroker.http.websockets_max"],
        )
        application = Application(users, terms, gateway.state, gateway.arrive)
        bounds = Bounds.of(config)
        guard = Guard(
            RefusalLog(clock.monotonic_ns).refused, most=config["raybroker.http.connections_max"],
            of_address=config["raybroker.http.address_connections_max"],
            headers_s=config["raybroker.http.headers_timeout"],
            headers_bytes=config["raybroker.http.headers_bytes_max"], unread_s=bounds.unread_s,
        )  # fmt: skip
        return HttpServer(
            application.app, guard=guard, ended=application.close, tls=tls, bounds=bounds,
            ws_bytes=config["raybroker.http.websocket_bytes_max"],
        )  # fmt: skip

    return made
