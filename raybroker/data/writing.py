"""A queue as a sink of Ray Data.

At least once: a write task returns when all its messages are stored.  When it fails before, Ray runs it again and sends
all of them again.  With ``dedup_column`` each message has the text of that column as its deduplication id, and a queue
with a ``duplicateWindowMs`` takes it once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ray.data import Datasink
from ray.data.block import BlockAccessor

from raybroker.client.connection.factory import connect
from raybroker.model.errors import ConfigError

UNDER_WAY: Final = 1_000
"""Messages with a deduplication id that a task has sent and not got confirmed, at most."""


class QueueSink(Datasink[int]):
    """Write tasks that send each row as a message."""

    def __init__(self, queue: str, cluster: str, body_column: str | None, dedup_column: str | None) -> None:
        self._queue = queue
        self._cluster = cluster
        self._body = body_column
        self._dedup = dedup_column

    def get_name(self) -> str:
        return f"RaybrokerQueue({self._queue})"

    def write(self, blocks: Iterable[Any], ctx: Any) -> int:
        """Send the rows of ``blocks``; returns their number once all of them are stored."""
        count = 0
        with connect(cluster=self._cluster) as connection:
            producer = connection.session().producer(self._queue)
            for block in blocks:
                rows: list[dict[str, Any]] = list(BlockAccessor.for_block(block).iter_rows(public_row_format=True))
                if self._dedup is None:
                    count += producer.send_many(self._body_of(row) for row in rows)
                    continue
                for start in range(0, len(rows), UNDER_WAY):
                    part = rows[start : start + UNDER_WAY]
                    futures = [producer.send_async(self._body_of(row), dedup_id=str(row[self._dedup])) for row in part]
                    for future in futures:
                        future.result()
                    count += len(part)
            producer.close()
        return count

    def _body_of(self, row: dict[str, Any]) -> Any:
        return plain(row if self._body is None else row[self._body])


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

    **At least once**: a task that fails is run again and sends its rows again; with ``dedup_column`` and a queue with a
    ``duplicateWindowMs`` longer than that takes, each is stored once. Raises ConfigError for a column that is not
    there, and the error of a task.
    """
    columns = dataset.columns() if body_column is not None or dedup_column is not None else None
    for name, column in (("body_column", body_column), ("dedup_column", dedup_column)):
        if column is not None and columns is not None and column not in columns:
            raise ConfigError(f"{name}={column!r}; the dataset has the columns {', '.join(columns)}")
    dataset.write_datasink(QueueSink(queue, cluster, body_column, dedup_column), concurrency=concurrency)
