"""Which files of a lake are read together and in what order; scrapes of one broker by rising time, each once.

A part is a broker and some whole days, so that steps never cross parts; the newest scrape before it is read too, to
know what counters were.  Within a part scrapes are ordered by time as far as files overlap; one that comes after newer
ones have been used is *late* and left out, which changes no total, since counters count through.
"""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from raybroker.analysis import lake as layout
from raybroker.analysis.lake import DAY_MS, Fault, File, Frame

FUTURE_MS: Final = 300_000
"""A scrape further ahead of now than this is not used: clocks differ by less."""
PAST_DAYS: Final = 3660
"""A scrape older than this is not used: such a clock was never set."""
PART_BYTES_MAX: Final = 16 << 20
"""Size on disk of what one task reads, if days are smaller than that; the text is some ten to thirty times that."""
PART_BYTES_MIN: Final = 1 << 18
CHUNK_BYTES: Final = 8 << 20
"""Text that is parsed at once: what a task needs of memory is a small multiple of it."""
GAP_INTERVALS: Final = 3.0
"""A pause longer than so many usual intervals is a gap."""
GAP_MS_MIN: Final = 5_000


class Window(NamedTuple):
    """The time asked for, [since, until) in milliseconds, and the present."""

    since_ms: int
    until_ms: int
    now_ms: int


class Part(NamedTuple):
    """Files of one broker by day and key, and the file that has the scrape before them."""

    broker: str
    files: tuple[str, ...]
    before: str | None


class Piece(NamedTuple):
    """Scrapes to use together; ``baseline``: only what counters were before the time asked for."""

    stamps_ms: list[int]
    bodies: list[bytes]
    baseline: bool


def within(files: Iterable[File], window: Window) -> tuple[list[File], list[Fault]]:
    """The files whose days can have scrapes of the window, and those of impossible days."""
    first = layout.date_of(max(0, window.since_ms - DAY_MS))
    last = layout.date_of(max(0, min(window.until_ms, window.now_ms + FUTURE_MS)))
    past = layout.date_of(max(0, window.now_ms - PAST_DAYS * DAY_MS))
    chosen: list[File] = []
    faults: list[Fault] = []
    for file in files:
        if file.date < past or file.date > layout.date_of(window.now_ms + DAY_MS):
            faults.append(Fault("impossible time", f"{file.broker} {file.date}"))
        elif first <= file.date <= last:
            chosen.append(file)
    return chosen, faults


def parts(files: Iterable[File], tasks: int = 8) -> list[Part]:
    """Parts of about equal size, some for each of ``tasks`` that run at once."""
    ordered = sorted(files, key=lambda file: (file.broker, file.date, file.first))
    total = sum(file.size for file in ordered)
    size = min(PART_BYTES_MAX, max(PART_BYTES_MIN, total // max(1, 4 * tasks)))
    made: list[Part] = []
    batch: list[File] = []
    before: File | None = None
    for at, file in enumerate(ordered):
        if batch and (file.broker != batch[-1].broker or (
            file.date != batch[-1].date and sum(one.size for one in batch) >= size
        )):  # fmt: skip
            made.append(_part(batch, before))
            before = batch[-1]
            batch = []
        batch.append(file)
        if at + 1 == len(ordered):
            made.append(_part(batch, before))
    return made


def _part(batch: list[File], before: File | None) -> Part:
    near = before if before is not None and before.broker == batch[0].broker else None
    return Part(batch[0].broker, tuple(file.path for file in batch), None if near is None else near.path)


class Walk:
    """Reads a part; ``faults`` are complete when ``pieces`` has come to its end."""

    def __init__(self, part: Part, window: Window, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._part = part
        self._window = window
        self._chunk_bytes = chunk_bytes
        self.faults: list[Fault] = []
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

    def _before(self) -> Frame | None:
        if self._part.before is None:
            return None
        latest = self._window.now_ms + FUTURE_MS
        frames = [one for one in layout.read(self._part.before) if isinstance(one, Frame) and one.ts <= latest]
        newest = max(frames, key=lambda frame: frame.ts, default=None)
        if newest is not None:
            self._newest = newest.ts
        return newest

    def _ordered(self) -> Iterator[Frame]:
        for group in _overlapping(self._part.files):
            frames: list[Frame] = []
            for path in group:
                for one in layout.read(path):
                    if isinstance(one, Frame):
                        frames.append(one)
                    else:
                        self.faults.append(Fault(one.what, f"{self._part.broker}: {one.where}"))
            frames.sort(key=lambda frame: (frame.ts, frame.key))
            yield from (frame for frame in frames if self._usable(frame))

    def _usable(self, frame: Frame) -> bool:
        if frame.ts > self._window.now_ms + FUTURE_MS:
            self._fault("future")
        elif frame.ts >= self._window.until_ms:
            return False
        elif frame.ts <= self._newest:
            at = bisect.bisect_left(self._used, frame.ts)
            twice = frame.ts == self._newest or self._used[at : at + 1] == [frame.ts]
            self._fault("duplicate" if twice else "late")
        else:
            if self._newest >= 0:
                self._intervals.append((self._newest, frame.ts - self._newest))
            self._newest = frame.ts
            self._used.append(frame.ts)
            return True
        return False

    def _fault(self, what: str) -> None:
        self.faults.append(Fault(what, self._part.broker))

    def _gaps(self) -> None:
        if len(self._intervals) < 3:
            return
        usual = statistics.median(millis for _, millis in self._intervals)
        for start, millis in self._intervals:
            if millis > max(GAP_INTERVALS * usual, GAP_MS_MIN):
                self.faults.append(Fault("gap", f"{self._part.broker}: {millis // 1000} s after {moment(start)}"))


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
