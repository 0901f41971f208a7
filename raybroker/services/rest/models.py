"""Models of requests and answers: one model checks a request, and describes it.

A body is any value of JSON, or bytes as base64. What JSON does not have (a time, a decimal number, bytes inside of a
map) comes as :mod:`raybroker.services.gateways.json_form` says.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from raybroker.content.headers import DEDUP_ID_CHARS_MAX, PROPERTIES_MAX
from raybroker.model.errors import MessageFormatError
from raybroker.model.naming.property_names import RESERVED_WORDS
from raybroker.model.naming.units import UNIT_CHARS_MAX
from raybroker.model.settings.setting import OVERRIDE_MS_MAX, PRIORITY_MAX
from raybroker.services.gateways.received_message import ReceivedMessage
from raybroker.services.web.json_text import DIGITS, checked, loaded

ARRAY_MAX: Final = 1000
"""Messages of one request."""
RECEIVED_MAX: Final = 1000
"""Messages of one answer."""
WAIT_MS_MAX: Final = 20_000
LEASE_MS_MIN: Final = 1_000
LEASE_MS_MAX: Final = 12 * 3600 * 1000
LEASE_MS: Final = 30_000
"""How long a message is held for whoever received it, when he does not say."""
HEADER_CHARS_MAX: Final = 1024
RECEIPT_CHARS_MAX: Final = 64
NAMES_KNOWN_MAX: Final = 4096
"""Names of properties that are known to be right."""
_LONG: Final = 1 << 63
NAME_PATTERN: Final = r"^[A-Za-z_$][A-Za-z0-9_$.\-]{0,254}$"
_WORDS: Final = "|".join("".join(f"[{char}{char.lower()}]" for char in word) for word in sorted(RESERVED_WORDS))
PROPERTY_PATTERN: Final = rf"^(?!(?:{_WORDS})$)(?!JMS)[A-Za-z_$][A-Za-z0-9_$]{{0,254}}$"
"""Narrower than what a property's name may be: what a client of any language can send and select."""

_Ms = Annotated[int, Field(ge=0, le=OVERRIDE_MS_MAX)]
_HeaderText = Annotated[str, Field(max_length=HEADER_CHARS_MAX)]
_PROPERTY: Final = re.compile(PROPERTY_PATTERN)


@lru_cache(NAMES_KNOWN_MAX)
def _property_name(name: str) -> str:
    if _PROPERTY.fullmatch(name) is None:
        raise ValueError(
            f"property name {name!r:.80}: it has 1 to 255 letters, digits, '_' and '$', no digit first, does not start"
            " with JMS and is no word of the selector language"
        )
    return name


PropertyName = Annotated[str, AfterValidator(_property_name)]


def _no_whole(value: Any) -> Any:
    """A whole number of more than 64 bits would lose digits."""
    if isinstance(value, int):
        raise ValueError("a whole number has at most 64 bits")
    return value


PropertyValue = (
    bool | Annotated[int, Field(ge=-_LONG, lt=_LONG)] | Annotated[float, BeforeValidator(_no_whole)] | str | None
)


@with_config(extra="forbid", strict=True, title="Message")
class MessageIn(TypedDict):
    """A message to send."""

    body: Annotated[Any, Field(description="Any value of JSON: text is a text message, an object a map.")]
    encoding: NotRequired[
        Annotated[Literal["json", "base64"], Field(description='"base64": the body is a text that stands for bytes.')]
    ]
    properties: NotRequired[
        Annotated[
            dict[PropertyName, PropertyValue],
            Field(
                max_length=PROPERTIES_MAX,
                description="What selectors see.",
                json_schema_extra={"propertyNames": {"pattern": PROPERTY_PATTERN}},
            ),
        ]
    ]
    correlation_id: NotRequired[_HeaderText]
    reply_to: NotRequired[
        Annotated[
            str,
            Field(
                pattern=r"^(?:(?:queue|topic):)?[A-Za-z_$][A-Za-z0-9_$.\-]{0,254}$",
                description='The name of a queue, or "topic:name".',
            ),
        ]
    ]
    type: NotRequired[Annotated[_HeaderText, Field(description="JMSType.")]]
    priority: NotRequired[Annotated[int, Field(ge=0, le=PRIORITY_MAX)]]
    ttl_ms: NotRequired[Annotated[_Ms, Field(description="When it expires, from now on; 0: never.")]]
    delivery_delay_ms: NotRequired[_Ms]
    unit_of_order: NotRequired[Annotated[str, Field(min_length=1, max_length=UNIT_CHARS_MAX)]]
    persistent: NotRequired[bool]
    dedup_id: NotRequired[Annotated[str, Field(min_length=1, max_length=DEDUP_ID_CHARS_MAX)]]


class Sent(TypedDict):
    """The ids of what was stored, in the order of the request."""

    ids: list[str]


class MessageOut(TypedDict):
    """A message that waits in a queue."""

    id: str
    body: Any
    encoding: Literal["json", "base64"]
    body_type: str
    properties: dict[str, Any]
    correlation_id: str | None
    reply_to: str | None
    type: str | None
    priority: int
    persistent: bool
    timestamp: int
    expiration: int
    unit_of_order: str | None
    dedup_id: str | None


class MessageHeld(MessageOut):
    """A message that was received, with the receipt by which it is settled."""

    receipt: str
    delivery_count: int


class Received(TypedDict):
    """What was received, and how long it is held."""

    messages: list[MessageHeld]
    lease_ms: int


class Browsed(TypedDict):
    """What waits; ``more``: there may be further ones."""

    messages: list[MessageOut]
    more: bool


_Receipts = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=RECEIPT_CHARS_MAX)]],
    Field(min_length=1, max_length=RECEIVED_MAX),
]


@with_config(extra="forbid", strict=True, title="Acknowledge")
class AcknowledgeIn(TypedDict):
    """Receipts of messages that are done."""

    receipts: _Receipts


@with_config(extra="forbid", strict=True, title="Release")
class ReleaseIn(TypedDict):
    """Receipts of messages that are given back."""

    receipts: _Receipts
    delay_ms: NotRequired[
        Annotated[
            _Ms,
            Field(
                description="The attempt failed: it comes again after so long, or is dead when it failed too often. "
                "Without it the message is given back as if it had not been received.",
            ),
        ]
    ]


Outcome = Literal["acknowledged", "released", "settled before", "lease over", "unknown", "failed"]


class Settled(TypedDict):
    """What became of one receipt."""

    receipt: str
    outcome: Outcome
    detail: str


class SettledAll(TypedDict):
    """What became of each receipt."""

    results: list[Settled]


@with_config(extra="forbid")
class ReceiveQuery(TypedDict):
    """How many messages, how long to wait, how long to hold them."""

    max: NotRequired[Annotated[int, Field(ge=1, le=RECEIVED_MAX, json_schema_extra={"default": 1}), DIGITS]]
    wait_ms: NotRequired[Annotated[int, Field(ge=0, le=WAIT_MS_MAX, json_schema_extra={"default": 0}), DIGITS]]
    lease_ms: NotRequired[
        Annotated[int, Field(ge=LEASE_MS_MIN, le=LEASE_MS_MAX, json_schema_extra={"default": LEASE_MS}), DIGITS]
    ]


@with_config(extra="forbid", strict=True, title="Receive")
class ReceiveIn(TypedDict):
    """The options of a receive in a body."""

    max: NotRequired[Annotated[int, Field(ge=1, le=RECEIVED_MAX, json_schema_extra={"default": 1})]]
    wait_ms: NotRequired[Annotated[int, Field(ge=0, le=WAIT_MS_MAX, json_schema_extra={"default": 0})]]
    lease_ms: NotRequired[
        Annotated[int, Field(ge=LEASE_MS_MIN, le=LEASE_MS_MAX, json_schema_extra={"default": LEASE_MS})]
    ]


@with_config(extra="forbid")
class BrowseQuery(TypedDict):
    """How many messages, and which."""

    max: NotRequired[Annotated[int, Field(ge=1, le=RECEIVED_MAX, json_schema_extra={"default": 100}), DIGITS]]
    selector: NotRequired[Annotated[str, Field(max_length=4096)]]


MESSAGE: Final = TypeAdapter(MessageIn)
MESSAGES: Final = TypeAdapter(Annotated[list[MessageIn], Field(min_length=1, max_length=ARRAY_MAX)])
SEND: Final = TypeAdapter(MessageIn | Annotated[list[MessageIn], Field(min_length=1, max_length=ARRAY_MAX)])
ACKNOWLEDGE: Final = TypeAdapter(AcknowledgeIn)
RELEASE: Final = TypeAdapter(ReleaseIn)
RECEIVE: Final = TypeAdapter(ReceiveIn)


def parsed(adapter: TypeAdapter[Any], data: bytes) -> Any:
    """The value of a request's body; raises MessageFormatError, which names the place and what it may be."""
    value = loaded(data)
    if adapter is SEND:
        adapter = MESSAGES if isinstance(value, list) else MESSAGE
    return checked(adapter, value, "the body of the request")


def body_of(message: MessageIn) -> Any:
    """What is sent: the value, or bytes; raises MessageFormatError."""
    body = message["body"]
    if message.get("encoding") != "base64":
        return body
    if not isinstance(body, str):
        shown = json.dumps(body, ensure_ascii=False)
        raise MessageFormatError(f"body: with encoding base64 it is a text, not {shown:.80}")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise MessageFormatError(f"body: it is no base64: {error}") from None


def shown(message: ReceivedMessage) -> MessageOut:
    """A message for an answer; raises MessageFormatError for a body that cannot be read here."""
    body = message.body
    raw = isinstance(body, bytes | bytearray | memoryview)
    return {
        "id": message.id,
        "body": base64.b64encode(body).decode() if raw else body,
        "encoding": "base64" if raw else "json",
        "body_type": message.body_type,
        "properties": dict(message.properties),
        "correlation_id": message.correlation_id,
        "reply_to": message.reply_to,
        "type": message.type,
        "priority": message.priority,
        "persistent": message.persistent,
        "timestamp": message.timestamp,
        "expiration": message.expiration,
        "unit_of_order": message.unit_of_order,
        "dedup_id": message.dedup_id,
    }
