"""A reader: an actor that holds what one read task has taken, until the driver says what has become of it.

A read task cannot hold messages: its process may end with its last block, long before anybody has seen a row.  So the
task passes on what a reader gives it, and the reader keeps the session in which the messages were received.  The driver
tells it which rows were handed over (``handed``), and ends it (``finish``).  A reader that dies, with its driver or its
node, has acknowledged nothing but that: the other messages come again, flagged.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from raybroker.client.connection.factory import connect
from raybroker.client.producer.bodies.body_encoding import Serializer
from raybroker.model.errors import IllegalStateError

COLUMNS: Final = ("id", "timestamp", "priority", "redelivered", "correlation_id", "type")
ROW: Final = "raybroker.row"
"""The column with the number of a row at its reader, where rows are acknowledged one by one. Nobody is given it."""
REFILL_PERCENT: Final = 50
SLICE_S: Final = 0.25
"""How long a reader waits for messages before it looks whether it was ended."""


class ReadingOptions(NamedTuple):
    """What every reader of one dataset has alike; the meaning is that of the arguments of ``read_queue``."""

    queue: str
    cluster: str
    selector: str | None
    batch: int
    idle_s: float
    serializer: Serializer | None


class QueueReader:
    """Messages of one queue as tables, held until they are acknowledged.

    limit    most messages that it takes; None: until the queue is empty
    number   None: all is acknowledged at the end or nothing is. Else rows are acknowledged one by one, and numbered
             ``number + step * n``, n from 0, in the column ROW
    looks    it browses: nothing is taken
    """

    def __init__(
        self, options: ReadingOptions, limit: int | None, number: int | None = None, step: int = 1, looks: bool = False
    ) -> None:
        self._options = options
        self._limit = limit
        self._number = number
        self._step = step
        self._tables = self._browsed() if looks else self._taken()
        self._held: deque[Any] = deque()
        """With ``number``: the messages from row ``_settled`` on. Else the last message alone."""
        self._settled = 0
        self._handed: deque[list[int]] = deque()
        self._early: set[int] = set()
        """Rows that were handed over before others in front of them."""
        self._one_at_a_time = threading.Lock()
        self._begun = False
        self._over = False
        self._connection = connect(cluster=options.cluster)
        self._connection.start()
        self._session = self._connection.session(ack="client")

    def require_first_run(self) -> None:
        """Called once by the read task.

        A task that runs a second time would pass on other messages than those that Ray knows of the first run, so it
        raises IllegalStateError, and the execution fails: all messages come again.
        """
        if self._begun:
            raise IllegalStateError(
                f"a read task of the queue {self._options.queue} was lost, and cannot run again in this execution: its"
                " messages come again; execute the dataset once more"
            )
        self._begun = True

    def next(self) -> Any:
        """The next messages as a table; None when there are no more."""
        with self._one_at_a_time:
            return next(self._tables, None)

    def handed(self, rows: list[int]) -> None:
        """The application was given these rows, by the numbers in ROW."""
        self._handed.append([(row - (self._number or 0)) // self._step for row in rows])
        if self._one_at_a_time.acquire(blocking=False):  # Else whoever receives sees it within SLICE_S.
            try:
                self._settle()
            finally:
                self._one_at_a_time.release()

    def finish(self, acknowledge: bool) -> None:
        """Acknowledge what was handed over, or all where rows have no numbers, unless ``acknowledge`` is false; give
        back the rest; the end of the reader.

        Raises what ``acknowledge()`` raises: then what it names comes again although it was handed over.
        """
        self._over = True
        with self._one_at_a_time:
            try:
                if self._number is not None:
                    self._settle()
                    for row in sorted(self._early):
                        self._held[row - self._settled].acknowledge_this()
                elif acknowledge and self._held:
                    self._held[-1].acknowledge_up_to()
            finally:
                self._connection.close()

    def _settle(self) -> None:
        """Acknowledge the rows that were handed over and have no other in front of them."""
        while self._handed:
            self._early.update(self._handed.popleft())
        last = None
        while self._settled in self._early:
            self._early.remove(self._settled)
            last = self._held.popleft()
            self._settled += 1
        if last is not None:
            last.acknowledge_up_to()

    def _taken(self) -> Iterator[Any]:
        queue, _, selector, batch, idle_s, serializer = self._options
        count, limit = 0, self._limit
        ahead = batch if limit is None else min(batch, limit)
        # With a threshold, what was received and waits to be handed over does not count against the prefetch limit.
        consumer = self._session.consumer(
            queue, selector, prefetch=ahead, threshold=REFILL_PERCENT, serializer=serializer
        )
        while limit is None or count < limit:
            messages = self._received(consumer, batch if limit is None else min(batch, limit - count), idle_s)
            if not messages:
                return
            table = table_of(messages)
            if self._number is None:
                self._held.clear()
                self._held.append(messages[-1])
            else:
                self._held.extend(messages)
                first = self._number + self._step * count
                numbers = range(first, first + self._step * len(messages), self._step)
                table = table.append_column(ROW, pa.array(numbers, pa.int64()))
            count += len(messages)
            yield table

    def _received(self, consumer: Any, most: int, idle_s: float) -> list[Any]:
        """Up to ``most`` messages; none when ``idle_s`` seconds passed without one, or the reader was ended."""
        waited = 0.0
        while not self._over and waited < idle_s:
            self._settle()
            part = min(SLICE_S, idle_s - waited)
            if messages := consumer.receive_many(most, timeout=part):
                return list(messages)
            waited += part
        return []

    def _browsed(self) -> Iterator[Any]:
        queue, _, selector, batch, _, serializer = self._options
        limit = self._limit
        found: list[Any] = []
        for count, message in enumerate(self._session.browser(queue, selector, serializer=serializer), 1):
            found.append(message)
            if len(found) == batch or count == limit:
                yield table_of(found)
                found = []
            if self._over or count == limit:
                return
        if found:
            yield table_of(found)


def table_of(messages: list[Any]) -> pa.Table:
    """One row a message: COLUMNS, and the body, whose keys are columns when all bodies are dicts with text keys, else
    the column ``body``."""
    rows = [{name: getattr(message, name) for name in COLUMNS} for message in messages]
    bodies = [message.body for message in messages]
    if all(isinstance(body, dict) and all(isinstance(key, str) for key in body) for body in bodies):
        names = {f"_{key}" if key in COLUMNS else key: key for body in bodies for key in body}
        found = [
            {**row, **{name: body.get(key) for name, key in names.items()}}
            for row, body in zip(rows, bodies, strict=True)
        ]
    else:
        found = [{**row, "body": body} for row, body in zip(rows, bodies, strict=True)]
    return pa.Table.from_pylist(found)
