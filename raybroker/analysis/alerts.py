"""Alerts from a stream of samples: each is raised once and cleared when its cause is over.  Pure.

``Watch.step`` takes the samples of one batch, evaluates the rules at each scrape in it, and gives the alerts that
changed, in order.  A rate is what a counter rose by between two scrapes of the same series; a broker that falls silent
is noticed by the others' scrapes going on, and all of them by the clock of the stream.  ``to_json`` and ``of_json``
carry the state over batches and restarts.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from raybroker.analysis import names
from raybroker.analysis.lake.lake import LakeFault
from raybroker.analysis.reports.answer import Severity, duration, number, percent

SILENT_MS: Final = 60_000
"""A broker without a scrape for this long is silent …"""
SILENT_INTERVALS: Final = 4.0
"""… if it is also so many of its usual intervals."""
QUOTA_PART: Final = 0.9
MEMORY_PART: Final = 0.9
OLD_S: Final = 300.0
FORGET_MS: Final = 3_600_000
"""A series without samples for this long is forgotten, and so is a broker: its alerts are cleared."""
CHANGES_MAX: Final = 1_000
"""So many changes of one batch and broker are told one by one; the rest are counted."""
WANTED: Final = (
    names.DEAD,
    names.REFUSED,
    names.HELD_BACK,
    names.QUOTA_USED,
    names.WAITING,
    names.CONSUMERS,
    names.OLDEST_AGE,
    names.FULL,
    names.MEMORY_USED,
    names.RESIDENT,
    names.MEMORY_LIMIT,
    names.STORE_OVERLOADED,
    names.UNREACHABLE,
    names.HALTED,
)
"""The metrics that alerts need; a stream reads no others."""

Labels = tuple[tuple[str, str], ...]


class AlertSample(NamedTuple):
    """One sample of a stream."""

    ts_ms: int
    broker: str
    metric: str
    labels: Labels
    value: float


class Alert(NamedTuple):
    """``state`` is raised or cleared; ``since_ms`` when it was raised, ``at_ms`` the scrape that said it."""

    state: str
    severity: Severity
    name: str
    subject: str
    text: str
    since_ms: int
    at_ms: int


class _Raised(NamedTuple):
    severity: Severity
    text: str


Key = tuple[str, str]
"""Name of the alert and what it is about."""


class _Broker:
    """What is remembered of one broker: its last scrape, its usual interval, its counters, its alerts that are up."""

    __slots__ = ("counters", "interval_ms", "seen_ms", "up")

    def __init__(self) -> None:
        self.seen_ms = -1
        self.interval_ms = 0.0
        self.counters: dict[tuple[str, Labels], tuple[int, float]] = {}
        """Series → time and value of its last sample."""
        self.up: dict[Key, Alert] = {}

    def seen(self, ts_ms: int) -> None:
        """Note a scrape. One long pause does not become the usual interval."""
        if self.seen_ms >= 0:
            usual = self.interval_ms
            interval = float(ts_ms - self.seen_ms)
            self.interval_ms = 0.8 * usual + 0.2 * min(interval, SILENT_INTERVALS * usual) if usual else interval
        self.seen_ms = ts_ms

    def rose(self, one: AlertSample) -> float:
        """What a counter rose by since its last sample; nothing for its first one."""
        if names.KINDS.get(one.metric) != "counter":
            return 0.0
        key = (one.metric, one.labels)
        before = self.counters.get(key)
        self.counters[key] = (one.ts_ms, one.value)
        if before is None:
            return 0.0
        return one.value - before[1] if one.value >= before[1] else one.value

    def change(self, raised: Mapping[Key, _Raised], at_ms: int) -> list[Alert]:
        """Raise what is new and clear what is over."""
        changed: list[Alert] = []
        for key, found in raised.items():
            if key not in self.up:
                self.up[key] = Alert("raised", found.severity, *key, found.text, at_ms, at_ms)
                changed.append(self.up[key])
        over = [key for key in self.up if key not in raised]
        return [*changed, *(self.up.pop(key)._replace(state="cleared", at_ms=at_ms) for key in over)]


class Watch:
    """The state between batches, of one broker or of several."""

    def __init__(self) -> None:
        self._brokers: dict[str, _Broker] = {}
        self.faults: list[LakeFault] = []
        """What was wrong with the samples of the last batch."""

    @property
    def up(self) -> list[Alert]:
        """The alerts that are up."""
        return [alert for broker in self._brokers.values() for alert in broker.up.values()]

    @property
    def newest_ms(self) -> int:
        """The newest scrape of any broker, 0 before the first one."""
        return max((broker.seen_ms for broker in self._brokers.values()), default=0)

    def step(self, samples: Iterable[AlertSample], now_ms: int = 0) -> list[Alert]:
        """Take in a batch; the alerts that it raised or cleared, in their order.

        Every scrape is evaluated.  ``now_ms`` is the time of the stream: the newest scrape of brokers that this watch
        does not see, and later than that when none of them has had one for long.  A scrape that is not newer than the
        last one of its broker is left out, as is an impossible value; ``faults`` has them.
        """
        self.faults = []
        changed: list[Alert] = []
        for (ts_ms, name), scrape in itertools.groupby(sorted(samples), lambda one: (one.ts_ms, one.broker)):
            broker = self._brokers.setdefault(name, _Broker())
            if ts_ms <= broker.seen_ms:
                self.faults.append(LakeFault("duplicate" if ts_ms == broker.seen_ms else "late", name))
                continue
            broker.seen(ts_ms)
            changed += broker.change(self._raised(broker, name, scrape), ts_ms)
            changed += self._silent(ts_ms)
        changed += self._silent(now_ms)
        self._forget(max(now_ms, self.newest_ms))
        return changed

    def _raised(self, broker: _Broker, name: str, scrape: Iterable[AlertSample]) -> dict[Key, _Raised]:
        current: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
        before: tuple[str, Labels] | None = None
        for one in scrape:
            if (one.metric, one.labels) == before:
                self.faults.append(LakeFault("duplicate", name))
                continue
            before = (one.metric, one.labels)
            if not names.possible(one.value):
                self.faults.append(LakeFault("impossible value", f"{name}: {one.metric} {one.value:g}"))
                continue
            rose = broker.rose(one)
            named = dict(one.labels)
            if one.metric == names.CONSUMERS and named.get("state", "active") != "active":
                continue
            of = current.setdefault((named.get("destination", ""), named.get("type", "")), {})
            old = of.get(one.metric, (0.0, 0.0))
            value = max(old[0], one.value) if one.metric == names.MEMORY_USED else old[0] + one.value
            of[one.metric] = (value, old[1] + rose)
        found: dict[Key, _Raised] = {}
        for (destination, _), values in current.items():
            subject = f"{destination} on {name}" if destination else name
            for rule in RULES:
                raised = rule(values)
                if raised is not None:
                    found[rule.__name__.strip("_").replace("_", " "), subject] = raised
        return found

    def _silent(self, now_ms: int) -> list[Alert]:
        """Brokers without a scrape while time goes on; what else was up stays up, nobody knows better."""
        changed: list[Alert] = []
        for name, broker in self._brokers.items():
            silence = now_ms - broker.seen_ms
            if silence > max(SILENT_MS, SILENT_INTERVALS * broker.interval_ms) and ("silent", name) not in broker.up:
                text = f"no scrape for {duration(silence / 1000)}"
                alert = Alert("raised", "critical", "silent", name, text, now_ms, now_ms)
                broker.up["silent", name] = alert
                changed.append(alert)
            if silence > FORGET_MS:
                text = f"no scrape for {duration(silence / 1000)}: the broker is taken to be gone"
                changed += [one._replace(state="cleared", text=text, at_ms=now_ms) for one in broker.up.values()]
                broker.up.clear()
        return changed

    def _forget(self, now_ms: int) -> None:
        for name, broker in list(self._brokers.items()):
            for key in [key for key, (ts_ms, _) in broker.counters.items() if ts_ms < now_ms - FORGET_MS]:
                del broker.counters[key]
            if broker.seen_ms < now_ms - FORGET_MS:
                del self._brokers[name]

    def to_json(self) -> str:
        """The state as text; empty when there is nothing to remember."""
        if not self._brokers:
            return ""
        return json.dumps(
            {
                name: {
                    "seen": broker.seen_ms,
                    "interval": broker.interval_ms,
                    "counters": [[*key, *last] for key, last in broker.counters.items()],
                    "up": list(broker.up.values()),
                }
                for name, broker in self._brokers.items()
            }
        )

    @classmethod
    def of_json(cls, text: str) -> Watch:
        """The watch that ``to_json`` wrote."""
        made = cls()
        for name, kept in (json.loads(text) if text else {}).items():
            broker = made._brokers[name] = _Broker()
            broker.seen_ms, broker.interval_ms = kept["seen"], kept["interval"]
            for metric, labels, ts_ms, value in kept["counters"]:
                broker.counters[metric, _labels(labels)] = (ts_ms, value)
            for one in kept["up"]:
                alert = Alert(*one)
                broker.up[alert.name, alert.subject] = alert
        return made


def _labels(pairs: Sequence[Sequence[Any]]) -> Labels:
    return tuple((key, text) for key, text in pairs)


Values = Mapping[str, tuple[float, float]]
"""Metric → value and what it rose by, of one destination at one broker, or of a broker."""


def _value(values: Values, metric: str) -> float:
    return values.get(metric, (0.0, 0.0))[0]


def _rose(values: Values, metric: str) -> float:
    return values.get(metric, (0.0, 0.0))[1]


def _dead_messages(values: Values) -> _Raised | None:
    rose = _rose(values, names.DEAD)
    return _Raised("warning", f"{number(rose)} messages died since the last scrape") if rose > 0 else None


def _refused_messages(values: Values) -> _Raised | None:
    rose = _rose(values, names.REFUSED)
    return _Raised("warning", f"{number(rose)} messages were refused since the last scrape") if rose > 0 else None


def _flow_control(values: Values) -> _Raised | None:
    return _Raised("warning", "producers are held back") if _value(values, names.HELD_BACK) > 0 else None


def _near_quota(values: Values) -> _Raised | None:
    used = _value(values, names.QUOTA_USED)
    return _Raised("critical", f"{percent(used)} of the quota are used") if used >= QUOTA_PART else None


def _no_consumers(values: Values) -> _Raised | None:
    waiting = _value(values, names.WAITING)
    if waiting > 0 and names.CONSUMERS in values and _value(values, names.CONSUMERS) == 0:
        return _Raised("warning", f"{number(waiting)} messages wait and there is no consumer")
    return None


def _old_messages(values: Values) -> _Raised | None:
    age = _value(values, names.OLDEST_AGE)
    return _Raised("warning", f"the oldest message is {duration(age)} old") if age >= OLD_S else None


def _memory(values: Values) -> _Raised | None:
    limit = _value(values, names.MEMORY_LIMIT)
    held = names.MEMORY_USED if names.MEMORY_USED in values else names.RESIDENT  # Old releases have no other.
    used = _value(values, held) / limit if limit else 0.0
    return _Raised("critical", f"{percent(used)} of the memory are used") if used >= MEMORY_PART else None


def _slow_disk(values: Values) -> _Raised | None:
    overloaded = _value(values, names.STORE_OVERLOADED)
    return _Raised("warning", f"{number(overloaded)} hosts wait for the disk") if overloaded > 0 else None


def _hosts_unreachable(values: Values) -> _Raised | None:
    gone = _value(values, names.UNREACHABLE)
    return _Raised("critical", f"{number(gone)} hosts do not answer") if gone > 0 else None


def _halted(values: Values) -> _Raised | None:
    halted = _value(values, names.HALTED)
    return _Raised("critical", "a damaged message halts it") if halted > 0 else None


RULES: Final[tuple[Callable[[Values], _Raised | None], ...]] = (
    _dead_messages,
    _refused_messages,
    _flow_control,
    _near_quota,
    _no_consumers,
    _old_messages,
    _memory,
    _slow_disk,
    _hosts_unreachable,
    _halted,
)
