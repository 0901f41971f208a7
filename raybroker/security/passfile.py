"""The passfile: passwords that settings need and may not contain, lines of ``name=password``, for its owner alone.

    imq.keystore.password=…
    imq.user_repository.ldap.password=…
    imq.persist.jdbc.postgresql.password=…
    imq.cluster.sharecc.persist.jdbc.postgresql.password=…
    imq.imqcmd.password=…
    raybroker.objects.password=…

Everything behind the first = belongs to the password, spaces too.  Lines
that begin with # are comments.

``raybroker usermgr encode`` writes passwords as ``{encoded}`` and Base64.  Nobody reads those in passing, and anybody
who has the file can decode them, as with MQ's encoding: what protects the file is that its owner alone may read it.
A broker whose passfile has a password in clear says so in its log.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from raybroker.model.errors import ConfigError
from raybroker.model.naming.nearest import nearest
from raybroker.model.settings.settings import ConfigView
from raybroker.security.private_files import read_private

KEYSTORE: Final = "imq.keystore.password"
LDAP: Final = "imq.user_repository.ldap.password"
COMMAND: Final = "imq.imqcmd.password"
CLIENT_KEY: Final = "raybroker.client.tls.password"
DATABASE: Final = "imq.persist.jdbc.postgresql.password"
SHARED_RECORD: Final = "imq.cluster.sharecc.persist.jdbc.postgresql.password"
CLIENT_PROXY: Final = "raybroker.client.proxy.password"
OBJECT_STORE: Final = "raybroker.objects.password"
FILE_BYTES_MAX: Final = 1 << 20
ENCODED: Final = "{encoded}"
_NAMES: Final = (KEYSTORE, LDAP, DATABASE, SHARED_RECORD, COMMAND, CLIENT_KEY, CLIENT_PROXY, OBJECT_STORE)
_SQLITE: Final = "persist.jdbc.sqlite.password"

log = logging.getLogger("raybroker.security")


class Passwords:
    """What a passfile says. Its ``repr`` shows no password. ``clear``: names of those that are not encoded."""

    def __init__(self, found: Mapping[str, str], source: str, clear: tuple[str, ...] = ()) -> None:
        self._found = dict(found)
        self.clear = clear
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
    clear: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, equals, password = line.partition("=")
        name = name.strip()
        if not equals or not password:
            raise ConfigError(f"passfile {path}, line {number}: a line is name=password")
        if name.endswith(_SQLITE):
            raise ConfigError(f"passfile {path}, line {number}: {name}: a file of SQLite has no password")
        if name not in _NAMES:
            near = nearest(name, _NAMES)
            raise ConfigError(
                f"passfile {path}, line {number}: there is no password {name!r:.80}"
                + (f"; did you mean {near}?" if near else f"; there are {', '.join(_NAMES)}")
            )
        if name in found:
            raise ConfigError(f"passfile {path}, line {number}: {name} is there twice")
        if password.startswith(ENCODED):
            try:
                found[name] = decoded(password)
            except ConfigError as error:
                raise ConfigError(f"passfile {path}, line {number}: {name}: {error}") from None
        else:
            clear.append(name)
            found[name] = password
    return Passwords(found, f"passfile {path}", tuple(clear))


def encoded(password: str) -> str:
    """Return the password as it stands in an encoded passfile."""
    return ENCODED + base64.b64encode(password.encode()).decode()


def decoded(password: str) -> str:
    """A password as it stands in a passfile, in clear; raises ConfigError for what is encoded wrongly."""
    if not password.startswith(ENCODED):
        return password
    try:
        return base64.b64decode(password.removeprefix(ENCODED), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ConfigError(
            f"what stands behind {ENCODED} is no encoded password; write it with raybroker usermgr encode"
        ) from None


def rewritten(source: Path, encode: bool) -> str:
    """The text of a passfile with all passwords encoded, or all in clear; comments and the order stay. Raises as
    :func:`read_passfile`."""
    read_passfile(source)
    lines = []
    for line in read_private(source, "passfile", FILE_BYTES_MAX).decode("utf-8", "replace").splitlines():
        name, equals, password = line.partition("=")
        if equals and not line.startswith("#"):
            clear = decoded(password)
            lines.append(f"{name}={encoded(clear) if encode else clear}")
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def passwords_of(config: ConfigView, directory: Path | None) -> Passwords:
    """Return the passwords of a broker's configuration; ``directory``: the broker's security directory. Blocks for the
    disk."""
    if not config["imq.passfile.enabled"]:
        return Passwords({}, "imq.passfile.enabled is false")
    named: str = config["imq.passfile.dirpath"]
    if not named and directory is None:
        raise ConfigError("imq.passfile.enabled: name imq.passfile.dirpath; there is no raybroker.security.dir here")
    place = Path(named).expanduser() if named or directory is None else directory
    found = read_passfile(place / config["imq.passfile.name"])
    if found.clear:
        log.warning(
            "[B2069] %s has passwords in clear: %s; encode them with raybroker usermgr encode",
            found.source,
            ", ".join(found.clear),
        )
    return found
