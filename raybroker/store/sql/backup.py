"""A backup of one broker's tables in one file, and back.

    file  = MAGIC 8 bytes, version u32, then frames: length u64, CRC-32 of the length and the frame u32, frame
    frame = a letter, then what follows it
      H   JSON: cluster and broker; first
      h   JSON: a row of ``host``
      l   key, before, first block (``<QQQ``), body of a row of ``log``
      b   key, destination, ordinal, bytes, two checksums, length of the meta (``<QIQIIII``), meta, payload
      E   JSON: how many frames there are before; last, so that a file that was cut off is noticed

The version is that of the tables, so that a release which cannot read them refuses their backup too.  The rows are
those of one moment, also while the broker runs, and are read and written some at a time.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final
from zlib import crc32

from raybroker.model.errors import ConfigError, StoreDamagedError, StoreError
from raybroker.store.sql.administration import StoreTables
from raybroker.store.sql.packing import signed, unsigned
from raybroker.store.sql.registration import create_tables, mark_compressed, versions
from raybroker.store.sql.schema import COMPRESSED, NEWEST, VERSION, SqlTables

MAGIC: Final = b"RBSTOREB"
ROWS: Final = 200
"""Rows that are read or written at a time."""
FRAME_BYTES_MAX: Final = 1 << 30
"""More than a row has: the databases take no larger values."""
REOPENED: Final = 1 << 16
"""A host that is restored goes on with an incarnation that is larger by this than the saved one."""

_HEADER: Final = struct.Struct("<8sI")
_LENGTH: Final = struct.Struct("<Q")
_CRC: Final = struct.Struct("<I")
_LOG: Final = struct.Struct("<QQQ")
_BLOCK: Final = struct.Struct("<QIQIIII")


def save(tables: StoreTables, file: BinaryIO) -> tuple[int, int]:
    """Write the backup; (hosts, blocks) that are in it.  Raises StoreError, OSError."""
    tables.require()
    counts = {b"h": 0, b"b": 0}

    def counted(connection: Any) -> Iterator[bytes]:
        number = 0
        for frame in _frames(tables, connection):
            number += 1
            if frame[:1] in counts:
                counts[frame[:1]] += 1
            yield frame
        yield b"E" + json.dumps({"frames": number}).encode()

    with tables.database.connected(snapshot=True) as connection:
        file.write(_HEADER.pack(MAGIC, max(versions(tables.database, connection, tables.tables))))
        for frame in counted(connection):
            length = _LENGTH.pack(len(frame))
            file.write(length + _CRC.pack(crc32(frame, crc32(length))) + frame)
    return counts[b"h"], counts[b"b"]


def load(tables: StoreTables, path: Path) -> tuple[int, int]:
    """Put a backup in the place of what the tables have, which are made when there are none; (hosts, blocks).

    The file is checked whole before anything is changed.  Raises StoreDamagedError for one that is damaged, ConfigError
    for one of another broker, StoreError.
    """
    for _ in _read(path, tables):
        pass
    version = _version(path)
    database, rows = tables.database, tables.tables
    there = VERSION in tables.versions()
    if there:
        tables.require()
    hosts = blocks = 0
    with database.connected() as connection:
        highest = 0
        if there:
            highest = tables.replace(connection) - 1
        else:
            create_tables(database, connection, rows, tables.cluster, tables.broker)
        for table, values in _batched(_rows(path, tables, rows)):
            connection.execute(database.sql.insert(table), values)
            if table is rows.host:
                hosts += len(values)
                highest = max(highest, *(row["id"] for row in values))
            blocks += len(values) if table is rows.block else 0
        connection.execute(database.sql.update(rows.store).values(next_host=highest + 1))
        if version >= COMPRESSED:
            mark_compressed(database, connection, rows)
    return hosts, blocks


def _frames(tables: StoreTables, connection: Any) -> Iterator[bytes]:
    select, rows = tables.database.sql.select, tables.tables
    yield b"H" + json.dumps({"cluster": tables.cluster, "broker": tables.broker}).encode()
    for row in connection.execute(select(rows.host).order_by(rows.host.c.id)).mappings().all():
        yield b"h" + json.dumps(dict(row)).encode()
    stream = connection.execution_options(yield_per=ROWS)
    log, block = rows.log.c, rows.block.c
    for row in stream.execute(select(log.id, log.before, log.first_block, log.body).order_by(log.id)):
        yield b"l" + _LOG.pack(*row[:3]) + bytes(row.body)
    for row in stream.execute(select(rows.block).order_by(block.id)):
        meta = bytes(row.meta)
        yield (
            b"b"
            + _BLOCK.pack(row.id, row.destination, unsigned(row.ordinal), row.nbytes, row.crc, row.row_crc, len(meta))
            + meta
            + bytes(row.payload)
        )


def _rows(path: Path, tables: StoreTables, rows: SqlTables) -> Iterator[tuple[Any, dict[str, Any]]]:
    """(table, values) of each row in a file that was checked."""
    for frame in _read(path, tables):
        match frame[:1]:
            case b"h":
                host = json.loads(frame[1:])
                yield rows.host, {**host, "incarnation": host["incarnation"] + REOPENED, "owner": ""}
            case b"l":
                number, before, first_block = _LOG.unpack_from(frame, 1)
                yield (
                    rows.log,
                    {
                        "id": number,
                        "before": before,
                        "first_block": first_block,
                        "body": frame[1 + _LOG.size :],
                    },
                )
            case b"b":
                number, destination, ordinal, nbytes, crc, row_crc, length = _BLOCK.unpack_from(frame, 1)
                meta = 1 + _BLOCK.size
                yield (
                    rows.block,
                    {
                        "id": number,
                        "destination": destination,
                        "ordinal": signed(ordinal),
                        "nbytes": nbytes,
                        "crc": crc,
                        "row_crc": row_crc,
                        "meta": frame[meta : meta + length],
                        "payload": frame[meta + length :],
                    },
                )


def _batched(rows: Iterable[tuple[Any, dict[str, Any]]]) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    table: Any = None
    some: list[dict[str, Any]] = []
    for of, values in rows:
        if some and (of is not table or len(some) == ROWS):
            yield table, some
            some = []
        table = of
        some.append(values)
    if some:
        yield table, some


def _read(path: Path, tables: StoreTables) -> Iterator[bytes]:
    """The frames of a file but for the last.  Raises StoreDamagedError, ConfigError, StoreError."""
    try:
        with path.open("rb") as file:
            yield from _checked(file, path, tables)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error}") from None


def _version(path: Path) -> int:
    """Raises StoreDamagedError, ConfigError, StoreError."""
    try:
        with path.open("rb") as file:
            return _header(file, path)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error}") from None


def _header(file: BinaryIO, path: Path) -> int:
    """The version.  Raises StoreDamagedError, ConfigError."""
    head = file.read(_HEADER.size)
    if len(head) < _HEADER.size or head[:8] != MAGIC:
        raise StoreDamagedError(f"{path} is no backup of the tables of a store")
    version = int(_HEADER.unpack(head)[1])
    if not VERSION <= version <= NEWEST:
        raise ConfigError(f"{path} is of version {version}, and this release reads versions {VERSION} to {NEWEST}")
    return version


def _checked(file: BinaryIO, path: Path, tables: StoreTables) -> Iterator[bytes]:
    _header(file, path)
    count, ended = 0, False
    while (frame := _frame(file, path)) is not None:
        if ended:
            raise StoreDamagedError(f"{path} goes on behind its end")
        if frame[:1] == b"E":
            ended = json.loads(frame[1:])["frames"] == count
            if not ended:
                raise StoreDamagedError(f"{path} has {count} rows and says that it has others")
            continue
        if not count:
            _check_broker(frame, path, tables)
        count += 1
        yield frame
    if not ended:
        raise StoreDamagedError(f"{path} is cut off")


def _frame(file: BinaryIO, path: Path) -> bytes | None:
    """The next frame; None at the end of the file."""
    head = file.read(_LENGTH.size + _CRC.size)
    if not head:
        return None
    length = _LENGTH.unpack_from(head)[0] if len(head) == _LENGTH.size + _CRC.size else FRAME_BYTES_MAX + 1
    frame = file.read(length) if length <= FRAME_BYTES_MAX else b""
    if len(frame) != length or crc32(frame, crc32(head[: _LENGTH.size])) != _CRC.unpack_from(head, _LENGTH.size)[0]:
        raise StoreDamagedError(f"{path} is damaged, or cut off, before offset {file.tell()}")
    return frame


def _check_broker(frame: bytes, path: Path, tables: StoreTables) -> None:
    if frame[:1] != b"H":
        raise StoreDamagedError(f"{path} does not say whose tables it has")
    found = json.loads(frame[1:])
    if (found["cluster"], found["broker"]) != (tables.cluster, tables.broker):
        raise ConfigError(
            f"{path} has the tables of broker {found['broker']!r} of cluster {found['cluster']!r}, and this is broker"
            f" {tables.broker!r} of cluster {tables.cluster!r}"
        )
