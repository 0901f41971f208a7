"""The whole body: that of a large message, in the memory of a client."""

from __future__ import annotations

from raybroker.model.blocks.large_block import PIECE_BYTES


class WholeBody:
    """See LargeBody. ``data``: what the application gave, or gets; nobody copies it.

    ``sent``: a message with this body has left, so that a host may have stored it.
    """

    __slots__ = ("data", "sent")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.sent = False

    @property
    def nbytes(self) -> int:
        return len(self.data)

    def piece(self, number: int) -> bytes:
        return self.data[number * PIECE_BYTES : (number + 1) * PIECE_BYTES]

    def claim(self) -> bool:
        """False: it is no file of a store."""
        return False
