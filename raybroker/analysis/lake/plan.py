"""Parts of a lake: files that are read together, in their order; scrapes of one broker by rising time, each once.

A part is a broker and some whole days, or a stretch of one day that begins and ends with a step, so that steps never
cross parts; the newest scrape before it is read too, to know what counters were.  A file that belongs to several
stretches is read for each, and what is wrong with it is told by that of its first scrape.  Within a part scrapes are
ordered by time as far as files overlap; one that comes after newer ones have been used is *late* and left out, which
changes no total, since counters count through.
"""

from __future__ import annotations

import bisect
import itertools
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from raybroker.analysis.lake import lake as layout
from raybroker.analysis.lake.lake import DAY_MS, File, LakeFault, ScrapeFrame

FOREVER_MS: Final = 1 << 52
FUTURE_MS: Final = 300_000
"""A scrape further ahead of now than this is not used: clocks differ by less."""
PAST_DAYS: Final = 3660
"""A scrape older than this is not used: such a clock was never set."""
PART_BYTES_MAX: Final = 16 << 20
"""Size on disk of what one task reads, if days are smaller than that; the text is some ten to thirty times that."""
PART_BYTES_MIN: Final = 1 << 18
BEFORE_FILES: Final = 3
"""Files before a part that are looked at for the scrape before it: the last one may be of a late scrape alone."""
CHUNK_BYTES: Final = 8 << 20
"""Text that is parsed at once: what a task needs of memory is a small multiple of it."""
GAP_INTERVALS: Final = 3.0
"""A pause longer than so many usual intervals is a gap."""
GAP_MS_MIN: Final = 5_000


class PlanWindow(NamedTuple):
    """The time asked for, [since, until) in milliseconds, and the present."""

    since_ms: int
    until_ms: int
    now_ms: int


class LakePart(NamedTuple):
    """Files of one broker by day and key, those that can have the scrape before them, and the stretch of time."""

    broker: str
    files: tuple[str, ...]
    before: tuple[str, ...] = ()
    since_ms: int = 0
    until_ms: int = FOREVER_MS

    def has(self, ts_ms: int) -> bool:
        """Whether a moment is within the stretch."""
        return self.since_ms <= ts_ms < self.until_ms


class Piece(NamedTuple):
    """Scrapes to use together; ``baseline``: only what counters were before the time asked for."""

    stamps_ms: list[int]
    bodies: list[bytes]
    baseline: bool


def within(files: Iterable[File], window: PlanWindow) -> tuple[list[File], list[LakeFault]]:
    """The files whose days can have scrapes of the window, and those of impossible days."""
    first = layout.date_of(max(0, window.since_ms - DAY_MS))
    last = layout.date_of(max(0, min(window.until_ms, window.now_ms + FUTURE_MS)))
    past = layout.date_of(max(0, window.now_ms - PAST_DAYS * DAY_MS))
    chosen: list[File] = []
    faults: list[LakeFault] = []
    for file in files:
        if file.date < past or file.date > layout.date_of(window.now_ms + DAY_MS):
            faults.append(LakeFault("impossible time", f"{file.broker} {file.date}"))
        elif first <= file.date <= last:
            chosen.append(file)
    return chosen, faults


def parts(files: Iterable[File], tasks: int = 8, step_ms: int = DAY_MS) -> list[LakePart]:
    """Parts of about equal size, some for each of ``tasks`` that run at once; days are cut at multiples of a step."""
    ordered = sorted(files, key=lambda file: (file.broker, file.date, file.first))
    total = sum(file.size for file in ordered)
    size = min(PART_BYTES_MAX, max(PART_BYTES_MIN, total // max(1, 4 * tasks)))
    made: list[LakePart] = []
    batch: list[File] = []
    before: list[File] = []
    for (broker, _), day in itertools.groupby(ordered, lambda file: (file.broker, file.date)):
        of_day = list(day)
        full = sum(one.size for one in batch) >= size
        if batch and (broker != batch[-1].broker or full or sum(one.size for one in of_day) >= 2 * size):
            made += _cut(batch, before, size, step_ms)
            before = batch[-BEFORE_FILES:]
            batch = []
        batch += of_day
    return [*made, *_cut(batch, before, size, step_ms)] if batch else made


def _cut(batch: list[File], before: list[File], size: int, step_ms: int) -> list[LakePart]:
    """One part, or stretches of a large day."""
    near = [one for one in before if one.broker == batch[0].broker]
    pieces = sum(one.size for one in batch) // size
    cuts: list[int] = []
    if pieces >= 2 and batch[0].date == batch[-1].date:
        start, end = min(moment_of(one, one.first) for one in batch), max(moment_of(one, one.last) for one in batch)
        wanted = (start + (end - start) * at // pieces for at in range(1, pieces))
        cuts = sorted({-(-ts // step_ms) * step_ms for ts in wanted if -(-ts // step_ms) * step_ms <= end})
    made: list[LakePart] = []
    for since, until in itertools.pairwise([0, *cuts, FOREVER_MS]):
        mine = [one for one in batch if moment_of(one, one.first) < until and moment_of(one, one.last) >= since]
        earlier = [one for one in batch if one not in mine and moment_of(one, one.last) < since]
        last = sorted([*near, *earlier], key=lambda one: one.last)[-BEFORE_FILES:]
        if mine:
            paths, known = (tuple(one.path for one in some) for some in (mine, last))
            made.append(LakePart(batch[0].broker, paths, known, since, until))
    return made


def _owner(file: File, frame: ScrapeFrame) -> int:
    """The moment by which a scrape belongs to a stretch: its time, or where its file lies if that began later."""
    return frame.ts if moment_of(file, file.first) <= frame.ts else moment_of(file, frame.key)


def moment_of(file: File, key: int) -> int:
    """Return about when the scrape of a key was: keys run ahead where a clock once did, days do not."""
    start = layout.day_of(file.date) or 0
    return min(max(key, start), start + DAY_MS - 1)


class Walk:
    """Reads a part; ``faults`` are complete when ``pieces`` has come to its end."""

    def __init__(self, part: LakePart, window: PlanWindow, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._part = part
        self._window = PlanWindow(
            max(window.since_ms, part.since_ms), min(window.until_ms, part.until_ms), window.now_ms
        )
        self._chunk_bytes = chunk_bytes
        self.faults: list[LakeFault] = []
        self._newest = -1
        self._used: list[int] = []
        self._intervals: list[tuple[int, int]] = []

    def pieces(self) -> Iterator[Piece]:
        """The scrapes, each once, by rising time."""
        stamps: list[int] = []
        bodies: list[bytes] = []
        size = 0
        base = self._before()
        for frame in self._ordered():
            if frame.ts < self._window.since_ms:
                base = frame
                continue
            if base is not None:
                yield Piece([base.ts], [base.body], baseline=True)
                base = None
            stamps.append(frame.ts)
            bodies.append(frame.body)
            size += len(frame.body)
            if size >= self._chunk_bytes:
                yield Piece(stamps, bodies, baseline=False)
                stamps, bodies, size = [], [], 0
        if stamps:
            yield Piece(stamps, bodies, baseline=False)
        self._gaps()

    def _before(self) -> ScrapeFrame | None:
        latest = self._window.now_ms + FUTURE_MS
        read = (one for path in self._part.before for one in layout.read(path))
        frames = [
            one
            for one in read
            if isinstance(one, ScrapeFrame)
            and one.ts <= latest
            and (not self._part.since_ms or one.ts < self._part.since_ms)
        ]
        newest = max(frames, key=lambda frame: frame.ts, default=None)
        if newest is not None:
            self._newest = newest.ts
        return newest

    def _ordered(self) -> Iterator[ScrapeFrame]:
        for group in _overlapping(self._part.files):
            frames: list[tuple[ScrapeFrame, bool]] = []
            for path in group:
                file = layout.named(Path(path))
                owned = file is None or self._part.has(moment_of(file, file.first))
                for one in layout.read(path):
                    if isinstance(one, ScrapeFrame):
                        frames.append((one, file is None or self._part.has(_owner(file, one))))
                    elif owned:
                        self.faults.append(LakeFault(one.what, f"{self._part.broker}: {one.where}"))
            frames.sort(key=lambda pair: (pair[0].ts, pair[0].key))
            yield from (frame for frame, mine in frames if self._usable(frame, mine=mine))

    def _usable(self, frame: ScrapeFrame, *, mine: bool) -> bool:
        """``mine``: the scrape belongs to this stretch; of others only the one before it is wanted."""
        if frame.ts > self._window.now_ms + FUTURE_MS:
            self._fault("future", mine)
        elif frame.ts >= self._window.until_ms:
            return False
        elif frame.ts <= self._newest:
            at = bisect.bisect_left(self._used, frame.ts)
            twice = frame.ts == self._newest or self._used[at : at + 1] == [frame.ts]
            self._fault("duplicate" if twice else "late", mine)
        elif mine and frame.ts < self._part.since_ms:
            self._fault("late", mine)
        else:
            if self._newest >= 0 and mine:
                self._intervals.append((self._newest, frame.ts - self._newest))
            self._newest = frame.ts
            self._used.append(frame.ts)
            return True
        return False

    def _fault(self, what: str, mine: bool) -> None:
        if mine:
            self.faults.append(LakeFault(what, self._part.broker))

    def _gaps(self) -> None:
        if len(self._intervals) < 3:
            return
        usual = statistics.median(millis for _, millis in self._intervals)
        for start, millis in self._intervals:
            if millis > max(GAP_INTERVALS * usual, GAP_MS_MIN):
                self.faults.append(LakeFault("gap", f"{self._part.broker}: {millis // 1000} s after {moment(start)}"))


def moment(ts_ms: int) -> str:
    """A moment as people read it, UTC."""
    seconds = ts_ms % DAY_MS // 1000
    return f"{layout.date_of(ts_ms)} {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _overlapping(paths: Iterable[str]) -> Iterator[list[str]]:
    """Files in their order, those together whose keys overlap."""
    group: list[str] = []
    last = -1
    for path in paths:
        name = path.rpartition("/")[2].partition(".")[0].partition("-")
        first_key, last_key = (int(name[0]), int(name[2])) if name[2].isdigit() else (0, 0)
        if group and first_key > last:
            yield group
            group = []
            last = -1
        group.append(path)
        last = max(last, last_key)
    if group:
        yield group
