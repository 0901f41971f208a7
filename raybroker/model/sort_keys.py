"""Sort keys of a destination: what its messages are ordered by, most significant first.

``JMSMessageID`` stands for the order of arrival.  It is the last key whether it is named or not, so it may only be put
last: ``JMSMessageID descending`` alone is last in, first out.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from raybroker.model.errors import ConfigError
from raybroker.model.naming.property_names import RESERVED_WORDS, is_header_name, stranger

ARRIVAL: Final = "JMSMessageID"
HEADERS: Final = (
    "JMSPriority",
    "JMSTimestamp",
    "JMSCorrelationID",
    "JMSType",
    "JMSExpiration",
    "JMSDeliveryTime",
    "JMSDeliveryMode",
    "JMSReplyTo",
    "JMSRedelivered",
    ARRIVAL,
)
"""Headers that may be keys."""
KEYS_MAX: Final = 8
_WAYS: Final = {"": False, "ascending": False, "descending": True}


class SortKey(NamedTuple):
    """The name of a header or property."""

    name: str
    descending: bool


def parse_sort_keys(text: str) -> tuple[SortKey, ...]:
    """The keys of e.g. ``JMSPriority descending, region, JMSMessageID descending``; raises ConfigError by name."""
    keys: list[SortKey] = []
    for part in text.split(",") if text.strip() else ():
        name, _, way = " ".join(part.split()).partition(" ")
        if way.lower() not in _WAYS:
            raise _refusal(text, f"{way!r} behind {name} is neither ascending nor descending")
        _check_name(text, name)
        if any(key.name == name for key in keys):
            raise _refusal(text, f"{name} is there twice; leave one out")
        if keys and keys[-1].name == ARRIVAL:
            raise _refusal(text, f"{name} stands behind {ARRIVAL}, which decides everything; put {ARRIVAL} last")
        keys.append(SortKey(name, _WAYS[way.lower()]))
    if len(keys) > KEYS_MAX:
        raise _refusal(text, f"{len(keys)} keys; at most {KEYS_MAX}")
    return tuple(keys)


def _check_name(text: str, name: str) -> None:
    if not name:
        raise _refusal(text, "a key is empty; write names with commas between")
    if is_header_name(name):
        if name not in HEADERS:
            raise _refusal(text, f"{name} is no header that messages are sorted by; those are {', '.join(HEADERS)}")
    elif stranger(name) >= 0 or name.upper() in RESERVED_WORDS:
        raise _refusal(text, f"{name!r} is not the name of a property")


def _refusal(text: str, why: str) -> ConfigError:
    return ConfigError(f"destinationKeys = {text!r:.120}: {why}")
