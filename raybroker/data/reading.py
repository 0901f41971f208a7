"""A queue as a source of Ray Data: at least once, and nothing is acknowledged that was not handed over."""

from __future__ import annotations

from typing import Any, Final, TypedDict, Unpack

from raybroker.client.options import with_options
from raybroker.client.producer.bodies.body_encoding import Serializer
from raybroker.data.dataset import QueueDataset, QueuePlan, require_count
from raybroker.model.errors import ConfigError
from raybroker.tabular.queue_reader import ReadingOptions
from raybroker.tabular.until import EMPTY, UntilArgument, parse_until

BATCH: Final = 4_000
IDLE_S_MAX: Final = 3600


class ReadingPace(TypedDict, total=False):
    """How much a read takes at a time."""

    limit_bytes: int | None
    """Most bytes of bodies in all, of which each task has an even share; the message that reaches it is the last one.
    None: no bound."""
    idle_s: float
    """Seconds without a message after which a task takes the queue for empty."""
    round_messages: int
    """Most messages of a round. Where a read with ``until`` has transformations, or writes, it is a row of rounds, each
    an execution of its own and acknowledged as a whole."""
    round_s: float
    """Seconds of a round; a queue that is empty for ``idle_s`` ends it too."""


PACE: Final[dict[str, Any]] = {
    "limit_bytes": None,
    "idle_s": 2.0,
    "round_messages": 10_000,
    "round_s": 10.0,
}


@with_options(ReadingPace)
def read_queue(
    queue: str,
    *,
    cluster: str = "default",
    tasks: int = 1,
    limit: int | None = None,
    until: UntilArgument = EMPTY,
    selector: str | None = None,
    batch: int = BATCH,
    serializer: Serializer | None = None,
    **pace: Unpack[ReadingPace],
) -> QueueDataset:
    """A dataset of the messages of a queue, which its actions take: at least once.

    tasks     read tasks, each a consumer of its own; order is kept within a task
    limit     most messages in all, of which each task has an even share; None: no bound. Of several tasks one may hold
              messages ahead when its share is full: then the read has fewer, and the rest stays in the queue
    until     "empty": the queue is empty. "stopped": ``stop_reading()`` of the dataset was called, or the iteration
              left; what comes meanwhile belongs to it. Seconds or a timedelta from the beginning of the action on, or a
              datetime with a time zone: it ends then
    batch     messages of a block at most: it goes when it is full, has 8 MiB, or no other message has come for 10 ms
    selector, serializer   as for ``session.consumer``
    pace      see :class:`ReadingPace`

    Columns: id, timestamp, priority, redelivered, correlation_id, type, and the keys of the body when bodies are dicts
    (with "_" in front where a key is one of those), else ``body``. **At least once**: an action acknowledges what it
    has handed over, and the rest comes again, flagged ``redelivered``; show, count, schema and columns only look. What
    each action hands over stands in :mod:`raybroker.data.dataset`. Raises ConfigError for an argument that is not
    allowed.
    """
    if unknown := sorted(set(pace) - set(PACE)):
        raise TypeError(f"read_queue() got an unexpected keyword argument {unknown[0]!r}")
    limit_bytes, idle_s, round_messages, round_s = ({**PACE, **pace}[name] for name in PACE)
    for name, value in (("tasks", tasks), ("batch", batch), ("round_messages", round_messages)):
        require_count(name, value)
    for name, bound in (("limit", limit), ("limit_bytes", limit_bytes)):
        if bound is not None:
            require_count(name, bound)
    for name, seconds in (("idle_s", idle_s), ("round_s", round_s)):
        if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 < seconds <= IDLE_S_MAX:
            raise ConfigError(f"{name}={seconds!r}; it is seconds, more than 0 and up to {IDLE_S_MAX}")
    end = parse_until(until)
    if limit_bytes is not None and limit_bytes < tasks:
        raise ConfigError(f"limit_bytes={limit_bytes} for tasks={tasks}: each task needs a share of at least one byte")
    options = ReadingOptions(queue, cluster, selector, batch, idle_s, serializer, end.empty)
    return QueueDataset(QueuePlan(options, tasks, limit, limit_bytes, end, round_messages, round_s))
