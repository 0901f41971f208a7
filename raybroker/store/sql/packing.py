"""Packing of a commit: the row of the log and the rows of its blocks, with their checksums.

The body of a row of the log is the batch in its order.  An item is kind, destination, length (``<BII``) and as many
bytes: of a note or a checkpoint its meta; of blocks that follow one another the checksums of their rows, four bytes
each.  So no row of a block can be missing, or be another one, without the log showing it; and each row's ``before`` is
the checksum of all before it, so that the same is true of the log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from raybroker.model.blocks.record import BLOCK, CHECKPOINT, NOTE, NOTE_BYTES_MAX, LogEntry, PackedPayload

_ITEM: Final = struct.Struct("<BII")
_CRC: Final = struct.Struct("<I")
_ROW: Final = struct.Struct("<QIQII")
ENTRY_BYTES: Final = 64
"""About what an entry takes beside its bytes."""
_SIGN: Final = 1 << 63


class SqlBlockRow(NamedTuple):
    """A row of ``block``; ``number`` counts the blocks of the host."""

    number: int
    destination: int
    ordinal: int
    nbytes: int
    crc: int
    row_crc: int
    meta: bytes
    payload: bytes


class PackedRows(NamedTuple):
    """``checkpoint``: size of the last one in the batch, -1 without one.  ``compressed``: it has blocks that were
    compressed where they are stored."""

    body: bytes
    blocks: list[SqlBlockRow]
    checkpoint: int
    nbytes: int
    compressed: bool


class Item(NamedTuple):
    """An item of a body: ``crcs`` of blocks, else the ``meta`` of a note or a checkpoint."""

    kind: int
    destination: int
    meta: bytes
    crcs: tuple[int, ...]


def signed(ordinal: int) -> int:
    """An ordinal as the column has it."""
    return ordinal - (_SIGN << 1) if ordinal >= _SIGN else ordinal


def unsigned(column: int) -> int:
    return column & ((_SIGN << 1) - 1)


def row_crc(number: int, destination: int, ordinal: int, nbytes: int, crc: int, meta: bytes) -> int:
    """Checksum of a block's row but for its payload, which has ``crc``."""
    return crc32(meta, crc32(_ROW.pack(number, destination, ordinal, nbytes, crc)))


def pack(entries: Sequence[LogEntry], number: int) -> PackedRows:
    """The rows of one batch, whose first block has that number."""
    body: list[bytes] = []
    blocks: list[SqlBlockRow] = []
    crcs: list[bytes] = []
    checkpoint, nbytes, compressed = -1, 0, False

    def close_run() -> None:
        if crcs:
            body.append(_ITEM.pack(BLOCK, 0, len(crcs) * _CRC.size))
            body.extend(crcs)
            crcs.clear()

    for kind, destination, ordinal, meta, payload in entries:
        nbytes += ENTRY_BYTES + len(meta)
        if kind == BLOCK:
            compressed = compressed or type(payload) is PackedPayload
            data = bytes(payload[0]) if len(payload) == 1 else b"".join(payload)
            crc = crc32(data)
            of_row = row_crc(number, destination, ordinal, len(data), crc, meta)
            blocks.append(SqlBlockRow(number, destination, ordinal, len(data), crc, of_row, bytes(meta), data))
            crcs.append(_CRC.pack(of_row))
            number += 1
            nbytes += len(data)
            continue
        assert kind in (NOTE, CHECKPOINT), kind
        assert (payload, ordinal) == ((), 0), "only blocks have ordinal and payload"
        assert kind != NOTE or len(meta) <= NOTE_BYTES_MAX, "a note is small"
        if kind == CHECKPOINT:
            checkpoint = len(meta)
        close_run()
        body += (_ITEM.pack(kind, destination, len(meta)), meta)
    close_run()
    return PackedRows(b"".join(body), blocks, checkpoint, nbytes, compressed)


def unpack(body: bytes) -> Iterator[Item]:
    """The items of a body.  Raises ValueError."""
    at, end = 0, len(body)
    while at < end:
        if end - at < _ITEM.size:
            raise ValueError("an item is cut off")
        kind, destination, length = _ITEM.unpack_from(body, at)
        at += _ITEM.size
        data = body[at : at + length]
        at += length
        if len(data) != length or kind not in (BLOCK, NOTE, CHECKPOINT) or (kind == BLOCK and length % _CRC.size):
            raise ValueError("an item is cut off, or of unknown kind")
        if kind == BLOCK:
            yield Item(kind, destination, b"", struct.unpack(f"<{length // _CRC.size}I", data))
        else:
            yield Item(kind, destination, data, ())


def chained(body: bytes, before: int) -> int:
    """Checksum of the log with that body at its end."""
    return crc32(body, before)
