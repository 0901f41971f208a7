"""What every argument of a public method may be: one table, checked before anything is sent.

A name means the same in all methods of both faces; the few that mean something else to administrators stand in a table
of their own.  A value that does not fit raises the error of its row, which names the argument, the value and what it
may be; nothing has happened then.  What needs more than the value itself (whether a destination exists, whether two
arguments go together) is checked where that is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from raybroker.model.errors import (
    BrokerError,
    ConfigError,
    InvalidDestinationError,
    InvalidSelectorError,
    MessageFormatError,
)
from raybroker.model.setting import INT_MAX, OVERRIDE_MS_MAX, PRIORITY_MAX
from raybroker.model.units import UNIT_CHARS_MAX, is_unit_name

TIMEOUT_S_MAX: Final = OVERRIDE_MS_MAX // 1000
"""Longest wait that can be asked for, ten years; None waits for ever."""
DEDUP_ID_CHARS_MAX: Final = 255
REASON_CHARS_MAX: Final = 1_024
LEASE_MS_MIN: Final = 10
NAME_CHARS_MAX: Final = 255
PAGE_MAX: Final = 1_000_000
_SHOWN_CHARS_MAX: Final = 80

Fits = Callable[[Any], bool]


class Argument(NamedTuple):
    """``fits`` tells whether a value is right, ``allowed`` says in words which are."""

    fits: Fits
    allowed: str
    error: type[BrokerError] = ConfigError

    def check(self, name: str, value: Any) -> Any:
        """The value; raises ``error`` unless it fits."""
        if not self.fits(value):
            raise self.error(f"{name}={shown(value)}; it is {self.allowed}")
        return value


def shown(value: object) -> str:
    """A value as an error shows it: never long, and an object whose repr fails by its type."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the repr of a user's object can raise anything
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "…"


def whole(low: int, high: int) -> Fits:
    """A whole number from ``low`` to ``high``; True and False are none."""
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def text(low: int, high: int) -> Fits:
    """A text of so many characters that can be written as UTF-8."""

    def fits(value: Any) -> bool:
        if not isinstance(value, str) or not low <= len(value) <= high:
            return False
        return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)

    return fits


_any_text: Final = text(0, 1 << 30)
"""Further rules for it are the broker's."""


def or_none(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


def _truth(value: Any) -> bool:
    return isinstance(value, bool)


def _timeout(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and 0 <= value <= TIMEOUT_S_MAX
    )


def _mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def _texts(value: Any) -> bool:
    return not isinstance(value, str | bytes) and hasattr(value, "__iter__")


IF_EXISTS: Final = ("error", "keep", "update")
_MS: Final = f"a whole number of milliseconds, 0 to {OVERRIDE_MS_MAX}"
_TRUTH: Final = "True or False"
_TEXT_MAX: Final = 65_536
"""Characters of a text in a header; all headers together are bounded in bytes."""

ARGUMENTS: Final[Mapping[str, Argument]] = {
    # Messages.
    "properties": Argument(
        or_none(_mapping), "a mapping of names to bool, int, float, str or None", MessageFormatError
    ),
    "correlation_id": Argument(or_none(text(0, _TEXT_MAX)), "a text, or None", MessageFormatError),
    "type": Argument(or_none(text(0, _TEXT_MAX)), "a text, or None", MessageFormatError),
    "persistent": Argument(or_none(_truth), f"{_TRUTH}, or None for the default", MessageFormatError),
    "priority": Argument(
        or_none(whole(0, PRIORITY_MAX)), f"a whole number from 0 to {PRIORITY_MAX}, or None for the default",
        MessageFormatError,
    ),
    "ttl_ms": Argument(or_none(whole(0, OVERRIDE_MS_MAX)), f"{_MS}, or None for the default", MessageFormatError),
    "delivery_delay_ms": Argument(
        or_none(whole(0, OVERRIDE_MS_MAX)), f"{_MS}, or None for the default", MessageFormatError
    ),
    "unit_of_order": Argument(
        or_none(is_unit_name), f"a text of 1 to {UNIT_CHARS_MAX} characters, or None for the default",
        MessageFormatError,
    ),
    "dedup_id": Argument(
        or_none(text(1, DEDUP_ID_CHARS_MAX)), f"a text of 1 to {DEDUP_ID_CHARS_MAX} characters, or None",
        MessageFormatError,
    ),
    "schedule": Argument(or_none(text(1, 1_024)), "a text such as '@every 10s' or '0 8 * * MON-FRI', or None"),
    "timezone": Argument(text(1, 255), "a text such as 'UTC' or 'Europe/Zurich'"),
    "repeat": Argument(or_none(whole(1, INT_MAX)), f"a whole number from 1 to {INT_MAX}, or None for no end"),
    "catch_up": Argument(_truth, _TRUTH),
    "disable_message_id": Argument(_truth, _TRUTH),
    "disable_message_timestamp": Argument(_truth, _TRUTH),
    # Consumers and sessions.
    "ack": Argument(text(1, 32), "a text: auto, client, dups_ok or none"),
    "transacted": Argument(_truth, _TRUTH),
    "redelivery_delay_ms": Argument(
        or_none(whole(0, INT_MAX)), f"a whole number of milliseconds, 0 to {INT_MAX}, or None for the default"
    ),
    "selector": Argument(or_none(text(0, _TEXT_MAX)), "a text, or None", InvalidSelectorError),
    "prefetch": Argument(
        or_none(whole(-1, INT_MAX)), f"-1 (no limit) to {INT_MAX}, or None for the limit of the destination"
    ),
    "threshold": Argument(or_none(whole(0, 100)), "a percentage, a whole number from 0 to 100, or None"),
    "no_local": Argument(_truth, _TRUTH),
    "ack_timeout_ms": Argument(
        or_none(whole(LEASE_MS_MIN, INT_MAX)), f"None for no deadline, or {LEASE_MS_MIN} to {INT_MAX}"
    ),
    "name": Argument(
        text(1, NAME_CHARS_MAX), f"a text of 1 to {NAME_CHARS_MAX} characters", InvalidDestinationError
    ),
    "timeout": Argument(
        or_none(_timeout), f"a number of seconds from 0 to {TIMEOUT_S_MAX}, or None to wait for ever"
    ),
    "max": Argument(whole(1, INT_MAX), f"a whole number from 1 to {INT_MAX}"),
    "handler": Argument(or_none(callable), "something that can be called, or None for nobody"),
    "reason": Argument(
        lambda value: value is None or isinstance(value, str | BaseException), "a text, an exception, or None"
    ),
    "delay_ms": Argument(
        or_none(whole(0, INT_MAX)), f"a whole number of milliseconds, 0 to {INT_MAX}, or None for the default"
    ),
}
"""Argument → what it may be, in all methods of connections, sessions, producers, consumers and messages."""

ELSEWHERE: Final = frozenset({
    "body", "bodies",  # encoded at once, by wire.bodies
    "destination", "reply_to", "topic", "queue",  # client.destinations
    "serializer",  # client.bodies
    "client_id",  # model.names
    "listener", "retry_on", "reject_on", "backoff",  # client.handler
    "options",  # by the names of what they are passed on to
})  # fmt: skip
"""Arguments whose check is more than a look at the value: the module that makes something of them does it."""

ADMIN: Final[Mapping[str, Argument]] = {
    "type": Argument(or_none(_any_text), "'queue' or 'topic' (short: q, t)", InvalidDestinationError),
    "name": Argument(or_none(_any_text), "a text, the name of one", InvalidDestinationError),
    "target": Argument(_any_text, "a text, a name", InvalidDestinationError),
    "target_type": Argument(or_none(_any_text), "'queue' or 'topic' (short: q, t)", InvalidDestinationError),
    "topic": Argument(or_none(_any_text), "a text, the name of a topic", InvalidDestinationError),
    "client_id": Argument(or_none(_any_text), "a text, or None"),
    "attributes": Argument(_mapping, "a mapping of attributes to values"),
    "changes": Argument(_mapping, "a mapping of attributes to values"),
    "properties": Argument(_mapping, "a mapping of properties to values"),
    "broker": Argument(or_none(_any_text), "a text, the name of a broker, or None"),
    "brokers": Argument(_texts, "a list of names of brokers"),
    "temporary": Argument(_truth, _TRUTH),
    "if_exists": Argument(lambda value: value in IF_EXISTS, " or ".join(map(repr, IF_EXISTS))),
    "which": Argument(_any_text, "'producers', 'consumers', 'all' or 'insertion'"),
    "until_ms": Argument(
        whole(0, 1 << 53), "milliseconds since 1970, or 0 for none"
    ),
    "id": Argument(
        lambda value: whole(0, (1 << 64) - 1)(value) or _any_text(value), "an id, as the list shows it"
    ),
    "selector": Argument(or_none(text(0, _TEXT_MAX)), "a text, or None", InvalidSelectorError),
    "ids": Argument(or_none(_texts), "a list of message ids, or None"),
    "max": Argument(whole(1, PAGE_MAX), f"a whole number from 1 to {PAGE_MAX}"),
    "max_bytes": Argument(whole(1, INT_MAX), f"a whole number of bytes from 1 to {INT_MAX}"),
    "body_bytes_max": Argument(whole(0, INT_MAX), f"a whole number of bytes from 0 to {INT_MAX}"),
    "names": Argument(or_none(text(1, _TEXT_MAX)), "a text such as 'orders*', or None"),
    "blocks": Argument(_texts, "the blocks that export_messages gave"),
}
"""The same for the methods of ``conn.admin()``."""

_NUMBERS: Final[frozenset[type]] = frozenset((int, float))


def check_arguments(**given: Any) -> None:
    """Raises the error of the first argument that is not what its row in :data:`ARGUMENTS` says."""
    for name, value in given.items():
        ARGUMENTS[name].check(name, value)


def check_timeout(timeout: Any) -> None:
    """``check_arguments(timeout=timeout)`` for calls that are made for each message."""
    if type(timeout) not in _NUMBERS or not 0 <= timeout <= TIMEOUT_S_MAX:
        ARGUMENTS["timeout"].check("timeout", timeout)


def check_admin(given: Mapping[str, Any]) -> None:
    """The same for arguments of administration; those without a row are checked by the broker."""
    for name, value in given.items():
        row = ADMIN.get(name)
        if row is not None:
            row.check(name, value)


def check_names(given: Mapping[str, Any], names: tuple[str, ...], method: str) -> None:
    """Raises TypeError, as Python does, for keyword arguments that a method does not have."""
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise TypeError(f"{method}() got unexpected arguments {unknown}; there are {', '.join(names)}")
