"""Bodies of messages as bytes.

A body is bytes, text, or a map, list, number, truth value or None in msgpack, or of a type that is one of its extension
types here (``msgpack_types.py``); which one is its *kind*.  A message of AMQP is kept as it came, and is a kind.  A
pickled object is a kind of its own that only a program that asked for it makes or opens; it is not decoded here.  A
kind with one of the bits COMPRESSED is that of a body whose bytes were compressed, and the bit says how
(``codecs.py``).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import msgpack

from raybroker.content.codecs import inflate, inflated_size, unzstd, unzstd_size
from raybroker.model.blocks.record import Buffer
from raybroker.model.bounds import MESSAGE_BYTES_MAX
from raybroker.model.errors import MessageFormatError

BYTES: Final = 0
TEXT: Final = 1
OBJECT: Final = 2
"""A number, a truth value, None, or a map whose keys are not all text."""
PICKLE: Final = 3
MAP: Final = 4
STREAM: Final = 5
"""A list."""
WORK: Final = 6
"""The bodies of a unit of work: a list of (kind, headers, body, message id) in msgpack."""
AMQP: Final = 7
"""A message of AMQP, of which the headers are a part: see ``amqp_messages.py``. It is never compressed."""
DEFLATED: Final = 0x80
"""Added to the kind of a body that was compressed with zlib."""
ZSTD: Final = 0x40
"""Added to the kind of a body that was compressed with Zstandard."""
COMPRESSED: Final = DEFLATED | ZSTD
BODY_TYPES: Final = {
    BYTES: "bytes",
    TEXT: "text",
    OBJECT: "object",
    PICKLE: "object",
    MAP: "map",
    STREAM: "stream",
    WORK: "object",
    AMQP: "object",
}
"""Kind → what JMS calls a message with such a body; those of AMQP say themselves what they are."""

COMPRESS: Final = "JMS_SUN_COMPRESS"
COMPRESSED_SIZE: Final = "JMS_SUN_COMPRESSED_SIZE"
UNCOMPRESSED_SIZE: Final = "JMS_SUN_UNCOMPRESSED_SIZE"

_TEXT_KEYS = {str}
_LEAVES: Final = frozenset({int, float, bool, type(None)})
NESTING_MAX: Final = 1_024
"""Lists and maps inside each other, as deep as msgpack reads.  At the edge: the send raises MessageFormatError."""
_TOO_DEEP: Final = f"its lists and maps are more than {NESTING_MAX} deep in each other"


class AmqpBytes(bytes):
    """What is kept of a message of AMQP, as a body that is sent."""

    __slots__ = ()


def encode_body(body: Any, *, exact: bool = False) -> tuple[int, bytes]:
    """(kind, bytes) of a body; raises MessageFormatError naming the type that cannot travel.

    ``exact``: refuse what would come back as another type too, see ``msgpack_types.py``.
    """
    kind = type(body)
    if kind is bytes:
        return BYTES, body
    if kind is bytearray or kind is memoryview:
        return BYTES, bytes(body)
    try:
        if kind is str:
            return TEXT, body.encode()
        if kind in _LEAVES:
            return OBJECT, msgpack.packb(body)
        if kind is not list and kind is not dict:
            return _encode_other(body, exact=exact)
        return _kind_of(body), _packed(body, exact=exact)
    except RecursionError:
        error: Exception = ValueError(_TOO_DEEP)
    except (TypeError, ValueError, OverflowError) as found:
        error = ValueError(_TOO_DEEP) if "recursion limit" in str(found) else found
    raise MessageFormatError(
        f"a body of type {kind.__qualname__} cannot travel ({error}); send str, bytes, numbers, None, dates, UUID,"
        ' Decimal, arrays, or dict, list, tuple and dataclass of these, or make the producer with serializer="pickle"'
    ) from None


@cache
def _types() -> Any:
    """The module of the extension types: imported with the first body that is neither text nor bytes nor a number."""
    from raybroker.content import msgpack_types

    return msgpack_types


@cache
def amqp() -> Any:
    """The module of the messages of AMQP: imported with the first of them."""
    from raybroker.content import amqp_messages

    return amqp_messages


def _packed(body: Any, *, exact: bool) -> bytes:
    """A list, dict or what has to become an extension type, packed inside of a list, so that it is one level less deep
    than what can be read."""
    default = _types().packing(exact=exact)
    data: bytes = msgpack.packb([body], use_bin_type=True, strict_types=True, default=default)
    return data[1:]


def _kind_of(body: Any) -> int:
    if type(body) is list:
        return STREAM
    return MAP if type(body) is dict and set(map(type, body)) <= _TEXT_KEYS else OBJECT


def _encode_other(body: Any, *, exact: bool) -> tuple[int, bytes]:
    """A body of a type that msgpack does not have."""
    if type(body) is AmqpBytes:
        return AMQP, body
    types = _types()
    if types.arrays.is_array(body):
        return OBJECT, types.pack_lone_array(body)
    plain = types.packing(exact=exact)(body)
    if type(plain) in (str, bytes, list, dict):
        return encode_body(plain, exact=exact)
    return OBJECT, _packed(plain, exact=exact)


def decode_body(kind: int, data: Buffer, most: int = MESSAGE_BYTES_MAX, *, typed: bool = True) -> Any:
    """The body of a received message; raises MessageFormatError for bytes that are not what the kind says.

    ``most``: bytes that a compressed body may have when it is whole again.
    ``typed``: False gives dataclasses as dicts, for whoever is not the application.
    """
    if kind == BYTES:
        return bytes(data)
    if kind & COMPRESSED:
        kind, data = inflated(kind, data, most)
        if kind == BYTES:
            return bytes(data)
    if kind == WORK:
        return [decode_body(row.kind, row.body, most, typed=typed) for row in work_rows(data)]
    if kind == AMQP:
        return amqp().amqp_body(data)
    try:
        if kind == TEXT:
            return str(data, "utf-8")
        if kind in BODY_TYPES and kind != PICKLE:
            types = _types()
            array = types.lone_array(data) if kind == OBJECT else None
            if array is not None:
                return array
            hook = types.restored if typed else types.restored_plain
            body = msgpack.unpackb(data, raw=False, strict_map_key=False, ext_hook=hook)
            if (kind == MAP and type(body) is not dict) or (kind == STREAM and type(body) is not list):
                raise ValueError(f"a {type(body).__name__} is no {BODY_TYPES[kind]}")
            return body
    except Exception as error:  # noqa: BLE001 - a key of a map may be of any type, and hashing it may raise anything
        raise MessageFormatError(f"a received body does not decode: {error}") from None
    raise MessageFormatError(f"a received body has the unknown kind {kind}")


class WorkRow(NamedTuple):
    """One message of a unit of work."""

    kind: int
    header: bytes
    body: bytes
    id: str


def work_rows(data: Buffer) -> list[WorkRow]:
    """The messages in a body of kind WORK; raises MessageFormatError."""
    try:
        rows = [WorkRow(*row) for row in msgpack.unpackb(data, raw=False)]
        if not all(list(map(type, row)) == [int, bytes, bytes, str] and row.kind != WORK for row in rows):
            raise ValueError("its rows are not (kind, headers, body, id)")
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise MessageFormatError(f"a received unit of work does not decode: {error}") from None
    return rows


def deflated(kind: int, data: bytes, properties: Mapping[str, Any]) -> tuple[int, bytes, dict[str, Any]]:
    """(kind, body, properties) of a message that is to travel compressed, because its COMPRESS is True."""
    small = zlib.compress(data)
    return kind | DEFLATED, small, {**properties, COMPRESSED_SIZE: len(small), UNCOMPRESSED_SIZE: len(data)}


def inflated(kind: int, data: Buffer, most: int) -> tuple[int, bytes]:
    """(kind, body) of a compressed body; raises MessageFormatError when it is damaged or larger than ``most`` bytes."""
    if kind & COMPRESSED == COMPRESSED:
        raise MessageFormatError(f"a received body has the unknown kind {kind}")
    whole = inflate(data, most) if kind & DEFLATED else unzstd(data, most)
    return kind & ~COMPRESSED, whole


def size_of(kind: int, data: Buffer, most: int) -> int:
    """Bytes of a body as it is when it is decompressed, without keeping them; some more than ``most`` stands for all
    that are more. Raises MessageFormatError for one that is damaged."""
    if kind & COMPRESSED == COMPRESSED:
        raise MessageFormatError(f"a received body has the unknown kind {kind}")
    if kind & COMPRESSED:
        size = inflated_size(data, most) if kind & DEFLATED else unzstd_size(data)
        if kind & ~COMPRESSED != WORK or size > most:
            return size
        kind, data = inflated(kind, data, most)
    if kind != WORK:
        return memoryview(data).nbytes
    size = 0
    for row in work_rows(data):
        size += size_of(row.kind, row.body, most - size)
        if size > most:
            break
    return size
