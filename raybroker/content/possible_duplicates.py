"""Messages that another broker may have stored already: their headers say so, and whoever receives them sees it.

A producer whose broker is lost before it has answered cannot know what that one has stored.  It sends the same
messages to another broker, which cannot know either; each is redelivered then, also when it comes for the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from raybroker.content.headers import DELIVERIES_MAX, DOUBTFUL, pack_fields, times, unpack_fields
from raybroker.model.block import Block
from raybroker.model.errors import BrokerError, ProtocolError
from raybroker.model.large_block import LargeBlock
from raybroker.model.record import Buffer


def in_doubt(data: bytes, *, front: bool = False) -> bytes:
    """An encoded block whose messages may be second copies; the same one when there is no room for saying so.

    ``front``: it is the front of a large block.
    """
    return _with(data, lambda before: before or 1, front=front)


def delivered(data: bytes, count: int) -> bytes:
    """An encoded block whose messages were delivered so often by another member; the same one when there is no room."""
    return _with(data, lambda before: min(before + count, DELIVERIES_MAX))


def _with(data: bytes, change: Callable[[int], int], *, front: bool = False) -> bytes:
    block = LargeBlock.promised(data) if front else Block(data)
    offsets = block.header_offsets()
    headers: list[Buffer] = [b""] * block.count if offsets is None else [block.front[a:b] for a, b in pairwise(offsets)]
    try:
        return bytes(block.with_headers([_marked(header, change) for header in headers]).front)
    except BrokerError:
        return data


def _marked(header: Buffer, change: Callable[[int], int]) -> bytes:
    try:
        fields = unpack_fields(header) if header else {}
    except ProtocolError:
        return bytes(header)
    count = change(times(fields.get(DOUBTFUL)))
    return pack_fields({**fields, DOUBTFUL: True if count == 1 else count})
