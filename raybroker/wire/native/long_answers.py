"""Answers that are longer than a control frame: the asked side keeps them, and the asking side fetches piece by piece.

The reply to the request is a mapping with the keys NUMBER and BYTES; each request ``piece`` with that number is
answered by the next PIECE_BYTES of the encoded answer, and with the last of them it is forgotten. KEPT_MAX answers of
one connection are kept, of which the oldest goes first, and none of more than ANSWER_BYTES_MAX.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgpack

from raybroker.model.errors import ProtocolError, ResourceAllocationError
from raybroker.wire.native import frames as wire

PIECE: Final = "piece"
NUMBER, BYTES = "answer.number", "answer.bytes"
PIECE_BYTES: Final = 512 << 10
ANSWER_BYTES_MAX: Final = 64 << 20
KEPT_MAX: Final = 4


class LongAnswers:
    """Those that one connection has not fetched yet."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[bytes, int]] = OrderedDict()
        """Number → the encoded answer, and how much of it has been fetched."""
        self._next = 1

    def reply(self, request: int, answer: Any) -> bytes:
        """The frame that answers a request; raises ResourceAllocationError for an answer that is too long."""
        try:
            return wire.reply(request, answer)
        except ProtocolError:
            data: bytes = msgpack.packb(answer, use_bin_type=True)
        if len(data) > ANSWER_BYTES_MAX:
            raise ResourceAllocationError(
                f"the answer has {len(data)} bytes, and at most {ANSWER_BYTES_MAX} are sent; ask for less of it"
            )
        number, self._next = self._next, self._next + 1
        self._kept[number] = data, 0
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return wire.reply(request, {NUMBER: number, BYTES: len(data)})

    def piece(self, number: int) -> bytes:
        """The next piece of an answer; raises ProtocolError for one that is not kept."""
        data, done = self._kept.pop(number, (b"", 0))
        if not data:
            raise ProtocolError(f"answer {number} is not kept, or no more; ask again")
        end = done + PIECE_BYTES
        if end < len(data):
            self._kept[number] = data, end
        return data[done:end]


async def whole(answer: Any, fetch: Callable[[int], Awaitable[Any]]) -> Any:
    """An answer, fetched if it is a long one; ``fetch(number)`` gives the next piece. Raises ProtocolError for what is
    not what was announced."""
    if not isinstance(answer, dict) or answer.keys() != {NUMBER, BYTES}:
        return answer
    size, pieces, came = int(answer[BYTES]), [], 0
    if size > ANSWER_BYTES_MAX:
        raise ProtocolError(f"an answer of {size} bytes; allowed are {ANSWER_BYTES_MAX}")
    while came < size:
        piece = await fetch(int(answer[NUMBER]))
        if not isinstance(piece, bytes) or not piece or came + len(piece) > size:
            raise ProtocolError("an answer came in other pieces than it was announced")
        pieces.append(piece)
        came += len(piece)
    try:
        return msgpack.unpackb(b"".join(pieces), raw=False)
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"an answer in pieces cannot be read: {error!r:.200}") from None
