"""The body upload: a large body goes to a host in pieces, ahead of the message that names it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

from raybroker.client.connection.channel import Channel
from raybroker.client.connection.whole_body import WholeBody
from raybroker.model.blocks.large_block import pieces_of

AHEAD: Final = 4
"""Pieces of a body that are sent before the first of them is answered."""


async def upload(channel: Channel, kind: str, name: str, body: WholeBody, headers_bytes: int) -> int:
    """The number of the body on the connection, once the host has all of it; ``kind`` and ``name``: where it goes.

    ``headers_bytes``: what its message has of headers, so that one that is too large is refused before it is sent.

    Raises what the host answers, and ConnectionLostError.
    """
    async with channel.uploads:
        number = channel.new_body()
        asked: deque[asyncio.Future[Any]] = deque()
        try:
            begin = {"body": number, "bytes": body.nbytes, "headers": headers_bytes, "type": kind, "name": name}
            await channel.request("begin_body", begin)
            for piece in range(pieces_of(body.nbytes)):
                if len(asked) == AHEAD:
                    await asked.popleft()
                asked.append(channel.request("body_piece", {"body": number, "data": body.piece(piece)}))
            while asked:
                await asked.popleft()
        except BaseException:
            for future in asked:
                future.add_done_callback(lambda done: done.cancelled() or done.exception())
            if not channel.lost:
                channel.tell("drop_body", {"body": number})
            raise
    return number
