"""Administered objects as a file ``jndi.properties`` for Java programs that come by AMQP 1.0 with Qpid JMS.

    java.naming.factory.initial = org.apache.qpid.jms.jndi.JmsInitialContextFactory
    connectionfactory.cf/orders = failover:(amqp://broker:5672)?jms.clientID=shop
    queue.queues/orders = orders
    topic.topics/news = news

Programs look up the names that the objects have in their store. Passwords are never written: the program gives user and
password to ``createConnection``. What that client cannot do is said in comments of the file, and in :class:`Written`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from raybroker.model.errors import ConfigError
from raybroker.model.settings.settings import lookup
from raybroker.model.sizes import UNLIMITED
from raybroker.objects.administered import DESTINATIONS, KINDS, NAME, AdministeredObject, is_secret

CONTEXT_FACTORY: Final = "org.apache.qpid.jms.jndi.JmsInitialContextFactory"
ADDRESSES: Final = "imqAddressList"
HOST: Final = "imqBrokerHostName"
_RECONNECT: Final = "imqReconnectEnabled"
_BEHAVIOR: Final = "imqAddressListBehavior"
PREFETCH_MAX: Final = 32_767
"""What Qpid JMS takes at the most."""
_OPTIONS: Final[Mapping[str, Callable[[Any], str]]] = {
    "imqConfiguredClientID": lambda value: f"jms.clientID={quote(str(value), safe='')}",
    "imqDefaultUsername": lambda value: f"jms.username={quote(str(value), safe='')}",
    "imqConsumerFlowLimit": lambda value: f"jms.prefetchPolicy.all={_prefetch(value)}",
    "imqAckTimeout": lambda value: f"jms.requestTimeout={value or -1}",
    "imqSocketConnectTimeout": lambda value: f"transport.connectTimeout={value or 0}",
}
"""Attribute of a factory → the option that says the same to Qpid JMS."""
_FAILOVER: Final[Mapping[str, Callable[[Any], str]]] = {
    "imqReconnectAttempts": lambda value: f"failover.maxReconnectAttempts={value}",
    "imqReconnectInterval": lambda value: f"failover.reconnectDelay={value}&failover.useReconnectBackOff=false",
    _BEHAVIOR: lambda value: f"failover.randomize={str(value == 'RANDOM').lower()}",
}
"""The same for options of failover."""
_PLACES: Final = frozenset({ADDRESSES, HOST, "imqBrokerHostPort", _RECONNECT})
"""Say where the broker is, which the URL says."""


@dataclass(frozen=True, slots=True)
class Written:
    """``text``: of the file; ``left_out``: what it does not have, a line each."""

    text: str
    left_out: tuple[str, ...]


def jndi_properties(
    objects: Iterable[AdministeredObject], addresses: Callable[[AdministeredObject], tuple[str, ...]]
) -> Written:
    """The file for these objects; ``addresses``: the URLs of AMQP services that a factory leads to.

    Raises ConfigError for a factory that leads nowhere.
    """
    lines, left_out = [f"java.naming.factory.initial = {CONTEXT_FACTORY}"], []
    for one in sorted(objects, key=lambda one: one.name):
        if one.is_xa:
            left_out.append(f"{one.name}: {KINDS[one.kind]}; Qpid JMS has no distributed transactions")
        elif one.kind in DESTINATIONS:
            lines.append(f"{DESTINATIONS[one.kind]}.{_key(one.name)} = {_value(one.destination_name)}")
        else:
            urls = addresses(one)
            if not urls:
                raise ConfigError(
                    f"factory {one.name!r} has no address; say the one of the service amqp: -a amqp://host:5672"
                )
            lines.append(f"connectionfactory.{_key(one.name)} = {_value(_url(one, urls))}")
            others = _without_option(one)
            if others:
                left_out.append(f"{one.name}: Qpid JMS has nothing like {', '.join(others)}")
    comments = [f"# {_value(line)}" for line in left_out]
    return Written("\n".join([*comments, *lines]) + "\n", tuple(left_out))


def _url(factory: AdministeredObject, urls: tuple[str, ...]) -> str:
    given = {name: lookup(name, "factory").parse(text) for name, text in factory.attributes.items()}
    options = [write(given[name]) for name, write in _OPTIONS.items() if name in given]
    if len(urls) == 1 and not given.get(_RECONNECT, True):
        return urls[0] + ("?" + "&".join(options) if options else "")
    # Options of the way to one broker stand with its address, those of the connection behind the list.
    inner = "&".join(option for option in options if option.startswith("transport."))
    outer = [option for option in options if not option.startswith("transport.")]
    outer += [write(given[name]) for name, write in _FAILOVER.items() if name in given]
    nested = ",".join(f"{url}?{inner}" if inner else url for url in urls)
    return f"failover:({nested})" + ("?" + "&".join(outer) if outer else "")


def _prefetch(limit: int) -> int:
    return PREFETCH_MAX if limit == UNLIMITED else min(limit, PREFETCH_MAX)


def _without_option(factory: AdministeredObject) -> list[str]:
    """Attributes that were given, and that the client has no option for; passwords are one by choice."""
    known = {*_OPTIONS, *_FAILOVER, *_PLACES, NAME}
    return sorted(name for name in factory.attributes if name not in known or is_secret(name))


def _key(name: str) -> str:
    """A name as the key of a property: it ends at the first space, ``=`` or ``:`` that is not escaped."""
    return "".join(f"\\{sign}" if sign in " =:#!" else _value(sign) for sign in name)


def _value(text: str) -> str:
    """A text as the value of a property, in a file that Java reads as Latin-1."""
    units = "".join(
        sign if " " <= sign <= "~" else "".join(f"\\u{unit:04x}" for unit in _utf16(sign))
        for sign in text.replace("\\", "\\\\")
    )
    return f"\\{units}" if units.startswith(" ") else units


def _utf16(sign: str) -> list[int]:
    encoded = sign.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(encoded[at : at + 2], "big") for at in range(0, len(encoded), 2)]
