"""Options of the source and the sink, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from raybroker.client.connection.factory import connect
from raybroker.model.errors import ConfigError

NAMES: Final = {
    "bodycolumn": "bodyColumn",
    "cluster": "cluster",
    "dedupcolumn": "dedupColumn",
    "maxmessages": "maxMessages",
    "maxbytes": "maxBytes",
    "partitions": "partitions",
    "password": "password",
    "queue": "queue",
    "selector": "selector",
    "subscription": "subscription",
    "topic": "topic",
    "url": "url",
    "username": "username",
}
OF_SPARK: Final = frozenset({"checkpointlocation", "path", "queryname"})
"""Options of queries, which Spark gives to sources and sinks too."""
MAX_MESSAGES: Final = 10_000
MAX_BYTES: Final = 32 << 20
PARTITIONS: Final = 2
COUNT_MAX: Final = 1_000_000
BYTES_MAX: Final = 1 << 30


class SourceOptions(NamedTuple):
    """What ``option(…)`` says.

    url, username, password   of a service outside Ray, as for ``rb.connect``; without a url the cluster of this name in
                              the Ray of the process
    queue, topic              one of them; ``subscription``: the shared durable one of a topic, for streams
    selector                  which messages a stream or a look has
    max_messages, max_bytes   of a batch of a stream, and of a look at a queue
    partitions                tasks that a batch is divided among
    body_column, dedup_column   of the sink, as for ``rb.data.write_queue``
    """

    url: str | None
    cluster: str
    username: str | None
    password: str | None
    queue: str | None
    topic: str | None
    subscription: str | None
    selector: str | None
    max_messages: int
    max_bytes: int
    partitions: int
    body_column: str | None
    dedup_column: str | None

    def connect(self) -> Any:
        """A connection, which was started."""
        made = connect(self.url, cluster=self.cluster, username=self.username, password=self.password)
        made.start()
        return made

    @property
    def destination(self) -> str:
        """The name by which producers know it."""
        return f"topic:{self.topic}" if self.queue is None else self.queue


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Raises ConfigError for an option that is unknown, wrong, or missing."""
    found = {name.lower(): value for name, value in given.items()}
    if unknown := sorted(set(found) - set(NAMES) - OF_SPARK):
        raise ConfigError(f"option {unknown[0]!r} is not known; there are {', '.join(NAMES.values())}")
    if ("queue" in found) == ("topic" in found):
        raise ConfigError('say option("queue", …) or option("topic", …), and not both')
    if "subscription" in found and "topic" not in found:
        raise ConfigError("option subscription is the name of a durable subscription of a topic: say topic too")
    return SourceOptions(
        found.get("url"),
        found.get("cluster", "default"),
        found.get("username"),
        found.get("password"),
        found.get("queue"),
        found.get("topic"),
        found.get("subscription"),
        found.get("selector"),
        _count("maxMessages", found, MAX_MESSAGES, COUNT_MAX),
        _count("maxBytes", found, MAX_BYTES, BYTES_MAX),
        _count("partitions", found, PARTITIONS, COUNT_MAX),
        found.get("bodycolumn"),
        found.get("dedupcolumn"),
    )


def _count(name: str, found: Mapping[str, str], default: int, most: int) -> int:
    text = found.get(name.lower(), str(default))
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise ConfigError(f"option {name}={text!r}; it is a whole number from 1 to {most}")
    return int(text)
