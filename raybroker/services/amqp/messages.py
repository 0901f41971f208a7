"""Messages between AMQP and the broker: what one that comes says, and one that goes, as its sections.

What came over AMQP goes as it came, behind a header that is written anew.  What came otherwise is written so that JMS
clients find what its sender meant:

    native body                     AMQP                                        annotation x-opt-jms-msg-type
    text                            value: string                               5
    bytes                           data                                        3
    map                             value: map                                  2
    list                            value: list                                 4
    number, truth value, None       value                                       1
    aware datetime, UUID            value: timestamp (ms), uuid                 1
    anything else                   value: string, as JSON would have it        5
"""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from raybroker.client.consumer.message import EncodedMessage, Message, MessageContent, content
from raybroker.content.amqp_messages import (
    CONTENT_TYPE,
    DESTINATION_TYPE,
    KINDS,
    MESSAGE_TYPE,
    REPLY_TYPE,
    fields_of,
    id_value,
    kind_of_annotation,
    unit_of,
)
from raybroker.content.bodies import AMQP, COMPRESSED, WORK, size_of
from raybroker.content.headers import pack_fields
from raybroker.model.blocks.large_block import LARGE_BODY_BYTES
from raybroker.model.bounds import MESSAGE_BYTES_MAX, MESSAGE_HEADERS_BYTES_MAX
from raybroker.model.errors import MessageFormatError, MessageTooLargeError, SecurityError
from raybroker.model.naming.names import is_temporary_name
from raybroker.services.gateways.json_form import json_bytes
from raybroker.wire.amqp.performatives import AmqpHeader, AmqpProperties
from raybroker.wire.amqp.sections import (
    DATA,
    MESSAGE_ANNOTATIONS,
    MessageSection,
    MessageSections,
    annotations_section,
    application_properties_section,
    data_front,
    header_section,
    properties_section,
    value_section,
)
from raybroker.wire.amqp.types import Buffer, Byte, Int, Symbol, Timestamp

PRIORITY_MAX: Final = 9
DELIVERY_TIME: Final = "x-opt-delivery-time"
DELIVERY_DELAY: Final = "x-opt-delivery-delay"
_DELIVERY: Final = b"x-opt-delivery-"
_INT_MAX: Final = (1 << 31) - 1
_ULONG_MAX: Final = (1 << 64) - 1
_LONG_MIN: Final = -(1 << 63)
DEPTH_MAX: Final = 24
"""Lists and maps in each other; a value that is nested deeper becomes a text."""
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MS: Final = datetime.timedelta(milliseconds=1)


class IncomingMessage(NamedTuple):
    """A message as it is sent on. ``options``: of the client's send; ``fields``: its headers, for one whose body
    travels in pieces; ``to``: the address that it names, and ``kind``: what its sender says is there."""

    body: bytes
    options: dict[str, Any]
    fields: dict[str, Any] | None
    to: str | None
    kind: str | None


def incoming(payload: bytes, now_ms: int, user: str, *, addressed: bool = False) -> IncomingMessage:
    """What a message says. ``addressed``: it has to say where it goes.

    Raises AmqpViolation for what is no message, MessageTooLargeError for headers of too many bytes, and SecurityError
    when it says that another user has sent it.
    """
    sections = MessageSections(payload)
    header, properties = sections.header or _NO_HEADER, sections.properties
    annotated, start = _look(sections, payload)
    options: dict[str, Any] = {"persistent": header.durable}
    if header.priority != _NO_HEADER.priority:
        options["priority"] = min(header.priority, PRIORITY_MAX)
    ttl_ms = header.ttl
    if properties is not None:
        if user and properties.user_id and properties.user_id != user.encode():
            raise SecurityError(
                f"the message says that user {properties.user_id!r:.80} has sent it, and that is {user!r}"
            )
        if ttl_ms is None and properties.absolute_expiry:
            ttl_ms = max(1, properties.absolute_expiry - now_ms)
        if unit := unit_of(properties.group_id):
            options["unit_of_order"] = unit
    if ttl_ms:
        options["ttl_ms"] = ttl_ms
    kind = None
    if annotated is not None and (addressed or _DELIVERY in payload[annotated.start : annotated.end]):
        annotations = sections.message_annotations
        kind = kind_of_annotation(annotations, DESTINATION_TYPE)
        at_ms, delay_ms = annotations.get(DELIVERY_TIME), annotations.get(DELIVERY_DELAY)
        if isinstance(at_ms, int):
            delay_ms = at_ms - now_ms
        if isinstance(delay_ms, int) and delay_ms > 0:
            options["delivery_delay_ms"] = delay_ms
    kept = payload[start:]
    fields = fields_of(sections, properties) if len(kept) > LARGE_BODY_BYTES else None
    return IncomingMessage(kept, options, fields, properties.to if properties is not None else None, kind)


_NO_HEADER: Final = AmqpHeader()


def _look(sections: MessageSections, payload: bytes) -> tuple[MessageSection | None, int]:
    """(message annotations, where what is kept begins): one way through the sections. Raises MessageTooLargeError."""
    annotated, start, body = None, -1, len(payload)
    for section in sections.sections:
        if section.code >= DATA:
            body = section.start
            break
        if section.code >= MESSAGE_ANNOTATIONS:
            if start < 0:
                start = section.start
            if section.code == MESSAGE_ANNOTATIONS:
                annotated = section
    if start < 0:
        start = body
    if body - start > MESSAGE_HEADERS_BYTES_MAX:
        raise MessageTooLargeError(
            f"annotations and properties of {body - start} bytes; at most {MESSAGE_HEADERS_BYTES_MAX}: put bulk into"
            " the body"
        )
    return annotated, start


def fields_header(fields: dict[str, Any]) -> bytes:
    """The headers beside a message whose body travels in pieces; raises MessageTooLargeError."""
    data = pack_fields(fields)
    if len(data) > MESSAGE_HEADERS_BYTES_MAX:
        raise MessageTooLargeError(f"headers of {len(data)} bytes; at most {MESSAGE_HEADERS_BYTES_MAX}")
    return data


# ---- to the client ---------------------------------------------------------------------------------------------------


class MessageWriter:
    """Writes messages for one link. ``address``, ``kind``: where they are from."""

    __slots__ = ("_address", "_headers", "_kind")

    def __init__(self, address: str, kind: str) -> None:
        self._address = address
        self._kind = kind
        self._headers: dict[tuple[bool, int, int], bytes] = {}
        """Headers of messages that do not expire."""

    def sections(self, message: Message, sent: EncodedMessage, now_ms: int) -> list[Buffer]:
        """A message as its sections. Raises MessageFormatError for a body that cannot be read."""
        kind, data, durable, priority, expires_ms, count = sent
        if expires_ms:
            ttl_ms = min(max(expires_ms - now_ms, 1), 0xFFFFFFFF)
            front = header_section(AmqpHeader(durable, priority, ttl_ms, count <= 1, max(count - 1, 0)))
        else:
            key = durable, priority, count
            front = self._headers.get(key) or self._header(key)
        if kind == AMQP:
            return [front, data]
        return [front, *native_sections(content(message), expires_ms, self._address, self._kind)]

    def _header(self, key: tuple[bool, int, int]) -> bytes:
        durable, priority, count = key
        if len(self._headers) >= HEADERS_KNOWN_MAX:
            self._headers.clear()
        made = header_section(AmqpHeader(durable, priority, None, count <= 1, max(count - 1, 0)))
        self._headers[key] = made
        return made


HEADERS_KNOWN_MAX: Final = 64


def inflated_bytes(sent: EncodedMessage) -> int:
    """Bytes of its body when it is decompressed; 0 for one that cannot be read, which is found out later."""
    if not sent.kind & COMPRESSED and sent.kind != WORK:
        return len(sent.data)
    try:
        return size_of(sent.kind, sent.data, MESSAGE_BYTES_MAX)
    except MessageFormatError:
        return 0


def native_sections(message: MessageContent, expires_ms: int, address: str, kind: str) -> list[Buffer]:
    """A message that did not come over AMQP."""
    body, type_ = body_sections(message.body)
    annotations: dict[str, Any] = {
        Symbol(MESSAGE_TYPE): Byte(type_),
        Symbol(DESTINATION_TYPE): Byte(_number(kind, address)),
    }
    reply_to = message.reply_to
    if reply_to is not None:
        reply_kind, _, reply_to = reply_to.rpartition(":")
        annotations[Symbol(REPLY_TYPE)] = Byte(_number(reply_kind or "queue", reply_to))
    named = {name: value for name, value in message.properties.items() if name != CONTENT_TYPE}
    correlation_id, content_type = message.correlation_id, message.properties.get(CONTENT_TYPE)
    properties = AmqpProperties(
        message_id=message.id or None,
        to=address,
        subject=message.type,
        reply_to=reply_to,
        correlation_id=None if correlation_id is None else id_value(correlation_id),
        content_type=str(content_type) if isinstance(content_type, str) and content_type.isascii() else None,
        absolute_expiry=expires_ms or None,
        creation_time=message.timestamp or None,
        group_id=message.unit,
    )
    return [
        annotations_section(MESSAGE_ANNOTATIONS, annotations),
        properties_section(properties),
        application_properties_section({str(name): amqp_value(value) for name, value in named.items()}),
        *body,
    ]


def _number(kind: str, name: str) -> int:
    """The destination's type in the annotations of JMS clients."""
    return KINDS.index(kind) + (2 if is_temporary_name(name) else 0)


def body_sections(body: Any) -> tuple[list[Buffer], int]:
    """The sections of a body, and what JMS calls the message, as a number."""
    if isinstance(body, bytes | bytearray | memoryview):
        return [data_front(len(body)), bytes(body)], 3
    value = amqp_value(body)
    type_ = next((number for kind, number in _JMS_TYPES if isinstance(value, kind)), 1)
    if type_ == 2 and not all(type(key) is str for key in value):
        type_ = 1
    return [value_section(value)], type_


_JMS_TYPES: Final[tuple[tuple[type, int], ...]] = ((str, 5), (dict, 2), (list, 4))


def amqp_value(value: Any, depth: int = 0) -> Any:
    """A value of AMQP for one of Python; what AMQP has no type for becomes a text, as JSON would have it."""
    if value is None or isinstance(value, bool | float | str | bytes | UUID):
        return float(value) if isinstance(value, float) else value
    if isinstance(value, int):
        if -_INT_MAX - 1 <= value <= _INT_MAX:
            return Int(value)
        return int(value) if _LONG_MIN <= value <= _ULONG_MAX else str(value)
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return Timestamp((value - _EPOCH) // _MS)
    if depth >= DEPTH_MAX:
        return _text(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {_key(key): amqp_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [amqp_value(item, depth + 1) for item in value]
    if callable(getattr(value, "tolist", None)):
        return amqp_value(value.tolist(), depth + 1)
    return _text(value)


def _key(key: Any) -> Any:
    """A key of a map: what can be one in AMQP and is found again."""
    found = amqp_value(key, DEPTH_MAX)
    return found if not isinstance(found, bytes) else found.hex()


def _text(value: Any) -> str:
    try:
        text = json_bytes(value).decode()
    except MessageFormatError:
        return str(value)
    return text[1:-1] if text.startswith('"') and "\\" not in text else text
