"""A user of the connection services: the rules for its name, its group, and what is kept of its password."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from raybroker.model.errors import ConfigError
from raybroker.model.naming.nearest import nearest

GROUPS: Final = ("admin", "user", "anonymous")
ANONYMOUS: Final = "anonymous"
"""The group that holds one user at most."""
FORBIDDEN: Final = "*,:\n\r"
"""Characters that a user's name may not have."""
NAME_CHARS_MAX: Final = 128
VERIFIER_CHARS_MAX: Final = 1024
DEFAULTS: Final = {"group": "user", "active": True}
"""Of the fields of a user that need not be said."""
_BASE64: Final = "[A-Za-z0-9+/]+={0,2}"
_SCRAM: Final = rf"\$[1-9][0-9]{{0,9}}:{_BASE64}\${_BASE64}:{_BASE64}"
_VERIFIER: Final = re.compile(rf"SCRAM-SHA-256{_SCRAM}(,SCRAM-SHA-512{_SCRAM})?|\$argon2(id|i|d)\$[A-Za-z0-9+/=,$]+")


def check_name(name: str) -> str:
    """Raises ConfigError for a name that a user cannot have."""
    told = isinstance(name, str) and 1 <= len(name) <= NAME_CHARS_MAX and name.isprintable()
    if not told or any(character in FORBIDDEN for character in name):
        raise ConfigError(f"user {name!r:.140}: a name has 1 to {NAME_CHARS_MAX} printable characters, none of * , :")
    return name


def check_group(group: object) -> str:
    """Raises ConfigError for what is no group."""
    if not isinstance(group, str) or group not in GROUPS:
        raise ConfigError(f"group = {str(group)[:80]!r}; the groups are {', '.join(GROUPS)}")
    return group


def check_verifier(verifier: object) -> str:
    """Raises ConfigError for what is no verifier, and does not show it: it may be a password."""
    if not isinstance(verifier, str) or len(verifier) > VERIFIER_CHARS_MAX or not _VERIFIER.fullmatch(verifier):
        raise ConfigError(
            "verifier: what is there is no verifier of SCRAM and no hash of argon2, as the file of users has"
            " them; a password is not taken, raybroker usermgr makes a verifier of it"
        )
    return verifier


def user_of(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """verifier, group and active of a user, checked; raises ConfigError."""
    check_name(name)
    known = ("verifier", *DEFAULTS)
    for key in fields:
        if key not in known:
            near = nearest(key, known, least=0.0)
            raise ConfigError(f"{key!r:.80} is no field of users; the nearest is {near!r}")
    made = {**DEFAULTS, **fields}
    if not isinstance(made["active"], bool):
        raise ConfigError(f"active = {str(made['active'])[:80]!r}; it is true or false")
    return {
        "verifier": check_verifier(made.get("verifier")),
        "group": check_group(made["group"]),
        "active": made["active"],
    }
