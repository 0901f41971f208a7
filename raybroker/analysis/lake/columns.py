"""The fast reader of the exposition format: many scrapes at once into columns.

A line of a scrape is a *head* (name and labels) and a value, and the heads of a scrape are those of the one before.
So lines are cut into heads and values in bulk, heads are looked up once for each distinct one, and which types the
samples of a scrape have is found once for each distinct sequence of heads.  Every line that is not simply
``head value`` goes through ``exposition.parse_line``; the result is the same for any text (tests hold both together).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raybroker.analysis.lake.exposition import Comment, Sample, Typer, parse_line

NOTHING: Final = 0
"""The code of lines that say nothing: blank ones and comments."""
BAD: Final = 1
"""The code of lines that are no exposition."""
NO_STAMP: Final = np.iinfo(np.int64).min
_SHAPE_BYTES_MAX: Final = 64 << 20
"""What is remembered of sequences of heads; then all is forgotten."""


class SampleSeries(NamedTuple):
    """What a head names."""

    name: str
    labels: tuple[tuple[str, str], ...]


class Samples(NamedTuple):
    """Samples in the order of their lines: which scrape, which series, its type, the value, its own time if any."""

    scrape: Any
    series: Any
    type: Any
    value: Any
    stamp_ms: Any


class Bad(NamedTuple):
    """A line that is no exposition; ``scrape`` is its scrape's index in the batch."""

    scrape: int
    line: str


class _Shape(NamedTuple):
    picked: Any
    """Positions of the sample lines in the scrape."""
    series: Any
    types: Any


class ColumnReader:
    """Reads batches of scrapes; ``series`` and ``types`` are what numbers in ``Samples`` mean, and only grow."""

    def __init__(self) -> None:
        self.series: list[SampleSeries] = []
        self.types: list[str] = []
        self._series: dict[SampleSeries, int] = {}
        self._types: dict[str, int] = {}
        self._codes: dict[bytes, int] = {}
        self._meaning: list[int | Comment | None] = [None, None]
        """Code → number of a series, a comment, or nothing."""
        self._shapes: dict[bytes, _Shape] = {}
        self._shape_bytes = 0

    def read(self, scrapes: Sequence[bytes]) -> tuple[Samples, list[Bad]]:
        """Samples of the scrapes, each a text of whole lines, in order."""
        text = b"".join(scrapes)
        if not text:
            return _join([], [], []), []
        ends, codes, values = self._cut(text)
        stamps: dict[int, int] = {}
        bad = self._lines_apart(text, ends, codes, values, stamps)
        borders = np.cumsum([len(one) for one in scrapes])
        lines_to = np.searchsorted(ends, borders, side="left")
        shapes: list[_Shape] = []
        picked: list[Any] = []
        start = 0
        for end in lines_to.tolist():
            part = codes[start:end]
            shape = self._shape(part)
            shapes.append(shape)
            picked.append(shape.picked + start)
            start = end
        scrape_of_line = np.searchsorted(lines_to, list(bad), side="right").tolist() if bad else []
        positions = np.concatenate(picked)
        samples = _join(shapes, [values[positions]], [_stamps(stamps, positions)])
        return samples, [Bad(scrape, line) for scrape, line in zip(scrape_of_line, bad.values(), strict=True)]

    def _cut(self, text: bytes) -> tuple[Any, Any, Any]:
        """Ends of lines; the code of each line's head, -1 when it is to be read apart; its value, NaN likewise."""
        raw = np.frombuffer(text, np.uint8)
        ends = np.flatnonzero(raw == 10)
        starts = np.empty_like(ends)
        starts[0], starts[1:] = 0, ends[:-1] + 1
        blanks = np.flatnonzero(raw == 32)
        at = np.searchsorted(blanks, ends) - 1
        last = np.where(at >= 0, blanks[np.maximum(at, 0)], -1) if len(blanks) else np.full_like(ends, -1)
        whole = (last < starts) | (raw[starts] == 35)
        split = np.where(whole, ends, last)
        offsets = np.empty(2 * len(ends) + 1, np.int32)
        offsets[0:-1:2], offsets[1::2], offsets[-1] = starts, split, ends[-1] + 1
        both = pa.Array.from_buffers(pa.binary(), 2 * len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(text)])
        order = np.arange(len(ends)) * 2
        heads = both.take(pa.array(order)).dictionary_encode()
        local = np.fromiter(
            (self._code(head) for head in heads.dictionary.to_pylist()), np.int32, len(heads.dictionary)
        )
        codes = local[heads.indices.to_numpy()]
        codes[whole & (raw[starts] != 35)] = -1
        values = np.full(len(ends), np.nan)
        split_lines = np.flatnonzero(~whole)
        values[split_lines], doubtful = _numbers(both.take(pa.array(order[split_lines] + 1)))
        codes[split_lines[doubtful]] = -1
        return ends, codes, values

    def _code(self, head: bytes) -> int:
        """The code of a head; -1 when its lines have to be read apart, which is not remembered: they may all differ."""
        code = self._codes.get(head)
        if code is None:
            code = self._new_code(head)
            if code >= 0:
                self._codes[head] = code
        return code

    def _new_code(self, head: bytes) -> int:
        try:
            text = head.decode()
            if head[:1] == b"#":
                return self._comment(parse_line(text))
            got = parse_line(f"{text} 1")
        except ValueError:
            return -1
        canonical = isinstance(got, Sample) and got.timestamp_ms is None and text[-1:] not in " \t"
        return self._sample(got) if canonical and isinstance(got, Sample) else -1

    def _comment(self, got: Sample | Comment | None) -> int:
        if not isinstance(got, Comment):
            return NOTHING
        self._meaning.append(got)
        return len(self._meaning) - 1

    def _sample(self, got: Sample) -> int:
        series = SampleSeries(got.name, tuple(sorted(got.labels.items())))
        key = self._series.get(series)
        if key is None:
            key = self._series[series] = len(self.series)
            self.series.append(series)
        self._meaning.append(key)
        return len(self._meaning) - 1

    def _lines_apart(self, text: bytes, ends: Any, codes: Any, values: Any, stamps: dict[int, int]) -> dict[int, str]:
        """Read the lines whose code is -1 one by one, in place; the bad ones by their position."""
        bad: dict[int, str] = {}
        for position in np.flatnonzero(codes < 0).tolist():
            start = int(ends[position - 1]) + 1 if position else 0
            line = text[start : int(ends[position])]
            try:
                decoded = line.decode()
                got = parse_line(decoded)
            except ValueError:
                codes[position] = BAD
                bad[position] = line.decode(errors="replace")
                continue
            if isinstance(got, Sample):
                codes[position] = self._code_of_sample(got)
                values[position] = got.value
                if got.timestamp_ms is not None:
                    stamps[position] = got.timestamp_ms
            else:
                codes[position] = self._comment(got) if isinstance(got, Comment) else NOTHING
        return bad

    def _code_of_sample(self, got: Sample) -> int:
        """Codes of lines read apart are kept under the series itself, behind a byte that no head begins with."""
        key = b"\n" + repr((got.name, sorted(got.labels.items()))).encode()
        code = self._codes.get(key)
        if code is None:
            code = self._codes[key] = self._sample(got)
        return code

    def _shape(self, codes: Any) -> _Shape:
        key = codes.tobytes()
        shape = self._shapes.get(key)
        if shape is None:
            self._shape_bytes += len(key)
            if self._shape_bytes > _SHAPE_BYTES_MAX:
                self._shapes.clear()
                self._shape_bytes = len(key)
            shape = self._shapes[key] = self._new_shape(codes)
        return shape

    def _new_shape(self, codes: Any) -> _Shape:
        typer = Typer()
        picked: list[int] = []
        series: list[int] = []
        types: list[int] = []
        for position, code in enumerate(codes.tolist()):
            meaning = self._meaning[code]
            if isinstance(meaning, Comment):
                typer.comment(meaning)
            elif meaning is not None:
                picked.append(position)
                series.append(meaning)
                types.append(self._type(typer.sample(self.series[meaning].name)))
        return _Shape(np.array(picked, np.int64), np.array(series, np.int32), np.array(types, np.int16))

    def _type(self, name: str) -> int:
        code = self._types.get(name)
        if code is None:
            code = self._types[name] = len(self.types)
            self.types.append(name)
        return code


def _numbers(texts: Any) -> tuple[Any, list[int]]:
    """Values of texts as floats, and the positions of those that are to be read apart."""
    try:
        trimmed = pc.ascii_trim_whitespace(texts.cast(pa.string()))
    except pa.ArrowInvalid:
        trimmed = pa.array([one.decode("ascii", "replace").strip() for one in texts.to_pylist()], pa.string())
    try:
        return pc.cast(trimmed, pa.float64()).to_numpy(zero_copy_only=False), []
    except pa.ArrowInvalid:
        number = pc.match_substring_regex(trimmed, r"^-?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?$")
        values = pc.cast(pc.if_else(number, trimmed, pa.scalar(None, pa.string())), pa.float64())
        return values.to_numpy(zero_copy_only=False), np.flatnonzero(~number.to_numpy(zero_copy_only=False)).tolist()


def _stamps(stamps: dict[int, int], positions: Any) -> Any:
    found = np.full(len(positions), NO_STAMP, np.int64)
    if stamps:
        index = {position: at for at, position in enumerate(positions.tolist())}
        for position, stamp in stamps.items():
            found[index[position]] = stamp
    return found


def _join(shapes: list[_Shape], values: list[Any], stamps: list[Any]) -> Samples:
    def joined(parts: list[Any], kind: Any) -> Any:
        return np.concatenate(parts) if parts else np.empty(0, kind)

    counts = [len(shape.picked) for shape in shapes]
    scrape = np.repeat(np.arange(len(shapes), dtype=np.int32), counts)
    series, types = joined([one.series for one in shapes], np.int32), joined([one.types for one in shapes], np.int16)
    return Samples(scrape, series, types, joined(values, np.float64), joined(stamps, np.int64))
