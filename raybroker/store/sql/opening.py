"""Opening the SQL store of a host by its properties, with patience for a database that is not there."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from raybroker.model.settings.setting_store import SQL_STORES
from raybroker.model.settings.settings import ConfigView
from raybroker.store.sql.registration import TENURE, StoreOwner

if TYPE_CHECKING:
    from raybroker.store.sql.store import SqlStore

PAUSE_FIRST_S: Final = 0.25
"""Before the second attempt to reach the database."""


def is_sql(config: ConfigView) -> bool:
    """Whether messages are kept in a database."""
    return config["imq.persist.store"] in SQL_STORES


def holder_of(token: bytes) -> str:
    """Which installation of a broker has that token, without telling the token."""
    return hashlib.sha256(b"raybroker store holder" + token).hexdigest()[:16]


def holder_of_tenure(tenure: int) -> str:
    """The holder of the tables of a broker whose messages another one may take over: no installation, but the time that
    it was given them."""
    return f"{TENURE}{tenure}"


def open_store(
    config: ConfigView,
    directory: Path,
    *,
    cluster: str,
    broker: str,
    host: str,
    hosting: str,
    holder: str,
    monotonic_ns: Callable[[], int],
    sleep: Callable[[float], None],
    report: Callable[[str], None],
    password: str | None = None,
) -> SqlStore:
    """The store of one host; blocks, and ``sleep`` s seconds between attempts to reach the database: first for a short
    time, as after a restart of it, then for up to imq.persist.jdbc.connection.retry.delay.

    directory  of the broker, for a file of its own
    password   of the database's user, where a file of passwords has it
    holder     which installation of the broker this is, "" for any
    report     told, once, that the database is waited for

    Raises ConfigError for properties, tables and libraries that do not fit; UnreachableError after
    imq.persist.jdbc.connection.retry.max attempts; StoreError when the store is open elsewhere.
    """
    # Most hosts have files, and only ask here whether they do.
    from raybroker.store.sql.address import address_of, store_id
    from raybroker.store.sql.database import Database, UnreachableError
    from raybroker.store.sql.lock import session_name
    from raybroker.store.sql.store import SqlStore

    id = store_id(config, cluster, broker)  # noqa: A001 - as in Tables
    database = Database(address_of(config, directory, password), session_name(id, host))
    owner = StoreOwner(cluster, broker, holder, f"{os.getpid()} on {socket.gethostname()}")
    most: int = config["imq.persist.jdbc.connection.retry.max"]
    delay_s: float = config["imq.persist.jdbc.connection.retry.delay"] / 1000
    failed, pause_s = 0, min(PAUSE_FIRST_S, delay_s)
    while True:
        try:
            return SqlStore(
                database,
                id,
                host,
                owner=owner,
                monotonic_ns=monotonic_ns,
                hosting=hosting,
                segment_bytes=config["raybroker.store.segment_bytes"],
            )
        except UnreachableError as error:
            if 0 <= most <= failed:
                raise
            if not failed:
                report(f"{error}; trying again at least every {delay_s:g} s")
            failed += 1
            sleep(pause_s)
            pause_s = min(2 * pause_s, delay_s)
