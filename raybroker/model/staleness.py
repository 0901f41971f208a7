"""Bounded staleness: versions of messages, and what becomes of those that are too far behind the published one."""

from __future__ import annotations

from typing import Any, Final

from raybroker.model.errors import ConfigError
from raybroker.model.naming.property_names import is_header_name, stranger
from raybroker.model.settings.setting import VERSION_MAX
from raybroker.model.settings.setting_table import STALENESS_POLICIES

REASON: Final = "STALE"
"""Why stale messages are dead."""
DEFAULT, DISCARD, LAST = STALENESS_POLICIES
"""What becomes of stale messages: they are dead, and useDMQ says where they go; they are discarded; or they wait behind
all others."""


def version_of(value: Any) -> int | None:
    """The version that a property says: a whole number from 0; None for anything else."""
    return value if type(value) is int and 0 <= value <= VERSION_MAX else None


def check_version_key(name: str) -> None:
    """Raises ConfigError for what is not the name of a property."""
    if is_header_name(name) or stranger(name) >= 0:
        raise ConfigError(f"versionKey = {name!r:.120}: it is the name of a property of messages, such as version")
