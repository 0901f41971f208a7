"""The files and tables with which a broker joins its cluster: its record file, and the table that brokers may share."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from raybroker.broker.cluster.database_passwords import record_password
from raybroker.broker.cluster.shared_table import SharedTable
from raybroker.config.brokers import BrokerPlan
from raybroker.model.errors import ConfigError, IllegalStateError, StoreDamagedError, StoreError
from raybroker.model.settings.settings import ConfigView
from raybroker.store.record import RecordFile
from raybroker.store.record_table import RecordTable
from raybroker.system.clock import SystemClock

LOCK_WAIT_S: Final = 5.0
"""How long a restarted broker waits for its predecessor to let go of the record."""
WHEN_DAMAGED: Final = (
    "restore this file from a backup, or move it away while the broker is stopped: a broker that is not the master gets"
    " the record from the master again, and the master's is put back by raybroker restore cls from what backup cls has"
    " written"
)


def opened(file: RecordFile) -> list[bytes]:
    """The frames of a record; a predecessor that is just ending is given time to let go of it.

    Raises StoreDamagedError with what an administrator can do: entries follow from each other, so that no part of a
    damaged record is of use.
    """
    clock = SystemClock()
    deadline_ns = clock.monotonic_ns() + LOCK_WAIT_S * 1_000_000_000
    while True:
        try:
            return file.open()
        except StoreDamagedError as error:
            raise StoreDamagedError(f"{error}; {WHEN_DAMAGED}") from None
        except IllegalStateError:
            if clock.monotonic_ns() > deadline_ns:
                raise
            clock.sleep(0.05)


def shared_table(plan: BrokerPlan, config: ConfigView, beside: Path | None = None) -> SharedTable | None:
    """What has the record instead of a master; ``beside``: the directory of the cluster's stores.  Raises ConfigError
    when its address, or the passfile, cannot be used."""
    if not plan.table:
        return None
    timeout_ms: int = config["raybroker.cluster.table_timeout_ms"]
    table = RecordTable(plan.table, timeout_ms // 2, record_password(config, plan.table, beside))
    return SharedTable(table, timeout_ms)


def check_table(plan: BrokerPlan, config: ConfigView, beside: Path | None = None) -> None:
    """Raises ConfigError when brokers are to share a table that cannot be addressed, or is not there: they would wait
    for it.  One that cannot be reached now is waited for."""
    if not plan.table:
        return
    table = RecordTable(
        plan.table, config["raybroker.cluster.table_timeout_ms"], record_password(config, plan.table, beside)
    )
    try:
        missing = not table.exists()
    except StoreError:
        return
    if missing:
        raise ConfigError(f"there is no table {table.shown}: make it with raybroker dbmgr create sharecc_tbl")
