"""Death records: the properties of a dead message, which are removed again when it is sent back.

A dead message is a new message with an id of its own: the old one's headers, priority and persistence, its body unless
that is to be cut, no expiry, no delay and no unit of order, and properties that say where, when, why and after how many
deliveries it died.  Sent back, it has its expiry and its unit again, and goes on counting deliveries.
RAYBROKER_DEATHS is a JSON list of all its deaths, one entry for each destination and reason:

    {"queue", "type", "reason", "count", "first_ms", "last_ms", "comment"}
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from raybroker.content.bodies import (
    BYTES,
    COMPRESS,
    COMPRESSED,
    COMPRESSED_SIZE,
    MAP,
    OBJECT,
    STREAM,
    TEXT,
    UNCOMPRESSED_SIZE,
)
from raybroker.content.headers import (
    DELIVERIES_MAX,
    DOUBTFUL,
    OWN_ID,
    UNIT,
    BlockContent,
    message_id,
    pack_fields,
    times,
)
from raybroker.model.blocks.block import BLOCK_BYTES_MAX, HEAD_BYTES, LONE_BYTES_MAX, Block, encode_block
from raybroker.model.bounds import MESSAGE_HEADERS_BYTES_MAX
from raybroker.model.failure import parted
from raybroker.model.naming import names
from raybroker.model.naming.units import is_default_unit, is_unit_name

REASON: Final = names.DEAD_REASON
TIMESTAMP: Final = names.DEAD_TIMESTAMP
EXCEPTION: Final = names.DEAD_EXCEPTION
TRACEBACK: Final = names.DEAD_TRACEBACK
COMMENT: Final = names.DEAD_COMMENT
DELIVERY_COUNT: Final = names.DEAD_DELIVERIES
PRODUCING_BROKER: Final = "JMS_SUN_DMQ_PRODUCING_BROKER"
DEAD_BROKER: Final = names.DEAD_BROKER
BODY_TRUNCATED: Final = "JMS_SUN_DMQ_BODY_TRUNCATED"
DEATHS: Final = "RAYBROKER_DEATHS"
ORIGIN: Final = names.DEAD_ORIGIN
ORIGINAL_ID: Final = names.DEAD_ORIGINAL_ID
EXPIRATION: Final = "RAYBROKER_EXPIRATION"
"""The expiration of a message that died before it; the message has it again when it is sent back in time."""
SUBSCRIPTION: Final = names.DEAD_SUBSCRIPTION
"""The subscription in which a message of a topic died: the only subscription that it is sent back
to. Absent from a message that died for all of them."""
CAUSE: Final = names.DEAD_CAUSE
"""The cause by which a message failed too often, where that is counted apart."""
UNIT_OF_ORDER: Final = "RAYBROKER_UNIT_OF_ORDER"
"""The unit of order that a message has again when it is sent back."""

PRESERVE: Final = "JMS_SUN_PRESERVE_UNDELIVERED"
LOG: Final = "JMS_SUN_LOG_DEAD_MESSAGES"
TRUNCATE: Final = "JMS_SUN_TRUNCATE_MSG_BODY"

DEATHS_MAX: Final = 32
"""Entries of a history; the oldest go first."""
COMMENT_CHARS_MAX: Final = 1_024
_COLUMNS_BYTES: Final = 10
"""Of a message: lengths of body and headers, kind and priority."""

_TAKEN_OFF: Final = frozenset(
    (
        REASON,
        TIMESTAMP,
        EXCEPTION,
        TRACEBACK,
        COMMENT,
        DELIVERY_COUNT,
        PRODUCING_BROKER,
        DEAD_BROKER,
        ORIGIN,
        EXPIRATION,
        SUBSCRIPTION,
        CAUSE,
        UNIT_OF_ORDER,
    )
)
_TRUTH: Final = {"true": True, "false": False}
_EMPTY: Final = {BYTES: b"", TEXT: b"", OBJECT: b"\xc0", MAP: b"\x80", STREAM: b"\x90"}
"""Kind → the body that is left when it is cut: nothing, None, or an empty map or list."""

Revived = tuple[str, str, str, int, bytes]
"""Type and name of a destination, its subscription or "" for all, messages of the old block, the new block."""


class DeathFacts(Protocol):
    """The reasons for which messages die.

    ``origin`` is type and name of the destination where they died, on broker ``broker``, after ``attempts`` deliveries;
    ``failure`` is what the consumer said of the last attempt, ``subscription`` names the topic's, if it was one's own,
    ``cause`` is one of ``model.causes``, if failures by it were too many.
    """

    @property
    def reason(self) -> str: ...
    @property
    def comment(self) -> str: ...
    @property
    def attempts(self) -> int: ...
    @property
    def origin(self) -> tuple[str, str]: ...
    @property
    def broker(self) -> str: ...
    @property
    def failure(self) -> str: ...
    @property
    def subscription(self) -> str: ...
    @property
    def cause(self) -> str: ...


def dead_wish(block: Block, index: int) -> tuple[bool | None, bool | None, bool | None]:
    """The wishes of a message about its death: keep it, log it, cut its body; None where it says nothing."""
    properties = BlockContent(block).properties(index)
    if not properties:
        return None, None, None
    return _truth(properties.get(PRESERVE)), _truth(properties.get(LOG)), _truth(properties.get(TRUNCATE))


def deaths_in(block: Block, index: int, queue: str) -> int:
    """How often a message has died in a queue, by its history; as often as can be when that is full."""
    rows = deaths_of(BlockContent(block).properties(index))
    if len(rows) >= DEATHS_MAX:
        return DELIVERIES_MAX
    return sum(row["count"] for row in rows if (row["type"], row["queue"]) == ("queue", queue))


def _truth(value: object) -> bool | None:
    if isinstance(value, str):
        return _TRUTH.get(value.lower())
    return value if isinstance(value, bool) else None


def dead_block(
    block: Block, mask: int, death: DeathFacts, *, producer: int, first_seq: int, now_ms: int, truncate: bool
) -> bytes:
    """The messages of ``mask`` as a new block for where the dead go; ``truncate`` cuts bodies unless one objects.

    Headers that leave no room lose the history and the comments of what is written here, never anything of their own;
    a block that would become too large loses all bodies, which one message alone does not.
    """
    rows = _dying(block, mask, death, now_ms, lambda wish: truncate if wish is None else wish)
    if rows.nbytes > (LONE_BYTES_MAX if mask.bit_count() == 1 else BLOCK_BYTES_MAX):
        rows = _dying(block, mask, death, now_ms, lambda wish: True)
    return rows.encode(producer, first_seq, block.timestamp_ms, block.persistent)


def _dying(block: Block, mask: int, death: DeathFacts, now_ms: int, cuts: Callable[[bool | None], bool]) -> _Rows:
    """The dead messages that these messages become; ``cuts`` says for the wish of one whether its body is cut."""
    content = BlockContent(block)
    rows = _Rows()
    comment = _text(death.comment)
    exception, trace = parted(death.failure or (comment if death.reason == "ERROR" else ""))
    exception = _text(exception)
    for index in _indexes(mask):
        properties = _own_properties(content, index)
        kind = block.kind_of(index)
        body: bytes | memoryview = block.body(index)
        if cut := cuts(_truth(properties.get(TRUNCATE))):
            kind, body = _cut(kind, properties)
        fields = _own_fields(content, index)
        unit = fields.pop(UNIT, None)
        history = _history(properties.pop(DEATHS, None), death, comment, now_ms)
        for name in (EXCEPTION, TRACEBACK, COMMENT):
            properties.pop(name, None)
        texts = {name: text for name, text in ((COMMENT, comment), (EXCEPTION, exception)) if text}
        properties.setdefault(PRODUCING_BROKER, death.broker)
        original = content.fields(index).get(OWN_ID) or message_id(block.producer, block.seq_of(index))
        properties.setdefault(ORIGINAL_ID, original)
        properties |= {
            REASON: death.reason,
            TIMESTAMP: now_ms,
            DEAD_BROKER: death.broker,
            BODY_TRUNCATED: cut,
            DELIVERY_COUNT: death.attempts + times(content.fields(index).get(DOUBTFUL)),
            ORIGIN: ":".join(death.origin),
        }
        for name in (EXPIRATION, SUBSCRIPTION, UNIT_OF_ORDER, CAUSE):
            properties.pop(name, None)
        if death.cause:
            properties[CAUSE] = death.cause
        if death.subscription:
            properties[SUBSCRIPTION] = death.subscription
        if is_unit_name(unit) and not is_default_unit(unit):
            properties[UNIT_OF_ORDER] = unit
        if death.reason != "EXPIRED" and (expires_ms := block.expires_of(index)):
            properties[EXPIRATION] = expires_ms
        rows.add(kind, body, _fitting(fields, properties, texts, history, trace), block.priority_of(index))
    return rows


def revive_block(block: Block, mask: int, *, producer: int, first_seq: int, now_ms: int) -> list[Revived]:
    """Dead messages without what death wrote on them but for their history, by where each came from.

    One that died before it expired expires when it would have, unless that is over.  It has its unit of order again,
    and its count of deliveries goes on: it is redelivered, unless it was never delivered before.
    The blocks of the list take up sequence numbers one after the other from ``first_seq`` on.  A message that does not
    say where it came from is in none of them.
    """
    content = BlockContent(block)
    groups: dict[tuple[str, str, str], tuple[int, _Rows]] = {}
    for index in _indexes(mask):
        properties = _own_properties(content, index)
        kind, colon, name = str(properties.get(ORIGIN, "")).partition(":")
        if not (colon and name and kind in ("queue", "topic")):
            continue
        left = {key: value for key, value in properties.items() if key not in _TAKEN_OFF}
        if left.get(BODY_TRUNCATED) is False:
            del left[BODY_TRUNCATED]
        header = pack_fields(_living_fields(content, index, properties) | ({"p": left} if left else {}))
        subscription = properties.get(SUBSCRIPTION)
        where = kind, name, subscription if kind == "topic" and isinstance(subscription, str) else ""
        chosen, rows = groups.get(where, (0, _Rows()))
        expires_ms = properties.get(EXPIRATION)
        rows.add(
            block.kind_of(index),
            block.body(index),
            header,
            block.priority_of(index),
            expires_ms if isinstance(expires_ms, int) and expires_ms > now_ms else 0,
        )
        groups[where] = chosen | 1 << index, rows
    found: list[Revived] = []
    for where, (chosen, rows) in groups.items():
        found.append((*where, chosen, rows.encode(producer, first_seq, now_ms, block.persistent)))
        first_seq += len(rows.bodies)
    return found


class _Rows:
    """Messages of a block to be."""

    def __init__(self) -> None:
        self.kinds = bytearray()
        self.bodies: list[bytes | memoryview] = []
        self.headers: list[bytes] = []
        self.priorities = bytearray()
        self.expires = array("Q")
        self.nbytes = HEAD_BYTES
        """At most so many bytes when encoded."""

    def add(self, kind: int, body: bytes | memoryview, header: bytes, priority: int, expires_ms: int = 0) -> None:
        self.kinds.append(kind)
        self.bodies.append(body)
        self.headers.append(header)
        self.priorities.append(priority)
        self.expires.append(expires_ms)
        self.nbytes += len(body) + len(header) + _COLUMNS_BYTES

    def encode(self, producer: int, first_seq: int, timestamp_ms: int, persistent: bool) -> bytes:
        one = self.kinds[0]
        uniform = self.kinds.count(one) == len(self.kinds)
        return encode_block(
            self.bodies,
            producer=producer,
            first_seq=first_seq,
            timestamp_ms=timestamp_ms,
            persistent=persistent,
            kinds=one if uniform else bytes(self.kinds),
            headers=self.headers if any(self.headers) else None,
            priorities=bytes(self.priorities),
            expires=self.expires if any(self.expires) else None,
        )


def _indexes(mask: int) -> list[int]:
    return [index for index, bit in enumerate(bin(mask)[:1:-1]) if bit == "1"]


def _own_properties(content: BlockContent, index: int) -> dict[str, Any]:
    """A message's properties as they may be written again: what no sender could have put there is left out."""
    return {
        name: value
        for name, value in content.properties(index).items()
        if isinstance(name, str) and (value is None or isinstance(value, bool | int | float | str | bytes))
    }


def _own_fields(content: BlockContent, index: int) -> dict[str, Any]:
    """A message's other headers; not its deduplication id, or it could not be sent back within the window."""
    return {key: value for key, value in content.fields(index).items() if key != "d" and isinstance(value, str)}


def _living_fields(content: BlockContent, index: int, properties: Mapping[str, Any]) -> dict[str, Any]:
    """The headers that a dead message has when it is sent back."""
    fields = _own_fields(content, index)
    unit, count = properties.get(UNIT_OF_ORDER, fields.get(UNIT)), properties.get(DELIVERY_COUNT)
    fields.pop(UNIT, None)
    if is_unit_name(unit) and not is_default_unit(unit):
        fields[UNIT] = unit
    if type(count) is int and count > 0:
        fields[DOUBTFUL] = True if count == 1 else min(count, DELIVERIES_MAX)
    return fields


def _cut(kind: int, properties: dict[str, Any]) -> tuple[int, bytes]:
    """(kind, body) of a message whose body is cut; its properties must not say that it is compressed."""
    if kind & COMPRESSED:
        kind &= ~COMPRESSED
        for name in (COMPRESS, COMPRESSED_SIZE, UNCOMPRESSED_SIZE):
            properties.pop(name, None)
    kind = kind if kind in _EMPTY else OBJECT
    return kind, _EMPTY[kind]


def deaths_of(properties: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The entries of a message's history, oldest first; empty when it has none, or none that can be read."""
    text = properties.get(DEATHS)
    try:
        rows = json.loads(text) if isinstance(text, str) else []
    except (ValueError, RecursionError):
        return []
    right = isinstance(rows, list) and all(isinstance(row, dict) and _is_entry(row) for row in rows)
    return rows if right else []


_ENTRY: Final[Mapping[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("queue", "type", "reason", "comment"), lambda value: type(value) is str),
    **dict.fromkeys(("count", "first_ms", "last_ms"), lambda value: type(value) is int),
}


def _is_entry(row: dict[str, Any]) -> bool:
    return row.keys() == _ENTRY.keys() and all(is_right(row[name]) for name, is_right in _ENTRY.items())


def _history(old: object, death: DeathFacts, comment: str, now_ms: int) -> str:
    """The history with one more death: the latest entry stands last."""
    type_, name = death.origin
    rows, count, first_ms = [], 1, now_ms
    for row in deaths_of({DEATHS: old}):
        if (row["type"], row["queue"], row["reason"]) == (type_, name, death.reason):
            count, first_ms = row["count"] + 1, row["first_ms"]
        else:
            rows.append(row)
    rows.append(
        {
            "queue": name,
            "type": type_,
            "reason": death.reason,
            "count": count,
            "first_ms": first_ms,
            "last_ms": now_ms,
            "comment": comment,
        }
    )
    return json.dumps(rows[-DEATHS_MAX:], separators=(",", ":"))


def _text(text: str) -> str:
    """Return at most COMMENT_CHARS_MAX characters that can be encoded."""
    return text[:COMMENT_CHARS_MAX].encode("utf-8", "replace").decode()


def _fitting(
    fields: dict[str, Any], properties: dict[str, Any], texts: dict[str, str], history: str, trace: str
) -> bytes:
    """The headers, with as much of what may be left out as there is room for."""
    whole = {DEATHS: history, **texts}
    for extra in ({**whole, TRACEBACK: trace} if trace else whole, whole, texts):
        header = pack_fields({**fields, "p": {**properties, **extra}})
        if len(header) <= MESSAGE_HEADERS_BYTES_MAX:
            return header
    return pack_fields({**fields, "p": properties})
