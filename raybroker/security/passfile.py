"""The passfile: passwords that settings need and may not contain, lines of ``name=password``, for its owner alone.

    imq.keystore.password=…
    imq.user_repository.ldap.password=…
    imq.imqcmd.password=…

The password of a store's database is not among them: libpq has a file of its own for it, which
imq.persist.jdbc.postgresql.passfile names.  Everything behind the first = belongs to the password, spaces too.  Lines
that begin with # are comments.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from raybroker.model.errors import ConfigError
from raybroker.model.settings import ConfigView
from raybroker.security.private_files import read_private

KEYSTORE: Final = "imq.keystore.password"
LDAP: Final = "imq.user_repository.ldap.password"
COMMAND: Final = "imq.imqcmd.password"
CLIENT_KEY: Final = "raybroker.client.tls.password"
FILE_BYTES_MAX: Final = 1 << 20
_NAMES: Final = (KEYSTORE, LDAP, COMMAND, CLIENT_KEY)
_DATABASE: Final = re.compile(r"imq\.persist\.jdbc\.\w+\.password", re.ASCII)


class Passwords:
    """What a passfile says. Its ``repr`` shows no password."""

    def __init__(self, found: Mapping[str, str], source: str) -> None:
        self._found = dict(found)
        self.source = source
        """Where they are from, for errors: which file, or why there is none."""

    def __repr__(self) -> str:
        return f"Passwords({self.source}: {', '.join(self._found)})"

    def get(self, name: str) -> str | None:
        return self._found.get(name)


def read_passfile(path: Path) -> Passwords:
    """Raises ConfigError for a file that is missing, that others may read, or that has an unknown name; blocks."""
    text = read_private(path, "passfile", FILE_BYTES_MAX).decode("utf-8", "replace")
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, equals, password = line.partition("=")
        name = name.strip()
        if not equals or not password:
            raise ConfigError(f"passfile {path}, line {number}: a line is name=password")
        if _DATABASE.fullmatch(name):
            raise ConfigError(
                f"passfile {path}, line {number}: the database's password is in a file of its own, which"
                " imq.persist.jdbc.postgresql.passfile names"
            )
        if name not in _NAMES:
            near = difflib.get_close_matches(name, _NAMES, 1)
            raise ConfigError(
                f"passfile {path}, line {number}: there is no password {name!r:.80}"
                + (f"; did you mean {near[0]}?" if near else f"; there are {', '.join(_NAMES)}")
            )
        if name in found:
            raise ConfigError(f"passfile {path}, line {number}: {name} is there twice")
        found[name] = password
    return Passwords(found, f"passfile {path}")


def passwords_of(config: ConfigView, directory: Path | None) -> Passwords:
    """Those of a broker's configuration; ``directory``: the broker's security directory. Blocks for the disk."""
    if not config["imq.passfile.enabled"]:
        return Passwords({}, "imq.passfile.enabled is false")
    named: str = config["imq.passfile.dirpath"]
    if not named and directory is None:
        raise ConfigError("imq.passfile.enabled: name imq.passfile.dirpath; there is no raybroker.security.dir here")
    place = Path(named).expanduser() if named or directory is None else directory
    return read_passfile(place / config["imq.passfile.name"])

