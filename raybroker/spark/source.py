"""The data source ``raybroker``."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from raybroker.model.errors import ConfigError
from raybroker.spark.batch import QueueLook, QueueStreamWriter, QueueWriter
from raybroker.spark.options import SourceOptions, parse_options
from raybroker.spark.rows import SCHEMA, columns_of
from raybroker.spark.stream import QueueStream


class RaybrokerSource(DataSource):
    """Queues and durable subscriptions as streams, queues to look at, and both as sinks; the options are those of
    :class:`raybroker.spark.options.SourceOptions`, as Spark writes them (``maxMessages``).

    Columns: id, timestamp, priority, redelivered, correlation_id, type, body.  With ``schema(…)`` of one's own: those
    of them that it names, and for each other column the key of that name in bodies that are dicts.
    """

    @classmethod
    def name(cls) -> str:
        return "raybroker"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        return QueueLook(self._parsed(), columns_of(schema))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = self._parsed()
        if options.topic is not None and options.subscription is None:
            raise ConfigError("a stream of a topic needs option subscription: what it has read is kept there")
        return QueueStream(options, columns_of(schema))

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        return QueueWriter(self._for_writing(overwrite))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return QueueStreamWriter(self._for_writing(overwrite))

    def _parsed(self) -> SourceOptions:
        return parse_options(dict(self.options))

    def _for_writing(self, overwrite: bool) -> SourceOptions:
        if overwrite:
            raise ConfigError(
                'messages are added to a queue and replace none: say mode("append"), outputMode("append")'
            )
        return self._parsed()


def register(spark: Any) -> None:
    """Make ``format("raybroker")`` known to a session of Spark."""
    spark.dataSource.register(RaybrokerSource)
