"""The stream of a queue or a durable subscription: exactly once, where the sink of the query is.

The process of the stream on Spark's driver holds the messages of a batch until Spark says that the batch is done, and
acknowledges them then.  When the query ends before, they come again, and the offset that Spark wrote down says which of
them the batch had: the batch that is run again has the same rows, and what a finished batch had is not given out again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from raybroker.model.errors import IllegalStateError
from raybroker.spark.offsets import BEGIN, OWED_MAX, MessageIds, StreamOffset
from raybroker.spark.options import COUNT_MAX, SourceOptions
from raybroker.spark.rows import Column, RowsPart, parts_of, row_of
from raybroker.system.clock import SystemClock

WAIT_S: Final = 0.5
"""How long Spark's question for new messages waits for the first one."""
MORE_S: Final = 0.05
"""How long it waits for another."""
AGAIN_S: Final = 60.0
"""How long a batch that is run again waits for its messages to come again: a lost connection is known after that."""
RECEIVED_AT_ONCE: Final = 1_000


class HeldBatch:
    """The messages of a batch. ``in_order``: nothing that the session had received before its last one is of a later
    batch, so that one acknowledgement covers them."""

    __slots__ = ("in_order", "messages")

    def __init__(self, messages: list[Any], in_order: bool) -> None:
        self.messages = messages
        self.in_order = in_order

    def acknowledge(self) -> None:
        if self.in_order:
            self.messages[-1].acknowledge_up_to()
            return
        for message in self.messages:
            message.acknowledge_this()


class QueueStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Called by Spark in one process, one call after another; ``read`` alone runs in tasks elsewhere."""

    def __init__(self, options: SourceOptions, columns: list[Column]) -> None:
        self._options = options
        self._columns = columns
        self._connection: Any = None
        self._consumer: Any = None
        self._batches: dict[int, HeldBatch] = {}
        self._later: deque[Any] = deque()
        """Received while others were waited for; of batches to come."""
        self._owed: MessageIds | None = None
        """Messages of finished batches that are not acknowledged; None: no offset was seen yet."""
        self._ends_ms: int | None = None
        """Messages that were sent after that are none of a query that reads what is there."""
        self._ended = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return BEGIN.written()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._ends_ms = SystemClock().now_ms()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """A batch of what there is; ``start`` when there is nothing."""
        begin = StreamOffset.parse(start)
        owed = self._owing(begin)
        most = self._options.max_messages
        if isinstance(limit, ReadMaxRows):
            most = limit.max_rows
        elif isinstance(limit, ReadAllAvailable):
            most = COUNT_MAX
        messages, in_order = self._batch(owed, most)
        if not messages:
            return start
        number = begin.batch + 1
        self._batches[number] = HeldBatch(messages, in_order)
        owed.forget_oldest(OWED_MAX)
        return StreamOffset(number, MessageIds(message.id for message in messages), owed).written()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The rows of a batch: of one that is run again, as its messages come again."""
        begin, last = StreamOffset.parse(start), StreamOffset.parse(end)
        if last.batch == begin.batch:
            return []
        held = self._batches.get(last.batch)
        if held is None:
            held = self._batches[last.batch] = self._collected(self._owing(begin), last.ids)
        rows = [row_of(message, self._columns) for message in held.messages]
        return list(parts_of(rows, self._options.partitions))

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, RowsPart)
        yield from partition.rows

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has finished a batch: its messages are acknowledged."""
        for number in sorted(number for number in self._batches if number <= end["batch"]):
            held = self._batches.pop(number)
            held.acknowledge()
            if self._owed is not None:
                self._owed.remove(message.id for message in held.messages)

    def _end_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    stop = _end_connection
    """Called by Spark when the query ends, by its name for that."""

    def _owing(self, begin: StreamOffset) -> MessageIds:
        """The messages of batches up to ``begin`` that are not acknowledged."""
        if self._owed is None:
            self._owed = MessageIds(begin.owed)
            self._owed.add(begin.ids)
        elif begin.batch in self._batches:
            self._owed.add(begin.ids)
        return self._owed

    def _batch(self, owed: MessageIds, most: int) -> tuple[list[Any], bool]:
        """The next messages, and whether the session received them behind all others."""
        in_order = not self._later
        found: list[Any] = []
        size = 0
        while len(found) < most and size < self._options.max_bytes and not self._ended:
            if not self._later:
                self._later.extend(self._received(owed, min(RECEIVED_AT_ONCE, most - len(found)), bool(found)))
            if not self._later:
                self._ended = self._ends_ms is not None
                break
            message = self._later[0]
            if self._ends_ms is not None and message.timestamp > self._ends_ms:
                self._ended = True
                break
            found.append(self._later.popleft())
            size += len(message)
        return found, in_order and not self._later

    def _collected(self, owed: MessageIds, ids: MessageIds) -> HeldBatch:
        """The messages with these ids, in their order before."""
        clock = SystemClock()
        ends_ns = clock.monotonic_ns() + round(AGAIN_S * 1e9)
        found: dict[str, Any] = {}
        while len(found) < len(ids):
            if clock.monotonic_ns() > ends_ns:
                raise IllegalStateError(
                    f"{len(ids) - len(found)} of the {len(ids)} messages of a batch that is run again did not come"
                    f" again within {AGAIN_S:g} s: they expired, were removed, or went to another consumer of"
                    f" {self._options.destination}; a stream has to be its only one"
                )
            for message in self._received(owed, RECEIVED_AT_ONCE, False):
                if message.id in ids:
                    found[message.id] = message
                else:
                    self._later.append(message)
        return HeldBatch([found[one] for one in ids], in_order=False)

    def _received(self, owed: MessageIds, most: int, more: bool) -> list[Any]:
        """Messages that no batch before had; what was owed is acknowledged."""
        fresh: list[Any] = []
        while not fresh and (found := self._opened().receive_many(most, timeout=MORE_S if more else WAIT_S)):
            fresh += self._not_owed(found, owed)
        return fresh

    def _not_owed(self, messages: list[Any], owed: MessageIds) -> list[Any]:
        fresh = []
        for message in messages:
            if not message.id:
                raise IllegalStateError(
                    f"a message of {self._options.destination} has no id, which says what was read: its producer has to"
                    " send with ids (imqDisableMessageID=false)"
                )
            if message.id in owed:
                message.acknowledge_this()
                owed.remove([message.id])
            else:
                fresh.append(message)
        return fresh

    def _opened(self) -> Any:
        if self._consumer is None:
            options = self._options
            self._connection = options.connect()
            session = self._connection.session(ack="client")
            if options.topic is None:
                self._consumer = session.consumer(options.queue, options.selector)
            else:
                self._consumer = session.shared_durable_consumer(options.topic, options.subscription, options.selector)
        return self._consumer
