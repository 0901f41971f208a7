"""Puts the parts of administration over HTTP together, for one gateway."""

from __future__ import annotations

from collections.abc import Callable

from raybroker.model.settings.settings import ConfigView
from raybroker.services.administration.application import Administration
from raybroker.services.administration.user import Administrator
from raybroker.services.gateways.gateway import Gateway
from raybroker.services.http.http_server import HttpServer
from raybroker.services.web.opening import Tls, server_of, terms_of, users_of


def administration_server(
    config: ConfigView, broker: str, version: str, tls: Tls = None
) -> Callable[[Gateway], HttpServer]:
    """What makes the server of a gateway; ``tls``: gives the context of https, None for http."""

    def made(gateway: Gateway) -> HttpServer:
        users = users_of(config, gateway, lambda now_s: Administrator(), by_address=True)
        terms = terms_of(config, broker, version, secure="httpsadmin")
        idle_s = config["raybroker.console.session_timeout"] if config["raybroker.console.enabled"] else 0
        return server_of(config, Administration(users, terms, gateway.state, idle_s), tls)

    return made
