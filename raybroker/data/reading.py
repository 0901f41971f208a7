"""A queue as a source of Ray Data: at least once, and nothing is acknowledged that was not handed over."""

from __future__ import annotations

from typing import Final

from raybroker.client.producer.bodies.body_encoding import Serializer
from raybroker.data.dataset import QueueDataset, require_count
from raybroker.data.reader import ReadingOptions
from raybroker.model.errors import ConfigError

BATCH: Final = 1_000
IDLE_S: Final = 2.0
IDLE_S_MAX: Final = 3600


def read_queue(
    queue: str,
    *,
    cluster: str = "default",
    tasks: int = 1,
    limit: int | None = None,
    selector: str | None = None,
    batch: int = BATCH,
    idle_s: float = IDLE_S,
    serializer: Serializer | None = None,
) -> QueueDataset:
    """A dataset of the messages of a queue, which its actions take: at least once.

    tasks     read tasks, each a consumer of its own; order is kept within a task
    limit     most messages in all; None: until the queue is empty
    batch     messages of a block
    idle_s    seconds without a message after which a task takes the queue for empty
    selector, serializer   as for ``session.consumer``

    Columns: id, timestamp, priority, redelivered, correlation_id, type, and the keys of the body when bodies are dicts
    (with "_" in front where a key is one of those), else ``body``. **At least once**: an action acknowledges what it
    has handed over, and the rest comes again, flagged ``redelivered``; show, count, schema and columns only look. What
    each action hands over stands in :mod:`raybroker.data.dataset`. Raises ConfigError for an argument that is not
    allowed.
    """
    for name, value in (("tasks", tasks), ("batch", batch)):
        require_count(name, value)
    if limit is not None:
        require_count("limit", limit)
    if not isinstance(idle_s, int | float) or isinstance(idle_s, bool) or not 0 < idle_s <= IDLE_S_MAX:
        raise ConfigError(f"idle_s={idle_s!r}; it is seconds, more than 0 and up to {IDLE_S_MAX}")
    return QueueDataset(ReadingOptions(queue, cluster, selector, batch, idle_s, serializer), tasks, limit)
