"""The figures to reach, and whether a run reached them.

Pure: readings in, verdicts out.  A ratio is taken between medians; its range is that of the ratios of single rounds.
What was not measured is "not measured", never "reached".
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.readings import FIGURE, OURS, PEERS, PIPE, RAY_QUEUE, Reading


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and extremes of one figure over the rounds."""

    median: float
    low: float
    high: float
    rounds: int
    note: str = ""


def spread_of(values: Sequence[float]) -> Spread:
    """Median and extremes of at least one value."""
    return Spread(statistics.median(values), min(values), max(values), len(values))


@dataclass(frozen=True, slots=True)
class Goal:
    """One line of the table to reach: (system, figure), or its ratio to another, against a limit."""

    title: str
    figure: str
    limit: float
    over: tuple[str, str] | None = None
    """(system, figure) of the denominator; the system "best peer" stands for the peer with the highest median."""
    system: str = OURS

    @property
    def at_least(self) -> bool:
        return self.over is not None or FIGURE[self.figure].more_is_better


BEST_PEER: Final = "best peer"
PLAIN: Final = (OURS, "plain")
"""The plain queue of the same run, with as many messages as features are measured with."""

GOALS: Final[tuple[Goal, ...]] = (
    Goal("persistent, producer → consumer → ack, against the bare pipe", "through", 0.35, (PIPE, "through")),
    Goal("the same against the best peer", "through", 3.0, (BEST_PEER, "through")),
    Goal("one blocking persistent send, against the bare pipe, window 1", "blocking", 0.8, (PIPE, "blocking")),
    Goal("one blocking persistent send, against RabbitMQ confirms", "blocking", 2.5, ("rabbitmq", "blocking")),
    Goal("against ray.util.queue one by one", "through", 100.0, (RAY_QUEUE, "single")),
    Goal("receive() from a filled buffer, µs", "receive", 5.0),
    Goal("memory per queued persistent message, bytes", "memory", 32.0),
    Goal("cost per message, large backlog against 1 k", "backlog", 1.15),
    Goal("restart with the backlog stored, s to first delivery", "restart", 5.0),
    Goal("idle dedicated host, MB", "host", 90.0),
    Goal("idle queue in a shared host, kB", "queue", 200.0),
    Goal("creating a queue in a shared host, ms", "create", 20.0),
    Goal("selector of three comparisons on the consumer, against the plain queue", "selector", 0.6, PLAIN),
    Goal("priorities 0 to 9 mixed, against the plain queue", "priority", 0.6, PLAIN),
    Goal("1000 units of order over 8 consumers, against the plain queue", "units", 0.5, PLAIN),
    Goal("one of ten messages with a time to live, against the plain queue", "expiry", 0.5, PLAIN),
    Goal("sends in transactions of 100, against the plain queue", "tx_send", 0.5, PLAIN),
    Goal("receive and acknowledge in transactions of 100, against the plain queue", "tx_take", 0.6, PLAIN),
    Goal("topic with 1 subscriber, against the plain queue", "topic_1", 1.0, PLAIN),
    Goal("topic with 64 subscribers, deliveries, against the plain queue", "topic_64", 0.7, PLAIN),
    Goal("selector of three comparisons, headers decoded, µs a message", "selector_eval", 2.0),
)

THROUGH: Final = (OURS, "through")
KAFKAS: Final = ("kafka", "kafka-flush")
"""As delivered, and with a sync of each append: what is asked holds against both."""

SLICED: Final[tuple[Goal, ...]] = (
    Goal("one blocking persistent send ÷ bare pipe with window 1", "blocking", 0.8, (PIPE, "blocking")),
    Goal("one blocking persistent send ÷ RabbitMQ with confirms", "blocking", 2.5, ("rabbitmq", "blocking")),
    Goal("one blocking persistent send ÷ Redis Streams, synced", "blocking", 1.0, ("redis-streams", "blocking")),
    Goal("receive() with AUTO, each confirmed ÷ bare pipe with window 1", "auto", 0.8, (PIPE, "blocking")),
    Goal("64 clients, one send at a time each ÷ one client", "clients", 12.0, (OURS, "blocking")),
    *(Goal(f"sends without waiting, one call each ÷ {name}", "async", 1.0, (name, "produce")) for name in KAFKAS),
    *(Goal(f"produce ÷ {name}", "produce", 2.0, (name, "produce")) for name in KAFKAS),
    *(Goal(f"consume ÷ {name}", "consume", 1.2, (name, "consume")) for name in KAFKAS),
    *(Goal(f"producer → consumer → ack ÷ {name}", "through", 2.0, (name, "through")) for name in KAFKAS),
    Goal("send_async one by one ÷ send_many, whole path", "each", 0.6, THROUGH),
    Goal("mixed priorities ÷ plain", "priority", 0.6, THROUGH),
    Goal("receives in transactions of 100 ÷ plain", "tx_take", 0.6, THROUGH),
    Goal("selector ÷ plain", "selector", 0.6, THROUGH),
    Goal("plain queue ÷ bare pipe at its best batch", "through", 0.35, (PIPE, "through")),
)
"""Ratios that ``benchmarks.ratios`` takes in alternating slices."""

ABSOLUTE: Final[tuple[Goal, ...]] = (
    Goal("memory of a queued message sent alone, bytes", "memory_alone", 64.0),
    Goal("end to end at 10 k msg/s, p50, ms", "p50_10k", 1.0),
    Goal("end to end at 10 k msg/s, p99, ms", "p99_10k", 5.0),
    Goal("import raybroker, ms", "import", 150.0),
    Goal("rb.loopback() to the first message, ms", "loopback", 100.0),
    Goal("rb.start() on a running Ray to the first message, s", "start", 3.0),
    Goal("creating a queue with a host of its own, ms", "create_dedicated", 300.0),
)
"""Figures of the same table that are no ratios: ``benchmarks.table`` takes them too."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run says of one goal. ``value`` is None when something was not measured."""

    goal: Goal
    value: float | None
    low: float | None = None
    high: float | None = None
    against: str = ""

    @property
    def word(self) -> str:
        if self.value is None:
            return "not measured"
        reached = self.value >= self.goal.limit if self.goal.at_least else self.value <= self.goal.limit
        return "reached" if reached else "missed"


Spreads = dict[tuple[str, str], Spread]


def settle_pipe(readings: Sequence[Reading]) -> list[Reading]:
    """Turns the sweep of the bare pipe into its ``through``: the shape whose median over the rounds is highest."""
    shapes: dict[str, list[Reading]] = defaultdict(list)
    for reading in readings:
        if reading.system == PIPE and reading.figure == "sweep":
            shapes[reading.note].append(reading)
    if not shapes:
        return list(readings)
    best = max(shapes.values(), key=lambda rounds: statistics.median(reading.value for reading in rounds))
    return [*readings, *(replace(reading, figure="through") for reading in best)]


def spreads_of(readings: Iterable[Reading]) -> Spreads:
    """Median and extremes for each (system, figure)."""
    found: dict[tuple[str, str], list[Reading]] = defaultdict(list)
    for reading in readings:
        if reading.figure != "sweep":
            found[reading.system, reading.figure].append(reading)
    spreads: Spreads = {}
    for key, taken in found.items():
        values = [reading.value for reading in taken]
        spreads[key] = Spread(statistics.median(values), min(values), max(values), len(values), taken[0].note)
    return spreads


def best_peer(spreads: Spreads, figure: str) -> str | None:
    """The peer with the highest median of a figure, or None when no peer was measured."""
    return max(
        (peer for peer in PEERS if (peer, figure) in spreads),
        key=lambda peer: spreads[peer, figure].median,
        default=None,
    )


def judge(readings: Sequence[Reading], goals: Iterable[Goal] = GOALS) -> list[Verdict]:
    """One verdict a goal, in order."""
    spreads = spreads_of(readings)
    return [_judge(goal, readings, spreads) for goal in goals]


def _judge(goal: Goal, readings: Sequence[Reading], spreads: Spreads) -> Verdict:
    mine = spreads.get((goal.system, goal.figure))
    if goal.over is None:
        return Verdict(goal, *((mine.median, mine.low, mine.high) if mine else (None,)))
    other, figure = goal.over
    against = best_peer(spreads, figure) if other == BEST_PEER else other
    theirs = spreads.get((against, figure)) if against else None
    if mine is None or theirs is None or against is None:
        return Verdict(goal, None, against=against or "")
    ratios = _ratios(readings, (goal.system, goal.figure), (against, figure))
    value = mine.median / theirs.median
    return Verdict(goal, value, min([*ratios, value]), max([*ratios, value]), against)


def _ratios(readings: Sequence[Reading], top: tuple[str, str], bottom: tuple[str, str]) -> list[float]:
    """The ratio of each round that measured both."""
    by_round: dict[tuple[str, str], dict[int, float]] = {top: {}, bottom: {}}
    for reading in readings:
        if (reading.system, reading.figure) in by_round:
            by_round[reading.system, reading.figure][reading.round] = reading.value
    return [value / by_round[bottom][no] for no, value in by_round[top].items() if no in by_round[bottom]]
