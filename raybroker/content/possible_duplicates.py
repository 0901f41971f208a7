"""Messages that another broker may have stored already: their headers say so, and whoever receives them sees it.

A producer whose broker is lost before it has answered cannot know what that one has stored.  It sends the same
messages to another broker, which cannot know either; each is redelivered then, also when it comes for the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from raybroker.content.death_records import DELIVERY_COUNT
from raybroker.content.headers import DELIVERIES_MAX, DOUBTFUL, pack_fields, times, unpack_fields
from raybroker.model.blocks.block import Block
from raybroker.model.blocks.large_block import LargeBlock
from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import BrokerError, ProtocolError


def in_doubt(data: bytes, *, front: bool = False) -> bytes:
    """An encoded block whose messages may be second copies; the same one when there is no room for saying so.

    ``front``: it is the front of a large block.
    """
    return _with(data, lambda before, died: before or 1, front=front)


def delivered(data: bytes, count: int) -> bytes:
    """An encoded block whose messages were delivered so often by another destination or member; the same one when
    there is no room.

    A dead message was delivered before it died, as often as its properties say.
    """
    return _with(data, lambda before, died: min(max(before, died) + count, DELIVERIES_MAX))


def _with(data: bytes, change: Callable[[int, int], int], *, front: bool = False) -> bytes:
    """``change``: from the count of deliveries in a header, and that from before its message died, to the new count."""
    block = LargeBlock.promised(data) if front else Block(data)
    offsets = block.header_offsets()
    headers: list[Buffer] = [b""] * block.count if offsets is None else [block.front[a:b] for a, b in pairwise(offsets)]
    try:
        marked = [_marked(header, change) for header in headers]
        return data if marked == headers else bytes(block.with_headers(marked).front)
    except BrokerError:
        return data


def _marked(header: Buffer, change: Callable[[int, int], int]) -> bytes:
    try:
        fields = unpack_fields(header) if header else {}
    except ProtocolError:
        return bytes(header)
    properties = fields.get("p")
    died = properties.get(DELIVERY_COUNT) if isinstance(properties, dict) else 0
    count = change(times(fields.get(DOUBTFUL)), died if type(died) is int else 0)
    if count <= 0:
        return bytes(header)
    return pack_fields({**fields, DOUBTFUL: True if count == 1 else count})
