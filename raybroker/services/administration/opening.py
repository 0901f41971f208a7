"""Puts the parts of administration over HTTP together, for one gateway."""

from __future__ import annotations

from collections.abc import Callable

from raybroker.model.settings.settings import ConfigView
from raybroker.services.administration.application import Administration
from raybroker.services.administration.user import Administrator
from raybroker.services.console.history import Ask, HistorySampling
from raybroker.services.gateways.gateway import Gateway
from raybroker.services.http.http_server import HttpServer
from raybroker.services.web.opening import Tls, server_of, terms_of, users_of
from raybroker.system.clock import SystemClock


def console_samples(config: ConfigView, ask: Ask) -> HistorySampling | None:
    """What all services of a broker that have the console show of the last hour; None: there is no console."""
    if not config["raybroker.console.enabled"]:
        return None
    every_s, most = (config[f"raybroker.console.history_{name}"] for name in ("interval", "destinations_max"))
    return HistorySampling(ask, every_s, most, SystemClock().now_ms)


def administration_server(
    config: ConfigView, broker: str, version: str, tls: Tls = None, samples: HistorySampling | None = None
) -> Callable[[Gateway], HttpServer]:
    """What makes the server of a gateway; ``tls``: gives the context of https, None for http; ``samples``: for the
    console, None: there is none."""

    def made(gateway: Gateway) -> HttpServer:
        users = users_of(config, gateway, lambda now_s: Administrator(), by_address=True)
        terms = terms_of(config, broker, version, secure="httpsadmin")
        if samples is not None:
            gateway.io.submit(samples.start())
        idle_s = config["raybroker.console.session_timeout"]
        return server_of(config, Administration(users, terms, gateway.state, samples, idle_s), tls)

    return made
