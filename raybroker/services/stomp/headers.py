"""Headers of frames and what they mean: of SEND to the options of a message, of a message to those of MESSAGE.

Headers that STOMP or ActiveMQ give no meaning are properties of the message, as texts.  A property's name is an
identifier, since selectors speak of it; a header's may be anything.  So a dot stands in the property as ``_DOT_``, a
hyphen as ``_HYPHEN_`` (as Apache Camel writes them), another character that cannot stand there as ``_U<hex>_``, and
MESSAGE has it as it was sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from raybroker.model.errors import MessageFormatError, NotSupportedError, ProtocolError
from raybroker.model.naming.property_names import RESERVED_WORDS, is_header_name, stranger
from raybroker.services.gateways.json_form import json_bytes
from raybroker.wire.stomp.frame import CONTENT_LENGTH

GROUP: Final = "JMSXGroupID"
CONTENT_TYPE: Final = "content-type"
MEANT: Final = frozenset(
    {
        "destination",
        "receipt",
        "transaction",
        CONTENT_LENGTH,
        "correlation-id",
        "reply-to",
        "expires",
        "priority",
        "type",
        "persistent",
        GROUP,
        "AMQ_SCHEDULED_DELAY",
    }
)
"""Headers of SEND that are not properties."""
FORWARDED: Final = frozenset(
    {
        "message-id",
        "subscription",
        "ack",
        "redelivered",
        "timestamp",
        "JMSXDeliveryCount",
        "heart-beat",
        "id",
    }
)
"""What a client that sends a received message on has in its headers: it says nothing about the new one."""
REFUSED: Final = ("AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT", "AMQ_SCHEDULED_CRON", "transformation")
"""Headers that mean something to ActiveMQ which is not done here."""
PRIORITY_MAX: Final = 9
MS_DIGITS_MAX: Final = 15
CHARSETS: Final = frozenset({"", "utf-8", "us-ascii", "iso-8859-1", "iso-8859-15", "windows-1252", "utf-16"})
"""Character sets of texts; a body in another one stays bytes."""
TEXT_TYPES: Final = ("text/", "application/json", "application/xml", "application/javascript")

_DECODED: Final = re.compile(r"_HYPHEN_|_DOT_|_U([0-9a-f]{1,6})_")
_OTHER: Final = re.compile(r"[^A-Za-z0-9_$]")
_ESCAPES: Final = {"-": "_HYPHEN_", ".": "_DOT_"}


def property_name(header: str) -> str:
    """The property that stands for a header."""
    if (
        stranger(header) < 0
        and header.isprintable()
        and header.upper() not in RESERVED_WORDS
        and not is_header_name(header)
    ):
        return header
    found = _OTHER.sub(lambda match: _ESCAPES.get(match[0]) or f"_U{ord(match[0]):x}_", header)
    if found[0].isdigit() or found.upper() in RESERVED_WORDS or is_header_name(found):
        found = f"_U{ord(header[0]):x}_{found[1:]}"
    return found


def header_name(prop: str) -> str:
    """The header that a property came from, or its name."""
    if "_" not in prop:
        return prop
    return _DECODED.sub(_meant, prop)


def _meant(match: re.Match[str]) -> str:
    if match[1] is None:
        return "-" if match[0] == "_HYPHEN_" else "."
    code = int(match[1], 16)
    return chr(code) if code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF else match[0]


Said = tuple[dict[str, str] | None, dict[str, Any]]
"""Properties of one message, and its other options, which are the client's MessageOptions.

What is not there is as the broker's factory attributes say."""

_OF_NO_OPTION: Final = frozenset({"destination", "receipt", "transaction", CONTENT_LENGTH, "persistent"})
_NO_OPTION: Final[Mapping[bool | None, Said]] = {
    None: (None, {}),
    True: (None, {"persistent": True}),
    False: (None, {"persistent": False}),
}
"""What most messages say: nothing, but how they are kept."""


def send_options(headers: Mapping[str, str], now_ms: int) -> Said:
    """Raises ProtocolError for a header with a value that it cannot have, NotSupportedError for one that is not
    built."""
    if headers.keys() <= _OF_NO_OPTION:
        return _NO_OPTION[truth(headers, "persistent")]
    for name in REFUSED:
        if name in headers:
            raise NotSupportedError(f"the header {name} is not supported; leave it out")
    expires = number(headers, "expires")
    priority = number(headers, "priority")
    if priority is not None and priority > PRIORITY_MAX:
        raise ProtocolError(f"priority:{priority} is none: it is 0 to {PRIORITY_MAX}")
    properties = {
        property_name(name): value for name, value in headers.items() if name not in MEANT and name not in FORWARDED
    }
    return properties or None, {
        "correlation_id": headers.get("correlation-id"),
        "type": headers.get("type"),
        "priority": priority,
        "ttl_ms": max(1, expires - now_ms) if expires else None,
        "delivery_delay_ms": number(headers, "AMQ_SCHEDULED_DELAY"),
        "unit_of_order": headers.get(GROUP),
        "persistent": truth(headers, "persistent"),
    }


def number(headers: Mapping[str, str], name: str) -> int | None:
    """A header that is a whole number; None when it is not there."""
    text = headers.get(name)
    if text is None:
        return None
    text = text.strip()
    if not (text.isascii() and text.isdecimal()) or len(text) > MS_DIGITS_MAX:
        raise ProtocolError(f"{name}:{text:.40} is no whole number")
    return int(text)


def truth(headers: Mapping[str, str], name: str) -> bool | None:
    """A header that is true or false; None when it is not there."""
    text = headers.get(name)
    if text is None:
        return None
    found = {"true": True, "false": False}.get(text.strip().lower())
    if found is None:
        raise ProtocolError(f"{name}:{text:.40} is neither true nor false")
    return found


def body_of(headers: Mapping[str, str], body: bytes) -> str | bytes:
    """Text or bytes.  What content-type says; without one it is ActiveMQ's rule, that a content-length means bytes.

    Raises MessageFormatError for a text that is none in its character set.
    """
    kind = headers.get(CONTENT_TYPE)
    if kind is None:
        if CONTENT_LENGTH in headers:
            return body
        try:
            return body.decode()
        except UnicodeDecodeError:
            return body
    name, charset = _parts(kind)
    if charset not in CHARSETS or not (charset or name.startswith(TEXT_TYPES)):
        return body
    try:
        return body.decode(charset or "utf-8")
    except UnicodeDecodeError:
        raise MessageFormatError(
            f"the body is no text in {charset or 'utf-8'}, as {CONTENT_TYPE}:{kind:.80} says"
        ) from None


def _parts(content_type: str) -> tuple[str, str]:
    """Its type and its character set, "" for none, in small letters."""
    name, *rest = (part.strip() for part in content_type.lower().split(";"))
    values = [part.partition("=")[2].strip(' "') for part in rest if part.partition("=")[0].strip() == "charset"]
    return name, values[0] if values else ""


class MessageFacts(NamedTuple):
    """What of a message MESSAGE says; ``id`` of the message, "" for none."""

    id: str
    destination: str
    properties: Mapping[str, Any]
    correlation_id: str | None
    reply_to: str | None
    type: str | None
    timestamp: int
    expiration: int
    priority: int
    persistent: bool
    delivery_count: int
    unit: str | None


def message_headers(received: MessageFacts, subscription: str, ack: str, *, with_ack: bool) -> dict[str, str]:
    """Return the headers of MESSAGE, but for content-type and content-length. ``ack``: names the delivery;
    ``with_ack``: ACK frames do so by it."""
    headers = {
        "destination": received.destination,
        "message-id": received.id or ack,
        "subscription": subscription,
        "timestamp": str(received.timestamp),
        "expires": str(received.expiration),
        "priority": str(received.priority),
    }
    if with_ack:
        headers["ack"] = ack
    if received.persistent:
        headers["persistent"] = "true"
    if received.delivery_count > 1:
        headers["redelivered"] = "true"
        headers["JMSXDeliveryCount"] = str(received.delivery_count)
    more = {
        "correlation-id": received.correlation_id,
        "reply-to": received.reply_to,
        "type": received.type,
        GROUP: received.unit,
    }
    headers.update({name: value for name, value in more.items() if value is not None})
    for prop, value in received.properties.items():
        headers.setdefault(header_name(prop), text_of(value))
    return headers


def text_of(value: object) -> str:
    """A property as a header's value, which is a text: as JSON writes it, and NaN and Infinity by their names."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return json.dumps(value)
    text = json_bytes(value).decode()
    return str(json.loads(text)) if text.startswith('"') else text


def body_bytes(body: object, content_type: str | None) -> tuple[bytes, str]:
    """A message's body, and its content type; what is neither text nor bytes goes as JSON.

    Raises MessageFormatError for what JSON cannot write.
    """
    if isinstance(body, bytes):
        return body, content_type or "application/octet-stream"
    if isinstance(body, str):
        charset = _parts(content_type)[1] if content_type else ""
        known = charset if charset in CHARSETS else ""
        return body.encode(known or "utf-8", "replace"), content_type or "text/plain"
    return json_bytes(body), "application/json"
