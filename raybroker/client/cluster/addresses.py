"""Addresses of brokers: those that a connection may have as its home, in the order in which they are tried.

Inside Ray an address is the name of a broker.  Addresses with a host and a port are for connections from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Final, NamedTuple

from raybroker.client.ways.service_address import is_service_address, service_addresses
from raybroker.config.config import Config
from raybroker.model.errors import ConfigError
from raybroker.model.naming.names import check_broker_name
from raybroker.model.settings.settings import ConfigView
from raybroker.model.sizes import UNLIMITED
from raybroker.system.entropy import token

ATTRIBUTE: Final = "imqAddressList"
ATTEMPTS: Final = "imqReconnectAttempts"
TIMEOUT: Final = "raybroker.reconnect.timeout_ms"
DEFAULT: Final = "default"
"""Origin of a value that nobody has set."""
_ENDLESS: Final = 1 << 62
_DRAW_BYTES: Final = 8


def address_list(text: str) -> tuple[str, ...]:
    """The names in a value of imqAddressList, in its order, each once.

    Raises ConfigError for what is no broker's name; addresses of services are read elsewhere.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if ":" in name or "/" in name:
            raise ConfigError(
                f"{ATTRIBUTE}={text!r}: {name!r} is neither the name of a broker, such as b1, nor mq://host:port"
            )
        try:
            check_broker_name(name)
        except ConfigError as error:
            raise ConfigError(f"{ATTRIBUTE}={text!r}: {error}") from None
    return tuple(dict.fromkeys(names))


def check_addresses(text: str) -> None:
    """Raises ConfigError for a value of imqAddressList by which no connection could be made."""
    if is_service_address(text):
        service_addresses(text)
    else:
        address_list(text)


class Addresses:
    """The brokers that one connection tries, in its own order; ``draw``: random bytes of a length."""

    def __init__(self, attributes: ConfigView, draw: Callable[[int], bytes] = token) -> None:
        names = address_list(attributes[ATTRIBUTE])
        if attributes["imqAddressListBehavior"] == "RANDOM":
            names = tuple(sorted(names, key=lambda _: draw(_DRAW_BYTES)))
        self.names = names
        passes, attempts = attributes["imqAddressListIterations"], attributes[ATTEMPTS]
        self._passes = _ENDLESS if passes == UNLIMITED else passes
        self._attempts: int = max(attempts, 1)

    def passes(self, tried: int) -> int:
        """How often the list was gone through with so many tries, the last time perhaps not to its end."""
        return -(-tried // (len(self.names) * self._attempts))

    def tries(self) -> Iterator[tuple[str, bool]]:
        """(name, whether to pause before) of each broker to try: attempts at one, then the next, and all over again."""
        for done in count():
            if done == self._passes:
                return
            for name in self.names:
                for attempt in range(self._attempts):
                    yield name, attempt > 0 or (done > 0 and name == self.names[0])


class ReconnectTime(NamedTuple):
    """How long a handle that has lost its connection tries to come back, and how often; None: without an end."""

    timeout_s: float | None
    attempts: int | None

    def over(self, spent_s: float, attempts: int) -> str:
        """Which of the two limits has been reached after so many seconds and attempts; "" while neither is."""
        if self.attempts == 0:
            return "no further attempt is made (imqReconnectEnabled=false, or imqReconnectAttempts=0)"
        if self.attempts is not None and attempts >= self.attempts:
            return f"gave up after {attempts} attempts (imqReconnectAttempts)"
        if self.timeout_s is not None and spent_s > self.timeout_s:
            return f"gave up after {self.timeout_s:g} s (raybroker.reconnect.timeout_ms)"
        return ""


def reconnect_time(attributes: Config) -> ReconnectTime:
    """The limits that hold: whoever asks for imqReconnectAttempts=-1 wants no end, and gets none unless
    raybroker.reconnect.timeout_ms is set as well."""
    attempts = reconnect_attempts(attributes)
    timeout_s = attributes[TIMEOUT] / 1000
    asked = attempts < 0 and attributes[ATTEMPTS] == UNLIMITED
    endless = asked and attributes.origin(TIMEOUT) == DEFAULT != attributes.origin(ATTEMPTS)
    return ReconnectTime(None if endless else timeout_s, None if attempts < 0 else attempts)


def reconnect_attempts(attributes: ConfigView) -> int:
    """How many times a handle that has lost its connection tries to come back; -1: without a limit.

    With an address list the attempts are those at each broker, as often as the list is gone through.
    """
    attempts: int = attributes[ATTEMPTS] if attributes["imqReconnectEnabled"] else 0
    passes: int = attributes["imqAddressListIterations"]
    text: str = attributes[ATTRIBUTE]
    names = service_addresses(text) if is_service_address(text) else address_list(text)
    if not names or attempts <= 0:
        return attempts
    return UNLIMITED if passes == UNLIMITED else attempts * len(names) * passes
