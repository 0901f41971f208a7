"""Arguments of public methods: one table of their permitted values, checked before anything is sent.

A name means the same in all methods of both faces; those of administration are declared in raybroker.admin.verb_types.
A value that does not fit raises the error of its row, which names the argument, the value and what it
may be; nothing has happened then.  What needs more than the value itself (whether a destination exists, whether two
arguments go together) is checked where that is known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from raybroker.model.argument import TRUTH, Argument, mapping, or_none, text, truth, whole
from raybroker.model.batch import Batch
from raybroker.model.errors import InvalidDestinationError, InvalidSelectorError, MessageFormatError
from raybroker.model.naming.units import UNIT_CHARS_MAX, is_unit_name
from raybroker.model.settings.setting import INT_MAX, OVERRIDE_MS_MAX, PRIORITY_MAX

TIMEOUT_S_MAX: Final = OVERRIDE_MS_MAX // 1000
"""Longest wait that can be asked for, ten years; None waits for ever."""
DEDUP_ID_CHARS_MAX: Final = 255
REASON_CHARS_MAX: Final = 1_024
LEASE_MS_MIN: Final = 10
NAME_CHARS_MAX: Final = 255
ACK_WINDOW_MAX: Final = 10_000
"""Largest ``ack_window`` of a session: messages that may come again after a crash."""


def _timeout(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and 0 <= value <= TIMEOUT_S_MAX
    )


def _auto(value: object) -> bool:
    """Whether it is a prefetch that tunes itself, with bounds or without."""
    found = _AUTO.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return False
    least, most = found["least"], found["most"]
    return least is None or 1 <= int(least) <= int(most) <= INT_MAX


_AUTO: Final = re.compile(r"auto(?::(?P<least>[0-9]{1,10})-(?P<most>[0-9]{1,10}))?")
_MS: Final = f"a whole number of milliseconds, 0 to {OVERRIDE_MS_MAX}"
_TEXT_MAX: Final = 65_536
"""Characters of a text in a header; all headers together are bounded in bytes."""

ARGUMENTS: Final[Mapping[str, Argument]] = {
    # Messages.
    "properties": Argument(or_none(mapping), "a mapping of names to bool, int, float, str or None", MessageFormatError),
    "correlation_id": Argument(or_none(text(0, _TEXT_MAX)), "a text, or None", MessageFormatError),
    "type": Argument(or_none(text(0, _TEXT_MAX)), "a text, or None", MessageFormatError),
    "persistent": Argument(or_none(truth), f"{TRUTH}, or None for the default", MessageFormatError),
    "priority": Argument(
        or_none(whole(0, PRIORITY_MAX)),
        f"a whole number from 0 to {PRIORITY_MAX}, or None for the default",
        MessageFormatError,
    ),
    "ttl_ms": Argument(or_none(whole(0, OVERRIDE_MS_MAX)), f"{_MS}, or None for the default", MessageFormatError),
    "delivery_delay_ms": Argument(
        or_none(whole(0, OVERRIDE_MS_MAX)), f"{_MS}, or None for the default", MessageFormatError
    ),
    "unit_of_order": Argument(
        or_none(is_unit_name),
        f"a text of 1 to {UNIT_CHARS_MAX} characters, or None for the default",
        MessageFormatError,
    ),
    "dedup_id": Argument(
        or_none(text(1, DEDUP_ID_CHARS_MAX)),
        f"a text of 1 to {DEDUP_ID_CHARS_MAX} characters, or None",
        MessageFormatError,
    ),
    "schedule": Argument(or_none(text(1, 1_024)), "a text such as '@every 10s' or '0 8 * * MON-FRI', or None"),
    "timezone": Argument(text(1, 255), "a text such as 'UTC' or 'Europe/Zurich'"),
    "repeat": Argument(or_none(whole(1, INT_MAX)), f"a whole number from 1 to {INT_MAX}, or None for no end"),
    "catch_up": Argument(truth, TRUTH),
    "compression_threshold": Argument(
        or_none(whole(0, INT_MAX)), f"a whole number of bytes, 0 to {INT_MAX} (never), or None for the default"
    ),
    "reference_threshold": Argument(
        or_none(whole(-1, INT_MAX)), f"-1 (never) to {INT_MAX} bytes, or None for the default"
    ),
    "fire_and_forget": Argument(truth, TRUTH),
    "disable_message_id": Argument(truth, TRUTH),
    "disable_message_timestamp": Argument(truth, TRUTH),
    # Consumers and sessions.
    "ack": Argument(text(1, 32), "a text: auto, client, dups_ok or none"),
    "ack_window": Argument(whole(1, ACK_WINDOW_MAX), f"a whole number of messages, 1 to {ACK_WINDOW_MAX}"),
    "transacted": Argument(truth, TRUTH),
    "redelivery_delay_ms": Argument(
        or_none(whole(0, INT_MAX)), f"a whole number of milliseconds, 0 to {INT_MAX}, or None for the default"
    ),
    "selector": Argument(or_none(text(0, _TEXT_MAX)), "a text, or None", InvalidSelectorError),
    "prefetch": Argument(
        lambda value: or_none(whole(-1, INT_MAX))(value) or _auto(value),
        f"-1 (no limit) to {INT_MAX}, 'auto', 'auto:MIN-MAX' with bounds from 1 to {INT_MAX}, or None for the limit of"
        " the destination",
    ),
    "prefetch_bytes": Argument(or_none(whole(1, INT_MAX)), f"a number of bytes, 1 to {INT_MAX}, or None"),
    "prefetch_cost": Argument(or_none(whole(1, INT_MAX)), f"a whole number from 1 to {INT_MAX}, or None"),
    "threshold": Argument(or_none(whole(0, 100)), "a percentage, a whole number from 0 to 100, or None"),
    "no_local": Argument(truth, TRUTH),
    "ack_timeout_ms": Argument(
        or_none(whole(LEASE_MS_MIN, INT_MAX)), f"None for no deadline, or {LEASE_MS_MIN} to {INT_MAX}"
    ),
    "fenced": Argument(truth, TRUTH),
    "batch": Argument(lambda value: value is None or isinstance(value, Batch), "an rb.Batch, or None for messages"),
    "name": Argument(text(1, NAME_CHARS_MAX), f"a text of 1 to {NAME_CHARS_MAX} characters", InvalidDestinationError),
    "timeout": Argument(or_none(_timeout), f"a number of seconds from 0 to {TIMEOUT_S_MAX}, or None to wait for ever"),
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

ELSEWHERE: Final = frozenset(
    {
        "body",
        "bodies",  # encoded at once, by content.bodies
        "destination",
        "reply_to",
        "topic",
        "queue",  # client.destinations
        "serializer",  # client.producer.bodies.body_encoding
        "client_id",  # model.naming.names
        "listener",
        "retry_on",
        "reject_on",
        "backoff",  # client.listener.handler
        "labels",  # model.affinity
        "cause",  # client.consumer.failure_causes
        "state",  # encoded as a body
        "holder",  # client.consumer.acknowledging.lives
        "most",  # of inflated_bytes: where it ends to count, which any number may say
        "options",  # by the names of what they are passed on to
    }
)
"""Arguments whose check is more than a look at the value: the module that makes something of them does it."""

_NUMBERS: Final[frozenset[type]] = frozenset((int, float))


def check_arguments(**given: object) -> None:
    """Raises the error of the first argument that is not what its row in :data:`ARGUMENTS` says."""
    for name, value in given.items():
        ARGUMENTS[name].check(name, value)


def check_timeout(timeout: Any) -> None:
    """``check_arguments(timeout=timeout)`` for calls that are made for each message."""
    if type(timeout) not in _NUMBERS or not 0 <= timeout <= TIMEOUT_S_MAX:
        ARGUMENTS["timeout"].check("timeout", timeout)


def check_names(given: Mapping[str, object], names: tuple[str, ...], method: str) -> None:
    """Raises TypeError, as Python does, for keyword arguments that a method does not have."""
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise TypeError(f"{method}() got unexpected arguments {unknown}; there are {', '.join(names)}")
