"""Types of Python that msgpack has none for, as its extension types: they come back as what they were.

    tuple               with its parts, themselves of any type that travels
    datetime, date,     to the microsecond; an aware datetime with the name of its zone where that is one of zoneinfo,
    time, timedelta     else with its offset from UTC
    UUID, Decimal       exactly, also Decimal("NaN") and trailing zeros
    numpy arrays        raw, without a copy on the receiving side; numpy scalars alike (``arrays.py``)
    tables of Arrow     and record batches, as a stream of Arrow's IPC format (``arrow_tables.py``)
    dataclasses         as their class where its module is imported, else as a dict (``dataclass_values.py``)

Nothing received may name code to run, so what else a class of the application adds stays behind: a subclass of str,
int, float, bytes, list, dict or tuple comes back as that type, bytearray and memoryview as bytes, and a record of
numpy's recarray as its plain one.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
import zoneinfo
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgpack

from raybroker.content import arrays, arrow_tables
from raybroker.content.dataclass_values import described, is_dataclass_value, rebuilt
from raybroker.model.blocks.record import Buffer

TUPLE, DATETIME, DATE, TIME, TIMEDELTA, UUID, DECIMAL, SCALAR, ARRAY, DATACLASS, ARROW = range(1, 12)
"""Codes of the extension types."""

TUPLES_MAX: Final = 32
"""Tuples and dataclasses inside each other, with whatever lists and maps between them.

Each is packed by itself, so reading one that is in another is recursive.  At the edge: the send raises
MessageFormatError.
"""
_BASES: Final = (str, int, float, bytes, list, dict)
_DAY_S: Final = 86_400
_DECIMAL_CHARS_MAX: Final = 65_536


class LossyError(TypeError):
    """A value that would come back as another type."""


def packing(*, exact: bool) -> Callable[[Any], Any]:
    """Return the function for ``msgpack.packb(default=…)``: it raises TypeError for a type that cannot travel, and with
    ``exact`` LossyError for one that would come back as another type."""
    return _EXACT if exact else _PLAIN


def _extended(value: Any, *, exact: bool, depth: int) -> Any:
    kind = type(value)
    packer = _PACKERS.get(kind)
    if packer is not None:
        return msgpack.ExtType(*packer(value))
    if kind is tuple:
        return _nested(TUPLE, list(value), exact=exact, depth=depth)
    if arrays.is_array(value):
        return msgpack.ExtType(ARRAY, b"".join(arrays.pack_array(value)))
    if arrow_tables.is_table(value):
        return msgpack.ExtType(ARROW, b"".join(arrow_tables.pack_table(value)))
    if arrays.is_scalar(value):
        return msgpack.ExtType(SCALAR, arrays.pack_scalar(value))
    if exact:
        raise LossyError(f"{kind.__qualname__} would come back as another type")
    if is_dataclass_value(value):
        return _nested(DATACLASS, described(value), exact=exact, depth=depth)
    if isinstance(value, tuple):
        return _nested(TUPLE, list(value), exact=exact, depth=depth)
    for base in _BASES:
        if isinstance(value, base):
            return _base(base, value)
    raise TypeError(f"can not serialize {kind.__qualname__!r} object")


def _base(base: type, value: Any) -> Any:
    """The value as its base class, whatever conversions the subclass has of its own."""
    if base is str:
        return str.__str__(value)
    if base is int:
        return int.__int__(value)
    return float.__float__(value) if base is float else base(value)


def _nested(code: int, parts: Sequence[Any], *, exact: bool, depth: int) -> msgpack.ExtType:
    if depth >= TUPLES_MAX:
        raise ValueError(f"tuples and dataclasses are more than {TUPLES_MAX} deep in each other")
    inner = partial(_extended, exact=exact, depth=depth + 1)
    return msgpack.ExtType(code, msgpack.packb(list(parts), use_bin_type=True, strict_types=True, default=inner))


_PLAIN: Final = partial(_extended, exact=False, depth=0)
_EXACT: Final = partial(_extended, exact=True, depth=0)


def _pack_datetime(value: datetime.datetime) -> tuple[int, bytes]:
    zone = value.tzinfo
    name = zone.key if isinstance(zone, zoneinfo.ZoneInfo) else None
    text = value.replace(tzinfo=None).isoformat() if name else value.isoformat()
    return DATETIME, msgpack.packb([text, name, value.fold])


def _unpack_datetime(data: Buffer) -> datetime.datetime:
    text, name, fold = msgpack.unpackb(data)
    found = datetime.datetime.fromisoformat(text).replace(fold=fold)
    return found.replace(tzinfo=zoneinfo.ZoneInfo(name)) if name else found


def _pack_time(value: datetime.time) -> tuple[int, bytes]:
    if isinstance(value.tzinfo, zoneinfo.ZoneInfo):
        raise TypeError("a time of day in a named zone has no offset; send a datetime")
    return TIME, msgpack.packb([value.isoformat(), value.fold])


def _unpack_time(data: Buffer) -> datetime.time:
    text, fold = msgpack.unpackb(data)
    return datetime.time.fromisoformat(text).replace(fold=fold)


def _unpack_decimal(data: Buffer) -> decimal.Decimal:
    if len(data) > _DECIMAL_CHARS_MAX:
        raise ValueError("a decimal number of too many digits")
    return decimal.Decimal(str(data, "ascii"))


def _pack_decimal(value: decimal.Decimal) -> tuple[int, bytes]:
    data = str(value).encode("ascii")
    if len(data) > _DECIMAL_CHARS_MAX:
        raise ValueError(f"a decimal number has more than {_DECIMAL_CHARS_MAX} digits")
    return DECIMAL, data


_PACKERS: Final[dict[type, Callable[[Any], tuple[int, bytes]]]] = {
    datetime.datetime: _pack_datetime,
    datetime.date: lambda value: (DATE, value.isoformat().encode()),
    datetime.time: _pack_time,
    datetime.timedelta: lambda value: (
        TIMEDELTA,
        msgpack.packb([value.days * _DAY_S + value.seconds, value.microseconds]),
    ),
    uuid.UUID: lambda value: (UUID, value.bytes),
    decimal.Decimal: _pack_decimal,
}

_UNPACKERS: Final[dict[int, Callable[[Any], Any]]] = {
    DATETIME: _unpack_datetime,
    DATE: lambda data: datetime.date.fromisoformat(str(data, "ascii")),
    TIME: _unpack_time,
    TIMEDELTA: lambda data: datetime.timedelta(0, *msgpack.unpackb(data)),
    UUID: lambda data: uuid.UUID(bytes=bytes(data)),
    DECIMAL: _unpack_decimal,
    SCALAR: arrays.unpack_scalar,
    ARRAY: arrays.unpack_array,
    ARROW: arrow_tables.unpack_table,
}


def _restored(code: int, data: bytes, *, depth: int, typed: bool) -> Any:
    if code in (TUPLE, DATACLASS):
        if depth > TUPLES_MAX:
            raise ValueError("tuples and dataclasses are too deep in each other")
        hook = partial(_restored, depth=depth + 1, typed=typed)
        parts = msgpack.unpackb(data, raw=False, strict_map_key=False, ext_hook=hook)
        if type(parts) is not list:
            raise ValueError("a tuple or dataclass is no list")
        return tuple(parts) if code == TUPLE else _dataclass(parts, typed=typed)
    unpack = _UNPACKERS.get(code)
    if unpack is None:
        raise ValueError(f"it has a value of the unknown type {code}; a newer version may know it")
    try:
        return unpack(data)
    except (TypeError, ArithmeticError, KeyError, OSError) as error:
        raise ValueError(f"a value of type {code} is damaged: {error!r}") from None


def _dataclass(parts: list[Any], *, typed: bool) -> Any:
    if list(map(type, parts)) != [str, str, dict] or not set(map(type, parts[2])) <= {str}:
        raise ValueError("a dataclass is not its module, its name and its fields")
    return rebuilt(*parts) if typed else parts[2]


restored: Final = partial(_restored, depth=1, typed=True)
"""For ``msgpack.unpackb(ext_hook=…)``; raises ValueError for damaged bytes and for unknown types."""
restored_plain: Final = partial(_restored, depth=1, typed=False)
"""The same with dataclasses as dicts."""

_LONG_EXTENSION: Final = 0xC9
"""First byte of an extension value with a length of four bytes."""
ARRAY_HEAD_BYTES: Final = 6


def pack_lone_array(array: Any) -> bytes:
    """A body that is an array and nothing else: the bytes msgpack would make of it, with one copy of the buffer, so
    that the array can be changed as soon as it is sent."""
    parts = arrays.pack_array(array)
    size = sum(map(len, parts))
    if size >> 32:
        raise ValueError("an array of more than 4 GiB")
    return b"".join((bytes((_LONG_EXTENSION,)), size.to_bytes(4, "big"), bytes((ARRAY,)), *parts))


def lone_array(data: Buffer) -> Any:
    """The array that a body is, without a copy; None when the body is anything else."""
    if len(data) < ARRAY_HEAD_BYTES or data[0] != _LONG_EXTENSION or data[5] != ARRAY:
        return None
    if int.from_bytes(data[1:5], "big") != len(data) - ARRAY_HEAD_BYTES:
        raise ValueError("an array is not as long as it says")
    return arrays.unpack_array(memoryview(data)[ARRAY_HEAD_BYTES:])
