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
from collections.abc import Callable, Mapping
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
    PROPERTIES,
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
_new: Final = tuple.__new__
"""Makes a named tuple without a call of Python: there is one for each message."""
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


class MessageReader:
    """Reads the messages of one link. ``now_ms()``: the clock of the broker; ``user``: who has logged in;
    ``addressed``: each message has to say where it goes."""

    __slots__ = ("_addressed", "_now_ms", "_of", "_options", "_user")

    def __init__(self, now_ms: Callable[[], int], user: str, *, addressed: bool = False) -> None:
        self._now_ms = now_ms
        self._user = user.encode()
        self._addressed = addressed
        self._of = _NO_HEADER
        self._options: dict[str, Any] = _header_options(_NO_HEADER)
        """Of the last header: that of the next message is the same object, nearly always."""

    def read(self, payload: bytes) -> IncomingMessage:
        """What a message says.

        Raises AmqpViolation for what is no message, MessageTooLargeError for headers of too many bytes, and
        SecurityError when it says that another user has sent it.
        """
        sections = MessageSections(payload)
        start, annotated, value = _look(sections, len(payload))
        header = sections.header or _NO_HEADER
        if header is not self._of:
            self._of, self._options = header, _header_options(header)
        options, to, kind = self._options, None, None
        if value:
            properties = sections.properties_at(value)
            _, user, to, _, _, _, _, _, expiry, _, group, _, _ = properties
            if user and self._user and user != self._user:
                raise SecurityError(
                    f"the message says that user {user!r:.80} has sent it, and that is {self._user.decode()!r}"
                )
            if expiry and header.ttl is None:
                options = {**options, "ttl_ms": max(1, expiry - self._now_ms())}
            if group and (unit := unit_of(group)):
                options = {**options, "unit_of_order": unit}
        if annotated is not None and (self._addressed or payload.find(_DELIVERY, *annotated) >= 0):
            annotations = sections.message_annotations
            kind = kind_of_annotation(annotations, DESTINATION_TYPE)
            if delay_ms := self._delay_ms(annotations):
                options = {**options, "delivery_delay_ms": delay_ms}
        fields = None
        if len(payload) - start > LARGE_BODY_BYTES:
            fields = fields_of(sections, sections.properties)
        return _new(IncomingMessage, (payload[start:], options, fields, to, kind))

    def _delay_ms(self, annotations: Mapping[Any, Any]) -> int:
        """How long a message is kept before it may be delivered; 0: not at all."""
        at_ms, delay_ms = annotations.get(DELIVERY_TIME), annotations.get(DELIVERY_DELAY)
        if isinstance(at_ms, int):
            delay_ms = at_ms - self._now_ms()
        return max(delay_ms, 0) if isinstance(delay_ms, int) else 0


_NO_HEADER: Final = AmqpHeader()


def _header_options(header: AmqpHeader) -> dict[str, Any]:
    """What a header says of how the message is sent on."""
    options: dict[str, Any] = {"persistent": header.durable}
    if header.priority != _NO_HEADER.priority:
        options["priority"] = min(header.priority, PRIORITY_MAX)
    if header.ttl:
        options["ttl_ms"] = header.ttl
    return options


def _look(sections: MessageSections, size: int) -> tuple[int, tuple[int, int] | None, int]:
    """(where what is kept begins, where the message annotations are, where the value of the properties begins, or 0):
    one way through the sections. Raises MessageTooLargeError."""
    annotated, value, kept, body = None, 0, -1, size
    for code, start, at, end in sections.spans:
        if code >= DATA:
            body = start
            break
        if code >= MESSAGE_ANNOTATIONS:
            if kept < 0:
                kept = start
            if code == PROPERTIES:
                value = at
            elif code == MESSAGE_ANNOTATIONS:
                annotated = start, end
    if kept < 0:
        kept = body
    if body - kept > MESSAGE_HEADERS_BYTES_MAX:
        raise MessageTooLargeError(
            f"annotations and properties of {body - kept} bytes; at most {MESSAGE_HEADERS_BYTES_MAX}: put bulk into"
            " the body"
        )
    return kept, annotated, value


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
