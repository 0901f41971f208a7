"""Alerts from a stream of samples: what is wrong now, raised once, cleared when it is over.  Pure.

``step`` takes the samples of one batch and gives the alerts that changed.  A rate is what a counter rose by between two
scrapes of the same series; a broker that falls silent is noticed by the others' scrapes going on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from raybroker.analysis import names
from raybroker.analysis.answer import Severity, duration, number, percent

SILENT_MS: Final = 60_000
"""A broker without a scrape for this long, while others have some, is silent …"""
SILENT_INTERVALS: Final = 4.0
"""… if it is also so many of its usual intervals."""
QUOTA_PART: Final = 0.9
MEMORY_PART: Final = 0.9
OLD_S: Final = 300.0
FORGET_MS: Final = 3_600_000
"""A series without samples for this long is forgotten."""
WANTED: Final = (
    names.DEAD, names.REFUSED, names.HELD_BACK, names.QUOTA_USED, names.WAITING, names.CONSUMERS, names.OLDEST_AGE,
    names.FULL, names.RESIDENT, names.MEMORY_LIMIT,
    names.STORE_OVERLOADED, names.UNREACHABLE, names.HALTED,
)  # fmt: skip
"""The metrics that alerts need; a stream reads no others."""


class Sample(NamedTuple):
    """One sample of a stream."""

    ts_ms: int
    broker: str
    metric: str
    labels: tuple[tuple[str, str], ...]
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


class Watch:
    """The state between batches: last values by series, and the alerts that are up."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, tuple[tuple[str, str], ...]], tuple[int, float, float]] = {}
        """Series → time, value, and what it rose by at that time."""
        self._seen: dict[str, tuple[int, float]] = {}
        """Broker → last scrape, and its usual interval in milliseconds."""
        self._up: dict[Key, Alert] = {}

    @property
    def up(self) -> list[Alert]:
        """The alerts that are up."""
        return list(self._up.values())

    def step(self, samples: Iterable[Sample]) -> list[Alert]:
        """Take in a batch; the alerts that it raised or cleared."""
        for one in sorted(samples):
            self._take(one)
        now = max((ts for ts, _ in self._seen.values()), default=0)
        raised = self._raised(now)
        changed: list[Alert] = []
        for key, found in raised.items():
            if key not in self._up:
                alert = Alert("raised", found.severity, *key, found.text, now, now)
                self._up[key] = alert
                changed.append(alert)
        over = [key for key in self._up if key not in raised]
        return [*changed, *(self._up.pop(key)._replace(state="cleared", at_ms=now) for key in over)]

    def _take(self, one: Sample) -> None:
        key = (one.broker, one.metric, one.labels)
        before = self._last.get(key)
        if before is not None and one.ts_ms <= before[0]:
            return
        rose = 0.0
        if before is not None and names.KINDS.get(one.metric) == "counter":
            rose = one.value - before[1] if one.value >= before[1] else one.value
        self._last[key] = (one.ts_ms, one.value, rose)
        seen = self._seen.get(one.broker)
        if seen is None:
            self._seen[one.broker] = (one.ts_ms, 0.0)
        elif one.ts_ms > seen[0]:
            interval = float(one.ts_ms - seen[0])
            usual = interval if not seen[1] else 0.8 * seen[1] + 0.2 * interval
            self._seen[one.broker] = (one.ts_ms, usual)

    def _raised(self, now: int) -> dict[Key, _Raised]:
        for key in [key for key, (ts, _, _) in self._last.items() if ts < now - FORGET_MS]:
            del self._last[key]
        current: dict[tuple[str, str, str], dict[str, tuple[float, float]]] = {}
        found: dict[Key, _Raised] = {}
        for (broker, metric, labels), (ts, value, rose) in self._last.items():
            if ts < self._seen[broker][0]:
                continue
            named = dict(labels)
            if metric == names.CONSUMERS and named.get("state", "active") != "active":
                continue
            place = (broker, named.get("destination", ""), named.get("type", ""))
            of = current.setdefault(place, {})
            old = of.get(metric, (0.0, 0.0))
            of[metric] = (old[0] + value, old[1] + rose)
        for (broker, destination, _), values in current.items():
            subject = f"{destination} on {broker}" if destination else broker
            for rule in RULES:
                raised = rule(values)
                if raised is not None:
                    found[rule.__name__.strip("_").replace("_", " "), subject] = raised
        for broker, (ts, usual) in self._seen.items():
            if now - ts > max(SILENT_MS, SILENT_INTERVALS * usual) and now - ts < FORGET_MS:
                found["silent", broker] = _Raised("critical", f"no scrape for {duration((now - ts) / 1000)}")
        return found


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
    used = _value(values, names.RESIDENT) / limit if limit else 0.0
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
    _dead_messages, _refused_messages, _flow_control, _near_quota, _no_consumers, _old_messages, _memory, _slow_disk,
    _hosts_unreachable, _halted,
)  # fmt: skip
