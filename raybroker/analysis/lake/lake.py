"""The lake: scrapes of brokers in files, many to a file, found by date and broker.

::

    LAKE/date=2026-11-21/broker=b1/<first key>-<last key>.prom.gz

A file holds frames, one a scrape: a comment line, then the exposition text as the broker gave it, so that the whole is
itself valid exposition text.

::

    # scrape key=1795000000000 ts=1795000000000 length=8123 crc=9f2c01aa
    # HELP raybroker_messages_in_total …

``ts`` is the time of the scrape in milliseconds, ``key`` the same made rising for each broker (a clock may step back),
which orders files and is what a stream remembers.  ``date`` is the UTC day of ``ts``; no file has two.  Files come into
being by renaming, names that start with a dot are not yet, or no longer, part of the lake.  A frame whose length or
checksum (of its times and its text) is wrong is not used; the frames after it are.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

DAY_MS: Final = 86_400_000
MARK: Final = b"# scrape key="
_HEAD = re.compile(rb"# scrape key=(\d{1,16}) ts=(\d{1,16}) length=(\d{1,12}) crc=([0-9a-f]{8})\n")
_NAME = re.compile(r"(\d{13,16})-(\d{13,16})\.prom(\.gz)?")
_EPOCH_ORDINAL: Final = 719_163


class ScrapeFrame(NamedTuple):
    """One scrape of one broker."""

    key: int
    ts: int
    crc: int
    body: bytes


class File(NamedTuple):
    """A file of the lake; ``date`` as ``2026-11-21``, keys of its first and last frame, size on disk in bytes."""

    path: str
    date: str
    broker: str
    first: int
    last: int
    size: int


class LakeFault(NamedTuple):
    """Something wrong with the input: what (``torn``, ``corrupt``, …), where, how often."""

    what: str
    where: str
    times: int = 1


def date_of(ts_ms: int) -> str:
    """The UTC day of a moment, as ``2026-11-21``."""
    import datetime

    return datetime.date.fromordinal(_EPOCH_ORDINAL + ts_ms // DAY_MS).isoformat()


def day_of(date: str) -> int | None:
    """The first millisecond of a day such as ``2026-11-21``; None for what is no day."""
    import datetime

    if re.fullmatch(r"\d{4}-\d\d-\d\d", date) is None:
        return None
    try:
        return (datetime.date.fromisoformat(date).toordinal() - _EPOCH_ORDINAL) * DAY_MS
    except ValueError:
        return None


def folder_of(lake: Path, ts_ms: int, broker: str) -> Path:
    """Return where files of a broker and a day are; the broker's name is quoted as in a URL."""
    return lake / f"date={date_of(ts_ms)}" / f"broker={quote(broker, safe='')}"


def file_name(first: int, last: int) -> str:
    """The name of a file by the keys of its first and last frame."""
    return f"{first:013d}-{last:013d}.prom.gz"


def frame(key: int, ts_ms: int, body: bytes) -> bytes:
    """A scrape as it stands in a file; the body gets a last line end if it lacks one."""
    if not body.endswith(b"\n"):
        body += b"\n"
    return b"# scrape key=%d ts=%d length=%d crc=%08x\n%b" % (key, ts_ms, len(body), _crc(key, ts_ms, body), body)


def _crc(key: int, ts_ms: int, body: bytes) -> int:
    """Return the CRC of a scrape with its times: a scrape at a wrong moment is worse than none."""
    return zlib.crc32(body, zlib.crc32(b"%d %d" % (key, ts_ms)))


def files(lake: Path) -> tuple[list[File], list[LakeFault]]:
    """All files by broker and first key, and what in the folder is not understood.

    Raises NotADirectoryError when there is no such folder.
    """
    if not lake.is_dir():
        raise NotADirectoryError(str(lake))
    found: list[File] = []
    faults: list[LakeFault] = []
    for path in lake.glob("date=*/broker=*/*"):
        if path.name.startswith("."):
            continue
        one = describe(path)
        if one is None:
            faults.append(LakeFault("strange file", path.relative_to(lake).as_posix()))
        else:
            found.append(one)
    return sorted(found, key=lambda file: (file.broker, file.first, file.last)), sorted(faults)


def describe(path: Path) -> File | None:
    """What name and folders of a file say; None when they are not those of the lake or the file is gone."""
    found = named(path)
    try:
        return None if found is None else found._replace(size=path.stat().st_size)
    except OSError:
        return None


def named(path: Path) -> File | None:
    """What name and folders of a file say, without asking for its size; None when they are not those of the lake."""
    match = _NAME.fullmatch(path.name)
    date, broker = path.parent.parent.name.removeprefix("date="), unquote(path.parent.name.removeprefix("broker="))
    if match is None or not broker or day_of(date) is None:
        return None
    return File(str(path), date, broker, int(match[1]), int(match[2]), -1)


def content(path: str) -> tuple[bytes, bool]:
    """The text of a file and whether it could be read to its end; what a damaged archive still gives is given."""
    raw = Path(path).read_bytes()
    if not path.endswith(".gz"):
        return raw, True
    try:
        return gzip.decompress(raw), True
    except (OSError, EOFError, zlib.error):
        return _salvage(raw), False


def _salvage(raw: bytes) -> bytes:
    """What comes out of a damaged archive before the damage."""
    parts: list[bytes] = []
    unzip = zlib.decompressobj(wbits=31)
    try:
        for start in range(0, len(raw), 4096):
            parts += [unzip.decompress(raw[start : start + 4096])]
    except zlib.error:
        return b"".join(parts)
    return b"".join(parts)


def frames(text: bytes, where: str) -> Iterator[ScrapeFrame | LakeFault]:
    """The frames of a file's text in their order, and a Fault where there is none or a broken one."""
    at = 0
    while at < len(text):
        head = _HEAD.match(text, at)
        if head is None:
            next_at = _next_mark(text, at + 1)
            if text[at:next_at].strip():
                yield LakeFault("corrupt", where)
            at = next_at
            continue
        key, ts, length, crc = int(head[1]), int(head[2]), int(head[3]), int(head[4], 16)
        body = text[head.end() : head.end() + length]
        if len(body) == length and _crc(key, ts, body) == crc:
            yield ScrapeFrame(key, ts, crc, body)
            at = head.end() + length
        else:
            next_at = _next_mark(text, head.end())
            yield LakeFault("torn" if next_at - head.end() < length else "corrupt", where)
            at = next_at


def _next_mark(text: bytes, at: int) -> int:
    found = text.find(b"\n" + MARK, at - 1)
    return len(text) if found < 0 else found + 1


def read(path: str) -> Iterator[ScrapeFrame | LakeFault]:
    """The frames of one file. A file that went away because it was compacted is read from the one that replaced it."""
    file = describe(Path(path))
    try:
        text, whole = content(path)
    except FileNotFoundError:
        yield from _replacement(Path(path))
        return
    except OSError as error:
        yield LakeFault("unreadable", f"{_short(path)}: {error.strerror}")
        return
    torn = False
    for one in frames(text, _short(path)):
        torn = torn or isinstance(one, LakeFault)
        yield one
    if not whole and not torn:
        yield LakeFault("torn", _short(path))
    if file is not None and file.size == 0:
        yield LakeFault("empty file", _short(path))


def _replacement(path: Path) -> Iterator[ScrapeFrame | LakeFault]:
    match = _NAME.fullmatch(path.name)
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    for other in path.parent.glob("*.prom*"):
        one = describe(other)
        if one is not None and one.first <= first and one.last >= last and other != path:
            yield from (got for got in read(str(other)) if isinstance(got, LakeFault) or first <= got.key <= last)
            return
    yield LakeFault("vanished", _short(str(path)))


def _short(path: str) -> str:
    return "/".join(Path(path).parts[-3:])
