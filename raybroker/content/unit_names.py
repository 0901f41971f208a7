"""Unit of order of each message of a block: a header, read once when the block comes.

Most messages of a unit have the same header, byte for byte, so that reading a name is a look into a table.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

from raybroker.content.headers import UNIT, pack_fields, unpack_column, unpack_fields
from raybroker.model.blocks.block import Block
from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import ProtocolError
from raybroker.model.naming.units import is_unit_name

UnitNames = tuple[str | None, ...]
"""One name, or None, for each message."""

_KEY: Final = b"\xa1u"
HEADERS_KNOWN_MAX: Final = 8_192
"""Headers whose unit is remembered: with more units than this, each message is decoded."""
HEADER_BYTES_MAX: Final = 96
"""Longer headers have properties that differ from message to message, and are not remembered."""

_known: dict[bytes, str | None] = {}
_names: dict[str, str] = {}


def units_of(block: Block) -> UnitNames | None:
    """The unit of each message; None when no message has one. What does not decode has none, as for selectors."""
    offsets = block.header_offsets()
    if offsets is None:
        return None
    data = bytes(block.front[: offsets[-1]])
    if data.find(_KEY, offsets[0]) < 0:
        return None
    headers = [data[start:end] for start, end in pairwise(offsets)]
    try:
        found = tuple(map(_known.__getitem__, headers))
    except KeyError:
        found = _decoded(block, offsets, headers)
    return found if any(found) else None


def _decoded(block: Block, offsets: list[int], headers: list[bytes]) -> UnitNames:
    """The units of headers of which some are new."""
    known, found, column = _known, [], None
    for index, header in enumerate(headers):
        if header in known:
            found.append(known[header])
            continue
        if column is None:
            column = unpack_column(block.front, offsets) or [_fields(one) for one in headers]
        name = _one_object(column[index].get(UNIT))
        found.append(name)
        if len(header) <= HEADER_BYTES_MAX:
            if len(known) >= HEADERS_KNOWN_MAX:
                known.clear()
            known[header] = name
    return tuple(found)


def _fields(header: bytes) -> dict[str, Any]:
    try:
        return unpack_fields(header) if header else {}
    except ProtocolError:
        return {}


def _one_object(name: object) -> str | None:
    """Equal names are one object: a name is kept for each message."""
    if not is_unit_name(name):
        return None
    assert isinstance(name, str)
    if len(_names) >= HEADERS_KNOWN_MAX:
        _names.clear()
    return _names.setdefault(name, name)


def in_unit(block: Block, unit: str) -> Block:
    """The block with ``unit`` on every message that has none."""
    offsets = block.header_offsets()
    own = pack_fields({UNIT: unit})
    if offsets is None:
        return block.with_headers([own] * block.count)
    headers: list[Buffer] = []
    for start, end in pairwise(offsets):
        header: Buffer = block.front[start:end]
        fields = _fields(bytes(header))
        headers.append(header if is_unit_name(fields.get(UNIT)) else pack_fields({**fields, UNIT: unit}))
    return block.with_headers(headers)
