"""Units of work on the wire: which messages of a block are parts of one, and the message that a complete one becomes.

The message has the bodies of its parts in their order (kind WORK), of each with its headers and its id.  Its own
headers are those of the first part, its properties the ones that all parts have alike, and the lowest version of
theirs; it expires with the first of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import msgpack

from raybroker.content.bodies import WORK
from raybroker.content.headers import BlockContent, message_id, pack_fields
from raybroker.model.blocks.block import Block, encode_block
from raybroker.model.bounds import MESSAGE_BYTES_MAX
from raybroker.model.errors import MessageTooLargeError
from raybroker.model.naming.units import is_unit_name

WORK_UNIT: Final = "JMS_BEA_UnitOfWork"
WORK_NUMBER: Final = "JMS_BEA_UnitOfWorkSequenceNumber"
WORK_END: Final = "JMS_BEA_IsUnitOfWorkEnd"
_NAME: Final = WORK_UNIT.encode()

Key = tuple[str, int, bool]
"""Unit, number of the part in it, whether it is the last; the number is 0 when one of them is not as it has to be."""


def works_of(block: Block) -> tuple[Key | None, ...] | None:
    """The place of each message in a unit of work; None when no message is in one.

    Without the name of a unit the other two properties mean nothing.
    """
    offsets = block.header_offsets()
    if offsets is None or _NAME not in bytes(block.front[offsets[0] : offsets[-1]]):
        return None
    content, view = BlockContent(block), block.front
    keys = tuple(
        [
            _key(content.properties(index)) if _NAME in bytes(view[start:end]) else None
            for index, (start, end) in enumerate(pairwise(offsets))
        ]
    )
    return keys if any(keys) else None


def _key(properties: Any) -> Key | None:
    unit = properties.get(WORK_UNIT)
    if unit is None:
        return None
    number, end = properties.get(WORK_NUMBER), properties.get(WORK_END, False)
    if not is_unit_name(unit) or type(number) is not int or type(end) is not bool or number < 1:
        return str(unit)[:40], 0, False
    return unit, number, end


def work_block(
    unit: str, parts: Sequence[tuple[Block, int]], *, producer: int, first_seq: int, version_key: str = ""
) -> bytes:
    """The message that a unit becomes, as a block of its own; ``parts``: (block, message) in order. ``version_key``:
    the property that has their version.

    Raises MessageTooLargeError when it is larger than messages can be.
    """
    first, at = parts[0]
    rows = [
        (
            block.kind_of(index),
            bytes(block.header(index) or b""),
            bytes(block.body(index)),
            message_id(block.producer, block.seq_of(index)),
        )
        for block, index in parts
    ]
    body: bytes = msgpack.packb(rows, use_bin_type=True)
    if len(body) > MESSAGE_BYTES_MAX:
        raise MessageTooLargeError(f"the message of unit of work {unit!r} has {len(body)} bytes")
    fields = {key: value for key, value in BlockContent(first).fields(at).items() if key in ("c", "r", "t")}
    properties = {**_common(parts), **_lowest(parts, version_key), WORK_UNIT: unit}
    header = pack_fields({**fields, "p": properties})
    soonest = min((at_ms for block, index in parts if (at_ms := block.expires_of(index))), default=0)
    return encode_block(
        [body],
        producer=producer,
        first_seq=first_seq,
        timestamp_ms=max(block.timestamp_ms for block, _ in parts),
        persistent=first.persistent,
        kinds=WORK,
        headers=[header],
        priority=first.priority_of(at),
        expires=array("Q", (soonest,)) if soonest else None,
    )


def _common(parts: Sequence[tuple[Block, int]]) -> dict[str, Any]:
    """The properties that all parts have alike, but for those that make them parts."""
    contents: dict[int, BlockContent] = {}
    found: dict[str, Any] | None = None
    for block, index in parts:
        own = contents.setdefault(id(block), BlockContent(block)).properties(index)
        if found is None:
            found = {name: value for name, value in own.items() if name not in (WORK_UNIT, WORK_NUMBER, WORK_END)}
        else:
            found = {name: value for name, value in found.items() if _same(own.get(name, _MISSING), value)}
    return found or {}


def _lowest(parts: Sequence[tuple[Block, int]], version_key: str) -> dict[str, int]:
    """The lowest version of the parts, of those that have one."""
    if not version_key:
        return {}
    from raybroker.model.staleness import version_of  # Clients, which read such messages, have no use for it.

    values = [BlockContent(block).properties(index).get(version_key) for block, index in parts]
    versions = [version for value in values if (version := version_of(value)) is not None]
    return {version_key: min(versions)} if versions else {}


_MISSING: Final = object()


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other
