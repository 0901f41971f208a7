"""Administration of the table that brokers share: creating, resetting, backing up and restoring it.

Brokers may run meanwhile: those of the cluster take a record of a later term, and every other one they refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from raybroker.broker.cluster.database_passwords import record_password
from raybroker.cluster.backup import dump, load
from raybroker.cluster.change_record import ChangeRecord
from raybroker.cluster.record_rows import check, entry_of, parts_of, record_of
from raybroker.cluster.term import FIRST_TERM, restored_term
from raybroker.config import Config, store_directory
from raybroker.config.brokers import TABLE as URL
from raybroker.config.brokers import plan_of
from raybroker.model.errors import (
    BrokerError,
    ConfigError,
    IllegalStateError,
    ProtocolError,
    StoreDamagedError,
    StoreError,
)
from raybroker.model.shared_record import FoundRecord, RecordHead
from raybroker.store.record_table import RecordTable
from raybroker.system import entropy

T = TypeVar("T")
RECORD_BYTES: Final = 8
"""Of the random name of a record."""
ANY_BROKER: Final = "b"
"""All brokers of a cluster have the same directory above theirs."""
AGAIN: Final = 10
"""How often a table is read from the beginning that brokers shorten meanwhile."""


class TableManager:
    """The table of one cluster; ``cluster`` is its name, which is its id when the configuration has none.

    Every method raises ConfigError for a table of another cluster, StoreError when the database cannot be used, and
    then has changed nothing.
    """

    def __init__(self, config: Config, cluster: str) -> None:
        plan = plan_of(config)
        if not plan.table:
            raise ConfigError(f"{URL} is not set: it says in which database the table is")
        self.instance = cluster
        self._cluster: str = config["imq.cluster.clusterid"] or cluster
        self._table = RecordTable(
            plan.table,
            config["raybroker.cluster.table_timeout_ms"],
            record_password(config, plan.table, store_directory(config, cluster, ANY_BROKER).parent),
        )

    @property
    def shown(self) -> str:
        """The table's name and where it is, without a password."""
        return self._table.shown

    def create(self) -> None:
        """Make the table, with an empty record.  Raises IllegalStateError when it is there."""
        self._checked(lambda: self._table.create(*parts_of(self._fresh(FIRST_TERM))))

    def delete(self) -> None:
        """Remove the table: changes are refused from then on."""
        self._checked(self._drop)

    def _drop(self) -> None:
        try:
            self._head()
        except StoreDamagedError:
            self._table.drop()  # Whose it was cannot be read any more.
        else:
            self._table.drop()

    def recreate(self) -> None:
        """An empty record instead of the one that there is; destinations stay on the brokers that have them."""
        self._checked(lambda: self._replace(self._fresh(FIRST_TERM)))

    def backup(self) -> bytes:
        """The whole record as a file."""
        return self._checked(lambda: dump(self._whole()))

    def restore(self, data: bytes) -> int:
        """A backup instead of the record that there is, or in a new table; how many destinations and durable
        subscriptions it has.  What was changed since the backup is lost.  Raises StoreDamagedError."""
        record = load(data, cluster=self._cluster).compress()
        record.forget_past()
        self._checked(lambda: self._restore(record))
        return len(record.state.destinations) + len(record.state.subscriptions)

    # ---- inside

    def _checked(self, work: Callable[[], T]) -> T:
        """Errors name the table."""
        try:
            return work()
        except BrokerError as error:
            raise type(error)(f"table {self.shown}: {error}") from None

    def _fresh(self, term: int) -> ChangeRecord:
        return ChangeRecord(self._new_id(), self._cluster, term)

    def _new_id(self) -> str:
        return entropy.token(RECORD_BYTES).hex()

    def _restore(self, record: ChangeRecord) -> None:
        record.id, record.cluster, record.term = self._new_id(), self._cluster, restored_term(record.term)
        if self._table.exists():
            self._replace(record)
        else:
            self._table.create(*parts_of(record))

    def _replace(self, record: ChangeRecord) -> None:
        head = self._head()
        record.term = restored_term(record.term - 1, head.term)
        if not self._table.replace(*parts_of(record), before=head.record):
            raise IllegalStateError("it was replaced by somebody else meanwhile; look at it and try again")

    def _head(self) -> RecordHead:
        return self._found("", 0).head

    def _found(self, record: str, number: int) -> FoundRecord:
        found = self._table.read(record, number)
        if found is None:
            raise ConfigError("there is none; create it: raybroker dbmgr create sharecc_tbl")
        check(found)
        if found.head.cluster != self._cluster:
            raise ConfigError(f"it belongs to cluster {found.head.cluster!r}, and this is cluster {self._cluster!r}")
        return found

    def _whole(self) -> ChangeRecord:
        for _ in range(AGAIN):
            record = self._entries(record_of(self._found("", 0)))
            if record is not None:
                return record
        raise StoreError("it was shortened again and again while it was read; try again")

    def _entries(self, record: ChangeRecord) -> ChangeRecord | None:
        """Add all entries that come after to the record; None when they became part of the base meanwhile."""
        while True:
            found = self._found(record.id, record.number)
            if found.base:
                return None
            try:
                for row in found.rows:
                    record.accept(entry_of(row))
            except ProtocolError as error:
                raise StoreDamagedError(str(error)) from None
            if record.number >= found.last:
                return record
            if not found.rows:
                raise StoreDamagedError(f"entry {record.number + 1} is missing")
