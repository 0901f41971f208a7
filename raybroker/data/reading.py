"""A queue as a source of Ray Data: at least once, up to the dataset.

A read task takes messages, gives them on as blocks, and acknowledges all of them after the last block.  A task that
fails before has acknowledged nothing: all its messages come again, flagged, and the execution fails.  Ray does not run
the task a second time, because it would leave out the blocks that it knows, which would hold other messages then.  The
dataset is responsible for the blocks from there on: an execution that fails later has taken the messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import ray.data
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata

from raybroker.client.connection.factory import connect
from raybroker.model.errors import ConfigError

BATCH: Final = 1_000
IDLE_S: Final = 2.0
REFILL_PERCENT: Final = 50
COLUMNS: Final = ("id", "timestamp", "priority", "redelivered", "correlation_id", "type")


class QueueSource(Datasource):
    """Read tasks that take messages from a queue."""

    def __init__(self, queue: str, tasks: int, limit: int | None, options: dict[str, Any]) -> None:
        self._queue = queue
        self._tasks = tasks
        self._limit = limit
        self._options = options

    def get_name(self) -> str:
        return f"RaybrokerQueue({self._queue})"

    def estimate_inmemory_data_size(self) -> int | None:
        """None: the size is unknown before the messages are taken."""
        return None

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """``tasks`` read tasks, independent of the ``parallelism`` that Ray Data proposes; they share the limit."""
        metadata = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
        shares = [None] * self._tasks if self._limit is None else _shares(self._limit, self._tasks)
        queue, options = self._queue, self._options
        return [
            ReadTask(lambda share=share: taken(queue, share, **options), metadata)  # type: ignore[misc]
            for share in shares
            if share != 0
        ]


def _shares(total: int, parts: int) -> list[int | None]:
    return [total // parts + (index < total % parts) for index in range(parts)]


def taken(
    queue: str, limit: int | None, *, cluster: str, selector: str | None, batch: int, idle_s: float,
    serializer: str | None,
) -> Iterator[pa.Table]:  # fmt: skip
    """The messages of the queue as blocks, until none came for ``idle_s`` seconds or ``limit`` of them were taken."""
    count, last = 0, None
    with connect(cluster=cluster) as connection:
        session = connection.session(ack="client")
        ahead = batch if limit is None else min(batch, limit)
        # With a threshold, what was received and waits for the end of the task does not count against the limit.
        consumer = session.consumer(queue, selector, prefetch=ahead, threshold=REFILL_PERCENT, serializer=serializer)
        while limit is None or count < limit:
            messages = consumer.receive_many(batch if limit is None else min(batch, limit - count), timeout=idle_s)
            if not messages:
                break
            count += len(messages)
            last = messages[-1]
            yield table_of(messages)
        if last is not None:
            last.acknowledge()


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


def read_queue(
    queue: str, *, cluster: str = "default", tasks: int = 1, limit: int | None = None, selector: str | None = None,
    batch: int = BATCH, idle_s: float = IDLE_S, serializer: str | None = None,
) -> Any:  # fmt: skip
    """A ``ray.data.Dataset`` of the messages of a queue, which it takes when it is executed: at least once.

    tasks     read tasks, each a consumer of its own; order is kept within a task
    limit     most messages in all; None: until the queue is empty
    batch     messages of a block
    idle_s    seconds without a message after which a task takes the queue for empty
    selector, serializer   as for ``session.consumer``

    Columns: id, timestamp, priority, redelivered, correlation_id, type, and the keys of the body when bodies are dicts
    (with "_" in front where a key is one of those), else ``body``. **At least once, up to the dataset**: messages are
    acknowledged when their read task has given on all its blocks. A task that fails fails the execution, and its
    messages come again, flagged ``redelivered``; an execution that fails after that has taken them. Execute the dataset
    once: each execution takes from the queue. Raises ConfigError for an argument that is not allowed.
    """
    for name, value in (("tasks", tasks), ("batch", batch), ("limit", limit)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise ConfigError(f"{name}={value!r}; it is a whole number from 1")
    if not isinstance(idle_s, int | float) or not 0 < idle_s <= 3600:
        raise ConfigError(f"idle_s={idle_s!r}; it is seconds, more than 0 and up to 3600")
    options = {"cluster": cluster, "selector": selector, "batch": batch, "idle_s": idle_s, "serializer": serializer}
    return ray.data.read_datasource(
        QueueSource(queue, tasks, limit, options), override_num_blocks=tasks, ray_remote_args={"max_retries": 0}
    )
