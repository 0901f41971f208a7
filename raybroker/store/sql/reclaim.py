"""Reclaim: the deletion of blocks that were freed before the last checkpoint, and of the log before it.

A block that is freed after a checkpoint stays until the next one: recovery begins with the checkpoint, which speaks of
the block.  Rows go by ranges of their keys, a bounded number at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from raybroker.store.sql.database import Database
from raybroker.store.sql.registration import HostRow
from raybroker.store.sql.schema import SqlTables, key

PART_ROWS: Final = 5_000
"""Rows that are deleted in one transaction."""
PART_RANGES: Final = 500
"""Ranges of blocks that are, each with a statement of its own."""


class Range(NamedTuple):
    """Blocks ``first`` … ``last``, of which ``rows`` are to go, with so many bytes."""

    first: int
    last: int
    rows: int
    nbytes: int


class RowPart(NamedTuple):
    """``log``: rows of the log up to that batch; 0 for none."""

    ranges: list[Range]
    log: int


Freed = list[tuple[int, int]]
"""(number, bytes) of blocks."""


class SqlReclaimer:
    """``head``: the host's row when the store was opened; ``first_log``: the lowest batch with a row.

    fresh           blocks that were freed since the last checkpoint; appended to under the store's lock
    rows            how many rows are dead
    log_bytes       of the log since the last checkpoint, ``dead_log_bytes`` of the log before, about
    """

    def __init__(self, database: Database, tables: SqlTables, head: HostRow, first_log: int) -> None:
        self._database = database
        self._tables = tables
        self._host = head.id
        self._ranges: deque[Range] = deque()
        self._first_log = first_log
        self._checkpoint = head.checkpoint
        self.log_bytes = self.dead_log_bytes = 0
        self.fresh: Freed = []
        self.rows = max(head.checkpoint - first_log, 0)

    def freed(self) -> int:
        """How many blocks were freed by now, in front of a commit with a checkpoint."""
        return len(self.fresh)

    def supersede(self, freed: int, checkpoint: int) -> None:
        """The checkpoint in that batch is durable: the first ``freed`` of the fresh blocks are dead for good.

        Its own row counts as written after this.
        """
        gone = sorted(self.fresh[:freed])
        del self.fresh[:freed]
        self._ranges.extend(ranges_of(gone))
        self.rows += len(gone) + checkpoint - max(self._checkpoint, self._first_log)
        self._checkpoint = checkpoint
        self.dead_log_bytes, self.log_bytes = self.dead_log_bytes + self.log_bytes, 0

    def part(self) -> RowPart | None:
        """What to delete next; None for nothing."""
        ranges: list[Range] = []
        rows = 0
        for one in self._ranges:
            if ranges and (rows + one.rows > PART_ROWS or len(ranges) == PART_RANGES):
                break
            ranges.append(one)
            rows += one.rows
        last = min(self._checkpoint - 1, self._first_log + PART_ROWS - 1)
        if last < self._first_log:
            last = 0
        return RowPart(ranges, last) if ranges or last else None

    def delete(self, connection: Any, part: RowPart) -> None:
        """Delete it in the caller's transaction."""
        sql, host = self._database.sql, self._host
        if part.ranges:
            block = self._tables.block
            between = block.c.id.between(sql.bindparam("first"), sql.bindparam("last"))
            connection.execute(
                sql.delete(block).where(between),
                [{"first": key(host, one.first), "last": key(host, one.last)} for one in part.ranges],
            )
        if part.log:
            log = self._tables.log
            connection.execute(sql.delete(log).where(log.c.id.between(key(host, self._first_log), key(host, part.log))))

    def done(self, part: RowPart) -> int:
        """The transaction is committed; how many bytes of blocks are gone."""
        nbytes = 0
        for one in part.ranges:
            self._ranges.popleft()
            self.rows -= one.rows
            nbytes += one.nbytes
        if part.log:
            rows, dead = part.log - self._first_log + 1, self._checkpoint - self._first_log
            self.dead_log_bytes -= self.dead_log_bytes * rows // max(dead, 1)
            self._first_log = part.log + 1
            self.rows -= rows
        return nbytes


def ranges_of(blocks: Freed) -> Iterator[Range]:
    """Sorted blocks as ranges without a gap."""
    first = last = rows = nbytes = 0
    for number, size in blocks:
        if rows and number == last + 1:
            last, rows, nbytes = number, rows + 1, nbytes + size
            continue
        if rows:
            yield Range(first, last, rows, nbytes)
        first, last, rows, nbytes = number, number, 1, size
    if rows:
        yield Range(first, last, rows, nbytes)
