"""What one seed draws before anything runs.

Swarm testing: which features and faults a run has is drawn first, and only then how often each happens.  Runs with few
of them reach states that runs with all never see, such as a full queue or a long backlog.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from raybroker.model.batch import Batch

MS = 1000
"""Microseconds."""
DMQ = "mq.sys.dmq"

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
    "pause_home": 600 * MS,
    "unsubscribe": 700 * MS,
    "purge_subscription": 1500 * MS,
}
"""Fault → mean time between two of a kind, microseconds."""

FEATURES = {
    "topics": 0.4,
    "selectors": 0.3,
    "priorities": 0.35,
    "expiry": 0.25,
    "delay": 0.25,
    "outcomes": 0.35,
    "leases": 0.2,
    "transactions": 0.4,
    "behaviors": 0.3,
    "dead": 0.6,
    "begun": 0.3,
    "drain": 0.35,
    "local": 0.2,
    "units": 0.4,
    "gathering": 0.2,
    "large": 0.25,
}
"""Feature → how often a run has it."""


_RECALLS = {0: "Always", 1: "Always", 2: "Never"}
"""By the duration of a run: so that a run with another one is as it was before there was the attribute."""


_LABELS = (("red",), ("green", "blue"), (), ("red", "blue"))
"""Of a consumer by its number, as above."""
_CAUSES = {4: "oom=1, poison=0, lost=3, timeout=2", 5: "oom=2, preempted=-1"}
"""As above."""


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    """``destination`` is an index; ``spread``: how many priorities its messages have; the rest is for timing."""

    destination: int
    persistent_share: float
    mean_batch: int
    interval: int
    window: int
    body_bytes_max: int
    total: int
    headers: bool = False
    spread: int = 1
    ttls_ms: tuple[int, ...] = (0,)
    delays_ms: tuple[int, ...] = (0,)
    units: int = 0
    """Its messages have so many units of order; 0: none."""


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """``subscription``: "" for a queue or a plain subscriber; ``outcomes``: settles in other ways now and then.

    ``from_time``: it does not come before. ``drain``: it has a credit pool, as a consumer of several brokers;
    ``changes``: not all the time. ``at``: its home broker.
    """

    destination: int
    flow: str
    limit: int
    percent: int
    ack: str
    pace: int
    chunk: int
    selector: str | None = None
    no_local: bool = False
    subscription: str = ""
    durable: bool = False
    shared: bool = False
    lease_ms: int = 0
    outcomes: bool = False
    begun: bool = False
    from_time: int = 0
    drain: bool = False
    changes: bool = False
    at: str = ""
    recalls: bool = False
    shares: bool = False
    """It gives back what it has not begun, to make room, and for those that are idle."""
    checkpoints: bool = False
    """It says how far it is with what it has."""
    causes: bool = False
    """It says why something has failed."""
    fenced: bool = False
    """Its deliveries have fencing numbers."""
    batch: Batch | None = None
    """It gets batches."""
    labels: tuple[str, ...] = ()
    session: str = ""
    """Consumers of one machine with the same are in one session, as far as units of order are concerned."""


@dataclass(frozen=True, slots=True)
class TransactorPlan:
    """Sends to and consumes from several destinations in units of work; ``kind``: local, prepared or xa."""

    kind: str
    sends_to: tuple[ProducerPlan, ...]
    takes_from: tuple[ConsumerPlan, ...]
    size: int
    interval: int
    units: int
    rollback_share: float


@dataclass(frozen=True, slots=True)
class DestinationPlan:
    kind: str
    name: str
    attributes: dict[str, object]
    auto_created: bool

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name


@dataclass(slots=True)
class MachinePlan:
    client_id: str | None
    producers: list[ProducerPlan] = field(default_factory=list)
    consumers: list[ConsumerPlan] = field(default_factory=list)
    transactors: list[TransactorPlan] = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    """Times in microseconds; a rate of 0 means that the fault does not happen."""

    destinations: list[DestinationPlan] = field(default_factory=list)
    machines: list[MachinePlan] = field(default_factory=list)
    rates: dict[str, int] = field(default_factory=dict)
    features: set[str] = field(default_factory=set)
    duration: int = 0
    delay_max: int = 0
    sync_max: int = 0
    group_lag_max: int = 0
    pipe_frames: int = 0
    meter_messages: int = 0
    cache_bytes: int = 0
    checkpoint_entries: int = 0
    relocation: float = 0.0
    scan_s: int = 0
    sort_max: int = 0
    transaction_timeout_ms: int = 0
    remembered_max: int = 0
    jump_ms: int = 0


def draw(rng: Random) -> Plan:
    """A plan for a few thousand events."""
    pick, chance = rng.choice, rng.random
    plan = Plan()
    if chance() < 0.8:
        plan.features = {name for name, share in FEATURES.items() if chance() < share}
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
    plan.scan_s = pick((0, 1, 1))
    plan.sort_max = pick((2048, 2048, 3))
    plan.transaction_timeout_ms = pick((3_600_000, 1000))
    plan.remembered_max = 500
    timed = plan.features & {"expiry", "delay", "outcomes", "leases", "transactions"}
    plan.jump_ms = 300 if timed else 3_600_000
    count = _draw_destinations(rng, plan)
    plan.machines = [MachinePlan(pick((None, f"m{index}"))) for index in range(pick((1, 2, 3, 4)))]
    _draw_clients(rng, plan, count)
    return plan


def _draw_destinations(rng: Random, plan: Plan) -> int:
    """The destinations; returns how many of them clients use (the dead message queue comes last)."""
    pick = rng.choice
    for index in range(pick((1, 1, 2, 3))):
        topic = "topics" in plan.features and rng.random() < 0.6
        plan.destinations.append(
            _destination(rng, plan, "topic" if topic else "queue", f"{'t' if topic else 'q'}{index}")
        )
    count = len(plan.destinations)
    if "dead" in plan.features:
        plan.destinations.append(DestinationPlan("queue", DMQ, {"useDMQ": False}, auto_created=False))
    return count


def _draw_clients(rng: Random, plan: Plan, count: int) -> None:
    pick = rng.choice
    machines = plan.machines
    for index in range(pick((1, 2, 2, 3))):
        pick(machines).producers.append(producer(rng, plan, index % count))
    for index in range(max(count, pick((1, 2, 3, 5)))):
        pick(machines).consumers.append(consumer(rng, plan, index % count, index))
    if "transactions" in plan.features:
        for number in range(pick((1, 1, 2, 3))):
            pick(machines).transactors.append(_transactor(rng, plan, count, number))


def _destination(rng: Random, plan: Plan, kind: str, name: str) -> DestinationPlan:
    pick, chance = rng.choice, rng.random
    attributes: dict[str, object] = {"consumerFlowLimit": pick((-1, 3, 10, 1000, 1000, 1000))}
    if chance() < 0.35:
        attributes["maxNumMsgs"] = rng.randrange(3, 60)
    if chance() < 0.2:
        attributes["maxTotalMsgBytes"] = rng.randrange(30, 2500)
    if chance() < 0.15:
        attributes["maxBytesPerMsg"] = rng.randrange(20, 60)
    if kind == "queue" and chance() < 0.4:
        attributes["maxNumActiveConsumers"] = pick((1, 1, 2))
        attributes["maxNumBackupConsumers"] = pick((0, 1, -1))
    if chance() < 0.15:
        attributes["maxNumProducers"] = pick((1, 2))
    if "behaviors" in plan.features:
        attributes["limitBehavior"] = pick(("REJECT_NEWEST", "FLOW_CONTROL", "REMOVE_OLDEST", "REMOVE_LOW_PRIORITY"))
        attributes.setdefault("maxNumMsgs", rng.randrange(3, 40))
    if "outcomes" in plan.features or "begun" in plan.features:
        attributes["redeliveryLimit"] = pick((-1, 0, 1, 2, 5))
        attributes["redeliveryDelayOverride"] = pick((-1, -1, 20))
        attributes["redeliveryBackoffPercent"] = pick((100, 200))
        if limits := _CAUSES.get(plan.duration // MS % 8):
            attributes["redeliveryLimitByCause"] = limits
    if recall := _RECALLS.get(plan.duration // MS % 8):
        attributes["prefetchRecall"] = recall
    if plan.duration // MS % 8 == 2 and "selectors" in plan.features:
        attributes["affinityKey"], attributes["affinityWait"] = "colour", 60
    if plan.duration // MS % 8 == 3 and kind == "queue":
        attributes |= _versions(plan)
    if "units" in plan.features:
        attributes["unitOfOrder"] = chance() < 0.2
    attributes["useDMQ"] = chance() < 0.8
    if kind == "queue" and "local" in plan.features:
        attributes["localDeliveryPreferred"] = True
    if kind == "queue" and "gathering" in plan.features:
        attributes["consumersBeforeDispatch"] = pick((1, 2, 3))
        attributes["delayBeforeDispatch"] = pick((0, 50, 300))
    if "expiry" in plan.features:
        attributes["expirationPolicy"] = pick(("Default", "Default", "Discard", "Log"))
    return DestinationPlan(kind, name, attributes, chance() < 0.15)


def _versions(plan: Plan) -> dict[str, object]:
    """Of a queue, by the duration of a run, as above. Messages with a unit of order are refused."""
    policy = ("Default", "Discard", "Last")[plan.duration // MS // 8 % 3]
    if "units" in plan.features or (policy == "Last" and "behaviors" in plan.features):
        return {}
    return {"versionKey": "num", "maxStaleness": 2, "stalenessPolicy": policy, "starvationTime": 100}


def producer(rng: Random, plan: Plan, destination: int) -> ProducerPlan:
    pick, features = rng.choice, plan.features
    return ProducerPlan(
        destination=destination,
        persistent_share=pick((1.0, 1.0, 0.7, 0.0)),
        mean_batch=pick((1, 2, 4, 12)) if "large" not in features else pick((0, 0, 1)),
        interval=pick((3, 8, 20)) * MS,
        window=pick((1, 3, 16)),
        body_bytes_max=pick((12, 40, 90)) if "large" not in features else pick((40, 90)),
        total=pick((60, 200, 500)),
        headers="selectors" in features or plan.duration // MS % 8 == 3,
        spread=pick((1, 2, 3)) if "priorities" in features else 1,
        ttls_ms=pick(((0,), (0, 0, 40, 200), (30,), (0, 1, 1500))) if "expiry" in features else (0,),
        delays_ms=pick(((0,), (0, 0, 20, 90), (40,), (0, 400))) if "delay" in features else (0,),
        units=pick((0, 1, 2, 5, 20)) if "units" in features else 0,
    )


def consumer(rng: Random, plan: Plan, destination: int, number: int) -> ConsumerPlan:
    from tests.simulation.messages import SELECTORS

    pick, chance, features = rng.choice, rng.random, plan.features
    flow = pick(("credit", "prefetch"))
    limit = pick((1, 2, 3, 10, 50, -1)) if flow == "credit" else pick((0, 1, 2, 3, 10, 50, -1))
    drain = "drain" in features and limit != 0 and chance() < 0.7
    topic = plan.destinations[destination].kind == "topic"
    named = topic and chance() < 0.75
    shared = named and chance() < 0.4
    batch = _batch(plan, number)
    return ConsumerPlan(
        destination=destination,
        flow=flow if batch is None else "prefetch",
        limit=limit if batch is None else 0,
        percent=pick((0, 10, 50, 100)),
        ack=_ack(pick(("each", "each", "all", "some", "up_to", "lazy", "none")), batch),
        pace=pick((200, 2 * MS, 8 * MS, 30 * MS)),
        chunk=pick((1, 1, 3, 20)),
        selector=pick(list(SELECTORS)) if "selectors" in features and chance() < 0.5 else None,
        no_local=topic and chance() < 0.2,
        subscription=("shared" if shared else f"s{number}") if named else "",
        durable=named and (not shared or chance() < 0.7),
        shared=shared,
        lease_ms=_lease_ms(rng, features),
        outcomes="outcomes" in features and chance() < 0.7,
        begun="begun" in features and chance() < 0.7,
        from_time=rng.randrange(3000) * MS if chance() < 0.15 else 0,
        drain=drain and batch is None,
        changes=drain and chance() < 0.4 and batch is None,
        at=pick(("", "b1", "b2", "b2")) if "local" in features else "",
        session=pick(("", "s1", "s1", "s2")) if "units" in features else "",
        recalls=number % 4 != 3,
        shares=number % 4 < 3,
        checkpoints=plan.duration // MS % 8 == 6,
        causes=plan.duration // MS % 8 in (4, 5),
        fenced=plan.duration // MS % 8 in (0, 3),
        batch=batch,
        labels=_LABELS[number % 4] if plan.duration // MS % 8 == 2 else (),
    )


def _ack(ack: str, batch: Batch | None) -> str:
    """Batches are leased, and so there is something to acknowledge."""
    return "some" if batch is not None and ack == "none" else ack


def _batch(plan: Plan, number: int) -> Batch | None:
    """By the duration of a run, as above; the rule of a consumer by its number. Transactions take messages."""
    if plan.duration // MS % 8 != 7 or number % 3 == 2 or number >= 100:
        return None
    headers = "selectors" in plan.features
    return Batch(
        max_messages=(3, 8, 1, 20)[number % 4],
        max_cost=12 if headers and number % 2 else None,
        cost="num",
        key="colour" if headers and number % 4 < 3 else None,
        deadline_s=(0.02, 0.08, 0.0)[number // 2 % 3],
    )


def _lease_ms(rng: Random, features: set[str]) -> int:
    """Reading a large message takes a while, and a consumer that is always late would never have one."""
    if "leases" not in features:
        return 0
    return rng.choice((0, 1500)) if "large" in features else rng.choice((0, 30, 150))


def _transactor(rng: Random, plan: Plan, count: int, number: int) -> TransactorPlan:
    pick = rng.choice
    sends = tuple(producer(rng, plan, rng.randrange(count)) for _ in range(pick((0, 1, 1, 2))))
    takes = tuple(consumer(rng, plan, rng.randrange(count), 100 + 10 * number + k) for k in range(pick((0, 1, 1, 2))))
    kind = pick(("local", "local", "prepared", "xa"))
    keeps = kind == "local"
    return TransactorPlan(
        kind=kind,
        sends_to=sends,
        takes_from=tuple(replace(one, checkpoints=keeps) for one in takes),
        size=pick((1, 3, 8)),
        interval=pick((3, 10, 30)) * MS,
        units=pick((10, 40, 100)),
        rollback_share=pick((0.1, 0.4)),
    )
