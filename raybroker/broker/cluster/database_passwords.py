"""Passwords of databases, from the passfile: that of the stores' user, and that of the shared record's.

Without a passfile, or without the password in it, libpq looks itself (PGPASSWORD, ~/.pgpass).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from raybroker.broker.services.auditing import security_directory
from raybroker.model.settings.settings import ConfigView
from raybroker.security.passfile import DATABASE, SHARED_RECORD, passwords_of

POSTGRESQL: Final = "postgresql"


def store_password(config: ConfigView, beside: Path | None) -> str | None:
    """Return the password of the user of stores in PostgreSQL. ``beside``: the directory of the cluster's stores.
    Raises ConfigError; blocks."""
    wanted = config["imq.persist.jdbc.dbVendor"] == POSTGRESQL
    return _password(config, beside, DATABASE) if wanted else None


def record_password(config: ConfigView, url: str, beside: Path | None) -> str:
    """Return the password of the user of the shared record at ``url``; "": none. It is found as by
    :func:`store_password`. As :func:`store_password`."""
    wanted = url.removeprefix("jdbc:").startswith(POSTGRESQL)
    return (_password(config, beside, SHARED_RECORD) if wanted else None) or ""


def _password(config: ConfigView, beside: Path | None, name: str) -> str | None:
    if not config["imq.passfile.enabled"]:
        return None
    return passwords_of(config, security_directory(config, beside)).get(name)
