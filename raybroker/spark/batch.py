"""Batch reads, which are looks at a queue, and writes, each partition once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)

from raybroker.model.errors import ConfigError, IllegalStateError
from raybroker.spark.options import SourceOptions
from raybroker.spark.rows import Column, RowsPart, parts_of, row_of
from raybroker.system import entropy
from raybroker.tabular.once import PART_ROWS, OutgoingRow, TaskWriter, forget_write, open_ledger

QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"
"""Properties by which Spark tells a task of which query and batch it is."""


class QueueLook(DataSourceReader):
    """The messages of a queue, which stay there: a batch read of Spark does not say when it is done with them."""

    def __init__(self, options: SourceOptions, columns: list[Column]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        options = self._options
        if options.queue is None:
            raise ConfigError("a topic has no messages to look at: read it as a stream, with option subscription")
        connection = options.connect()
        try:
            browser = connection.session().browser(options.queue, options.selector)
            rows = [row_of(message, self._columns) for message in islice(browser, options.max_messages + 1)]
        finally:
            connection.close()
        if len(rows) > options.max_messages:
            raise IllegalStateError(
                f"the queue {options.queue} has more than maxMessages={options.max_messages} messages: raise that,"
                " choose with option selector, or read it as a stream with trigger(availableNow=True)"
            )
        found: list[InputPartition] = list(parts_of(rows, options.partitions))
        return found or [RowsPart([])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, RowsPart)
        yield from partition.rows


class WrittenPartition(WriterCommitMessage):
    """What a task has written."""

    def __init__(self, query: str, rows: int) -> None:
        self.query = query
        self.rows = rows


def write_partition(options: SourceOptions, rows: Iterable[Any], write: str, partition: str) -> int:
    """Send each row of a partition, once; returns their number."""
    count = 0
    connection = options.connect()
    try:
        outgoing = (outgoing_row(row.asDict(recursive=True), options) for row in rows)
        task: TaskWriter | None = None
        while part := list(islice(outgoing, PART_ROWS)):
            task = task or TaskWriter(connection, options.destination, write, partition)
            task.write_part(part)
            count += len(part)
        if task is not None:
            task.finish()
    finally:
        connection.close()
    return count


def outgoing_row(row: dict[str, Any], options: SourceOptions) -> OutgoingRow:
    """A row as a message."""
    for name, column in (("bodyColumn", options.body_column), ("dedupColumn", options.dedup_column)):
        if column is not None and column not in row:
            raise ConfigError(f"{name}={column!r}; the rows have the columns {', '.join(row)}")
    body = row if options.body_column is None else row[options.body_column]
    dedup_id = None if options.dedup_column is None else str(row[options.dedup_column])
    return OutgoingRow(bytes(body) if isinstance(body, bytearray) else body, dedup_id)


class QueueWriter(DataSourceWriter):
    """A batch write. Each partition is a task in the ledger, so that an attempt that comes again writes the rest."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._write = f"spark-{entropy.token(16).hex()}"
        connection = options.connect()
        try:
            open_ledger(connection)
        finally:
            connection.close()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        partition = str(task_context().partitionId())
        return WrittenPartition("", write_partition(self._options, iterator, self._write, partition))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._forget()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What partitions have stored stays."""
        self._forget()

    def _forget(self) -> None:
        connection = self._options.connect()
        try:
            forget_write(connection, self._write)
        finally:
            connection.close()


class QueueStreamWriter(DataSourceStreamWriter):
    """The writes of a query: (query, batch, partition) is a task in the ledger, whichever run of the query does it."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        connection = options.connect()
        try:
            open_ledger(connection)
        finally:
            connection.close()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = task_context()
        query, batch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
        if query is None or batch is None:
            raise IllegalStateError(f"Spark does not say of which query and batch a task is ({QUERY}, {BATCH})")
        rows = write_partition(self._options, iterator, write_of(query, int(batch)), str(context.partitionId()))
        return WrittenPartition(query, rows)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """The batch is stored. It may be run again until Spark has written that down; the one before it is not."""
        queries = {message.query for message in messages if isinstance(message, WrittenPartition)}
        connection = self._options.connect()
        try:
            for query in queries:
                forget_write(connection, write_of(query, batchId - 1))
        finally:
            connection.close()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What partitions have stored stays: the batch that is run again goes on behind it."""


def write_of(query: str, batch: int) -> str:
    """The name of the write that is one batch of a query."""
    return f"spark-{query}-{batch}"


def task_context() -> Any:
    found = TaskContext.get()
    if found is None:
        raise IllegalStateError("rows are written by tasks of Spark, and this is none")
    return found
