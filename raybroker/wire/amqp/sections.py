"""Sections of a message: where each is, and what is in it when somebody asks; new sections for the front.

    header, delivery-annotations                               written anew at each delivery
    message-annotations, properties, application-properties,   the rest, which passes as it came
    body (data…, sequence…, or one value), footer

Locating looks at the front of each section alone; nothing is copied.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from raybroker.wire.amqp.performatives import (
    AmqpHeader,
    AmqpProperties,
    composite_of,
    decode_composite,
    encode_composite,
)
from raybroker.wire.amqp.types import (
    MALFORMED,
    NESTING_MAX,
    Buffer,
    Reader,
    Symbol,
    decode,
    encode,
    encode_fields,
    encode_map,
    explained,
    malformed,
    skip,
)

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78
SECTIONS_MAX: Final = 4096
"""A body may be of many data or sequence sections."""
_SYMBOLS: Final[Mapping[str, int]] = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
_LISTS: Final = frozenset({0x45, 0xC0, 0xD0})
_MAPS: Final = frozenset({0xC1, 0xD1})
_BINARIES: Final = frozenset({0xA0, 0xB0})
_CONSTRUCTORS: Final[Mapping[int, frozenset[int]]] = {
    HEADER: _LISTS,
    DELIVERY_ANNOTATIONS: _MAPS,
    MESSAGE_ANNOTATIONS: _MAPS,
    PROPERTIES: _LISTS,
    APPLICATION_PROPERTIES: _MAPS,
    DATA: _BINARIES,
    SEQUENCE: _LISTS,
    VALUE: frozenset(range(256)),
    FOOTER: _MAPS,
}
"""Section → the constructors that its value may have."""
_SIZES: Final = {0xA: 1, 0xC: 1, 0xE: 1, 0xB: 4, 0xD: 4, 0xF: 4}
"""First half of a constructor → how many bytes the size has that stands before its values."""
_STARTS: Final[Mapping[int, tuple[int, int]]] = {
    0x53 << 16 | code << 8 | constructor: (code, _SIZES.get(constructor >> 4, 0))
    for code, constructors in _CONSTRUCTORS.items()
    for constructor in constructors
}
"""The first four bytes of a section whose descriptor has its short form → the section, and how many bytes the size of
its value has; 0: it has none."""
_HEADERS_MAX: Final = 256
_HEADER_BYTES_MAX: Final = 16
_headers: Final[dict[bytes, AmqpHeader]] = {}
"""Headers that have come, by their bytes: there are few that differ, but for those with a time to live. Full, it
takes no more."""
_read_header: Final = composite_of(AmqpHeader).read_fields
_read_properties: Final = composite_of(AmqpProperties).read_fields
_FRONTS: Final = {code: b"\0\x53" + bytes((code,)) for code in _CONSTRUCTORS}
_new: Final = tuple.__new__
_LONG: Final = struct.Struct(">I")
_long_at: Final = _LONG.unpack_from


class MessageSection(NamedTuple):
    """``start``: of its descriptor, ``value``: of what is described, ``end``: of both."""

    code: int
    start: int
    value: int
    end: int


class MessageSections:
    """The sections of one message. What is decoded is decoded at each call.

    ``spans``: the fields of each section's MessageSection.
    """

    __slots__ = ("data", "spans")

    def __init__(self, data: Buffer) -> None:
        """Raises AmqpViolation for what is no message."""
        self.data = data
        self.spans: list[tuple[int, int, int, int]] = []
        add, known = self.spans.append, _STARTS.get
        start, size, last = 0, len(data), 0
        while start < size:
            # Nearly all have a descriptor in its short form, and a size of one byte or four; nothing else is looked at.
            begins = known(_long_at(data, start)[0]) if start + 8 <= size else None
            if begins is None:
                code, at = _unusual_start(data, start)
                width = 0
            else:
                code, width = begins
                at = start + 3
            if code <= last or last >= DATA:
                _check_order(last, code)
                if len(self.spans) == SECTIONS_MAX:
                    raise malformed(f"a message has more than {SECTIONS_MAX} sections")
            if width == 1:
                end = at + 2 + data[at + 1]
            else:
                end = at + 5 + _long_at(data, at + 1)[0] if width else skip(data, at)
            if end > size:
                raise malformed("a value goes on behind the end")
            add((code, start, at, end))
            start, last = end, code

    @property
    def sections(self) -> list[MessageSection]:
        return [_new(MessageSection, span) for span in self.spans]

    def find(self, code: int) -> MessageSection | None:
        for span in self.spans:
            if span[0] == code:
                return _new(MessageSection, span)
        return None

    @property
    def kept_from(self) -> int:
        """The offset of what passes as it came, behind header and delivery annotations."""
        for code, start, _, _ in self.spans:
            if code > DELIVERY_ANNOTATIONS:
                return start
        return len(self.data)

    @property
    def header(self) -> AmqpHeader | None:
        """Those that came with the same bytes are one object, but for the rare ones."""
        if not self.spans or self.spans[0][0] != HEADER:
            return None
        _, start, value, end = self.spans[0]
        data = bytes(self.data[start:end])
        header = _headers.get(data)
        if header is None:
            header = self._read(_read_header, value)
            if len(data) <= _HEADER_BYTES_MAX and len(_headers) < _HEADERS_MAX:
                _headers[data] = header
        return header

    @property
    def properties(self) -> AmqpProperties | None:
        found = self.find(PROPERTIES)
        return None if found is None else self.properties_at(found.value)

    def properties_at(self, value: int) -> AmqpProperties:
        """The properties, whose section has its value there."""
        properties: AmqpProperties = self._read(_read_properties, value)
        return properties

    @property
    def delivery_annotations(self) -> dict[Any, Any]:
        return self._map(DELIVERY_ANNOTATIONS)

    @property
    def message_annotations(self) -> dict[Any, Any]:
        return self._map(MESSAGE_ANNOTATIONS)

    @property
    def application_properties(self) -> dict[str, Any]:
        found = self._map(APPLICATION_PROPERTIES)
        for name in found:
            if type(name) is not str:
                raise malformed("a name of an application property is no string")
        return found

    @property
    def footer(self) -> dict[Any, Any]:
        return self._map(FOOTER)

    @property
    def body_kind(self) -> int | None:
        """DATA, SEQUENCE or VALUE; None when the message has no body."""
        for code, _, _, _ in self.spans:
            if DATA <= code <= VALUE:
                return code
        return None

    @property
    def body(self) -> Any:
        """The value; of data all bytes, of sequences all items; None when the message has no body."""
        kind = self.body_kind
        found = [decode(self.data, value)[0] for code, _, value, _ in self.spans if code == kind]
        if kind == DATA:
            return found[0] if len(found) == 1 else b"".join(found)
        if kind == SEQUENCE:
            return [item for items in found for item in items]
        return found[0] if kind == VALUE else None

    @property
    def composite_body(self) -> Any:
        """The described value in the body, as Declare and Discharge are: of the table of composites, or Described."""
        found = self.find(VALUE)
        if found is None:
            raise malformed("the body of a message is no value")
        return decode_composite(self.data, found.value)[0]

    def _read(self, reader: Reader, at: int) -> Any:
        try:
            value, end = reader(self.data, at, NESTING_MAX)
        except MALFORMED as error:
            raise explained(error) from None
        if end > len(self.data):
            raise malformed("a value goes on behind the end")
        return value

    def _map(self, code: int) -> dict[Any, Any]:
        found = self.find(code)
        value: dict[Any, Any] = {} if found is None else decode(self.data, found.value)[0]
        return value


def _check_order(last: int, code: int) -> None:
    """A section does not come behind one of a greater number, or behind the only one of its kind."""
    if code < last or (code == last and code not in (DATA, SEQUENCE)):
        raise malformed(f"a section {code:#x} of a message comes behind {last:#x}")
    if code in (SEQUENCE, VALUE) and code != last:
        raise malformed("a message has bodies of two kinds")


def _unusual_start(data: Buffer, start: int) -> tuple[int, int]:
    """A section at the very end, or whose descriptor has another than its short form, and where its value begins."""
    if data[start]:
        raise malformed("a message has something that is no section")
    descriptor, at = decode(data, start + 1)
    code = _SYMBOLS.get(descriptor) if type(descriptor) is Symbol else descriptor if type(descriptor) is int else None
    if code is None:
        raise malformed(f"a message has a section {descriptor!r:.40}")
    if at >= len(data) or data[at] not in _CONSTRUCTORS.get(code, ()):
        raise malformed(f"a section {code:#x} of a message has a value of a wrong type")
    return code, at


def header_section(header: AmqpHeader) -> bytes:
    return encode_composite(header)


def properties_section(properties: AmqpProperties) -> bytes:
    return encode_composite(properties)


def annotations_section(code: int, annotations: Mapping[Any, Any]) -> bytes:
    """Delivery annotations, message annotations or a footer; nothing for none."""
    return _FRONTS[code] + encode_fields(annotations) if annotations else b""


def application_properties_section(properties: Mapping[str, Any]) -> bytes:
    """Nothing for none. Raises MessageFormatError for a value that AMQP has no type for."""
    return _FRONTS[APPLICATION_PROPERTIES] + encode_map(properties) if properties else b""


def data_front(size: int) -> bytes:
    """A data section up to its bytes."""
    return _FRONTS[DATA] + (bytes((0xA0, size)) if size < 256 else b"\xb0" + _LONG.pack(size))


def value_section(value: Any) -> bytes:
    """A body of one value. Raises MessageFormatError."""
    return _FRONTS[VALUE] + encode(value)


def sequence_section(items: list[Any]) -> bytes:
    """A body of a list. Raises MessageFormatError."""
    return _FRONTS[SEQUENCE] + encode(items)
