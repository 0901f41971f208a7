"""The vocabulary of the harness: figures, readings, and how much work a round does.  No imports, no measuring."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity. ``more_is_better`` says which end of the scale is good."""

    key: str
    title: str
    unit: str
    more_is_better: bool = True


FIGURES: Final[tuple[Figure, ...]] = (
    Figure("through", "producer → consumer → ack, at once", "msg/s"),
    Figure("produce", "produce, confirmed", "msg/s"),
    Figure("consume", "consume a backlog, acknowledged", "msg/s"),
    Figure("blocking", "one confirmed send at a time", "msg/s"),
    Figure("receipts", "sends with a confirmation each, 100 on their way", "msg/s"),
    Figure("presettled", "producer → consumer at once, nothing confirmed", "msg/s"),
    Figure("single", "put and got one by one", "msg/s"),
    Figure("auto", "receive() with AUTO, each confirmed", "msg/s"),
    Figure("clients", "64 clients, one confirmed send at a time each", "msg/s"),
    Figure("async", "sends without waiting, one call each", "msg/s"),
    Figure("receive", "receive() from a filled buffer", "µs", False),
    Figure("memory", "host memory per queued message", "bytes", False),
    Figure("memory_alone", "host memory per queued message sent alone", "bytes", False),
    Figure("backlog", "cost per message, large backlog against 1 k", "×", False),
    Figure("restart", "SIGKILL to first delivery, backlog stored", "s", False),
    Figure("host", "idle dedicated host, USS", "MB", False),
    Figure("queue", "idle queue in a shared host", "kB", False),
    Figure("create", "creating a queue in a shared host", "ms", False),
    Figure("create_dedicated", "creating a queue with a host of its own", "ms", False),
    Figure("restart_dedicated", "rb.start() of a broker with many dedicated queues", "s", False),
    Figure("import", "import raybroker", "ms", False),
    Figure("loopback", "rb.loopback() to the first message", "ms", False),
    Figure("start", "rb.start() on a running Ray to the first message", "s", False),
    Figure("p50_10k", "end to end at 10 k msg/s, p50", "ms", False),
    Figure("p99_10k", "end to end at 10 k msg/s, p99", "ms", False),
    Figure("selector_eval", "selector of three comparisons, headers decoded", "µs", False),
    Figure("plain", "plain queue, as many messages as with features", "msg/s"),
    Figure("each", "plain queue, sent one by one with send_async", "msg/s"),
    Figure("selector", "selector of three comparisons on the consumer", "msg/s"),
    Figure("priority", "priorities 0 to 9 mixed", "msg/s"),
    Figure("expiry", "one of ten messages with a time to live", "msg/s"),
    Figure("units", "1000 units of order over 8 consumers", "msg/s"),
    Figure("tx_send", "sends in transactions of 100", "msg/s"),
    Figure("tx_take", "receive and acknowledge in transactions of 100", "msg/s"),
    Figure("topic_1", "topic, 1 subscriber", "msg/s"),
    Figure("topic_8", "topic, deliveries to 8 subscribers", "msg/s"),
    Figure("topic_64", "topic, deliveries to 64 subscribers", "msg/s"),
)
FEATURES: Final = (
    "plain",
    "each",
    "selector",
    "priority",
    "expiry",
    "units",
    "tx_send",
    "tx_take",
    "topic_1",
    "topic_8",
    "topic_64",
)
"""What :mod:`benchmarks.ours_features` measures: the plain queue, and features against it."""
ONE_BY_ONE: Final = ("selector", "priority", "expiry", "units")
"""Those of them that are sent as "each" is."""
FIGURE: Final[dict[str, Figure]] = {figure.key: figure for figure in FIGURES}

PIPE: Final = "bare pipe"
OURS: Final = "raybroker"
RAY_QUEUE: Final = "ray.util.queue"
PEERS: Final = (
    "rabbitmq",
    "redis-streams",
    "nats-jetstream",
    "nats-current",
    "activemq",
    "kafka",
    "kafka-flush",
)
SYSTEMS: Final = (PIPE, OURS, *PEERS, RAY_QUEUE)


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of one round. ``note`` says what the value depends on (batch and window, say)."""

    system: str
    figure: str
    value: float
    round: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A system, or one figure of it, that was not measured, and why."""

    system: str
    reason: str
    figure: str = ""


@dataclass(frozen=True, slots=True)
class Amounts:
    """How many messages each kind of figure takes, and how large a body is."""

    messages: int = 100_000
    singles: int = 3_000
    backlog: int = 1_000_000
    size_bytes: int = 1024

    def __post_init__(self) -> None:
        if min(self.messages, self.singles, self.backlog) < 1_000:
            raise ValueError("a figure of fewer than 1000 messages says nothing")
        if not 16 <= self.size_bytes <= 1 << 20:
            raise ValueError("size must be 16 bytes to 1 MiB")


def quarters(values: list[float], unit: str, scale: float = 1.0) -> str:
    """Median and quarters of values, for people."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle * scale:,.0f} {unit} (quarters {low * scale:,.0f} and {high * scale:,.0f})"
