"""What one seed draws before anything runs.

Swarm testing: which faults a run has is drawn first, and only then how often each happens.  Runs with few faults reach
states that runs with all of them never see, such as a full queue or a long backlog.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

MS = 1000
"""Microseconds."""

FAULTS = {
    "crash": 1100 * MS,
    "disk_error": 4000 * MS,
    "disk_full": 250 * MS,
    "damage": 2500 * MS,
    "connection_loss": 250 * MS,
    "machine_crash": 900 * MS,
    "clock_jump": 500 * MS,
    "checkpoint": 150 * MS,
    "purge": 1500 * MS,
    "destroy": 4000 * MS,
    "update": 1200 * MS,
    "pause": 500 * MS,
    "consumer_close": 500 * MS,
    "consumer_release": 250 * MS,
    "slow": 400 * MS,
}
"""Fault → mean time between two of a kind, microseconds."""


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    queue: int
    persistent_share: float
    mean_batch: int
    interval: int
    window: int
    body_bytes_max: int
    total: int


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    queue: int
    flow: str
    limit: int
    percent: int
    ack: str
    pace: int
    chunk: int


@dataclass(frozen=True, slots=True)
class QueuePlan:
    attributes: dict[str, object]
    auto_created: bool


@dataclass(slots=True)
class Plan:
    """Times in microseconds; a rate of 0 means that the fault does not happen."""

    queues: list[QueuePlan] = field(default_factory=list)
    machines: list[tuple[list[ProducerPlan], list[ConsumerPlan]]] = field(default_factory=list)
    rates: dict[str, int] = field(default_factory=dict)
    duration: int = 0
    delay_max: int = 0
    sync_max: int = 0
    group_lag_max: int = 0
    pipe_frames: int = 0
    meter_messages: int = 0
    cache_bytes: int = 0
    checkpoint_entries: int = 0
    relocation: float = 0.0


def draw(rng: Random) -> Plan:
    """A plan for a few thousand events."""
    pick, chance = rng.choice, rng.random
    plan = Plan()
    for name, mean in FAULTS.items():
        plan.rates[name] = int(mean * pick((0.3, 1, 3))) if chance() < 0.5 else 0
    plan.duration = rng.randrange(1500, 4000) * MS
    plan.delay_max = pick((200, 2 * MS, 10 * MS))
    plan.sync_max = pick((300, 3 * MS, 20 * MS))
    plan.group_lag_max = pick((1, 100, 3 * MS))
    plan.pipe_frames = pick((1, 3, 1 << 30))
    plan.meter_messages = pick((0, 0, 1, 4, 30))
    plan.cache_bytes = pick((0, 400, 1 << 20))
    plan.checkpoint_entries = pick((15, 60, 1 << 30))
    plan.relocation = pick((0.0, 0.3))
    plan.queues = [_queue(rng) for _ in range(pick((1, 1, 2, 3)))]
    count = len(plan.queues)
    machines = pick((1, 2, 3, 4))
    plan.machines = [([], []) for _ in range(machines)]
    for index in range(pick((1, 2, 2, 3))):
        plan.machines[rng.randrange(machines)][0].append(_producer(rng, index % count))
    for index in range(max(count, pick((1, 2, 3, 5)))):
        plan.machines[rng.randrange(machines)][1].append(_consumer(rng, index % count))
    return plan


def _queue(rng: Random) -> QueuePlan:
    pick, chance = rng.choice, rng.random
    attributes: dict[str, object] = {"consumerFlowLimit": pick((-1, 3, 10, 1000))}
    if chance() < 0.35:
        attributes["maxNumMsgs"] = rng.randrange(3, 60)
    if chance() < 0.2:
        attributes["maxTotalMsgBytes"] = rng.randrange(30, 2500)
    if chance() < 0.15:
        attributes["maxBytesPerMsg"] = rng.randrange(20, 60)
    if chance() < 0.4:
        attributes["maxNumActiveConsumers"] = pick((1, 1, 2))
        attributes["maxNumBackupConsumers"] = pick((0, 1, -1))
    if chance() < 0.15:
        attributes["maxNumProducers"] = pick((1, 2))
    return QueuePlan(attributes, chance() < 0.15)


def _producer(rng: Random, queue: int) -> ProducerPlan:
    pick = rng.choice
    return ProducerPlan(
        queue=queue,
        persistent_share=pick((1.0, 1.0, 0.7, 0.0)),
        mean_batch=pick((1, 2, 4, 12)),
        interval=pick((3, 8, 20)) * MS,
        window=pick((1, 3, 16)),
        body_bytes_max=pick((12, 40, 90)),
        total=pick((60, 200, 500)),
    )


def _consumer(rng: Random, queue: int) -> ConsumerPlan:
    pick = rng.choice
    flow = pick(("credit", "prefetch"))
    limit = pick((1, 2, 3, 10, 50, -1)) if flow == "credit" else pick((0, 1, 2, 3, 10, 50, -1))
    return ConsumerPlan(
        queue=queue,
        flow=flow,
        limit=limit,
        percent=pick((0, 10, 50, 100)),
        ack=pick(("each", "each", "all", "some", "up_to", "lazy", "none")),
        pace=pick((200, 2 * MS, 8 * MS, 30 * MS)),
        chunk=pick((1, 1, 3, 20)),
    )
