"""Addresses of connection services: ``mq://host:port/service``.

mq     the port is the port mapper's, which is asked for the port of the service
mqs    the same, and the service has TLS
mqtcp  the port is the service's own
mqssl  the same, and the service has TLS; a port mapper is recognised and followed
http   the port is that of the service httpjms: the native protocol inside of a WebSocket
https  the same with TLS, of the service httpsjms

Parts that are missing are localhost, 7676 (of http 80, of https 443) and jms, with TLS ssljms.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from raybroker.model.errors import ConfigError
from raybroker.model.settings.setting_services import SERVICE_PROTOCOLS, TLS

SCHEMES: Final = ("mq", "mqs", "mqtcp", "mqssl", "http", "https")
_MAPPED: Final = frozenset({"mq", "mqs"})
_SECURE: Final = frozenset({"mqs", "mqssl"})
HOST: Final = "localhost"
PORT: Final = 7676
SERVICE: Final = "jms"
SECURE_SERVICE: Final = "ssljms"
HTTP_SERVICE: Final = "httpjms"
HTTPS_SERVICE: Final = "httpsjms"
_WEB: Final = {"http": (HTTP_SERVICE, 80), "https": (HTTPS_SERVICE, 443)}
"""Scheme → its service, and the port where the address has none."""
_WEB_SCHEMES: Final = {service: scheme for scheme, (service, _) in _WEB.items()}
_PORT_MAX: Final = 65_535


class ServiceAddress(NamedTuple):
    """``mapped``: the port is that of the port mapper."""

    host: str
    port: int
    service: str
    mapped: bool

    @property
    def secure(self) -> bool:
        """The service has TLS."""
        return self.service == HTTPS_SERVICE or SERVICE_PROTOCOLS.get(self.service) == TLS

    @property
    def web(self) -> bool:
        """The native protocol goes over HTTP."""
        return self.service in _WEB_SCHEMES

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.web and not self.mapped:
            return f"{_WEB_SCHEMES[self.service]}://{host}:{self.port}/"
        return f"{'mq' if self.mapped else 'mqssl' if self.secure else 'mqtcp'}://{host}:{self.port}/{self.service}"


def service_address(text: str) -> ServiceAddress:
    """Raises ConfigError for what is none."""
    scheme, found, rest = text.strip().partition("://")
    if not found or scheme not in SCHEMES:
        raise ConfigError(f"address {text!r}: it is {' or '.join(SCHEMES)}, then ://host:port/service")
    where, _, service = rest.partition("/")
    if where.startswith("["):
        host, closed, tail = where[1:].partition("]")
        port_text, wrong = tail.removeprefix(":"), not closed or (tail and not tail.startswith(":"))
    else:
        host, _, port_text = where.partition(":")
        wrong = False
    if wrong or (port_text and not (port_text.isdecimal() and 0 < int(port_text[:6]) <= _PORT_MAX)):
        raise ConfigError(f"address {text!r}: a port is a number from 1 to {_PORT_MAX}")
    if "/" in service or "@" in where:
        raise ConfigError(f"address {text!r}: it is scheme://host:port/service; user and password are given beside it")
    if scheme in _WEB:
        if service:
            raise ConfigError(f"address {text!r}: of {scheme} it is {scheme}://host:port/, and nothing behind it")
        usual_service, usual_port = _WEB[scheme]
        return ServiceAddress(host or HOST, int(port_text) if port_text else usual_port, usual_service, False)
    service = service or (SECURE_SERVICE if scheme in _SECURE else SERVICE)
    found_address = ServiceAddress(host or HOST, int(port_text) if port_text else PORT, service, scheme in _MAPPED)
    if scheme in _SECURE and not found_address.secure:
        raise ConfigError(f"address {text!r}: {scheme} is for services with TLS, {', '.join(_with_tls())}")
    if scheme == "mqtcp" and found_address.secure:
        raise ConfigError(f"address {text!r}: service {service} has TLS; write mqssl://")
    return found_address


def _with_tls() -> list[str]:
    return [name for name, protocol in SERVICE_PROTOCOLS.items() if protocol == TLS or name == HTTPS_SERVICE]


def service_addresses(text: str) -> tuple[ServiceAddress, ...]:
    """Return the addresses of a list with commas between, each once; errors as :func:`service_address`."""
    return tuple(dict.fromkeys(service_address(part) for part in text.split(",") if part.strip()))


def is_service_address(text: str) -> bool:
    """Whether the text is meant as an address of a service, and not as a broker's name."""
    return "://" in text
