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

from raybroker.wire.amqp.performatives import AmqpHeader, AmqpProperties, decode_composite, encode_composite
from raybroker.wire.amqp.types import Buffer, Symbol, decode, encode, encode_fields, encode_map, malformed, skip

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
_SHORT: Final = frozenset({0xA0, 0xA1, 0xA3, 0xC0, 0xC1, 0xE0})
"""Constructors with a size of one byte."""
_SIZED: Final[Mapping[int, bool]] = {
    code << 8 | constructor: constructor in _SHORT
    for code, constructors in _CONSTRUCTORS.items()
    for constructor in constructors
}
"""Section and the constructor of its value, of those that there may be → whether its size is of one byte."""
_HEADERS_MAX: Final = 256
_HEADER_BYTES_MAX: Final = 16
_headers: Final[dict[bytes, AmqpHeader]] = {}
"""Headers that have come, by their bytes: there are few that differ, but for those with a time to live. Full, it
takes no more."""
_FRONTS: Final = {code: b"\0\x53" + bytes((code,)) for code in _CONSTRUCTORS}
_new: Final = tuple.__new__
_LONG: Final = struct.Struct(">I")


class MessageSection(NamedTuple):
    """``start``: of its descriptor, ``value``: of what is described, ``end``: of both."""

    code: int
    start: int
    value: int
    end: int


class MessageSections:
    """The sections of one message. What is decoded is decoded at each call."""

    __slots__ = ("data", "sections")

    def __init__(self, data: Buffer) -> None:
        """Raises AmqpViolation for what is no message."""
        self.data = data
        self.sections: list[MessageSection] = []
        found, sized = self.sections, _SIZED.get
        at, size, last = 0, len(data), 0
        while at < size:
            start = at
            if at + 4 < size and data[at + 1] == 0x53 and not data[at]:
                code = data[at + 2]
                at += 3
            else:
                code, at = _code_of(data, at)
            if code <= last or last >= DATA:
                _check_order(last, code)
                if len(found) == SECTIONS_MAX:
                    raise malformed(f"a message has more than {SECTIONS_MAX} sections")
            short = sized(code << 8 | data[at]) if at < size else None
            if short is None:
                raise malformed(f"a section {code:#x} of a message has a value of a wrong type")
            # Most have a size of one byte; nothing else is looked at here.
            end = at + 2 + data[at + 1] if short and at + 1 < size else skip(data, at)
            if end > size:
                raise malformed("a value goes on behind the end")
            found.append(_new(MessageSection, (code, start, at, end)))
            at, last = end, code

    def find(self, code: int) -> MessageSection | None:
        for section in self.sections:
            if section.code == code:
                return section
        return None

    @property
    def kept_from(self) -> int:
        """The offset of what passes as it came, behind header and delivery annotations."""
        for section in self.sections:
            if section.code > DELIVERY_ANNOTATIONS:
                return section.start
        return len(self.data)

    @property
    def header(self) -> AmqpHeader | None:
        if not self.sections or self.sections[0].code != HEADER:
            return None
        section = self.sections[0]
        data = bytes(self.data[section.start : section.end])
        header = _headers.get(data)
        if header is None:
            header = self._composite(section)
            if len(data) <= _HEADER_BYTES_MAX and len(_headers) < _HEADERS_MAX:
                _headers[data] = header
        return header

    @property
    def properties(self) -> AmqpProperties | None:
        found = self.find(PROPERTIES)
        return None if found is None else self._composite(found)

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
        for section in self.sections:
            if DATA <= section.code <= VALUE:
                return section.code
        return None

    @property
    def body(self) -> Any:
        """The value; of data all bytes, of sequences all items; None when the message has no body."""
        kind = self.body_kind
        found = [decode(self.data, section.value)[0] for section in self.sections if section.code == kind]
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

    def _composite(self, section: MessageSection) -> Any:
        return decode_composite(self.data, section.start)[0]

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


def _code_of(data: Buffer, at: int) -> tuple[int, int]:
    """A descriptor in another than its short form, and where it ends."""
    if data[at]:
        raise malformed("a message has something that is no section")
    descriptor, end = decode(data, at + 1)
    code = _SYMBOLS.get(descriptor) if type(descriptor) is Symbol else descriptor if type(descriptor) is int else None
    if code is None:
        raise malformed(f"a message has a section {descriptor!r:.40}")
    return code, end


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
