"""The plan of a load run: one frozen value, checked once.

A plan whose values do not fit together is refused before anything starts.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Final

from raybroker.model.errors import ConfigError

STAMP_BYTES: Final = 24
"""Bytes at the start of each body: mark, run, intended time, time of the send."""

WORKERS_MAX: Final = 256
"""Producers plus consumers; each is a process."""

IN_FLIGHT_MAX: Final = 1_000_000
"""``batch`` times ``window``: messages that one producer may have unconfirmed, hence memory."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """One load run.

    queue             name of the queue; created if auto-creation is on
    size_bytes        length of each body, 24 bytes to 70 MiB
    batch             messages handed over together: ``send`` for 1, ``send_many`` for more
    window            batches a producer may have unconfirmed; above 1 they go through ``send_async``
    producers         producer processes, 0 to drain what is there
    consumers         consumer processes, 0 to fill only
    persistent        True: a send is confirmed when the store has it
    prefetch          consumer's limit; None for the queue's own
    rate_per_second   messages a second of all producers together; 0 for as fast as confirmations come
    duration_seconds  measured time
    warmup_seconds    time before it that is not measured
    drain_seconds     longest wait for consumers to empty the queue afterwards
    cluster           name of the cluster, inside Ray
    address           ``mq://…`` to connect from outside Ray instead
    trace             measure the way of each send through client and host, part by part
    """

    queue: str = "bench"
    size_bytes: int = 1024
    batch: int = 1
    window: int = 1
    producers: int = 1
    consumers: int = 1
    persistent: bool = True
    prefetch: int | None = None
    rate_per_second: float = 0.0
    duration_seconds: float = 10.0
    warmup_seconds: float = 2.0
    drain_seconds: float = 10.0
    cluster: str = "default"
    address: str | None = None
    trace: bool = False

    def __post_init__(self) -> None:
        for good, text in self._rules():
            if not good:
                raise ConfigError(text)

    def _rules(self) -> tuple[tuple[bool, str], ...]:
        seconds = (self.duration_seconds, self.warmup_seconds, self.drain_seconds, self.rate_per_second)
        return (
            (bool(self.queue), "queue must have a name"),
            (STAMP_BYTES <= self.size_bytes <= 70 << 20, f"size must be {STAMP_BYTES} bytes to 70 MiB"),
            (self.batch >= 1 and self.window >= 1, "batch and window must be at least 1"),
            (self.batch * self.window <= IN_FLIGHT_MAX, f"batch x window must be at most {IN_FLIGHT_MAX:,} messages"),
            (self.producers >= 0 and self.consumers >= 0, "producers and consumers cannot be negative"),
            (1 <= self.producers + self.consumers <= WORKERS_MAX, f"1 to {WORKERS_MAX} producers and consumers"),
            (self.prefetch is None or -1 <= self.prefetch <= 2**31 - 1, "prefetch must be -1 to 2147483647"),
            (all(math.isfinite(value) and value >= 0 for value in seconds), "times and rate must be finite, 0 or more"),
            (self.duration_seconds > 0, "duration must be longer than 0 seconds"),
            (not self.rate_per_second or self.producers > 0, "a rate needs a producer"),
            (
                not self.trace or (self.producers > 0 and self.batch == self.window == 1 and self.persistent),
                "a trace needs a producer whose sends wait for their confirmation: batch 1, window 1, persistent",
            ),
        )

    @property
    def interval_ns(self) -> float:
        """Nanoseconds between two batches of one producer; 0 when the rate is not limited."""
        return self.batch * self.producers * 1e9 / self.rate_per_second if self.rate_per_second else 0.0

    @property
    def measured_from_ns(self) -> int:
        """Start of the measured time, from the start of the run."""
        return int(self.warmup_seconds * 1e9)

    @property
    def ends_ns(self) -> int:
        """End of the measured time, from the start of the run."""
        return int((self.warmup_seconds + self.duration_seconds) * 1e9)

    def to_json(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)
