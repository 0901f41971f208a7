"""Puts the parts of the REST service together, for one gateway."""

from __future__ import annotations

from collections.abc import Callable

from raybroker.client.aio.fitting import receive_fitting
from raybroker.model.settings.setting_services import pull_property
from raybroker.model.settings.settings import ConfigView
from raybroker.services.gateways.answers import Answers
from raybroker.services.gateways.client_server import ClientServer
from raybroker.services.gateways.gateway import Gateway
from raybroker.services.http.http_server import HttpServer
from raybroker.services.http.web_socket import ServedWebSocket
from raybroker.services.rest.application import Application
from raybroker.services.rest.user_connection import UserConnection
from raybroker.services.web.opening import Tls, server_of, terms_of, users_of

MakeAmqp = Callable[[Gateway], ClientServer | None]


def _without_amqp(gateway: Gateway) -> None:
    """There is none."""


def http_server(
    config: ConfigView, broker: str, version: str, tls: Tls = None, amqp: MakeAmqp = _without_amqp
) -> Callable[[Gateway], HttpServer]:
    """What makes the server of a gateway; ``tls``: gives the context of https, None for http; ``amqp``: makes what
    serves AMQP that comes over WebSocket."""

    def made(gateway: Gateway) -> HttpServer:
        answers = Answers.from_config(config)
        prefetch_bytes = config["raybroker.service.prefetch_bytes_max"]
        users = users_of(
            config,
            gateway,
            lambda now_s: UserConnection(now_s, receive_fitting, answers, prefetch_bytes),
            bodies_bytes=prefetch_bytes,
        )
        pull_s = config[pull_property(gateway.service)]
        terms = terms_of(config, broker, version, secure="httpsjms", pull_s=pull_s)
        application = Application(users, terms, gateway.state, gateway.arrive, amqp(gateway))
        return server_of(config, application, tls, web_socket=ServedWebSocket)

    return made
