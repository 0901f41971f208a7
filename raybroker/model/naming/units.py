"""Names of units of order, and the one that a destination gives to messages without."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

UNIT_CHARS_MAX: Final = 255
"""Longest name of a unit of order: every host keeps those of all messages that it holds in memory."""
UNIT_PROPERTY: Final = "JMS_BEA_UnitOfOrder"
"""The name's identifier in selectors."""
GROUP_PROPERTY: Final = "JMSXGroupID"
"""The property of JMS for it: a message without a property of this name shows its unit of order there."""
_DEFAULT: Final = re.compile(r"mq\.unit\.[0-9a-f]{24}")


def is_unit_name(name: object) -> bool:
    return isinstance(name, str) and 1 <= len(name) <= UNIT_CHARS_MAX


def default_unit(kind: str, destination: str) -> str:
    """The unit of messages without one, where the attribute unitOfOrder is true.

    It follows from the destination's type and name, so that all brokers agree on it and it survives everything; the
    hash in it keeps it apart from names that people choose.
    """
    digest = blake2b(f"{kind}:{destination}".encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    return f"mq.unit.{digest}"


def is_default_unit(name: str) -> bool:
    """True for a unit that a destination gave, and not a producer."""
    return _DEFAULT.fullmatch(name) is not None
