"""A queue as a sink of Ray Data: each block once.

A write task stores its rows part by part, each in a transaction that also counts it in a ledger
(:mod:`raybroker.tabular.once`).  Where Ray runs the task again, since its process or node was lost, it goes on behind
what is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from ray.data import Datasink
from ray.data.block import BlockAccessor

from raybroker.client.connection.factory import connect
from raybroker.model.errors import ConfigError
from raybroker.system import entropy
from raybroker.tabular.once import PART_ROWS, OutgoingRow, TaskWriter, forget_write, open_ledger


class QueueSink(Datasink[int]):
    """Write tasks that send each row as a message."""

    def __init__(self, queue: str, cluster: str, body_column: str | None, dedup_column: str | None) -> None:
        self._queue = queue
        self._cluster = cluster
        self._body = body_column
        self._dedup = dedup_column
        self._write = entropy.token(16).hex()

    def get_name(self) -> str:
        return f"RaybrokerQueue({self._queue})"

    def on_write_start(self, schema: Any = None) -> None:
        """Called by the driver: each execution is a write of its own."""
        self._write = entropy.token(16).hex()
        with connect(cluster=self._cluster) as connection:
            open_ledger(connection)

    def on_write_complete(self, write_result: Any) -> None:
        """Called by the driver: no task is run again."""
        self._forget()

    def on_write_failed(self, error: Exception) -> None:
        """Called by the driver: what tasks have stored stays."""
        self._forget()

    def write(self, blocks: Iterable[Any], ctx: Any) -> int:
        """Send the rows of ``blocks``; returns their number once all of them are stored."""
        count = 0
        with connect(cluster=self._cluster) as connection:
            task = TaskWriter(connection, self._queue, self._write, str(ctx.task_idx))
            rows = self._rows(blocks)
            while part := list(islice(rows, PART_ROWS)):
                task.write_part(part)
                count += len(part)
            task.finish()
        return count

    def _rows(self, blocks: Iterable[Any]) -> Iterator[OutgoingRow]:
        for block in blocks:
            row: dict[str, Any]
            for row in BlockAccessor.for_block(block).iter_rows(public_row_format=True):
                body = plain(row if self._body is None else row[self._body])
                yield OutgoingRow(body, None if self._dedup is None else str(row[self._dedup]))

    def _forget(self) -> None:
        with connect(cluster=self._cluster) as connection:
            forget_write(connection, self._write)


def plain(value: Any) -> Any:
    """A value of a row as a value of a message: scalars and arrays of numpy become numbers and lists."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def write_queue(
    dataset: Any,
    queue: str,
    *,
    cluster: str = "default",
    body_column: str | None = None,
    dedup_column: str | None = None,
    concurrency: int | None = None,
) -> None:
    """Execute ``dataset`` and send each row to a queue as a persistent message; returns when all are stored.

    body_column   the column that is the body; None: the row as a dict
    dedup_column  the column whose text is the deduplication id of the message
    concurrency   write tasks at the same time; None: as Ray Data decides

    **Each block once**: a task that is lost and run again sends what it has not stored. What a write that fails has
    stored stays, and a second call of this function writes all of it again; with ``dedup_column`` and a queue with a
    ``duplicateWindowMs`` longer than that takes, each is stored once. Raises ConfigError for a column that is not
    there, and the error of a task, which is IllegalStateError where a run that comes again has other rows. Needs the
    right to create destinations, for the queue ``raybroker-written``.
    """
    columns = dataset.columns() if body_column is not None or dedup_column is not None else None
    for name, column in (("body_column", body_column), ("dedup_column", dedup_column)):
        if column is not None and columns is not None and column not in columns:
            raise ConfigError(f"{name}={column!r}; the dataset has the columns {', '.join(columns)}")
    dataset.write_datasink(QueueSink(queue, cluster, body_column, dedup_column), concurrency=concurrency)
