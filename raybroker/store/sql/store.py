"""The SQL store: the Store contract (``raybroker.engine.ports``) over the tables of ``schema``.

A commit is one transaction: the host's row (which also shows that nobody else has opened the store since), one row of
the log, and the rows of its blocks, inserted together.  Blocks that were freed before a checkpoint, and the log before
it, are deleted by ranges: in ``maintain``, and in commits when many wait.

A connection that was cut is made anew, once: the host's row says whether the transaction under way was committed.
After any other error of the database but for a lack of room, and when it cannot be reached, the store is dead: what
became of the transaction is learnt by opening the store again.  A store that nothing is written to asks its database
for an answer now and then.  Threads: ``commit``, ``maintain`` and ``close`` belong to one thread; the rest to any.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, Final
from zlib import crc32

from raybroker.model.blocks.record import EntryRun, LogEntry, PackedPayload, StoreStats, in_runs
from raybroker.model.errors import StoreDamagedError, StoreError, StoreFullError
from raybroker.store.locations import Locations
from raybroker.store.sql.compressed import CompressedBlocks
from raybroker.store.sql.database import Database, UnreachableError
from raybroker.store.sql.lock import HostLock
from raybroker.store.sql.packing import PackedRows, chained, pack, signed
from raybroker.store.sql.reclaim import RowPart, SqlReclaimer
from raybroker.store.sql.recovery import SqlRecovery, place, place_parts
from raybroker.store.sql.registration import StoreOwner, create_tables, register, require_tables, versions
from raybroker.store.sql.schema import key, statements_of, tables_of

SEGMENT_BYTES: Final = 64 << 20
"""A checkpoint is due after so many bytes."""
ELSEWHERE: Final = "another process has opened it since, or its lock was reset"
LOOK_NS: Final = 2_000_000_000
"""So long after the last word of a database its store looks whether it is there."""
PRESSURE_ROWS: Final = 20_000
"""When more rows than that are dead, commits delete some: the committing thread has no idle moment."""


class Compaction(Enum):
    """``ASKED``: it begins with the next checkpoint."""

    NONE = 0
    ASKED = 1
    BEGUN = 2


class SqlStore:
    """An open store; constructing one opens it and holds it until ``close``.

    id             what the names of the tables end in
    host, hosting  whose rows; made when there are none
    segment_bytes  a checkpoint is due after so many bytes, or after twice the last one's size
    monotonic_ns   clock for measuring commits

    Raises ConfigError when the tables are not there, of another version or another broker's; UnreachableError when the
    database cannot be connected to; StoreError when the store is open elsewhere.
    """

    def __init__(
        self,
        database: Database,
        id: str,
        host: str,
        *,
        owner: StoreOwner,
        monotonic_ns: Callable[[], int],
        hosting: str = "",
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._database = database
        self._tables = tables_of(database.sql, id)
        self._monotonic_ns = monotonic_ns
        self._segment_bytes = segment_bytes
        self._dead: str | None = None
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._ready = self._closed = self._full = False
        self._compaction = Compaction.NONE
        self._commits = self._sync_ns = self._sync_ns_last = self._sync_ns_max = 0
        self.shown = f"the store of host {host} in {self._tables.names} at {database.shown}"
        self._seen_ns = monotonic_ns()
        """When the database answered last."""
        self._lock_of = (id, host)
        self._reader = database.connect(autocommit=True)
        self._writer: Any = None
        self._host_lock = HostLock(database, self._reader, id, host)
        self._compressed = CompressedBlocks(database, self._tables, self.shown, monotonic_ns)
        try:
            self._writer = database.connect()
            self._open(owner, host, hosting)
        except BaseException:
            self._release()
            raise

    def _open(self, owner: StoreOwner, host: str, hosting: str) -> None:
        database, tables = self._database, self._tables
        if database.address.embedded:
            with database.transaction(self._writer) as connection:
                if not versions(database, connection, tables):
                    create_tables(database, connection, tables, owner.cluster, owner.broker)
        require_tables(database, self._reader, tables)
        self._compressed.ask_database(self._reader)
        if not self._host_lock.acquire():
            rows = tables.host.c
            with database.errors():
                holder = self._reader.scalar(database.sql.select(rows.owner).where(rows.name == host)) or "unknown"
            raise StoreError(
                f"{self.shown} is open in process {holder}: two processes never write it. Where that process is gone"
                " with its machine: raybroker dbmgr reset lck"
            )
        with database.transaction(self._writer) as connection:
            self._head = register(database, connection, tables, owner, host, hosting)
        self._recovery = SqlRecovery(database, tables, self._head)
        self._index = self._recovery.index
        self._statements = statements_of(database.sql, tables)
        self._batch, self._blocks, self._chain = self._head.batch, self._head.blocks, self._head.chain
        self._checkpoint = self._head.checkpoint

    @property
    def incarnation(self) -> int:
        """Number of this opening of the store: durably larger with every one."""
        return self._head.incarnation

    # ---- the contract

    def recover(self) -> Iterator[LogEntry]:
        """The stored entries; to be exhausted once before any other call.  See ``recovery``.

        Every block given back counts as live until it is freed.
        """
        assert not self._ready, "recover() is called once"
        self._check_alive()
        found = self._recovery
        try:
            with self._database.errors():
                yield from found.entries()
        except StoreError as error:
            self._dead = str(error)
            raise
        self._ready = True
        self._live_bytes = self._stored_bytes = found.live_bytes
        self._since_checkpoint, self._checkpoint_bytes = found.replayed_bytes, found.checkpoint_bytes
        self._reclaimer = SqlReclaimer(self._database, self._tables, self._head, found.first_log)
        self._reclaimer.log_bytes, self._reclaimer.dead_log_bytes = found.log_bytes, found.dead_log_bytes

    def recover_runs(self) -> Iterator[LogEntry | EntryRun]:
        """Do what :meth:`recover` does, in its place, with blocks that follow each other together."""
        return in_runs(self.recover())

    def commit(self, entries: Sequence[LogEntry]) -> None:
        """Write one batch in one transaction; on return it is durable.

        StoreFullError: the database has no room; nothing was written and the store lives on.  Any other StoreError:
        the store is dead, nothing of the batch may be acknowledged.
        """
        self._check()
        if not entries:
            return
        packed = pack(entries, self._blocks + 1)
        for row in packed.blocks:
            assert row.ordinal not in self._index.get(row.destination, ()), f"stored already: {row[1:3]}"
        part = self._reclaimer.part() if self._reclaimer.rows > PRESSURE_ROWS else None
        covered = self._reclaimer.freed() if packed.checkpoint >= 0 else None
        began = self._monotonic_ns()
        try:
            try:
                packed = self._transact(entries, packed, part)
            except UnreachableError:
                self._write_anew()
                packed = self._transact(entries, packed, part, again=True)
        except StoreFullError:
            self._full = True
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, nothing may be acknowledged after it
            raise self._died(error) from None
        self._measure(self._monotonic_ns() - began)
        self._full = False
        if part is not None:
            self._stored_bytes -= self._reclaimer.done(part)
        if covered is not None:
            with self._lock:
                self._reclaimer.supersede(covered, self._batch + 1)
        self._written(packed)
        self._compressed.look_again(self._writer)

    def read(self, destination: int, ordinal: int) -> bytes:
        """The payload of a live block, verified.

        KeyError if there is no such live block; StoreDamagedError if its bytes are not what was written, StoreError if
        the database cannot be asked.
        """
        self._check()
        with self._lock:
            number, nbytes, crc = place_parts(self._index[destination][ordinal])
        payload = self._payload(number)
        if payload is None or len(payload) != nbytes or crc32(payload) != crc:
            what = "missing" if payload is None else "damaged: its checksum does not match"
            raise StoreDamagedError(
                f"row {key(self._head.id, number)} of {self._tables.block.name} at {self._database.shown} is {what};"
                f" it has block {ordinal} of destination {destination}"
            )
        return payload

    def salvage(self, destination: int, ordinal: int) -> bytes:
        """The present bytes in the place of a live block, not verified; KeyError, StoreError."""
        self._check()
        with self._lock:
            number, _, _ = place_parts(self._index[destination][ordinal])
        return self._payload(number) or b""

    def free(self, destination: int, ordinals: Iterable[int]) -> None:
        """Mark blocks as dead; an unknown one is passed over."""
        self._check()
        with self._lock:
            known = self._index.get(destination)
            if known is None:
                return
            freed, live = self._reclaimer.fresh, self._live_bytes
            for ordinal in ordinals:
                value = known.pop(ordinal)
                if value is not None:
                    number, nbytes, _ = place_parts(value)
                    freed.append((number, nbytes))
                    live -= nbytes
            self._live_bytes = live
            if not known:
                del self._index[destination]

    def checkpoint_due(self) -> bool:
        """True once enough was written since the last checkpoint."""
        return self._since_checkpoint >= max(self._segment_bytes, 2 * self._checkpoint_bytes)

    def checkpoint_helps(self) -> bool:
        """False: a database keeps its pages until it is compacted."""
        return False

    def tidy_helps(self) -> bool:
        """Whether it is time to look after the database; a file of SQLite is there as long as the host is."""
        return not self._database.sqlite and self._ready and self._monotonic_ns() - self._seen_ns > LOOK_NS

    def maintain(self, budget_bytes: int) -> bool:
        """Delete rows that nobody needs, a part at a time; True when more are left.

        Raises StoreError when the database does not answer: the store is dead.
        """
        self._check()
        part = self._reclaimer.part()
        if part is None:
            if self.tidy_helps():
                self._check_connections()
            return self._vacuum(budget_bytes) if self._compaction is Compaction.BEGUN else False
        try:
            try:
                self._delete(part)
            except UnreachableError:
                self._write_anew()
                self._delete(part)
        except StoreFullError:
            return False
        except BaseException as error:  # noqa: BLE001 - whatever it is, nothing may be acknowledged after it
            raise self._died(error) from None
        self._seen_ns = self._monotonic_ns()
        self._stored_bytes -= self._reclaimer.done(part)
        return self._reclaimer.rows > 0 or self._compaction is Compaction.BEGUN

    def compact(self) -> None:
        """Give back all space that can be: what is dead at the next checkpoint is deleted, and then the database is
        told to give free pages back (SQLite), or to use them again (PostgreSQL)."""
        self._check()
        self._compaction = Compaction.ASKED

    @property
    def compacting(self) -> bool:
        return self._compaction is not Compaction.NONE

    def usage(self) -> dict[int, tuple[int, int]]:
        """Destination → (live blocks, bytes of their payloads)."""
        found = {}
        for destination in list(self._index):
            with self._lock:
                known = self._index.get(destination)
                if known is not None:
                    found[destination] = known.usage()
        return found

    def plain_because(self) -> str:
        """Why the tables get no compressed blocks: the database's user may not make the table that says so."""
        return self._compressed.because

    def has_room(self, nbytes: int) -> bool:
        """False while the database has no room for what is committed next."""
        return not self._full

    def stats(self) -> StoreStats:
        if not self._ready:
            return StoreStats()
        used = self._stored_bytes + self._reclaimer.log_bytes + self._reclaimer.dead_log_bytes
        return StoreStats(
            reserved_bytes=used,
            used_bytes=used,
            live_bytes=self._live_bytes,
            segments=1,
            commits=self._commits,
            syncs=self._commits,
            sync_ns=self._sync_ns,
            sync_ns_last=self._sync_ns_last,
            sync_ns_max=self._sync_ns_max,
        )

    def notices(self) -> list[str]:
        """Notices for the log of the host."""
        return []

    def close(self) -> None:
        """Write down that nobody has the store, and let go of it; twice is harmless, and so is a dead store."""
        if self._closed:
            return
        self._closed = True
        if self._dead is None:
            rows, head = self._tables.host, self._head
            mine = (rows.c.id == head.id, rows.c.incarnation == head.incarnation)
            with suppress(StoreError), self._database.transaction(self._writer) as connection:
                connection.execute(self._database.sql.update(rows).where(*mine).values(owner=""))
            self._host_lock.release()
        self._dead = self._dead or f"{self.shown} is closed"
        self._release()

    # ---- inside

    def _transact(
        self, entries: Sequence[LogEntry], packed: PackedRows, part: RowPart | None, *, again: bool = False
    ) -> PackedRows:
        """One batch as one transaction; what was written. ``again``: it may have been committed already."""
        with self._database.transaction(self._writer) as connection:
            if packed.compressed and not self._compressed.allow(connection):  # Its lock comes before hosts' locks.
                packed = pack([_plain(entry) for entry in entries], self._blocks + 1)
            if again and self._is_written(connection, packed):
                return packed
            self._write(connection, packed)
            if part is not None:
                self._reclaimer.delete(connection, part)
        return packed

    def _is_written(self, connection: Any, packed: PackedRows) -> bool:
        """Whether the batch is in the tables. Waits for the end of a transaction whose connection was cut, and keeps
        others from beginning."""
        sql, rows, head = self._database.sql, self._tables.host.c, self._head
        found = connection.execute(
            sql.select(rows.incarnation, rows.batch, rows.chain).where(rows.id == head.id).with_for_update()
        ).one_or_none()
        return found is not None and tuple(found) == (
            head.incarnation,
            self._batch + 1,
            chained(packed.body, self._chain),
        )

    def _delete(self, part: RowPart) -> None:
        with self._database.transaction(self._writer) as connection:
            self._reclaimer.delete(connection, part)

    def _write_anew(self) -> None:
        """The connection that writes was cut. Raises UnreachableError."""
        self._database.abandon(self._writer)
        self._writer = self._database.connect()

    def _read_anew(self) -> None:
        """The connection that reads was cut, and the host's lock went with it. Raises UnreachableError, and StoreError
        when another process has the lock."""
        self._database.abandon(self._reader)
        self._reader = self._database.connect(autocommit=True)
        self._host_lock = HostLock(self._database, self._reader, *self._lock_of)
        self._check_incarnation()
        if not self._host_lock.acquire():
            raise StoreError(ELSEWHERE)
        self._check_incarnation()

    def _check_incarnation(self) -> None:
        rows, head = self._tables.host.c, self._head
        with self._database.errors():
            found = self._reader.scalar(self._database.sql.select(rows.incarnation).where(rows.id == head.id))
        if found != head.incarnation:
            raise StoreError(ELSEWHERE)

    def _check_connections(self) -> None:
        """Ask the database for an answer on both connections."""
        one = self._database.sql.text("SELECT 1")
        try:
            with self._reading:
                try:
                    with self._database.errors():
                        self._reader.scalar(one)
                except UnreachableError:
                    self._read_anew()
            try:
                with self._database.transaction(self._writer) as connection:
                    connection.scalar(one)
            except UnreachableError:
                self._write_anew()
        except BaseException as error:  # noqa: BLE001 - whatever it is, nothing may be acknowledged after it
            raise self._died(error) from None
        self._seen_ns = self._monotonic_ns()

    def _write(self, connection: Any, packed: PackedRows) -> None:
        statements, head = self._statements, self._head
        number = self._batch + 1
        of_host = {
            "of_id": head.id,
            "of_incarnation": head.incarnation,
            "of_batch": self._batch,
            "batch": number,
            "blocks": self._blocks + len(packed.blocks),
            "chain": chained(packed.body, self._chain),
            "checkpoint": number if packed.checkpoint >= 0 else self._checkpoint,
        }
        if connection.execute(statements.host, of_host).rowcount != 1:
            raise StoreError(ELSEWHERE)
        connection.execute(
            statements.log,
            {
                "id": key(head.id, number),
                "before": self._chain,
                "first_block": self._blocks + 1,
                "body": packed.body,
            },
        )
        if packed.blocks:
            connection.execute(
                statements.block,
                [
                    {
                        "id": key(head.id, row.number),
                        "destination": row.destination,
                        "ordinal": signed(row.ordinal),
                        "nbytes": row.nbytes,
                        "crc": row.crc,
                        "row_crc": row.row_crc,
                        "meta": row.meta,
                        "payload": row.payload,
                    }
                    for row in packed.blocks
                ],
            )

    def _written(self, packed: PackedRows) -> None:
        """The batch is durable."""
        if packed.compressed:
            self._compressed.written()
        self._batch += 1
        self._chain = chained(packed.body, self._chain)
        self._blocks += len(packed.blocks)
        self._reclaimer.log_bytes += len(packed.body)
        index = self._index
        with self._lock:
            for number, destination, ordinal, nbytes, crc, _, _, _ in packed.blocks:
                known = index.get(destination)
                if known is None:
                    known = index[destination] = Locations()
                known[ordinal] = place(number, nbytes, crc)
                self._live_bytes += nbytes
                self._stored_bytes += nbytes
        if packed.checkpoint >= 0:
            if self._compaction is Compaction.ASKED:
                self._compaction = Compaction.BEGUN
            self._checkpoint, self._checkpoint_bytes, self._since_checkpoint = self._batch, packed.checkpoint, 0
        else:
            self._since_checkpoint += packed.nbytes

    def _payload(self, number: int) -> bytes | None:
        with self._reading:
            try:
                return self._fetched(number)
            except UnreachableError:
                self._read_anew()
                return self._fetched(number)

    def _fetched(self, number: int) -> bytes | None:
        with self._database.errors():
            found = self._reader.scalar(self._statements.payload, {"of_id": key(self._head.id, number)})
            self._reader.commit()
        return None if found is None else bytes(found)

    def _vacuum(self, budget_bytes: int) -> bool:
        """The last step of a compaction; True when it is not done yet.  No row depends on it: an error ends it."""
        more = False
        with suppress(StoreError):
            more = self._database.vacuum([self._tables.log, self._tables.block], budget_bytes)
        if not more:
            self._compaction = Compaction.NONE
        return more

    def _measure(self, took_ns: int) -> None:
        self._seen_ns = self._monotonic_ns()
        self._commits += 1
        self._sync_ns += took_ns
        self._sync_ns_last = took_ns
        self._sync_ns_max = max(self._sync_ns_max, took_ns)

    def _died(self, error: BaseException) -> StoreError:
        if self._dead is None:
            self._dead = f"{self.shown} failed and was stopped: {error}"
        return StoreError(self._dead)

    def _check_alive(self) -> None:
        if self._dead is not None:
            raise StoreError(self._dead)

    def _check(self) -> None:
        if self._dead is not None:
            raise StoreError(self._dead)
        assert self._ready, "recover() comes first"

    def _release(self) -> None:
        for connection in (self._writer, self._reader):
            if connection is not None:
                self._database.close_connection(connection)
        self._host_lock.release()


def _plain(entry: LogEntry) -> LogEntry:
    """Return the same entry with the block as it came."""
    payload = entry.payload
    return entry._replace(payload=payload.plain) if type(payload) is PackedPayload else entry
