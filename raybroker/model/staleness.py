"""Bounded staleness: versions of messages, and what becomes of those that are too far behind the published one."""

from __future__ import annotations

from typing import Any, Final

from raybroker.model.errors import ConfigError
from raybroker.model.naming.property_names import is_header_name, stranger

VERSION_MAX: Final = 1 << 53
"""Largest version, of a message or published: a number of floating point has it exactly."""
STALENESS_MAX: Final = 1_000
"""Largest maxStaleness: each version that waits is looked at for each message that is handed out."""
REASON: Final = "STALE"
"""Why stale messages are dead."""
DEFAULT, DISCARD, LAST = POLICIES = ("Default", "Discard", "Last")
"""What becomes of stale messages: they are dead, and useDMQ says where they go; they are discarded; or they wait behind
all others."""


def version_of(value: Any) -> int | None:
    """The version that a property says: a whole number from 0; None for anything else."""
    return value if type(value) is int and 0 <= value <= VERSION_MAX else None


def check_version_key(name: str) -> None:
    """Raises ConfigError for what is not the name of a property."""
    if is_header_name(name) or stranger(name) >= 0:
        raise ConfigError(f"versionKey = {name!r:.120}: it is the name of a property of messages, such as version")
