"""The identifier of a branch of a distributed transaction, as X/Open and the Java interface of it define it.

Packed, it is the branch's key on the wire and in stores; as text, what operators read and type:
``format:gtrid:bqual`` with the two parts in hexadecimal digits.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from raybroker.model.errors import ConfigError

GTRID_BYTES_MAX: Final = 64
BQUAL_BYTES_MAX: Final = 64
FORMAT_ID_MAX: Final = 2**31 - 1
_HEAD: Final = struct.Struct("<iBB")


@dataclass(frozen=True, slots=True, order=True)
class Xid:
    """``format_id`` 0 to 2**31-1 (the null identifier, -1, names nothing); ``gtrid`` 1 to 64 bytes, the transaction;
    ``bqual`` 0 to 64 bytes, the branch of it.

    Raises ConfigError naming the part that is out of bounds.
    """

    format_id: int
    gtrid: bytes
    bqual: bytes = b""

    def __post_init__(self) -> None:
        number: object = self.format_id
        if not isinstance(number, int) or isinstance(number, bool):
            raise ConfigError(f"xid: format_id is an integer, not {type(number).__name__}")
        if not 0 <= number <= FORMAT_ID_MAX:
            raise ConfigError(f"xid: format_id = {number} is not 0 to {FORMAT_ID_MAX}")
        _check_part("gtrid", self.gtrid, 1, GTRID_BYTES_MAX)
        _check_part("bqual", self.bqual, 0, BQUAL_BYTES_MAX)

    def pack(self) -> bytes:
        """The identifier as bytes, at most 134; equal identifiers have equal bytes."""
        return _HEAD.pack(self.format_id, len(self.gtrid), len(self.bqual)) + self.gtrid + self.bqual

    @classmethod
    def unpack(cls, data: bytes) -> Xid:
        """The Xid that :meth:`pack` packed; raises ConfigError for other bytes."""
        if len(data) < _HEAD.size:
            raise ConfigError(f"xid: {len(data)} bytes are too few; the head alone has {_HEAD.size}")
        format_id, gtrid, bqual = _HEAD.unpack_from(data)
        start, end = _HEAD.size + gtrid, _HEAD.size + gtrid + bqual
        if len(data) != end:
            raise ConfigError(f"xid: {len(data)} bytes, but the head says {end}")
        return cls(format_id, bytes(data[_HEAD.size : start]), bytes(data[start:end]))

    def __str__(self) -> str:
        return f"{self.format_id}:{self.gtrid.hex()}:{self.bqual.hex()}"

    @classmethod
    def parse(cls, text: str) -> Xid:
        """The Xid of a text that ``str`` gave; raises ConfigError saying what is wrong."""
        parts = text.strip().split(":")
        if len(parts) != 3:
            raise ConfigError(f"xid {text[:80]!r} is not format:gtrid:bqual")
        number, gtrid, bqual = parts
        if not number.isdecimal() or not number.isascii():
            raise ConfigError(f"xid {text[:80]!r}: the format {number[:20]!r} is not a number")
        try:
            return cls(int(number[:20]), bytes.fromhex(gtrid), bytes.fromhex(bqual))
        except ValueError:
            raise ConfigError(f"xid {text[:80]!r}: gtrid and bqual are pairs of hexadecimal digits") from None


def _check_part(what: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, bytes):
        raise ConfigError(f"xid: {what} is bytes, not {type(value).__name__}")
    if not low <= len(value) <= high:
        raise ConfigError(f"xid: {what} has {len(value)} bytes; allowed: {low} to {high}")
