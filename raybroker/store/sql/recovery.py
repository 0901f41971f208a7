"""Recovery: reads back what a host has in the tables, in the order of the contract, and names damage.

A commit is one transaction, so that a crash leaves all of it or nothing.  Whatever else is missing or different was
damaged later: a row of the log or of a block's head that is not what was written refuses the store, with the row.  The
damage of a payload is contained: the block is there, and reading it raises.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Final

from raybroker.model.blocks.record import BLOCK, CHECKPOINT, LogEntry
from raybroker.model.errors import StoreDamagedError
from raybroker.store.locations import Locations, location, location_parts
from raybroker.store.sql.database import Database
from raybroker.store.sql.packing import ENTRY_BYTES, Item, chained, row_crc, unpack, unsigned
from raybroker.store.sql.registration import HostRow
from raybroker.store.sql.schema import NUMBER_MAX, SqlTables, key

ROWS: Final = 500
"""Rows that are fetched at a time."""
_LOW_BITS: Final = 31
_LOW: Final = (1 << _LOW_BITS) - 1

Index = dict[int, Locations]
"""Destination → where its live blocks are."""


def place(number: int, nbytes: int, crc: int) -> int:
    """Return where block ``number`` of a host is, in the form of ``raybroker.store.locations``."""
    return location(number >> _LOW_BITS, number & _LOW | 1 << _LOW_BITS, nbytes, crc)


def place_parts(value: int) -> tuple[int, int, int]:
    """(number, nbytes, crc)."""
    high, low, nbytes, crc = location_parts(value)
    return high << _LOW_BITS | low & _LOW, nbytes, crc


class SqlRecovery:
    """``index`` and the counts are complete when ``entries`` is exhausted.

    replayed_bytes    of what was written after the last checkpoint
    checkpoint_bytes  size of that; 0 without one
    log_bytes         bodies of the log since the last checkpoint, ``dead_log_bytes`` of those before
    first_log         the lowest batch that has a row
    """

    def __init__(self, database: Database, tables: SqlTables, head: HostRow) -> None:
        self._database = database
        self._tables = tables
        self._head = head
        self.index: Index = {}
        self.live_bytes = self.log_bytes = self.dead_log_bytes = 0
        self.replayed_bytes = self.checkpoint_bytes = 0
        self.first_log = head.batch + 1

    def entries(self) -> Iterator[LogEntry]:
        """See ``engine.ports.Store.recover``.  Raises StoreDamagedError, StoreError."""
        database = self._database
        connection = database.connect()
        try:
            with database.transaction(connection, snapshot=True):
                yield from self._entries(connection)
        finally:
            database.close_connection(connection)

    def _entries(self, connection: Any) -> Iterator[LogEntry]:
        sql, log, head = self._database.sql, self._tables.log, self._head
        lowest = connection.execute(
            sql.select(sql.func.min(log.c.id), sql.func.sum(sql.func.length(log.c.body))).where(
                log.c.id.between(key(head.id, 0), key(head.id, NUMBER_MAX))
            )
        ).one()
        if lowest[0] is not None:
            self.first_log = lowest[0] & NUMBER_MAX
            self.dead_log_bytes = int(lowest[1])
        number, checkpointed = max(head.checkpoint, 1), not head.checkpoint
        blocks = self._blocks(connection, 1) if checkpointed else iter(())
        chain = 0
        for at, before, block, body in self._log(connection, number):
            if at != number or (before != chain and checkpointed):
                raise self._damage(f"row {key(head.id, number)} of {log.name} is missing or another one")
            items = self._items(at, body)
            self.log_bytes += len(body)
            self.dead_log_bytes -= len(body)
            if not checkpointed:
                checkpointed = True
                items, next_block = yield from self._before(connection, items, block, at)
                blocks = self._blocks(connection, next_block)
            yield from self._after(items, blocks, at)
            chain, number = chained(body, before), number + 1
        if number != head.batch + 1 or chain != head.chain:
            raise self._damage(f"the rows of {log.name} do not end as the row of the host says, at batch {head.batch}")
        for row in blocks:
            raise self._damage(f"row {row.id} of {self._tables.block.name} is of no batch")

    def _before(
        self, connection: Any, items: list[Item], first_block: int, at: int
    ) -> Generator[LogEntry, None, tuple[list[Item], int]]:
        """The last checkpoint and the blocks before it; returns the items behind it and the number of their block."""
        last = max((i for i, item in enumerate(items) if item.kind == CHECKPOINT), default=-1)
        if last < 0:
            raise self._damage(f"row {key(self._head.id, at)} of {self._tables.log.name} has no checkpoint")
        first = first_block + sum(len(item.crcs) for item in items[:last])
        self.checkpoint_bytes = len(items[last].meta)
        yield LogEntry(CHECKPOINT, items[last].destination, 0, items[last].meta)
        for row in self._blocks(connection, 1, first - 1):
            yield self._block(row)
        return items[last + 1 :], first

    def _after(self, items: list[Item], blocks: Iterator[Any], at: int) -> Iterator[LogEntry]:
        """The entries of a batch, in their order."""
        for item in items:
            if item.kind != BLOCK:
                self.replayed_bytes += ENTRY_BYTES + len(item.meta)
                if item.kind == CHECKPOINT:
                    raise self._damage(
                        f"row {key(self._head.id, at)} of {self._tables.log.name} has a checkpoint that"
                        " the row of the host does not know"
                    )
                yield LogEntry(item.kind, item.destination, 0, item.meta)
                continue
            for crc in item.crcs:
                row = next(blocks, None)
                if row is None or row.row_crc != crc:
                    raise self._damage(
                        f"a row of {self._tables.block.name} is missing or another one, of batch {at}"
                        f" (row {key(self._head.id, at)} of {self._tables.log.name})"
                    )
                self.replayed_bytes += ENTRY_BYTES + len(row.meta) + row.nbytes
                yield self._block(row)

    def _block(self, row: Any) -> LogEntry:
        """Check the row of a block and take it into the index."""
        number, ordinal, meta = row.id & NUMBER_MAX, unsigned(row.ordinal), bytes(row.meta)
        if row.row_crc != row_crc(number, row.destination, ordinal, row.nbytes, row.crc, meta):
            raise self._damage(f"row {row.id} of {self._tables.block.name} is not what was written")
        known = self.index.get(row.destination)
        if known is None:
            known = self.index[row.destination] = Locations()
        known[ordinal] = place(number, row.nbytes, row.crc)
        self.live_bytes += row.nbytes
        return LogEntry(BLOCK, row.destination, ordinal, meta)

    def _items(self, at: int, body: bytes) -> list[Item]:
        try:
            return list(unpack(body))
        except ValueError as error:
            raise self._damage(f"row {key(self._head.id, at)} of {self._tables.log.name}: {error}") from None

    def _log(self, connection: Any, first: int) -> Iterator[tuple[int, int, int, bytes]]:
        log, host = self._tables.log.c, self._head.id
        statement = self._database.sql.select(log.id, log.before, log.first_block, log.body)
        statement = statement.where(log.id.between(key(host, first), key(host, NUMBER_MAX))).order_by(log.id)
        for row in connection.execution_options(yield_per=ROWS).execute(statement):
            yield row.id & NUMBER_MAX, row.before, row.first_block, bytes(row.body)

    def _blocks(self, connection: Any, first: int, last: int = NUMBER_MAX) -> Iterator[Any]:
        block, host = self._tables.block.c, self._head.id
        statement = (
            self._database.sql.select(
                block.id, block.destination, block.ordinal, block.nbytes, block.crc, block.row_crc, block.meta
            )
            .where(block.id.between(key(host, first), key(host, last)))
            .order_by(block.id)
        )
        return iter(connection.execution_options(yield_per=ROWS).execute(statement))

    def _damage(self, what: str) -> StoreDamagedError:
        return StoreDamagedError(f"the store at {self._database.shown} is damaged: {what}")
