"""The way to brokers from outside the Ray cluster: addresses, who comes, and the attributes that say how.

Connections are made on top of it, and so is administration alone, which needs none of a connection's handles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from raybroker.client.cluster.addresses import ATTRIBUTE, address_list
from raybroker.client.cluster.service_calls import Reach, ServiceCalls, way_to
from raybroker.client.connection.identity import client_id_of
from raybroker.client.producer.pacing.flow_rate import check_rates
from raybroker.client.ways.logging_in import SENDS, Credentials, Token
from raybroker.client.ways.proxy import ADDRESS as PROXY
from raybroker.client.ways.proxy import connecting
from raybroker.client.ways.service_address import is_service_address, service_addresses
from raybroker.client.ways.sockets import Connect, within
from raybroker.client.ways.tls_way import CERTIFICATE, TRUST, TlsWays
from raybroker.model.errors import ConfigError
from raybroker.model.settings.settings import ConfigView, lookup

SHORT: Final = {"trust": TRUST, "certificate": CERTIFICATE, "proxy": PROXY}
"""Short names of attributes: files, and the address of a proxy."""


def checked(given: Mapping[str, object]) -> dict[str, object]:
    """Attributes of connections by their long names; raises ConfigError."""
    values = {SHORT.get(name, name): _text(name, value) for name, value in given.items()}
    parsed = {name: lookup(name, "factory").parse(value) for name, value in values.items()}
    if ATTRIBUTE in parsed:
        (service_addresses if is_service_address(str(parsed[ATTRIBUTE])) else address_list)(str(parsed[ATTRIBUTE]))
    check_rates(parsed)
    return values


def _text(name: str, value: object) -> object:
    return str(value) if name in SHORT and isinstance(value, Path) else value


@dataclass(frozen=True)
class Given:
    """Who a connection from outside is for, as the application says. Its ``repr`` shows no secret."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: Token | None = field(default=None, repr=False)

    def or_default(self, attributes: ConfigView) -> Given:
        """Put in the factory's default user where the application names nobody. Raises ConfigError."""
        user, password = str(attributes["imqDefaultUsername"]), str(attributes["imqDefaultPassword"])
        if bool(user) != bool(password):
            raise ConfigError("imqDefaultUsername and imqDefaultPassword are given together, or neither")
        return Given(user, password) if self == NOBODY and user else self

    def credentials(self, sends: str) -> Credentials:
        """Raises ConfigError for what is missing, or too much."""
        if self.token is not None:
            if self.username is not None or self.password is not None:
                raise ConfigError("a token says who you are: give no username and password beside it")
            return Credentials(token=self.token, sends=sends)
        if self.username is None or self.password is None:
            raise ConfigError(
                "a connection from outside has a username and a password, or a token, or over TLS a certificate;"
                " raybroker usermgr add makes users"
            )
        return Credentials(self.username, self.password, sends=sends)


NOBODY: Final = Given()


class Reached(NamedTuple):
    """``calls`` have logged nobody in yet. ``direct``: a thread that waits may serve their sockets itself."""

    calls: ServiceCalls
    who: Given
    direct: bool


def calls_to(url: str, own: ConfigView, who: Given, client_id: str | None) -> Reached:
    """The brokers behind these addresses, asked as ``who``, or as the default user of the attributes.

    Raises ConfigError for addresses and attributes that cannot be right.
    """
    addresses = service_addresses(url)
    if not addresses:
        raise ConfigError(f"url={url!r}: it is mq://host:port/service, or some of them with commas between")
    if len({address.service for address in addresses}) > 1:
        raise ConfigError(f"url={url!r}: the addresses are of one service")
    web, secure = addresses[0].web, addresses[0].secure
    certified = secure and bool(own[CERTIFICATE]) and who == NOBODY
    if not certified:
        who = who.or_default(own)
    credentials = Credentials.of_certificate() if certified else who.credentials(str(own[SENDS]))
    connect = connecting(own, web=web and not secure)
    if own["imqSocketConnectTimeout"]:
        connect = within(connect, own["imqSocketConnectTimeout"] / 1000)
    reach: Reach = partial(way_to, connect=connect)
    if web:
        reach = _web_ways(own, connect, secure=secure)
    elif secure:
        reach = TlsWays(own, connect).reach
    calls = ServiceCalls(
        addresses,
        credentials,
        client_id=client_id_of(own, client_id, who.username),
        reach=reach,
        unrestricted=own["ClientIdPolicy"] == "Unrestricted",
    )
    return Reached(calls, who, direct=not (web or secure))


def _web_ways(own: ConfigView, connect: Connect, *, secure: bool) -> Reach:
    try:
        from raybroker.client.ways.web_way import WebWays
    except ImportError as error:
        raise ConfigError(
            f"{'https' if secure else 'http'}:// needs {error.name}: pip install 'raybroker[http]'"
        ) from None
    return WebWays(own, secure=secure, connect=connect).reach
