"""Types of AMQP 1.0: one table of constructors, from which values are read and written.

    AMQP                                       Python
    null, boolean                              None, bool
    ubyte … ulong, byte … long                 int; to write another than long: Ubyte … Ulong, Byte … Int
    float, double                              float; to write a float: Float
    decimal32, decimal64, decimal128           AmqpDecimal, which keeps the bytes
    char, timestamp (ms since 1970), uuid      Char, Timestamp, uuid.UUID
    binary, string, symbol                     bytes, str, Symbol
    list, map, array                           list, dict, AmqpArray
    described                                  Described; a descriptor is an int (ulong) or a Symbol

What is read is any buffer that gives numbers by index: bytes, or a memoryview of bytes. A reader looks at no more than
``NESTING_MAX`` levels; what a compound value holds never takes more than its declared size, and an array of values
without bytes has at most ``EMPTY_ITEMS_MAX``. Everything malformed raises AmqpViolation, amqp:decode-error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from raybroker.model.errors import MessageFormatError
from raybroker.wire.amqp.conditions import DECODE_ERROR, AmqpViolation

Buffer = bytes | memoryview
Reader = Callable[[Any, int, int], tuple[Any, int]]
"""(buffer, where the value begins behind its constructor, levels left) → value and where it ends."""
Packer = Callable[[Any], bytes]
"""value → its bytes behind the constructor."""

NESTING_MAX: Final = 32
EMPTY_ITEMS_MAX: Final = 64
_U32: Final = struct.Struct(">I")
_PAIR32: Final = struct.Struct(">II")


class Symbol(str):
    """A text of ASCII that names something; it equals the str."""

    __slots__ = ()


class Char(str):
    """One character."""

    __slots__ = ()


class Ubyte(int):
    __slots__ = ()


class Ushort(int):
    __slots__ = ()


class Uint(int):
    __slots__ = ()


class Ulong(int):
    __slots__ = ()


class Byte(int):
    __slots__ = ()


class Short(int):
    __slots__ = ()


class Int(int):
    __slots__ = ()


class Float(float):
    """A number of 32 bits."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970."""

    __slots__ = ()


class AmqpDecimal(NamedTuple):
    """A decimal number as it came: 4, 8 or 16 bytes of IEEE 754."""

    data: bytes


class Described(NamedTuple):
    descriptor: Any
    value: Any


class AmqpArray(NamedTuple):
    """``code``: the constructor of all items; ``descriptor``: theirs when they are described, else None."""

    code: int
    items: tuple[Any, ...]
    descriptor: Any = None


def malformed(text: str) -> AmqpViolation:
    return AmqpViolation(text, DECODE_ERROR)


# ---- reading -------------------------------------------------------------------------------------------------------


def _constant(value: Any) -> Reader:
    return lambda buffer, at, levels: (value, at)


def _number(layout: str, make: Callable[[Any], Any] | None = None) -> Reader:
    one = struct.Struct(layout)
    size, unpack = one.size, one.unpack_from
    if make is None:
        return lambda buffer, at, levels: (unpack(buffer, at)[0], at + size)
    return lambda buffer, at, levels: (make(unpack(buffer, at)[0]), at + size)


def _byte(buffer: Any, at: int, levels: int) -> tuple[int, int]:
    return buffer[at], at + 1


def _read_boolean(buffer: Any, at: int, levels: int) -> tuple[bool, int]:
    value = buffer[at]
    if value > 1:
        raise malformed(f"a boolean is {value}; it is 0 or 1")
    return value == 1, at + 1


def _char(point: int) -> Char:
    if point > 0x10FFFF or 0xD800 <= point < 0xE000:
        raise malformed(f"a char is {point:#x}, which is no character of Unicode")
    return Char(chr(point))


def _raw(size: int, make: Callable[[bytes], Any]) -> Reader:
    def read(buffer: Any, at: int, levels: int) -> tuple[Any, int]:
        end = at + size
        data = bytes(buffer[at:end])
        if len(data) != size:
            raise malformed("a value goes on behind its end")
        return make(data), end

    return read


def _read_binary8(buffer: Any, at: int, levels: int) -> tuple[bytes, int]:
    end = at + 1 + buffer[at]
    return bytes(buffer[at + 1 : end]), end


def _read_binary32(buffer: Any, at: int, levels: int) -> tuple[bytes, int]:
    at += 4
    end = at + _U32.unpack_from(buffer, at - 4)[0]
    return bytes(buffer[at:end]), end


def _read_string8(buffer: Any, at: int, levels: int) -> tuple[str, int]:
    end = at + 1 + buffer[at]
    return str(buffer[at + 1 : end], "utf-8"), end


def _read_string32(buffer: Any, at: int, levels: int) -> tuple[str, int]:
    at += 4
    end = at + _U32.unpack_from(buffer, at - 4)[0]
    return str(buffer[at:end], "utf-8"), end


def _read_symbol8(buffer: Any, at: int, levels: int) -> tuple[Symbol, int]:
    end = at + 1 + buffer[at]
    data = bytes(buffer[at + 1 : end])
    symbol = _symbols.get(data)
    if symbol is None:
        symbol = Symbol(str(data, "ascii"))
        if len(_symbols) < SYMBOLS_MAX:
            _symbols[data] = symbol
    return symbol, end


SYMBOLS_MAX: Final = 512
_symbols: Final[dict[bytes, Symbol]] = {}
"""Symbols of less than 256 bytes that have come, of which few differ. Full, it takes no more."""


def _read_symbol32(buffer: Any, at: int, levels: int) -> tuple[Symbol, int]:
    at += 4
    end = at + _U32.unpack_from(buffer, at - 4)[0]
    return Symbol(str(buffer[at:end], "ascii")), end


def compound8(buffer: Any, at: int) -> tuple[int, int, int]:
    """(count, where the items begin, where they end) of a list8 or map8."""
    end = at + 1 + buffer[at]
    if end > len(buffer) or end < at + 2:
        raise malformed("a list, map or array of a size that it cannot have")
    return buffer[at + 1], at + 2, end


def compound32(buffer: Any, at: int) -> tuple[int, int, int]:
    """(count, where the items begin, where they end) of a list32 or map32."""
    size, count = _PAIR32.unpack_from(buffer, at)
    end = at + 4 + size
    if end > len(buffer) or size < 4:
        raise malformed("a list, map or array of a size that it cannot have")
    return count, at + 8, end


def _items(buffer: Any, count: int, at: int, end: int, levels: int) -> list[Any]:
    if count > end - at:
        raise malformed(f"a list or map declares {count} items, and has {end - at} bytes for them")
    if levels < 1:
        raise malformed(f"values are nested more than {NESTING_MAX} levels deep")
    found = []
    readers, levels = READERS, levels - 1
    for _ in range(count):
        value, at = readers[buffer[at]](buffer, at + 1, levels)
        found.append(value)
    if at != end:
        raise malformed("the items of a list or map do not end where it ends")
    return found


def _list_by(head: Callable[[Any, int], tuple[int, int, int]]) -> Reader:
    def read(buffer: Any, at: int, levels: int) -> tuple[list[Any], int]:
        count, start, end = head(buffer, at)
        return _items(buffer, count, start, end, levels), end

    return read


def _map_by(head: Callable[[Any, int], tuple[int, int, int]]) -> Reader:
    def read(buffer: Any, at: int, levels: int) -> tuple[dict[Any, Any], int]:
        count, start, end = head(buffer, at)
        if count % 2:
            raise malformed(f"a map of {count} items; they are pairs")
        if count > end - start:
            raise malformed(f"a list or map declares {count} items, and has {end - start} bytes for them")
        if levels < 1:
            raise malformed(f"values are nested more than {NESTING_MAX} levels deep")
        found: dict[Any, Any] = {}
        readers, at, levels = READERS, start, levels - 1
        try:
            for _ in range(count // 2):
                key, at = readers[buffer[at]](buffer, at + 1, levels)
                found[key], at = readers[buffer[at]](buffer, at + 1, levels)
        except TypeError:
            raise malformed("a key of a map is a list, a map or an array") from None
        if at != end:
            raise malformed("the items of a list or map do not end where it ends")
        if 2 * len(found) != count:
            raise malformed("a map has a key twice")
        return found, end

    return read


def _array_by(head: Callable[[Any, int], tuple[int, int, int]]) -> Reader:
    def read(buffer: Any, at: int, levels: int) -> tuple[AmqpArray, int]:
        count, at, end = head(buffer, at)
        if levels < 1:
            raise malformed(f"values are nested more than {NESTING_MAX} levels deep")
        descriptor, code = None, buffer[at]
        at += 1
        if not code:
            descriptor, at = read_descriptor(buffer, at)
            code = buffer[at]
            at += 1
            if not code:
                raise malformed("the items of an array are described twice")
        if at > end or count > max(end - at, EMPTY_ITEMS_MAX if code < _FIXED_ONE else 0):
            raise malformed(f"an array declares {count} items, and has {end - at} bytes for them")
        found, reader = [], READERS[code]
        for _ in range(count):
            value, at = reader(buffer, at, levels - 1)
            found.append(value)
        if at != end:
            raise malformed("the items of an array do not end where it ends")
        return AmqpArray(code, tuple(found), descriptor), end

    return read


_FIXED_ONE: Final = 0x50
"""Constructors below this have no bytes."""


_DESCRIPTORS: Final = frozenset({0x80, 0x53, 0x44, 0xA3, 0xB3})


def read_descriptor(buffer: Any, at: int) -> tuple[Any, int]:
    """The descriptor that begins there with its constructor, and where it ends."""
    code = buffer[at]
    if code not in _DESCRIPTORS:
        raise malformed("a descriptor is neither a ulong nor a symbol")
    found: tuple[Any, int] = READERS[code](buffer, at + 1, 0)
    return found


def _read_described(buffer: Any, at: int, levels: int) -> tuple[Described, int]:
    if levels < 1:
        raise malformed(f"values are nested more than {NESTING_MAX} levels deep")
    descriptor, at = read_descriptor(buffer, at)
    value, at = READERS[buffer[at]](buffer, at + 1, levels - 1)
    return Described(descriptor, value), at


def _read_unknown(buffer: Any, at: int, levels: int) -> tuple[Any, int]:
    raise malformed(f"{buffer[at - 1]:#04x} is no constructor of a type")


# ---- the table of constructors -------------------------------------------------------------------------------------


class Constructor(NamedTuple):
    kind: str
    read: Reader
    pack: Packer


def _packed(layout: str) -> Packer:
    return struct.Struct(layout).pack


def _nothing(value: Any) -> bytes:
    return b""


def _pack8(value: bytes) -> bytes:
    return bytes((len(value),)) + value


def _pack32(value: bytes) -> bytes:
    return _U32.pack(len(value)) + value


def _pack_list(items: Sequence[Any]) -> bytes:
    body = b"".join([encode(item) for item in items])
    return _PAIR32.pack(len(body) + 4, len(items)) + body


def _pack_map(items: Mapping[Any, Any]) -> bytes:
    body = b"".join([part for key, value in items.items() for part in (encode(key), encode(value))])
    return _PAIR32.pack(len(body) + 4, 2 * len(items)) + body


def _pack_array(array: AmqpArray) -> bytes:
    code, items, descriptor = array
    front = bytes((code,)) if descriptor is None else b"\0" + encode_descriptor(descriptor) + bytes((code,))
    body = front + b"".join([CONSTRUCTORS[code].pack(item) for item in items])
    return _PAIR32.pack(len(body) + 4, len(items)) + body


CONSTRUCTORS: Final[Mapping[int, Constructor]] = {
    0x40: Constructor("null", _constant(None), _nothing),
    0x56: Constructor("boolean", _read_boolean, lambda value: b"\1" if value else b"\0"),
    0x41: Constructor("boolean", _constant(True), _nothing),
    0x42: Constructor("boolean", _constant(False), _nothing),
    0x50: Constructor("ubyte", _byte, _packed(">B")),
    0x60: Constructor("ushort", _number(">H"), _packed(">H")),
    0x70: Constructor("uint", _number(">I"), _packed(">I")),
    0x52: Constructor("uint", _byte, _packed(">B")),
    0x43: Constructor("uint", _constant(0), _nothing),
    0x80: Constructor("ulong", _number(">Q"), _packed(">Q")),
    0x53: Constructor("ulong", _byte, _packed(">B")),
    0x44: Constructor("ulong", _constant(0), _nothing),
    0x51: Constructor("byte", _number(">b"), _packed(">b")),
    0x61: Constructor("short", _number(">h"), _packed(">h")),
    0x71: Constructor("int", _number(">i"), _packed(">i")),
    0x54: Constructor("int", _number(">b"), _packed(">b")),
    0x81: Constructor("long", _number(">q"), _packed(">q")),
    0x55: Constructor("long", _number(">b"), _packed(">b")),
    0x72: Constructor("float", _number(">f"), _packed(">f")),
    0x82: Constructor("double", _number(">d"), _packed(">d")),
    0x74: Constructor("decimal32", _raw(4, AmqpDecimal), lambda value: bytes(value.data)),
    0x84: Constructor("decimal64", _raw(8, AmqpDecimal), lambda value: bytes(value.data)),
    0x94: Constructor("decimal128", _raw(16, AmqpDecimal), lambda value: bytes(value.data)),
    0x73: Constructor("char", _number(">I", _char), lambda value: _U32.pack(ord(value))),
    0x83: Constructor("timestamp", _number(">q", Timestamp), _packed(">q")),
    0x98: Constructor("uuid", _raw(16, lambda data: UUID(bytes=data)), lambda value: bytes(value.bytes)),
    0xA0: Constructor("binary", _read_binary8, _pack8),
    0xB0: Constructor("binary", _read_binary32, _pack32),
    0xA1: Constructor("string", _read_string8, lambda value: _pack8(value.encode())),
    0xB1: Constructor("string", _read_string32, lambda value: _pack32(value.encode())),
    0xA3: Constructor("symbol", _read_symbol8, lambda value: _pack8(value.encode("ascii"))),
    0xB3: Constructor("symbol", _read_symbol32, lambda value: _pack32(value.encode("ascii"))),
    0x45: Constructor("list", lambda buffer, at, levels: ([], at), _nothing),
    0xC0: Constructor("list", _list_by(compound8), lambda items: _small(_pack_list(items))),
    0xD0: Constructor("list", _list_by(compound32), _pack_list),
    0xC1: Constructor("map", _map_by(compound8), lambda items: _small(_pack_map(items))),
    0xD1: Constructor("map", _map_by(compound32), _pack_map),
    0xE0: Constructor("array", _array_by(compound8), lambda array: _small(_pack_array(array))),
    0xF0: Constructor("array", _array_by(compound32), _pack_array),
}
"""Code → the type that it constructs."""
READERS: Final[Sequence[Reader]] = [
    _read_described if code == 0 else CONSTRUCTORS[code].read if code in CONSTRUCTORS else _read_unknown
    for code in range(256)
]


def _small(packed: bytes) -> bytes:
    """A list, map or array with sizes of one byte, of one with sizes of four."""
    size, count = _PAIR32.unpack_from(packed)
    return bytes((size - 3, count)) + packed[8:]


def readers_of(*kinds: str) -> Mapping[int, Reader]:
    """The constructors of some types; of all, when none is named."""
    if not kinds:
        return {0: _read_described} | {code: one.read for code, one in CONSTRUCTORS.items()}
    return {code: one.read for code, one in CONSTRUCTORS.items() if one.kind in kinds}


MALFORMED: Final = (IndexError, struct.error, UnicodeDecodeError)
"""What reading raises beside AmqpViolation: a value goes on behind the end, or a text is none."""


def decode(buffer: Buffer, at: int = 0) -> tuple[Any, int]:
    """The value that begins there, and where it ends. Raises AmqpViolation."""
    try:
        value, end = READERS[buffer[at]](buffer, at + 1, NESTING_MAX)
    except MALFORMED as error:
        raise explained(error) from None
    if end > len(buffer):
        raise malformed("a value goes on behind the end")
    return value, end


def explained(error: Exception) -> AmqpViolation:
    """What one of MALFORMED says of the peer."""
    if isinstance(error, UnicodeDecodeError):
        return malformed("a string is no UTF-8, or a symbol no ASCII")
    return malformed("a value goes on behind the end")


def skip(buffer: Buffer, at: int) -> int:
    """Return where the value ends that begins there, without looking into it. Raises AmqpViolation."""
    try:
        code = buffer[at]
        at += 1
        while not code:
            at = skip(buffer, at) if buffer[at] else _fail_described()
            code = buffer[at]
            at += 1
        width = _WIDTHS[code]
        if width >= 0:
            at += width
        elif width == _SIZE8:
            at += 1 + buffer[at]
        elif width == _SIZE32:
            at += 4 + _U32.unpack_from(buffer, at)[0]
        else:
            raise malformed(f"{code:#04x} is no constructor of a type")
    except MALFORMED as error:
        raise explained(error) from None
    if at > len(buffer):
        raise malformed("a value goes on behind the end")
    return at


_SIZE8, _SIZE32, _NONE = -1, -2, -3
_WIDTHS_OF_CLASS: Final = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}
_WIDTHS: Final = [
    _NONE if code not in CONSTRUCTORS else _WIDTHS_OF_CLASS.get(code >> 4, _SIZE32 if code >> 4 & 1 else _SIZE8)
    for code in range(256)
]
"""Code → how many bytes its values have, or whether a size of one or of four bytes stands before them."""


def _fail_described() -> int:
    raise malformed("a descriptor is described itself")


# ---- writing -------------------------------------------------------------------------------------------------------


def encode_uint(value: int) -> bytes:
    if value > 255:
        return b"\x70" + _U32.pack(value)
    return bytes((0x52, value)) if value else b"\x43"


def encode_ulong(value: int) -> bytes:
    if value > 255:
        return b"\x80" + struct.pack(">Q", value)
    return bytes((0x53, value)) if value else b"\x44"


def _encode_int(value: int) -> bytes:
    return struct.pack(">Bb", 0x54, value) if -128 <= value < 128 else struct.pack(">Bi", 0x71, value)


def _encode_long(value: int) -> bytes:
    if -128 <= value < 128:
        return struct.pack(">Bb", 0x55, value)
    if -(1 << 63) <= value < 1 << 63:
        return struct.pack(">Bq", 0x81, value)
    return encode_ulong(value)


def encode_binary(value: Any) -> bytes:
    data = bytes(value)
    return bytes((0xA0, len(data))) + data if len(data) < 256 else b"\xb0" + _U32.pack(len(data)) + data


def encode_string(value: str) -> bytes:
    data = value.encode()
    return bytes((0xA1, len(data))) + data if len(data) < 256 else b"\xb1" + _U32.pack(len(data)) + data


def encode_symbol(value: str) -> bytes:
    data = value.encode("ascii")
    return bytes((0xA3, len(data))) + data if len(data) < 256 else b"\xb3" + _U32.pack(len(data)) + data


def encode_boolean(value: object) -> bytes:
    return b"\x41" if value else b"\x42"


def encode_items(parts: Sequence[bytes], small: int, large: int) -> bytes:
    """A list or map of items that are encoded; its constructors with sizes of one byte and of four."""
    body = b"".join(parts)
    if len(body) < 255 and len(parts) < 256:
        return bytes((small, len(body) + 1, len(parts))) + body
    return bytes((large,)) + _PAIR32.pack(len(body) + 4, len(parts)) + body


def encode_list(items: Sequence[Any]) -> bytes:
    return encode_items([encode(item) for item in items], 0xC0, 0xD0) if items else b"\x45"


def encode_map(items: Mapping[Any, Any]) -> bytes:
    parts = [part for key, value in items.items() for part in (encode(key), encode(value))]
    return encode_items(parts, 0xC1, 0xD1)


def encode_fields(items: Mapping[str, Any]) -> bytes:
    """A map whose keys are symbols: annotations, properties of a connection, capabilities of a filter."""
    parts = []
    for key, value in items.items():
        parts.append(encode_symbol(key) if isinstance(key, str) else encode_ulong(key))
        parts.append(encode(value))
    return encode_items(parts, 0xC1, 0xD1)


def encode_symbols(items: Sequence[str]) -> bytes:
    """An array of symbols."""
    return encode_array(AmqpArray(0xA3 if all(len(item) < 256 for item in items) else 0xB3, tuple(items)))


def encode_array(array: AmqpArray) -> bytes:
    packed = _pack_array(array)
    size, count = _PAIR32.unpack_from(packed)
    return b"\xe0" + _small(packed) if size < 259 and count < 256 else b"\xf0" + packed


def encode_descriptor(descriptor: Any) -> bytes:
    return encode_symbol(descriptor) if isinstance(descriptor, str) else encode_ulong(descriptor)


def _encode_decimal(value: AmqpDecimal) -> bytes:
    code = {4: 0x74, 8: 0x84, 16: 0x94}[len(value.data)]
    return bytes((code,)) + value.data


def _fixed(code: int) -> Packer:
    front, pack = bytes((code,)), CONSTRUCTORS[code].pack
    return lambda value: front + pack(value)


_ENCODERS: Final[Mapping[type, Packer]] = {
    type(None): lambda value: b"\x40",
    bool: encode_boolean,
    Ubyte: _fixed(0x50),
    Ushort: _fixed(0x60),
    Uint: encode_uint,
    Ulong: encode_ulong,
    Byte: _fixed(0x51),
    Short: _fixed(0x61),
    Int: _encode_int,
    int: _encode_long,
    Float: _fixed(0x72),
    float: _fixed(0x82),
    AmqpDecimal: _encode_decimal,
    Char: _fixed(0x73),
    Timestamp: _fixed(0x83),
    UUID: _fixed(0x98),
    bytes: encode_binary,
    bytearray: encode_binary,
    memoryview: encode_binary,
    str: encode_string,
    Symbol: encode_symbol,
    list: encode_list,
    tuple: encode_list,
    dict: encode_map,
    AmqpArray: encode_array,
    Described: lambda value: b"\0" + encode_descriptor(value.descriptor) + encode(value.value),
}
"""Python type → what writes its values."""


def encode(value: Any) -> bytes:
    """A value with its constructor, in the shortest form. Raises MessageFormatError for what AMQP has no type for."""
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        raise MessageFormatError(f"AMQP has no type for a {type(value).__name__}")
    try:
        return encoder(value)
    except (struct.error, KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise MessageFormatError(f"{value!r:.80} is no {type(value).__name__} of AMQP: {error}") from None
    except RecursionError:
        raise MessageFormatError(f"a {type(value).__name__} is nested too deeply") from None
