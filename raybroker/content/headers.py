"""Headers of messages as bytes, and the view of a block's messages that selectors have.

Headers are one msgpack map with one-letter keys; a message whose headers all have their defaults has none.  A message
of AMQP has its headers in its body as well: they are decoded from it when they are asked for, and what the map says
goes before.  Of a body that travels in pieces the map has all, since the body is not in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import BytesIO
from itertools import pairwise
from operator import sub
from typing import Any, Final, NamedTuple

import msgpack

from raybroker.content.bodies import AMQP, amqp
from raybroker.model.blocks.block import Block
from raybroker.model.blocks.large_block import LargeBlock
from raybroker.model.blocks.record import Buffer
from raybroker.model.bounds import MESSAGE_HEADERS_BYTES_MAX
from raybroker.model.errors import MessageFormatError, MessageTooLargeError, ProtocolError, SecurityError
from raybroker.model.naming.property_names import SENDER_NAMES, check_property_name
from raybroker.model.naming.units import GROUP_PROPERTY, UNIT_CHARS_MAX, UNIT_PROPERTY, is_unit_name

PROPERTIES_MAX: Final = 1_000
DEDUP_ID_CHARS_MAX: Final = 255

_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1
"""The long of JMS."""
_NO_ID: Final = "n"
DOUBTFUL: Final = "a"
DELIVERIES_MAX: Final = 1 << 31
"""No message was delivered more often; a header that says so is taken for one delivery."""
OWN_ID: Final = "i"
SENT_MS: Final = "s"
UNIT: Final = "u"
"""The header with the name of a message's unit of order."""


def message_id(producer: int, seq: int) -> str:
    """The id of a message: unique as long as producer numbers are."""
    return f"{id_prefix(producer)}{seq}"


def id_prefix(producer: int) -> str:
    """What the ids of a producer's messages begin with; the sequence number follows."""
    return f"ID:{producer:016x}-"


class Header(NamedTuple):
    """Headers and properties of one message beside those that its block has for all."""

    properties: dict[str, Any]
    correlation_id: str | None = None
    reply_to: str | None = None
    type: str | None = None
    dedup_id: str | None = None
    no_id: bool = False
    """Its producer asked for no message id."""
    unit: str | None = None
    """Its unit of order."""
    doubtful: int = 0
    """Deliveries by another broker that may have happened: see content.possible_duplicates."""
    id: str | None = None
    """Its message id, where its sender has chosen one."""
    timestamp_ms: int | None = None
    """The time when it was sent, where its sender has said so."""


Pack = Callable[[Any], bytes]
pack_one: Final[Pack] = partial(msgpack.packb, use_bin_type=True)
_TEXTS: Final = (("c", "correlation_id"), ("r", "reply_to"), ("t", "type"), ("d", "dedup_id"))


def many_packer() -> Pack:
    """Return a packer for many headers in a row, at less than half the cost each; threads must not share one."""
    found: Pack = msgpack.Packer(use_bin_type=True).pack
    return found


def encode_header(
    properties: Mapping[str, Any] | None,
    correlation_id: str | None,
    reply_to: str | None,
    type_: str | None,
    dedup_id: str | None = None,
    no_id: bool = False,
    unit: str | None = None,
    doubtful: int = 0,
    pack: Pack = pack_one,
) -> bytes:
    """Headers as bytes, empty when all have their defaults; raises MessageFormatError and MessageTooLargeError.

    ``reply_to`` is "queue:name" or "topic:name"; ``dedup_id`` names the message among its destination's;
    ``no_id``: whoever receives it sees no message id; ``unit`` names its unit of order.
    """
    fields: dict[str, Any] = {}
    if properties:
        fields["p"] = check_properties(properties)
    texts = (correlation_id, reply_to, type_, dedup_id)
    for (key, name), value in zip(_TEXTS, texts, strict=True) if texts != (None, None, None, None) else ():
        if value is not None:
            if not isinstance(value, str):
                raise MessageFormatError(f"{name} is a {type(value).__name__}; it must be text")
            fields[key] = value
    if dedup_id is not None and not 1 <= len(dedup_id) <= DEDUP_ID_CHARS_MAX:
        raise MessageFormatError(f"dedup_id has {len(dedup_id)} characters; it has 1 to {DEDUP_ID_CHARS_MAX}")
    if unit is not None:
        if not is_unit_name(unit):
            raise MessageFormatError(f"unit_of_order {unit!r:.80} is not text of 1 to {UNIT_CHARS_MAX} characters")
        fields[UNIT] = unit
    if no_id:
        fields[_NO_ID] = True
    if doubtful:
        fields[DOUBTFUL] = True if doubtful == 1 else doubtful
    data = pack_fields(fields, pack)
    if len(data) > MESSAGE_HEADERS_BYTES_MAX:
        raise MessageTooLargeError(
            f"headers of {len(data)} bytes; at most {MESSAGE_HEADERS_BYTES_MAX}: put bulk into the body"
        )
    return data


def pack_fields(fields: dict[str, Any], pack: Pack = pack_one) -> bytes:
    """Headers by their one-letter keys as bytes; raises MessageFormatError."""
    if not fields:
        return b""
    try:
        return pack(fields)
    except ValueError as error:
        names = dict(_TEXTS)
        texts = {**{names.get(key, key): value for key, value in fields.items()}, **fields.get("p", {})}
        name = next((name for name, value in texts.items() if isinstance(value, str) and not _encodable(value)), "")
        what = f"the header or property {name}" if name else "a header or property"
        raise MessageFormatError(f"{what} cannot travel: {error}") from None


def _encodable(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


_PLAIN_TYPES: Final = frozenset((bool, float, str, type(None)))
NAMES_KNOWN_MAX: Final = 4_096
"""Property names that are known to be right: programs use the same few for all messages."""
_known_names: set[str] = set()


def _check_name(name: object) -> None:
    name = check_property_name(name)
    if len(_known_names) >= NAMES_KNOWN_MAX:
        _known_names.clear()
    _known_names.add(name)


def check_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties with names and values that JMS allows: bool, int of 64 bits, float, str or None.

    Raises MessageFormatError for others, and for what is no mapping.
    """
    if type(properties) is not dict and not isinstance(properties, Mapping):
        raise MessageFormatError(
            f"properties={properties!r:.80} is a {type(properties).__name__}; it is a mapping of names to values"
        )
    if len(properties) > PROPERTIES_MAX:
        raise MessageFormatError(f"{len(properties)} properties; at most {PROPERTIES_MAX}")
    for name, value in properties.items():
        if name not in _known_names:
            _check_name(name)
        kind = type(value)
        if kind in _PLAIN_TYPES or (kind is int and _INT_MIN <= value <= _INT_MAX):
            continue
        if isinstance(value, bool | float | str):
            continue
        if isinstance(value, int) and not _INT_MIN <= value <= _INT_MAX:
            raise MessageFormatError(f"property {name}={value!r:.80} is out of bounds: a whole number has 64 bits")
        if not isinstance(value, int):
            raise MessageFormatError(
                f"property {name} is a {kind.__name__}; a property is a bool, int of 64 bits, float, str or None:"
                " put anything else into the body"
            )
    return properties if type(properties) is dict else dict(properties)


_SENDER_BYTES: Final = tuple(name.encode() for name in sorted(SENDER_NAMES))


def require_no_sender(block: Block) -> None:
    """Raises SecurityError for messages whose properties say who has sent them: their sender has made them by himself,
    since :func:`check_properties` takes none such."""
    offsets = block.header_offsets()
    if offsets is None:
        return
    headers = bytes(block.front[offsets[0] : offsets[-1]])
    if not any(name in headers for name in _SENDER_BYTES):
        return
    for index in range(block.count):
        header = block.header(index)
        named = SENDER_NAMES & unpack_fields(header).get("p", {}).keys() if header is not None else ()
        if named:
            raise SecurityError(f"a message has the property {min(named)}, by which no sender may say who it is")


_NO_FIELDS: Final[dict[str, Any]] = {}
TOGETHER_MIN: Final = 8
"""Blocks of more messages have their headers decoded at once: who asks for one asks for all."""


def unpack_fields(data: Buffer) -> dict[str, Any]:
    """The fields that :func:`pack_fields` packed; raises ProtocolError for anything else.

    Neither lists nor extension types are in headers, and a list could claim far more memory than it has bytes.
    """
    try:
        fields = msgpack.unpackb(data, raw=False, max_array_len=0, max_ext_len=0)
    except (ValueError, msgpack.exceptions.UnpackException, RecursionError) as error:
        raise ProtocolError(f"the headers of a message do not decode: {error}") from None
    if type(fields) is not dict or type(fields.get("p", fields)) is not dict:
        raise ProtocolError("the headers of a message, or its properties, are not a map")
    return fields


SAMPLE: Final = 32
"""Headers that are looked at to know whether a block repeats a few: programs say the same of many messages."""


def unpack_column(view: memoryview, offsets: Sequence[int]) -> list[dict[str, Any]] | None:
    """The headers of a block at once; None when anything is not as it should be.

    Headers of the same bytes are one dictionary, which nobody may change.
    """
    if len(set(_pieces(view, offsets[: SAMPLE + 1]))) > SAMPLE // 4:
        return _unpack_each(view, offsets)
    pieces = _pieces(view, offsets)
    different = set(pieces)
    if len(different) > len(pieces) // 4:
        return _unpack_each(view, offsets)
    try:
        known = {piece: unpack_fields(piece) if piece else _NO_FIELDS for piece in different}
    except ProtocolError:
        return None
    return list(map(known.__getitem__, pieces))


def _pieces(view: memoryview, offsets: Sequence[int]) -> list[bytes]:
    """The headers as they are encoded."""
    return list(map(BytesIO(view[offsets[0] : offsets[-1]]).read, map(sub, offsets[1:], offsets)))


def _unpack_each(view: memoryview, offsets: Sequence[int]) -> list[dict[str, Any]] | None:
    """Message by message from one reader."""
    reader = msgpack.Unpacker(
        raw=False, max_array_len=0, max_ext_len=0, max_buffer_size=max(offsets[-1] - offsets[0], 1)
    )
    reader.feed(view[offsets[0] : offsets[-1]])
    found: list[dict[str, Any]] = []
    first, unpack, tell = offsets[0], reader.unpack, reader.tell
    try:
        for start, end in pairwise(offsets):
            fields = unpack() if start < end else _NO_FIELDS
            if type(fields) is not dict or type(fields.get("p", fields)) is not dict or tell() != end - first:
                return None
            found.append(fields)
    except (ValueError, msgpack.exceptions.UnpackException, RecursionError):
        return None
    return found


def times(found: object) -> int:
    """The value of the header of deliveries elsewhere: a number, or True for one that is not certain."""
    if found is None:
        return 0
    return int(found) if isinstance(found, int) and 0 < found <= DELIVERIES_MAX else 1


def header_of(block: Block, index: int) -> Header:
    """Headers of a received message; raises ProtocolError for bytes that are none."""
    data = block.header(index)
    if block.kind_of(index) != AMQP or type(block) is LargeBlock:
        return decode_header(data)
    return _header(merged(block.body(index), unpack_fields(data) if data else _NO_FIELDS))


def merged(body: Buffer, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The headers of a message of AMQP, by their keys. ``fields``: what was written beside it. A message that does not
    decode has none of its own."""
    try:
        found: dict[str, Any] = amqp().amqp_fields(body)
    except MessageFormatError:
        found = {}
    if not fields:
        return found
    properties = {**found.get("p", _NO_FIELDS), **fields.get("p", _NO_FIELDS)}
    return {**found, **fields, **({"p": properties} if properties else {})}


def decode_header(data: Buffer | None) -> Header:
    """Headers that are beside a message; raises ProtocolError for bytes that are none."""
    return Header({}) if data is None else _header(unpack_fields(data))


def _header(fields: Mapping[str, Any]) -> Header:
    correlation_id, reply_to, type_, dedup_id = texts = [fields.get(key) for key in "crtd"]
    if any(text is not None and not isinstance(text, str) for text in texts):
        raise ProtocolError("a header of a message is no text")
    unit = fields.get(UNIT)
    return Header(
        fields.get("p") or {},
        correlation_id,
        reply_to,
        type_,
        dedup_id,
        _NO_ID in fields,
        unit if is_unit_name(unit) else None,
        times(fields.get(DOUBTFUL)),
        own_id if isinstance(own_id := fields.get(OWN_ID), str) else None,
        sent_ms if type(sent_ms := fields.get(SENT_MS)) is int else None,
    )


class BlockContent:
    """The fields of a block's messages, for selectors; headers are decoded when first asked for, once a message.

    Whoever made them is not trusted: a message whose headers do not decode has none.
    """

    __slots__ = ("_block", "_encoded", "_fields", "_of_amqp", "_offsets", "_properties", "_together")

    def __init__(self, block: Block) -> None:
        self._block = block
        self._of_amqp = (block.kind == AMQP or not block.uniform) and type(block) is not LargeBlock
        """There may be messages of AMQP, whose headers are in their bodies."""
        self._offsets = block.header_offsets()
        self._fields: dict[int, dict[str, Any]] = {}
        self._encoded: bytes | None = None
        """All headers as they came, once somebody has searched them."""
        self._together: list[dict[str, Any]] | None = None
        """The headers of all messages, once they were decoded together."""
        self._properties: list[dict[str, Any]] = []
        """Their properties."""

    def properties(self, index: int) -> Mapping[str, Any]:
        """Properties of a message by name."""
        if self._together is not None:
            return self._properties[index]
        found: dict[str, Any] = self.fields(index).get("p", _NO_FIELDS)
        return found

    def column(self, name: str, rows: Sequence[int]) -> list[Any]:
        """A property of each of these messages, None where there is none."""
        if self._together is None and rows:
            self.fields(rows[0])
        if self._together is None:
            return [self.properties(row).get(name) for row in rows]
        properties = self._properties
        return [properties[row].get(name) for row in rows]

    def header(self, index: int, name: str) -> Any:
        """A header by its name in JMS, or None when the message has none such; JMSX… are properties."""
        from_block = _BLOCK_HEADERS.get(name)
        if from_block is not None:
            own = _OWN_HEADERS.get(name)
            if own is not None:
                fields = self.fields(index)
                if own in fields:
                    return fields[own]
                if _NO_ID in fields and own == OWN_ID:
                    return None
            return from_block(self._block, index)
        key = _FIELD_HEADERS.get(name)
        if key is None:
            found = self.properties(index).get(name) if name.startswith("JMSX") else None
            return self.header(index, UNIT_PROPERTY) if found is None and name == GROUP_PROPERTY else found
        value = self.fields(index).get(key)
        return value if isinstance(value, str) else None

    def fields(self, index: int) -> Mapping[str, Any]:
        """The headers of a message by their one-letter keys."""
        if self._offsets is None and not self._of_amqp:
            return _NO_FIELDS
        if self._together is not None:
            return self._together[index]
        found = self._fields.get(index)
        return self._decode(index) if found is None else found

    def may_have(self, trace: bytes) -> bool:
        """Whether the encoded headers may have these bytes: those of messages of AMQP are encoded otherwise."""
        if self._of_amqp:
            return True
        if self._encoded is None:
            offsets = self._offsets
            self._encoded = b"" if offsets is None else bytes(self._block.front[offsets[0] : offsets[-1]])
        return trace in self._encoded

    def dedup_ids(self) -> list[str | None] | None:
        """The deduplication id of each message; None when no message has one."""
        offsets, block = self._offsets, self._block
        if offsets is None or _DEDUP_KEY not in bytes(block.front[offsets[0] : offsets[-1]]):
            return None
        ids = [self._dedup_id(self.fields(index)) for index in range(block.count)]
        return ids if any(ids) else None

    @staticmethod
    def _dedup_id(fields: Mapping[str, Any]) -> str | None:
        found = fields.get("d")
        return found if isinstance(found, str) and 1 <= len(found) <= DEDUP_ID_CHARS_MAX else None

    def _decode(self, index: int) -> dict[str, Any]:
        if self._of_amqp:
            return self._decode_by_kind(index)
        assert self._offsets is not None
        if self._block.count > TOGETHER_MIN and not self._fields:
            column = unpack_column(self._block.front, self._offsets)
            if column is not None:
                self._together = column
                self._properties = [fields.get("p", _NO_FIELDS) for fields in column]
                return column[index]
        fields = self._fields[index] = self._beside(self._offsets[index], self._offsets[index + 1])
        return fields

    def _beside(self, start: int, end: int) -> dict[str, Any]:
        """What is beside a message."""
        if start < end:
            try:
                return unpack_fields(self._block.front[start:end])
            except ProtocolError:
                pass
        return _NO_FIELDS

    def _decode_by_kind(self, index: int) -> dict[str, Any]:
        """Decode the headers of a message that may be one of AMQP."""
        offsets, block = self._offsets, self._block
        fields = _NO_FIELDS if offsets is None else self._beside(offsets[index], offsets[index + 1])
        if block.kind_of(index) == AMQP:
            fields = merged(block.body(index), fields)
        self._fields[index] = fields
        return fields


def content_of(block: Block) -> BlockContent:
    """The headers of a block's messages, for selectors and for what is written about dead messages."""
    return BlockContent(block)


def dedup_ids(block: Block) -> list[str | None] | None:
    """The deduplication id of each message of a block; None when no message has one."""
    return BlockContent(block).dedup_ids()


_DEDUP_KEY: Final = b"\xa1d"
_FIELD_HEADERS: Final = {"JMSCorrelationID": "c", "JMSReplyTo": "r", "JMSType": "t", UNIT_PROPERTY: UNIT}
_BLOCK_HEADERS: Final[dict[str, Callable[[Block, int], Any]]] = {
    "JMSMessageID": lambda block, index: message_id(block.producer, block.seq_of(index)),
    "JMSTimestamp": lambda block, index: block.timestamp_ms,
    "JMSPriority": lambda block, index: block.priority_of(index),
    "JMSDeliveryMode": lambda block, index: "PERSISTENT" if block.persistent else "NON_PERSISTENT",
    "JMSExpiration": lambda block, index: block.expires_of(index),
    "JMSDeliveryTime": lambda block, index: block.deliver_at_of(index) or block.timestamp_ms,
}
_OWN_HEADERS: Final = {"JMSMessageID": OWN_ID, "JMSTimestamp": SENT_MS}
HEADER_NAMES: Final = (*_BLOCK_HEADERS, *_FIELD_HEADERS)
"""Names of JMS that :meth:`BlockContent.header` knows besides those of properties."""
