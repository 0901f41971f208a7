"""Tables that come from several readers as batches of a size, and what is handed over with each: a pure decision."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa


class TableBatch(NamedTuple):
    """``taken``: how many rows of each reader it has, by the reader's number."""

    table: Any
    taken: dict[int, int]


class TableBatches:
    """Batches of ``size`` rows, or the tables as they are; rows stay in the order in which they were added."""

    def __init__(self, size: int | None) -> None:
        self._size = size
        self._waiting: deque[tuple[int, Any]] = deque()
        self._rows = 0

    @property
    def wanted(self) -> bool:
        """More rows are needed for a batch."""
        return self._rows < (self._size or 1)

    def add(self, reader: int, table: Any) -> None:
        self._waiting.append((reader, table))
        self._rows += table.num_rows

    def whole(self) -> Iterator[TableBatch]:
        """The batches that are whole."""
        while not self.wanted:
            yield self._batch(self._size or self._waiting[0][1].num_rows)

    def rest(self) -> TableBatch | None:
        """What is left, which is less than a batch."""
        return self._batch(self._rows) if self._rows else None

    def _batch(self, rows: int) -> TableBatch:
        parts: list[Any] = []
        taken: dict[int, int] = {}
        missing = rows
        while missing:
            reader, table = self._waiting.popleft()
            if table.num_rows > missing:
                self._waiting.appendleft((reader, table.slice(missing)))
                table = table.slice(0, missing)
            parts.append(table)
            missing -= table.num_rows
            taken[reader] = taken.get(reader, 0) + table.num_rows
        self._rows -= rows
        # Columns that one table lacks are null there, as where Ray Data puts blocks together.
        return TableBatch(parts[0] if len(parts) == 1 else pa.concat_tables(parts, promote_options="permissive"), taken)


def shares(total: int, parts: int) -> list[int]:
    """A total as even parts, the larger ones first."""
    return [total // parts + (index < total % parts) for index in range(parts)]
