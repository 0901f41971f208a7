"""Messages that another broker may have stored already: their headers say so, and whoever receives them sees it (K-19).

A producer whose broker is lost before it has answered cannot know what that one has stored.  It sends the same
messages to another broker, which cannot know either; each is redelivered then, also when it comes for the first time.
"""

from __future__ import annotations

from itertools import pairwise

from raybroker.model.block import Block
from raybroker.model.errors import BrokerError, ProtocolError
from raybroker.model.record import Buffer
from raybroker.wire.content import DOUBTFUL, pack_fields, unpack_fields


def in_doubt(data: bytes) -> bytes:
    """An encoded block whose messages may be second copies; the same one when there is no room for saying so."""
    block = Block(data)
    offsets = block.header_offsets()
    headers: list[Buffer] = [b""] * block.count if offsets is None else [block.view[a:b] for a, b in pairwise(offsets)]
    try:
        return bytes(block.with_headers([_marked(header) for header in headers]).view)
    except BrokerError:
        return data


def _marked(header: Buffer) -> bytes:
    try:
        fields = unpack_fields(header) if header else {}
    except ProtocolError:
        return bytes(header)
    return pack_fields({**fields, DOUBTFUL: True})
