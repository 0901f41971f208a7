"""What a message's body and headers are as bytes (R-16, R-17).

A body is bytes, text, or a map, list, number, truth value or None in msgpack; which one is its *kind*.  A pickled
object is a kind of its own that only a program that asked for it makes or opens; it is not decoded here.  Headers are
one msgpack map with one-letter keys; a message whose headers all have their defaults has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgpack

from raybroker.model.bounds import MESSAGE_HEADERS_BYTES_MAX
from raybroker.model.errors import MessageFormatError, MessageTooLargeError, ProtocolError
from raybroker.model.record import Buffer

BYTES: Final = 0
TEXT: Final = 1
OBJECT: Final = 2
PICKLE: Final = 3

PROPERTIES_MAX: Final = 1_000

_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1


def encode_body(body: Any) -> tuple[int, bytes]:
    """(kind, bytes) of a body; raises MessageFormatError naming the type that cannot travel."""
    kind = type(body)
    if kind is bytes:
        return BYTES, body
    if kind is bytearray or kind is memoryview:
        return BYTES, bytes(body)
    try:
        if kind is str:
            return TEXT, body.encode()
        return OBJECT, msgpack.packb(body, use_bin_type=True, strict_types=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise MessageFormatError(
            f"a body of type {kind.__qualname__} cannot travel ({error}); send str, bytes, or dict, list, numbers and"
            ' None of these, or make the producer with serializer="pickle"'
        ) from None


def decode_body(kind: int, data: Buffer) -> Any:
    """The body of a received message; raises MessageFormatError for bytes that are not what the kind says."""
    if kind == BYTES:
        return bytes(data)
    try:
        if kind == TEXT:
            return str(data, "utf-8")
        if kind == OBJECT:
            return msgpack.unpackb(data, raw=False, strict_map_key=False)
    except (ValueError, msgpack.exceptions.UnpackException, RecursionError) as error:
        raise MessageFormatError(f"a received body does not decode: {error}") from None
    raise MessageFormatError(f"a received body has the unknown kind {kind}")


class Header(NamedTuple):
    """Headers and properties of one message beside those that its block has for all."""

    properties: dict[str, Any]
    correlation_id: str | None = None
    reply_to: str | None = None
    type: str | None = None


NO_HEADER: Final = Header({})


def encode_header(
    properties: Mapping[str, Any] | None, correlation_id: str | None, reply_to: str | None, type_: str | None
) -> bytes:
    """Headers as bytes, empty when all have their defaults; raises MessageFormatError and MessageTooLargeError."""
    fields: dict[str, Any] = {}
    if properties:
        fields["p"] = check_properties(properties)
    for key, name, value in (
        ("c", "correlation_id", correlation_id), ("r", "reply_to", reply_to), ("t", "type", type_),
    ):  # fmt: skip
        if value is not None:
            if not isinstance(value, str):
                raise MessageFormatError(f"{name} is a {type(value).__name__}; it must be text")
            fields[key] = value
    if not fields:
        return b""
    try:
        data: bytes = msgpack.packb(fields, use_bin_type=True)
    except ValueError as error:
        raise MessageFormatError(f"a header or property cannot travel: {error}") from None
    if len(data) > MESSAGE_HEADERS_BYTES_MAX:
        raise MessageTooLargeError(
            f"headers of {len(data)} bytes; at most {MESSAGE_HEADERS_BYTES_MAX}: put bulk into the body"
        )
    return data


def check_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties with names and values that JMS allows: bool, int, float, str, bytes or None."""
    if len(properties) > PROPERTIES_MAX:
        raise MessageFormatError(f"{len(properties)} properties; at most {PROPERTIES_MAX}")
    for name, value in properties.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise MessageFormatError(f"property name {name!r} is not an identifier")
        if isinstance(value, bool | float | str | bytes) or value is None:
            continue
        if not isinstance(value, int) or not _INT_MIN <= value <= _INT_MAX:
            raise MessageFormatError(
                f"property {name} is a {type(value).__name__}; allowed are bool, int of 64 bits, float, str, bytes"
            )
    return dict(properties)


def decode_header(data: Buffer | None) -> Header:
    """Headers of a received message; raises ProtocolError for bytes that are none."""
    if data is None:
        return NO_HEADER
    try:
        fields = msgpack.unpackb(data, raw=False)
        properties = fields.get("p", {})
        if not isinstance(properties, dict):
            raise TypeError("properties are not a map")
        texts = [fields.get(key) for key in "crt"]
        if any(text is not None and not isinstance(text, str) for text in texts):
            raise TypeError("a header is no text")
        return Header(properties, *texts)
    except (ValueError, TypeError, AttributeError, msgpack.exceptions.UnpackException, RecursionError) as error:
        raise ProtocolError(f"the headers of a message do not decode: {error}") from None
