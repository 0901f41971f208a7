"""The stream of a growing lake: files that are new, files that came late, and the position reached.

An offset has for each broker, and each day of its files, the key of the last scrape that was read: brokers do not wait
for each other, and a scrape at an impossible time moves nobody else.  Days older than the newest one of their broker by
more than BACK_DAYS are closed; a file that appears there, or among files that were read, is *late* and not used.  What
is new comes in batches of at most BATCH_BYTES, the oldest of all brokers first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from raybroker.analysis.lake import lake as layout
from raybroker.analysis.lake.lake import DAY_MS, File, LakeFault
from raybroker.analysis.lake.plan import FUTURE_MS, PAST_DAYS, moment_of
from raybroker.analysis.lake.sample_batches import SampleBatches
from raybroker.system.clock import SystemClock

BACK_DAYS: Final = 1
BATCH_BYTES: Final = 32 << 20
"""Size on disk of the files of one batch; the text is some ten to thirty times that, the samples a part of it."""
PARTITIONS: Final = 4
KNOWN_MS: Final = 2 * 3_600_000
"""A broker without scrapes for this long is no longer told what time it is."""

WRITTEN_MS: Final = 2 * 60_000
"""A scrape is in the lake after this time at the latest: a collector completes a file each minute."""
SILENCE_MS: Final = 60_000
"""Brokers are told the time this often while no scrape comes, so that each one's silence is noticed."""

Keys = Mapping[str, Mapping[str, int]]
"""Broker → day → key of the last scrape."""


class Lane(NamedTuple):
    """Files of one broker and day, and the keys of theirs that are new: after, up to. ``late``: only counted."""

    broker: str
    files: tuple[str, ...]
    after: int
    upto: int
    late: bool = False


class Lanes(InputPartition):
    """What one task reads, from when on; ``clock``: brokers that are told the newest time of all of them."""

    def __init__(self, lanes: tuple[Lane, ...], since_ms: int, clock: tuple[str, ...] = (), clock_ms: int = 0) -> None:
        super().__init__((lanes, since_ms, clock, clock_ms))
        self.lanes, self.since_ms, self.clock, self.clock_ms = lanes, since_ms, clock, clock_ms


class LakeListing:
    """What lies in a lake. Days before the newest ones are looked at again only when their folders have changed."""

    def __init__(self, lake: Path) -> None:
        self._lake = lake
        self._changed: dict[Path, int] = {}
        self._files: dict[Path, list[File]] = {}
        self._known: dict[Path, frozenset[tuple[int, int]]] = {}
        self._begun = False

    def scan(self, busy_since: str) -> tuple[list[File], list[File]]:
        """All files, and those that are new since the last scan and do not replace others, as compaction does.

        ``busy_since``: the first day whose folders are always looked at.
        """
        fresh: list[File] = []
        for folder in self._lake.glob("date=*/broker=*"):
            changed = _changed_at(folder)
            if changed == self._changed.get(folder) and folder.parent.name < f"date={busy_since}":
                continue
            self._changed[folder] = changed
            described = (layout.named(path) for path in folder.glob("[0-9]*.prom*"))
            found = self._files[folder] = [one for one in described if one is not None]
            before = self._known.get(folder, frozenset())
            firsts, lasts = {first for first, _ in before}, {last for _, last in before}
            if self._begun:
                fresh += [
                    one
                    for one in found
                    if (one.first, one.last) not in before and not (one.first in firsts and one.last in lasts)
                ]
            self._known[folder] = before | {(one.first, one.last) for one in found}
        self._begun = True
        return [one for files in self._files.values() for one in files], fresh


def _changed_at(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


class LakeStream(DataSourceStreamReader):
    """Follows a lake."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._lake = Path(options["path"])
        self._since = int(options.get("since_ms", "0"))
        self._batch_bytes = int(options.get("batch_bytes", str(BATCH_BYTES)))
        self._listing: LakeListing | None = None

    def _now_ms(self) -> int:
        given = self._options.get("now_ms")
        return SystemClock().now_ms() if given is None else int(given)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"since": self._since, "keys": {}, "late": [0, []], "clock": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        before = start or self.initialOffset()
        now_ms = self._now_ms()
        keys: dict[str, dict[str, int]] = {broker: dict(days) for broker, days in before["keys"].items()}
        floors = {broker: floor_of(days, before["since"], now_ms) for broker, days in keys.items()}
        lowest = layout.date_of(before["since"])
        if self._listing is None:
            self._listing = LakeListing(self._lake)
        files, fresh = self._listing.scan(min(floors.values(), default=lowest))
        new = [
            one
            for one in files
            if one.date >= floors.get(one.broker, lowest) and one.last > keys.get(one.broker, {}).get(one.date, 0)
        ]
        unused = {one.path for one in new}
        late = sorted(one.path for one in fresh if one.path not in unused)
        clock = int(before["clock"])
        if not new and not late:
            return {**before, "clock": self._without_scrapes(clock, now_ms)}
        for one in self._oldest(new) if start is not None else new:
            days = keys.setdefault(one.broker, {})
            days[one.date] = max(one.last, days.get(one.date, 0))
            if date_is_sane(one) and one.last <= now_ms + FUTURE_MS:
                clock = max(clock, one.last)
        kept = {
            broker: {day: key for day, key in days.items() if day >= floors.get(broker, lowest)}
            for broker, days in keys.items()
        }
        number, listed = before["late"]
        return {
            "since": before["since"],
            "keys": kept,
            "late": [number + 1, late] if late else [number, listed],
            "clock": clock,
        }

    def _without_scrapes(self, clock: int, now_ms: int) -> int:
        """The time that brokers are told when no scrape of any of them has come; a fixed present does not go on."""
        waited = now_ms - WRITTEN_MS
        return waited if clock and waited >= clock + SILENCE_MS and "now_ms" not in self._options else clock

    def _oldest(self, new: Sequence[File]) -> Iterator[File]:
        """Yield as many of the files as a batch takes, by time, so that no broker runs ahead of the others."""
        size, last = 0, -1
        for one in sorted(new, key=_moment):
            if size >= self._batch_bytes and _moment(one) > last:
                return
            described = layout.describe(Path(one.path))
            size += 0 if described is None else described.size
            last = _moment(one)
            yield one

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        lanes: list[Lane] = []
        for broker, days in end["keys"].items():
            for day, upto in days.items():
                after = start["keys"].get(broker, {}).get(day, 0)
                if upto > after:
                    lanes.append(self._lane(broker, day, after, upto))
        if end["late"][0] != start["late"][0]:
            for path in end["late"][1]:
                one = layout.named(Path(path))
                if one is not None:
                    lanes.append(Lane(one.broker, (path,), 0, one.last, late=True))
        parts = [tuple(lanes[at::PARTITIONS]) for at in range(min(PARTITIONS, len(lanes)))]
        made: list[InputPartition] = [Lanes(part, end["since"]) for part in parts]
        told = tuple(
            broker
            for broker, days in sorted(end["keys"].items())
            if days and max(layout.day_of(day) or 0 for day in days) + DAY_MS > end["clock"] - KNOWN_MS
        )
        if end["clock"] > start["clock"] and self._options.get("clock") == "true":
            made.append(Lanes((), end["since"], told, end["clock"]))
        return made

    def _lane(self, broker: str, day: str, after: int, upto: int) -> Lane:
        folder = layout.folder_of(self._lake, layout.day_of(day) or 0, broker)
        described = (layout.named(path) for path in folder.glob("[0-9]*.prom*"))
        files = [one for one in described if one is not None and one.last > after and one.first <= upto]
        return Lane(broker, tuple(one.path for one in sorted(files, key=lambda one: one.first)), after, upto)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Lanes)
        for lane in partition.lanes:
            yield from self._late(lane) if lane.late else self._read(lane, partition.since_ms)
        for broker in partition.clock:
            yield from SampleBatches(broker, self._options).clock(partition.clock_ms)

    def _read(self, lane: Lane, since_ms: int) -> Iterator[Any]:
        maker = SampleBatches(lane.broker, self._options)
        now_ms = self._now_ms()
        faults: list[LakeFault] = []
        seen: set[int] = set()
        for path in lane.files:
            stamps: list[int] = []
            bodies: list[bytes] = []
            for one in layout.read(path):
                if isinstance(one, LakeFault):
                    faults.append(one)
                    continue
                if not lane.after < one.key <= lane.upto or one.ts < since_ms:
                    continue
                wrong = "duplicate" if one.key in seen else wrong_time(one.ts, now_ms)
                if wrong:
                    faults.append(LakeFault(wrong, lane.broker))
                else:
                    stamps.append(one.ts)
                    bodies.append(one.body)
                seen.add(one.key)
            yield from maker.batches(stamps, bodies)
        yield from maker.fault_batch(faults)

    def _late(self, lane: Lane) -> Iterator[Any]:
        now_ms = self._now_ms()
        faults = [
            one if isinstance(one, LakeFault) else LakeFault(wrong_time(one.ts, now_ms) or "late", lane.broker)
            for path in lane.files
            for one in layout.read(path)
        ]
        yield from SampleBatches(lane.broker, self._options).fault_batch(faults)


def floor_of(days: Mapping[str, int], since_ms: int, now_ms: int) -> str:
    """The first day of a broker that is still open."""
    latest = layout.date_of(now_ms + FUTURE_MS)
    newest = max((layout.day_of(day) or 0 for day in days if day <= latest), default=0)
    return layout.date_of(max(since_ms, newest - BACK_DAYS * DAY_MS, 0))


def wrong_time(ts_ms: int, now_ms: int) -> str:
    """What is wrong with the time of a scrape; empty when it can be right."""
    if ts_ms > now_ms + FUTURE_MS:
        return "future"
    return "impossible time" if ts_ms < now_ms - PAST_DAYS * DAY_MS else ""


def date_is_sane(file: File) -> bool:
    """Whether a file's last key is a time of its day; keys of a writer whose clock once ran ahead are not."""
    return moment_of(file, file.last) == file.last


def _moment(file: File) -> int:
    return moment_of(file, file.last)
