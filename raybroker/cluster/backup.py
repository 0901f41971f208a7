"""The text format of a configuration change record, for backups and for handing the record over.

One JSON value a line, so that people can read it:

    {"format": "raybroker configuration change record", "version": 1, "cluster": …, "record": …, "term": …, …}
    ["base", {"destinations": […], …}]                the state that the record begins with
    ["entry", digest, [number, term, kind, key, attributes]]
    ["end", lines before this one, CRC-32 of them in hexadecimal digits]
"""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

from raybroker.cluster.change_record import Change, ChangeRecord, Entry, RecordState, canonical_bytes
from raybroker.model.errors import BrokerError, ConfigError, StoreDamagedError

FORMAT: Final = "raybroker configuration change record"
VERSION: Final = 1


def dump(record: ChangeRecord, *, number: int | None = None) -> bytes:
    """The whole record, or up to entry ``number``."""
    entries = record.entries if number is None else record.entries[: max(0, number - record.base_number)]
    lines = [
        canonical_bytes(
            {
                "format": FORMAT,
                "version": VERSION,
                "cluster": record.cluster,
                "record": record.id,
                "term": record.term,
                "base_number": record.base_number,
                "base_digest": record.base_digest,
            }
        ),
        canonical_bytes(["base", record.base_state.canonical()]),
        *(canonical_bytes(["entry", e.digest, [e.number, e.term, *e.change.canonical()]]) for e in entries),
    ]
    text = b"\n".join(lines) + b"\n"
    return text + canonical_bytes(["end", len(lines), f"{zlib.crc32(text):08x}"]) + b"\n"


def load(data: bytes, *, cluster: str | None = None) -> ChangeRecord:
    """The record in ``data``; ``cluster``: id of the cluster that it has to be of, None or "" for any.

    Raises StoreDamagedError naming the line and what is wrong, ConfigError for another version or cluster.
    """
    lines = data.split(b"\n")
    head = _header(lines[0])
    if cluster and head["cluster"] and head["cluster"] != cluster:
        raise ConfigError(
            f"the backup is of cluster {head['cluster']!r} and this is cluster {cluster!r}: take a backup of this one"
        )
    if lines[-1] != b"" or len(lines) < 4:
        raise _damaged(len(lines), "the file ends in the middle")
    record = ChangeRecord(
        head["record"],
        head["cluster"],
        head["term"],
        number=head["base_number"],
        digest=head["base_digest"],
        state=_base(lines[1]),
    )
    for number, line in enumerate(lines[2:-2], start=3):
        try:
            tag, digest, (index, term, *change) = json.loads(line)
            if tag != "entry":
                raise ValueError(f"{tag!r} stands where an entry belongs")
            record.accept(Entry(index, term, Change.from_canonical(change), digest))
        except (BrokerError, ValueError, TypeError) as error:
            raise _damaged(number, str(error)) from None
    record.term = head["term"]
    _check_end(data, lines)
    return record


def _header(line: bytes) -> dict[str, Any]:
    try:
        head = json.loads(line)
    except ValueError:
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise StoreDamagedError("line 1: this is no backup of a configuration change record")
    if head.get("version") != VERSION:
        raise ConfigError(f"the backup has version {head.get('version')!r}; this release reads version {VERSION}")
    for name, kind in (("cluster", str), ("record", str), ("term", int), ("base_number", int), ("base_digest", str)):
        if not isinstance(head.get(name), kind):
            raise _damaged(1, f"{name} is {head.get(name)!r}")
    return head


def _check_end(data: bytes, lines: list[bytes]) -> None:
    number = len(lines) - 1
    try:
        tag, count, crc = json.loads(lines[-2])
    except (ValueError, TypeError):
        raise _damaged(number, "the closing line cannot be read") from None
    if tag != "end" or count != number - 1:
        raise _damaged(number, f"the closing line says {count} lines before it; there are {number - 1}")
    text = data[: len(data) - len(lines[-2]) - 1]
    if crc != f"{zlib.crc32(text):08x}":
        raise _damaged(_odd(lines), "the checksum of the file does not match")


def _odd(lines: list[bytes]) -> int:
    """The line to name for a wrong checksum: the first that is not in canonical form, else line 1."""
    for number, line in enumerate(lines[:-2], start=1):
        if canonical_bytes(json.loads(line)) != line:
            return number
    return 1


def _base(line: bytes) -> RecordState:
    try:
        tag, found = json.loads(line)
        if tag != "base":
            raise ValueError(f"{tag!r} stands where the base belongs")
        return RecordState.from_canonical(found)
    except (BrokerError, ValueError, TypeError) as error:
        raise _damaged(2, str(error)) from None


def _damaged(line: int, reason: str) -> StoreDamagedError:
    return StoreDamagedError(f"line {line} of the configuration change record: {reason}; take another backup")
