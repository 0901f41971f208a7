"""Writers of the lake: one writer for each broker, a collector that asks endpoints, and compaction of small files.

An open file is a hidden one to which frames are appended; when it is old or large enough, or the day ends, it is
packed and renamed into the lake.  What a crash leaves open is taken over by the next writer of that broker: at most the
frame being written is lost.  One writer a broker and lake; readers drop a scrape that comes twice.
"""

from __future__ import annotations

import gzip
import os
import threading
import urllib.error
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from raybroker.analysis import names
from raybroker.analysis.asking import Asking
from raybroker.analysis.lake import lake as layout
from raybroker.analysis.lake.lake import File, ScrapeFrame

PLAIN: Final = Asking()
"""Nothing is shown, and the authorities of the system are trusted."""
ROTATE_BYTES: Final = 16 << 20
"""An open file is packed at this size of text …"""
ROTATE_MS: Final = 60_000
"""… or at this age, which is also how long readers of a stream may have to wait."""
COMPACT_BYTES: Final = 64 << 20
"""Compaction puts files together up to this size of text."""
SCRAPE_BYTES_MAX: Final = 256 << 20
"""A larger answer of an endpoint is not taken."""
_OPEN: Final = ".open.prom"
_LEVEL: Final = 4


class LakeWriter:
    """Writes the scrapes of one broker. ``rotate_ms`` 0: every scrape is a file at once. Not for several threads."""

    def __init__(
        self, lake: Path, broker: str, *, rotate_bytes: int = ROTATE_BYTES, rotate_ms: int = ROTATE_MS
    ) -> None:
        self.lake = lake
        self.broker = broker
        self._rotate = rotate_bytes, rotate_ms
        self._file: BinaryIO | None = None
        self._path = lake
        self._first = self._last = self._bytes = self._opened = 0
        self._take_over()

    def write(self, ts_ms: int, text: bytes) -> None:
        """Append one scrape. Raises OSError when the lake cannot be written; the scrape is lost then."""
        key = max(ts_ms, self._last + 1)
        folder = layout.folder_of(self.lake, ts_ms, self.broker)
        if self._file is not None and self._path.parent != folder:
            self.rotate()
        if self._file is None:
            folder.mkdir(parents=True, exist_ok=True)
            self._path = folder / _OPEN
            self._file = open(self._path, "ab")  # noqa: SIM115 - it stays open over many scrapes
            self._first, self._bytes, self._opened = key, 0, ts_ms
        data = layout.frame(key, ts_ms, text)
        self._file.write(data)
        self._file.flush()
        self._last = key
        self._bytes += len(data)
        if self._bytes >= self._rotate[0] or abs(ts_ms - self._opened) >= self._rotate[1]:
            self.rotate()

    def rotate(self) -> Path | None:
        """Put what is open into the lake; the file it became, None when nothing was open."""
        if self._file is None:
            return None
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = None
        return _pack(self._path, self._first, self._last)

    close = rotate

    def _take_over(self) -> None:
        """Go on after the newest key, and put what an earlier writer left open into the lake."""
        folder = f"date=*/{layout.folder_of(self.lake, 0, self.broker).name}"
        mine = [one for path in self.lake.glob(f"{folder}/*.prom*") if (one := layout.describe(path)) is not None]
        self._last = max((one.last for one in mine), default=0)
        for path in sorted(self.lake.glob(f"{folder}/{_OPEN}")):
            keys = [one.key for one in layout.frames(path.read_bytes(), path.name) if isinstance(one, ScrapeFrame)]
            if keys:
                _pack(path, min(keys), max(keys))
                self._last = max(self._last, *keys)
            else:
                path.unlink()


def _pack(path: Path, first: int, last: int) -> Path:
    """Pack a file of frames and rename it into the lake."""
    hidden = path.with_name(f".pack-{first}")
    made = path.with_name(layout.file_name(first, last))
    with open(path, "rb") as source, gzip.open(hidden, "wb", compresslevel=_LEVEL) as packed:
        while piece := source.read(1 << 20):
            packed.write(piece)
    hidden.rename(made)
    path.unlink()
    return made


def compact(lake: Path, *, before: str | None = None, max_bytes: int = COMPACT_BYTES) -> int:
    """Put the files of each broker and day together, days before ``before`` or all; how many files there are fewer.

    A damaged file stays as it is: what is wrong with it is for the report to say.  Readers notice nothing: a file
    that is gone is found in the one that took its place, and a scrape seen twice counts once.
    """
    groups: dict[tuple[str, str], list[File]] = {}
    for file in layout.files(lake)[0]:
        if before is None or file.date < before:
            groups.setdefault((file.date, file.broker), []).append(file)
    return sum(_compact_group(group, max_bytes) for group in groups.values())


def _compact_group(group: list[File], max_bytes: int) -> int:
    fewer = 0
    batch: list[tuple[File, bytes]] = []
    for file in group:
        text, whole = layout.content(file.path)
        good = whole and all(isinstance(one, ScrapeFrame) for one in layout.frames(text, ""))
        if batch and (not good or sum(len(one) for _, one in batch) + len(text) > max_bytes):
            fewer += _merge(batch)
            batch = []
        if good:
            batch.append((file, text))
    return fewer + _merge(batch)


def _merge(batch: list[tuple[File, bytes]]) -> int:
    if len(batch) < 2:
        return 0
    folder = Path(batch[0][0].path).parent
    first, last = batch[0][0].first, max(file.last for file, _ in batch)
    hidden = folder / f".compact-{first}"
    with gzip.open(hidden, "wb", compresslevel=_LEVEL) as packed:
        for _, text in batch:
            packed.write(text)
    made = folder / layout.file_name(first, last)
    hidden.rename(made)
    for file, _ in batch:
        if Path(file.path) != made:
            Path(file.path).unlink(missing_ok=True)
    return len(batch) - 1


class Scrape(NamedTuple):
    """What came of asking one endpoint: bytes taken, or why not."""

    broker: str
    taken: int
    error: str | None = None


class Collector:
    """Asks the endpoints of brokers and writes what they say. ``now_ms`` is the clock; ``targets`` broker → URL;
    ``asking``: how."""

    def __init__(
        self,
        lake: Path,
        targets: Callable[[], Mapping[str, str]],
        now_ms: Callable[[], int],
        *,
        rotate_ms: int = ROTATE_MS,
        timeout_s: float = 10.0,
        asking: Asking = PLAIN,
    ) -> None:
        self.lake = lake
        self._asking = asking
        self._targets = targets
        self._now_ms = now_ms
        self._rotate_ms = rotate_ms
        self._timeout_s = timeout_s
        self._writers: dict[str, LakeWriter] = {}

    def collect(self) -> list[Scrape]:
        """Ask every endpoint once. An endpoint that fails is a gap in the lake, and a row here."""
        return [self._one(broker, url) for broker, url in self._targets().items()]

    def _one(self, broker: str, url: str) -> Scrape:
        try:
            with self._asking.open(url, self._timeout_s) as answer:
                text = answer.read(SCRAPE_BYTES_MAX + 1)
        except (OSError, ValueError) as error:
            return Scrape(broker, 0, str(error))
        if len(text) > SCRAPE_BYTES_MAX:
            return Scrape(broker, 0, f"more than {SCRAPE_BYTES_MAX} bytes")
        self.write(broker, self._now_ms(), text)
        return Scrape(broker, len(text))

    def write(self, broker: str, ts_ms: int, text: bytes) -> None:
        """Add a scrape that came some other way."""
        writer = self._writers.get(broker)
        if writer is None:
            writer = self._writers[broker] = LakeWriter(self.lake, broker, rotate_ms=self._rotate_ms)
        writer.write(ts_ms, text)

    def run(self, interval_s: float, stop: threading.Event, seen: Callable[[list[Scrape]], None] | None = None) -> None:
        """Collect at every interval until ``stop``; then close."""
        try:
            while not stop.is_set():
                scrapes = self.collect()
                if seen is not None:
                    seen(scrapes)
                stop.wait(interval_s)
        finally:
            self.flush()

    def flush(self) -> None:
        """Put everything open into the lake."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()


@contextmanager
def collecting(
    lake: Path,
    targets: Callable[[], Mapping[str, str]],
    now_ms: Callable[[], int],
    *,
    interval_s: float = 1.0,
    seen: Callable[[list[Scrape]], None] | None = None,
) -> Iterator[Collector]:
    """Collect in a thread while the block runs; when it ends everything is in the lake, with a last scrape."""
    collector = Collector(lake, targets, now_ms)
    stop = threading.Event()
    thread = threading.Thread(target=collector.run, args=(interval_s, stop, seen), name="collect metrics", daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        stop.set()
        thread.join()
        collector.collect()
        collector.flush()


def exposition_of(series: Iterable[tuple[Mapping[str, str], str]], types: Mapping[str, str]) -> bytes:
    """Exposition text of one moment: (labels with ``__name__``, value as text) and family → type."""
    families: dict[str, list[str]] = {}
    for labels, value in series:
        name = labels["__name__"]
        inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in sorted(labels.items()) if key != "__name__")
        families.setdefault(_family(name, types), []).append(
            f"{name}{{{inner}}} {value}" if inner else f"{name} {value}"
        )
    lines: list[str] = []
    for family, samples in sorted(families.items()):
        lines += [f"# TYPE {family} {types.get(family, 'untyped')}", *samples]
    return ("\n".join(lines) + "\n").encode()


def _family(name: str, types: Mapping[str, str]) -> str:
    for suffix in ("_bucket", "_sum", "_count"):
        if name.endswith(suffix) and types.get(name.removesuffix(suffix)) in ("histogram", "summary"):
            return name.removesuffix(suffix)
    return name


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class _Ask(NamedTuple):
    start_s: float
    end_s: float
    step_s: float


def from_prometheus(
    lake: Path,
    url: str,
    start_ms: int,
    end_ms: int,
    step_ms: int,
    *,
    match: str = '{__name__=~"raybroker_.+"}',
    timeout_s: float = 60.0,
    asking: Asking = PLAIN,
) -> int:
    """Copy what a Prometheus server knows into a lake, as one scrape a broker and step; how many were written.

    The server answers with values as of each step (its look-back applies), so ``step_ms`` should not be below its
    scrape interval.  Clocks are left out: theirs is the time of the scrape, not of the step.  Asked in pieces of 500
    steps.  Raises OSError when the server cannot be asked.
    """
    types = {name: rows[0]["type"] for name, rows in _api(asking, url, "metadata", {}, timeout_s).items() if rows}
    written = 0
    writers: dict[str, LakeWriter] = {}
    piece = 500 * step_ms
    for start in range(start_ms, end_ms + 1, piece):
        ask = _Ask(start / 1000, min(start + piece - step_ms, end_ms) / 1000, step_ms / 1000)
        asked = {"query": match, "start": f"{ask.start_s:.3f}", "end": f"{ask.end_s:.3f}", "step": f"{ask.step_s:.3f}"}
        by_broker: dict[str, dict[int, list[tuple[Mapping[str, str], str]]]] = {}
        for row in _api(asking, url, "query_range", asked, timeout_s)["result"]:
            if row["metric"].get("__name__") == names.CLOCK:
                continue
            labels = {key: text for key, text in row["metric"].items() if key not in ("instance", "job")}
            moments = by_broker.setdefault(labels.get("broker") or row["metric"].get("instance", "unknown"), {})
            for second, value in row["values"]:
                moments.setdefault(round(float(second) * 1000), []).append((labels, value))
        for broker, moments in by_broker.items():
            writer = writers.setdefault(broker, LakeWriter(lake, broker, rotate_ms=layout.DAY_MS))
            for ts_ms in sorted(moments):
                writer.write(ts_ms, exposition_of(moments[ts_ms], types))
                written += 1
    for writer in writers.values():
        writer.close()
    return written


def _api(asking: Asking, url: str, what: str, asked: Mapping[str, str], timeout_s: float) -> Any:
    import json

    address = f"{url.rstrip('/')}/api/v1/{what}"
    try:
        with asking.open(address, timeout_s, asked) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        raise OSError(f"{address}: {error.read(500).decode(errors='replace')}") from error
