"""Which brokers a connection may have as its home, and in which order they are tried (R-13).

Inside Ray an address is the name of a broker.  Addresses with a host and a port are for connections from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

from raybroker.model.errors import ConfigError, NotSupportedError
from raybroker.model.names import check_broker_name
from raybroker.model.settings import ConfigView
from raybroker.model.sizes import UNLIMITED
from raybroker.system.entropy import token

ATTRIBUTE: Final = "imqAddressList"
_ENDLESS: Final = 1 << 62
_DRAW_BYTES: Final = 8


def address_list(text: str) -> tuple[str, ...]:
    """The names in a value of imqAddressList, in its order, each once.

    Raises NotSupportedError for addresses with a scheme or a port, ConfigError for what is no broker's name.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if ":" in name or "/" in name:
            raise NotSupportedError(
                f"{ATTRIBUTE}={text!r}: connections from outside, to {name!r}, are not built yet; inside Ray, list"
                " names of brokers, such as b1,b2"
            )
        try:
            check_broker_name(name)
        except ConfigError as error:
            raise ConfigError(f"{ATTRIBUTE}={text!r}: {error}") from None
    return tuple(dict.fromkeys(names))


class Addresses:
    """The brokers that one connection tries, in its own order; ``draw``: random bytes of a length."""

    def __init__(self, attributes: ConfigView, draw: Callable[[int], bytes] = token) -> None:
        names = address_list(attributes[ATTRIBUTE])
        if attributes["imqAddressListBehavior"] == "RANDOM":
            names = tuple(sorted(names, key=lambda _: draw(_DRAW_BYTES)))
        self.names = names
        passes, attempts = attributes["imqAddressListIterations"], attributes["imqReconnectAttempts"]
        self._passes = _ENDLESS if passes == UNLIMITED else passes
        self._attempts = max(attempts, 1)

    def tries(self) -> Iterator[tuple[str, bool]]:
        """(name, whether to pause before) of each broker to try: attempts at one, then the next, and all over again."""
        for done in count():
            if done == self._passes:
                return
            for name in self.names:
                for attempt in range(self._attempts):
                    yield name, attempt > 0 or (done > 0 and name == self.names[0])


def reconnect_attempts(attributes: ConfigView) -> int:
    """How many times a handle that has lost its connection tries to come back; -1: as often as the time allows.

    With an address list the attempts are those at each broker, as often as the list is gone through.
    """
    attempts: int = attributes["imqReconnectAttempts"] if attributes["imqReconnectEnabled"] else 0
    passes: int = attributes["imqAddressListIterations"]
    names = address_list(attributes[ATTRIBUTE])
    if not names or attempts <= 0:
        return attempts
    return UNLIMITED if passes == UNLIMITED else attempts * len(names) * passes
