"""Messages of AMQP 1.0 as they are kept: their sections from the message-annotations on, byte for byte as they came.

What a message of another protocol has as headers and body is in these sections, and is decoded when somebody asks.

    body of AMQP                                        here
    data sections                                       bytes; with a content type that is text, text
    value: string, binary, boolean, numbers, null       str, bytes, bool, int or float, None
    value: timestamp, uuid, char, symbol                aware datetime, UUID, str
    value: map, list, array; sequence sections          dict, list
    decimal32, decimal64, decimal128                    bytes as they came
    described                                           what is described

    header of AMQP                                      here
    message-id, correlation-id                          text; of other types with a prefix, see ``id_text``
    subject, reply-to, group-id, creation-time          type, reply_to, unit of order, timestamp
    content-type, group-sequence                        properties content_HYPHEN_type, JMSXGroupSeq
    application-properties                              properties; binary, and what else no property can be, as text
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import MessageFormatError
from raybroker.model.naming.property_names import SENDER_NAMES
from raybroker.model.naming.units import UNIT_CHARS_MAX, is_unit_name
from raybroker.wire.amqp.conditions import AmqpViolation
from raybroker.wire.amqp.performatives import AmqpProperties
from raybroker.wire.amqp.sections import DATA, MessageSections
from raybroker.wire.amqp.types import AmqpArray, AmqpDecimal, Described, Timestamp

MESSAGE_TYPE: Final = "x-opt-jms-msg-type"
DESTINATION_TYPE: Final = "x-opt-jms-dest"
REPLY_TYPE: Final = "x-opt-jms-reply-to"
JMS_TYPES: Final = ("object", "object", "map", "bytes", "stream", "text")
"""Value of the annotation x-opt-jms-msg-type → what JMS calls the message."""
KINDS: Final = ("queue", "topic", "queue", "topic")
"""Value of the annotations x-opt-jms-dest and x-opt-jms-reply-to → what the destination is; the last two are
temporary."""
PREFIXES: Final = (
    ("queue://", "queue"),
    ("topic://", "topic"),
    ("queue:", "queue"),
    ("topic:", "topic"),
    ("/queue/", "queue"),
    ("/queues/", "queue"),
    ("/topic/", "topic"),
    ("/topics/", "topic"),
)
"""Beginnings of addresses that say what is there."""
CONTENT_TYPE: Final = "content_HYPHEN_type"
"""The property with the content type, as STOMP clients have it."""
OCTETS: Final = "application/octet-stream"
TEXT_TYPES: Final = ("text/", "application/json", "application/xml", "application/javascript")
_CHARSETS: Final = frozenset({"utf-8", "us-ascii", "iso-8859-1", "iso-8859-15", "windows-1252", "utf-16"})
_NO_PREFIX: Final = "ID:AMQP_NO_PREFIX:"
_UUID: Final = "ID:AMQP_UUID:"
_ULONG: Final = "ID:AMQP_ULONG:"
_BINARY: Final = "ID:AMQP_BINARY:"
_ULONG_DIGITS_MAX: Final = 20
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def id_text(value: object) -> str | None:
    """A message-id or correlation-id as a text, as JMS clients of AMQP write those that are none."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, UUID):
        return f"{_UUID}{value}"
    return f"{_BINARY}{value.hex().upper()}" if isinstance(value, bytes) else f"{_ULONG}{value}"


def id_value(text: str) -> Any:
    """The message-id or correlation-id that a text stands for: what :func:`id_text` made it of."""
    if not text.startswith("ID:AMQP_"):
        return text
    try:
        if text.startswith(_UUID):
            return UUID(text.removeprefix(_UUID))
        if text.startswith(_BINARY):
            return bytes.fromhex(text.removeprefix(_BINARY))
    except ValueError:
        return text
    digits = text.removeprefix(_ULONG)
    if digits is not text and digits.isascii() and digits.isdecimal() and len(digits) <= _ULONG_DIGITS_MAX:
        number = int(digits)
        return number if number < 1 << 64 else text
    return text.removeprefix(_NO_PREFIX)


def sections_of(data: Buffer) -> MessageSections:
    """Raises MessageFormatError for what is no message."""
    try:
        return MessageSections(memoryview(data) if isinstance(data, bytearray) else data)
    except AmqpViolation as error:
        raise _undecodable(error) from None


def amqp_fields(data: Buffer) -> dict[str, Any]:
    """The headers of a message by their one-letter keys, as ``content.headers`` has them. Raises MessageFormatError."""
    sections = sections_of(data)
    try:
        return fields_of(sections, sections.properties)
    except AmqpViolation as error:
        raise _undecodable(error) from None


def fields_of(sections: MessageSections, properties: AmqpProperties | None) -> dict[str, Any]:
    """Do what :func:`amqp_fields` does, for whoever has them. Raises AmqpViolation."""
    named = {
        name: _property(value) for name, value in sections.application_properties.items() if name not in SENDER_NAMES
    }
    fields: dict[str, Any] = {}
    if properties is not None:
        if properties.content_type is not None and properties.content_type != OCTETS:
            named.setdefault(CONTENT_TYPE, str(properties.content_type))
        if properties.group_sequence is not None:
            named.setdefault("JMSXGroupSeq", properties.group_sequence)
        texts = {
            "i": id_text(properties.message_id),
            "c": id_text(properties.correlation_id),
            "t": properties.subject,
            "r": None if properties.reply_to is None else _reply_to(sections, properties.reply_to),
            "u": unit_of(properties.group_id),
            "s": None if properties.creation_time is None else int(properties.creation_time),
        }
        fields = {key: value for key, value in texts.items() if value is not None}
    if named:
        fields["p"] = named
    return fields


def unit_of(group_id: str | None) -> str | None:
    """The unit of order that a group-id names; a long name is cut."""
    if not group_id:
        return None
    name = group_id[:UNIT_CHARS_MAX]
    return name if is_unit_name(name) else None


def _reply_to(sections: MessageSections, address: str) -> str:
    said = kind_of_annotation(sections.message_annotations, REPLY_TYPE)
    kind, name = destination_in(address) if said is None else (said, address)
    return f"{kind}:{name}"


def kind_of_annotation(annotations: Mapping[Any, Any], name: str) -> str | None:
    """Queue or topic, by one of the annotations of JMS clients; None where there is none."""
    found = annotations.get(name)
    return KINDS[found] if isinstance(found, int) and 0 <= found < len(KINDS) else None


def destination_in(address: str) -> tuple[str, str]:
    """(queue or topic, name) of an address of which nobody has said what it is: a queue unless it begins with another
    prefix."""
    for prefix, kind in PREFIXES:
        if address.startswith(prefix):
            return kind, address[len(prefix) :]
    return "queue", address


def _property(value: Any) -> Any:
    """A value that properties have here."""
    kind = type(value)
    if kind is str or kind is bool or kind is int or kind is float or value is None:
        return value
    if isinstance(value, Timestamp):
        return int(value)
    plain = _plain(value)
    if isinstance(plain, bytes):
        return plain.hex()
    return plain if isinstance(plain, bool | int | float | str) else str(plain)


def amqp_body(data: Buffer) -> Any:
    """The body as others read it. Raises MessageFormatError."""
    sections = sections_of(data)
    try:
        body = sections.body
        if sections.body_kind == DATA:
            properties = sections.properties
            charset = text_charset(properties.content_type) if properties is not None else None
            return body if charset is None else _decoded(body, charset)
    except AmqpViolation as error:
        raise _undecodable(error) from None
    return _plain(body)


def text_charset(content_type: str | None) -> str | None:
    """The character set of a content type that is text; None for one that is not, and for an unknown set."""
    if content_type is None:
        return None
    name, *rest = (part.strip() for part in content_type.lower().split(";"))
    if not name.startswith(TEXT_TYPES):
        return None
    values = [part.partition("=")[2].strip(' "') for part in rest if part.partition("=")[0].strip() == "charset"]
    found = values[0] if values else "utf-8"
    return found if found in _CHARSETS else None


def _decoded(body: bytes, charset: str) -> str | bytes:
    try:
        return body.decode(charset)
    except UnicodeDecodeError:
        return body


def amqp_body_type(data: Buffer) -> str:
    """What JMS calls the message: what its sender has said, or what its body is. Raises MessageFormatError."""
    sections = sections_of(data)
    try:
        said = sections.message_annotations.get(MESSAGE_TYPE)
    except AmqpViolation as error:
        raise _undecodable(error) from None
    if isinstance(said, int) and 0 <= said < len(JMS_TYPES):
        return JMS_TYPES[said]
    body = amqp_body(data)
    if isinstance(body, dict) and all(type(key) is str for key in body):
        return "map"
    return next((name for kind, name in _TYPES if type(body) is kind), "object")


def _plain(value: Any) -> Any:
    """A value of Python for one of AMQP."""
    kind = type(value)
    if kind in _SAME:
        return value
    if kind is dict:
        return {_plain(key): _plain(item) for key, item in value.items()}
    if kind is list:
        return [_plain(item) for item in value]
    if kind is AmqpArray:
        return [_plain(item) for item in value.items]
    if kind is Described:
        return _plain(value.value)
    if kind is AmqpDecimal:
        return value.data
    if kind is Timestamp:
        try:
            return _EPOCH + datetime.timedelta(milliseconds=value)
        except OverflowError:
            return int(value)
    return next((base(value) for base in (str, int, float) if isinstance(value, base)), value)


_TYPES: Final = ((str, "text"), (bytes, "bytes"), (list, "stream"))
_SAME: Final = frozenset({str, bytes, bool, int, float, type(None), UUID})


def _undecodable(error: AmqpViolation) -> MessageFormatError:
    return MessageFormatError(f"a received message of AMQP does not decode: {error.args[0]}")
