"""Makes lakes as large as wanted out of a recording: two scrapes of a real broker and the time between them.

What each series rose by, or stood at, between the two is what it does in the lake, more by day and less by night, on
any number of brokers and scaled copies of the recorded destinations.  A *plan* plants what an analysis has to find: hot
destinations, growing backlogs, bursts, restarts, gaps, scrapes that come twice, late, torn, spoilt or from the future.
Everything follows from the seed, and ``Truth`` says what the right answers are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from raybroker.analysis.lake import lake as layout
from raybroker.analysis.lake.columns import ColumnReader
from raybroker.analysis.lake.export import LakeWriter
from raybroker.analysis.names import CLOCK, family

DAY_S: Final = 86_400.0
STEADY: Final = ("limit", "start_time", "consumers", "producers", "master", "seat", "hosts", "destinations")
"""Gauges with these words in their names stay where they were recorded; the others waver."""


@dataclass(frozen=True, slots=True)
class Line:
    """One series of the recording."""

    metric: str
    suffix: str
    labels: Mapping[str, str]
    rising: bool
    rate: float
    level: float
    comment: str


@dataclass(frozen=True, slots=True)
class Recording:
    """What a broker said, as rates a second and levels."""

    lines: Sequence[Line]
    destinations: Sequence[str]


@dataclass(frozen=True, slots=True)
class Plant:
    """Something put into series that match: ``factor`` on rates, a gauge that ``grows`` a second from ``start_s``, or
    ``extra`` counted evenly within [start_s, end_s). ``value`` is where a gauge begins to grow, or stays. Empty names
    match all."""

    metric: str
    destination: str = ""
    broker: str = ""
    factor: float = 1.0
    grows: float = 0.0
    extra: float = 0.0
    value: float | None = None
    start_s: float = 0.0
    end_s: float = float("inf")
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults by broker and number of the scrape, counted from 0. ``skew_ms`` moves the times of a broker's scrapes,
    ``clock_ms`` says by how much its clock is ahead of them."""

    resets: Mapping[str, Sequence[int]] = field(default_factory=dict)
    gaps: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    duplicates: Mapping[str, Sequence[int]] = field(default_factory=dict)
    late: Mapping[str, Sequence[int]] = field(default_factory=dict)
    torn: Mapping[str, Sequence[int]] = field(default_factory=dict)
    corrupt: Mapping[str, Sequence[int]] = field(default_factory=dict)
    future: Mapping[str, Sequence[int]] = field(default_factory=dict)
    skew_ms: Mapping[str, int] = field(default_factory=dict)
    clock_ms: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """The lake to make. ``destinations`` 0: those recorded; ``size`` scales all rates."""

    brokers: int
    start_ms: int
    seconds: float
    interval_s: float
    seed: int = 1
    destinations: int = 0
    size: float = 1.0
    plants: Sequence[Plant] = ()
    faults: Faults = field(default_factory=Faults)
    rotate_ms: int = layout.DAY_MS
    cluster: str = "default"
    daily: bool = True


@dataclass(slots=True)
class Truth:
    """Right answers: what counters rose by (metric, destination, broker), counts of faults, samples that are used."""

    increase: dict[tuple[str, str, str], float] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    samples: int = 0
    scrapes: int = 0
    end_ms: int = 0


def record(first: bytes, second: bytes, seconds: float) -> Recording:
    """The recording of two scrapes of one broker; series that only the second one has count from nothing."""
    reader = ColumnReader()
    samples, _ = reader.read([first, second])
    values: tuple[dict[int, float], dict[int, float]] = ({}, {})
    for scrape, series, value in zip(
        samples.scrape.tolist(), samples.series.tolist(), samples.value.tolist(), strict=True
    ):
        values[scrape][series] = value
    comments = _comments(second.decode())
    lines: list[Line] = []
    destinations: dict[str, None] = {}
    for series, value in values[1].items():
        one = reader.series[series]
        metric, suffix = family(one.name)
        if not metric or one.name.startswith("raybroker_info"):
            continue
        labels = dict(one.labels)
        if labels.get("destination"):
            destinations[labels["destination"]] = None
        rising = bool(suffix) or one.name.endswith("_total")
        rate = max(0.0, value - values[0].get(series, 0.0)) / seconds
        lines.append(Line(metric, suffix, labels, rising, rate, value, comments.get(metric, "")))
    return Recording(lines, list(destinations))


def _comments(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split(" ", 3)
        if line.startswith("# ") and len(words) > 3 and words[1] in ("HELP", "TYPE"):
            found[words[2]] = found.get(words[2], "") + line + "\n"
    return found


class BrokerLake:
    """Makes the scrapes of one broker."""

    def __init__(self, recording: Recording, plan: Plan, number: int) -> None:
        self.plan = plan
        self.name = f"b{number + 1}"
        self.random = np.random.default_rng([plan.seed, number])
        self.scrapes = int(plan.seconds // plan.interval_s)
        self._lines = list(_copies(recording, plan, self.name))
        self.heads = _heads(self._lines)
        self.rising = np.array([line.rising for line in self._lines])
        self._whole = np.array(
            [line.suffix != "_sum" and not line.metric.endswith("_seconds_total") for line in self._lines]
        )
        self._steady = np.array([any(word in line.metric for word in STEADY) for line in self._lines])
        self._rate = np.array([line.rate * plan.size for line in self._lines])
        self._level = np.array([line.level for line in self._lines])
        self._clock = np.array([line.metric == CLOCK for line in self._lines], bool)
        ahead_ms = plan.faults.skew_ms.get(self.name, 0) + plan.faults.clock_ms.get(self.name, 0)
        self._clock_start = (plan.start_ms + ahead_ms) / 1000
        self._plants = [(plant, self._matches(plant)) for plant in plan.plants]
        for plant, matching in self._plants:
            self._rate[matching] *= plant.factor
        self._activity = self._activities()
        self._first_of_run = self._runs()

    def _matches(self, plant: Plant) -> Any:
        return np.array(
            [
                line.metric + line.suffix == plant.metric
                and plant.destination in ("", line.labels.get("destination", ""))
                and plant.broker in ("", self.name)
                and all(line.labels.get(key) == text for key, text in plant.labels.items())
                for line in self._lines
            ],
            bool,
        )

    def _activities(self) -> Any:
        """How much has happened up to each scrape, in seconds of the recorded rate."""
        middle = (np.arange(self.scrapes) + 0.5) * self.plan.interval_s
        day = 1 - 0.6 * np.cos(2 * np.pi * (middle + self.plan.start_ms / 1000) / DAY_S) if self.plan.daily else 1.0
        return np.cumsum(day * self.random.uniform(0.8, 1.2, self.scrapes)) * self.plan.interval_s

    def _runs(self) -> Any:
        """For each scrape the number of the scrape before which its broker last started; -1 for the first run."""
        first = np.full(self.scrapes, -1)
        for at in self.plan.faults.resets.get(self.name, ()):
            first[at:] = at
        return first

    def values(self, start: int, end: int) -> Any:
        """Values by scrape and series."""
        moments = (np.arange(start, end) + 1) * self.plan.interval_s
        run = self._first_of_run[start:end]
        began = np.where(run >= 0, self._activity[np.maximum(run - 1, 0)], 0.0)
        done = self._activity[start:end] - began
        base = np.where(run < 0, 1.0, 0.0)
        counted = done[:, None] * self._rate + base[:, None] * self._level
        wobble = self.random_level(start, end)
        made = np.where(self.rising, counted, self._level * np.where(self._steady, 1.0, wobble[:, None]))
        made[:, self._clock] = (self._clock_start + moments)[:, None]
        began_s = np.where(run >= 0, run * self.plan.interval_s, 0.0)
        for plant, matching in self._plants:
            columns = np.flatnonzero(matching)
            if plant.extra:
                length = plant.end_s - plant.start_s
                since, upto = (np.clip(at - plant.start_s, 0, length) for at in (began_s, moments))
                made[:, columns] += (plant.extra * (upto - since) / length)[:, None]
            within = (moments >= plant.start_s) & (moments < plant.end_s)
            if plant.grows or plant.value is not None:
                line = (plant.value or 0.0) + plant.grows * (moments[within] - plant.start_s)
                made[np.ix_(within, columns)] = np.maximum(0.0, line)[:, None]
        return np.where(self._whole & self.rising, np.floor(made + 1e-9), made)

    def random_level(self, start: int, end: int) -> Any:
        """How gauges wobble around their level."""
        return 1 + 0.1 * np.sin(np.arange(start, end) * 2.399963)

    def texts(self, values: Any) -> Iterator[bytes]:
        """The scrapes as text."""
        whole = values == np.floor(values)
        for row, all_whole in zip(values, whole.all(axis=1), strict=True):
            whole_words = map(str, row.astype(np.int64).tolist())
            words = (
                whole_words
                if all_whole
                else (str(int(value)) if value == int(value) else repr(value) for value in row.tolist())
            )
            yield ("\n".join(map(str.__add__, self.heads, words)) + "\n").encode()

    def series(self) -> Sequence[Line]:
        """The series in their order."""
        return self._lines


def _copies(recording: Recording, plan: Plan, broker: str) -> Iterator[Line]:
    """The series of a broker: those of destinations as often as wanted, every further copy with half the rate."""
    wanted = plan.destinations or len(recording.destinations)
    by_metric: dict[str, list[Line]] = {}
    for line in recording.lines:
        by_metric.setdefault(line.metric, []).append(line)
    for lines in by_metric.values():
        for line in lines:
            if not line.labels.get("destination"):
                yield _relabelled(line, broker, plan.cluster, None, 1.0)
        for number in range(wanted):
            source = recording.destinations[number % len(recording.destinations)] if recording.destinations else ""
            copy = number // max(1, len(recording.destinations))
            name = f"{source}.{copy}" if copy else source
            for line in lines:
                if line.labels.get("destination") == source and source:
                    yield _relabelled(line, broker, plan.cluster, name, 0.5 ** min(copy, 4))


def _relabelled(line: Line, broker: str, cluster: str, destination: str | None, scale: float) -> Line:
    labels = {**line.labels, "broker": broker, "cluster": cluster}
    if destination is not None:
        labels["destination"] = destination
    level = line.level * scale if line.rising else line.level
    return Line(line.metric, line.suffix, labels, line.rising, line.rate * scale, level, line.comment)


def _heads(lines: Sequence[Line]) -> list[str]:
    heads: list[str] = []
    said = ""
    for line in lines:
        inner = ",".join(f'{key}="{text}"' for key, text in line.labels.items())
        comment = line.comment if line.metric != said else ""
        said = line.metric
        heads.append(f"{comment}{line.metric}{line.suffix}{{{inner}}} ")
    return heads


def make(lake: Path, recording: Recording, plan: Plan, brokers: Sequence[int] | None = None) -> Truth:
    """Write the lake, or only some of its brokers (by number), and say what is in it."""
    truth = Truth(end_ms=plan.start_ms + int(plan.seconds * 1000))
    for number in range(plan.brokers) if brokers is None else brokers:
        _make_broker(lake, BrokerLake(recording, plan, number), truth)
    return truth


def _make_broker(lake: Path, broker: BrokerLake, truth: Truth) -> None:
    plan, name = broker.plan, broker.name
    faults = plan.faults
    writer = LakeWriter(lake, name, rotate_ms=plan.rotate_ms)
    skipped = {at for start, end in faults.gaps.get(name, ()) for at in range(start, end)}
    unused = {at for kind in (faults.late, faults.torn, faults.corrupt, faults.future) for at in kind.get(name, ())}
    totals = np.zeros(len(broker.heads))
    before: Any = None
    chunk = max(1, 4_000_000 // max(1, len(broker.heads)))
    held: list[tuple[int, bytes]] = []
    for start in range(0, broker.scrapes, chunk):
        values = broker.values(start, min(start + chunk, broker.scrapes))
        for at, text in enumerate(broker.texts(values), start=start):
            if at in skipped:
                continue
            ts = plan.start_ms + round((at + 1) * plan.interval_s * 1000) + faults.skew_ms.get(name, 0)
            _write(writer, plan, name, at, ts, text, held)
            if at not in unused:
                row = values[at - start]
                if before is not None:
                    totals += np.where(row < before, row, row - before)
                before = row
                truth.scrapes += 1
                truth.samples += len(row)
    writer.close()
    _spoil(lake, plan, name)
    for line, total in zip(broker.series(), totals.tolist(), strict=True):
        if line.rising and not line.suffix:
            key = (line.metric, line.labels.get("destination", ""), name)
            truth.increase[key] = truth.increase.get(key, 0.0) + total
    for what in ("duplicates", "late", "torn", "corrupt", "future", "gaps"):
        count = len(getattr(faults, what).get(name, ()))
        if count:
            truth.faults[what] = truth.faults.get(what, 0) + count


def _write(
    writer: LakeWriter, plan: Plan, name: str, at: int, ts: int, text: bytes, held: list[tuple[int, bytes]]
) -> None:
    """Write a scrape as the plan has it; a late one is held until the next one is in the lake."""
    faults = plan.faults
    if at in faults.late.get(name, ()):
        held.append((ts, text))
        return
    if at in faults.torn.get(name, ()) or at in faults.corrupt.get(name, ()):
        writer.rotate()
        writer.write(ts, text)
        writer.rotate()
        return
    if at in faults.future.get(name, ()):
        writer.write(ts + 30 * layout.DAY_MS, text)
        return
    writer.write(ts, text)
    if at in faults.duplicates.get(name, ()):
        writer.write(ts, text)
    if held:
        writer.rotate()
        for late in held:
            writer.write(*late)
        held.clear()
        writer.rotate()


def _spoil(lake: Path, plan: Plan, name: str) -> None:
    """Damage the files of torn and corrupt scrapes, each of which has one of its own."""
    for kind, numbers in (("torn", plan.faults.torn), ("corrupt", plan.faults.corrupt)):
        for at in numbers.get(name, ()):
            ts = plan.start_ms + round((at + 1) * plan.interval_s * 1000) + plan.faults.skew_ms.get(name, 0)
            path = layout.folder_of(lake, ts, name) / layout.file_name(ts, ts)
            raw, _ = layout.content(str(path))
            path.unlink()
            spoilt = raw[: len(raw) // 2] if kind == "torn" else raw.replace(b'"', b"'", 40)
            path.with_suffix("").write_bytes(spoilt)
