"""The plan of a run: one frozen value, checked once; and what may be done to a cluster, by name."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from raybroker.model.errors import ConfigError
from raybroker.model.naming.nearest import nearest
from raybroker.verify.notes import BODY_BYTES, VerifyLane

CLIENTS_MAX: Final = 64
"""Producers and consumers of each destination; each is a process."""
MESSAGES_MAX: Final = 20_000_000
"""What the ledger keeps in memory: a few bytes each."""
DURATION_S_MAX: Final = 86_400.0
UNITS_MAX: Final = 1024
PAUSE_S_MAX: Final = 90.0
SIZE_BYTES_MAX: Final = 1 << 20

FAULTS: Final = {
    "kill-host": "SIGKILL to one host or copy of a broker; the broker starts it again",
    "kill-broker": "SIGKILL to a broker's own process; its hosts go on",
    "kill-machine": "SIGKILL to a broker and all its hosts at once, as when its machine loses power",
    "pause-host": "SIGSTOP to one host or copy for --pause seconds",
    "pause-broker": "SIGSTOP to a broker's own process for --pause seconds",
    "pause-machine": "SIGSTOP to a broker and all its hosts for --pause seconds",
    "kill-node": "SIGKILL to all that Ray runs on a node of a broker, which does not come back by itself",
    "pause-node": "SIGSTOP to all that Ray runs on a node of a broker for --pause seconds",
    "kill-client": "SIGKILL to a producer, a consumer or a mover of the run, which is replaced",
}
"""Fault → what it does."""
NO_FAULT: Final = "none"


def faults_of(text: str) -> tuple[str, ...]:
    """The faults that a text allows: names with commas, or none. Raises ConfigError."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names in ([], [NO_FAULT]):
        return ()
    for name in names:
        if name not in FAULTS:
            near = nearest(name, FAULTS)
            hint = f"; did you mean {near}?" if near else ""
            raise ConfigError(f"no fault is named {name!r}{hint} There are: {NO_FAULT}, {', '.join(FAULTS)}")
    return tuple(dict.fromkeys(names))


def copied(replicas: int) -> dict[str, Any]:
    """The attributes of queues with so many copies. No message of a run dies, so that they need no dead message queue,
    which would have to have as many."""
    return {} if replicas == 1 else {"replicas": replicas, "useDMQ": False}


@dataclass(frozen=True, slots=True)
class VerifyPlan:
    """One run.

    cluster           name of the cluster
    duration_seconds  how long is sent, unless ``messages`` are sent sooner
    messages          most messages of all producers together; 0: no limit of its own
    rate_per_second   of all producers together; 0: as fast as they are confirmed
    size_bytes        length of each body
    producers         of each destination
    consumers         of each destination
    units             units of order of each producer; 0: no queue with units
    transactions      also move messages from queue to queue in transactions
    faults            what may be done, see FAULTS
    interval_seconds  between two faults; the next one waits until the cluster works again
    pause_seconds     how long a process is stopped
    recovery_seconds  how long the cluster may take to work again after a fault, and the drain without progress
    attributes        of the destinations, as ``create dst -o`` has them
    seed              chooses faults and whom they meet
    """

    cluster: str = "default"
    duration_seconds: float = 30.0
    messages: int = 0
    rate_per_second: float = 1000.0
    size_bytes: int = 256
    producers: int = 2
    consumers: int = 2
    units: int = 8
    transactions: bool = False
    faults: tuple[str, ...] = ()
    interval_seconds: float = 5.0
    pause_seconds: float = 5.0
    recovery_seconds: float = 120.0
    attributes: dict[str, Any] = field(default_factory=dict)
    seed: int = 1

    def __post_init__(self) -> None:
        for good, text in self._rules():
            if not good:
                raise ConfigError(text)

    def _rules(self) -> tuple[tuple[bool, str], ...]:
        seconds = (self.duration_seconds, self.interval_seconds, self.pause_seconds, self.recovery_seconds)
        return (
            (all(map(math.isfinite, (*seconds, self.rate_per_second))), "times and rate must be finite"),
            (0 < self.duration_seconds <= DURATION_S_MAX, f"duration must be above 0, to {DURATION_S_MAX:g} seconds"),
            (0 < self.pause_seconds <= PAUSE_S_MAX, f"pause must be above 0, to {PAUSE_S_MAX:g} seconds"),
            (self.interval_seconds >= 0 < self.recovery_seconds, "interval and recovery must not be negative"),
            (self.rate_per_second >= 0, "rate cannot be negative"),
            (0 <= self.messages <= MESSAGES_MAX, f"messages must be 0 to {MESSAGES_MAX:,}"),
            (BODY_BYTES <= self.size_bytes <= SIZE_BYTES_MAX, f"size must be {BODY_BYTES} to {SIZE_BYTES_MAX:,} bytes"),
            (1 <= self.producers <= CLIENTS_MAX, f"producers must be 1 to {CLIENTS_MAX}"),
            (1 <= self.consumers <= CLIENTS_MAX, f"consumers must be 1 to {CLIENTS_MAX}"),
            (0 <= self.units <= UNITS_MAX, f"units must be 0 to {UNITS_MAX:,}"),
            (
                not self.rate_per_second or self.rate_per_second * self.duration_seconds <= MESSAGES_MAX,
                f"rate x duration must be at most {MESSAGES_MAX:,} messages",
            ),
        )

    @property
    def lanes(self) -> tuple[VerifyLane, ...]:
        """What is loaded."""
        left_out = {VerifyLane.UNITS: not self.units, VerifyLane.MOVED: not self.transactions}
        return tuple(lane for lane in VerifyLane if not left_out.get(lane, False))

    @property
    def replicated(self) -> bool:
        """Whether the destinations have copies at other brokers, which serve them when one is lost."""
        return str(self.attributes.get("replicas", 1)) != "1"

    def to_json(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)
