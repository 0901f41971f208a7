"""Checkpoints: what consumers have said of how far they are with messages that they hold, for whoever gets these next.

The last one of a message replaces the one before, comes with each of its deliveries, and goes with the message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from raybroker.core.blocks import message_mask as pk
from raybroker.model.errors import ResourceAllocationError

BYTES_MAX: Final = 256 << 20
"""Of all checkpoints of a delivery queue together: they are in memory."""


class Checkpoints:
    """The checkpoints of one delivery queue.  ``by_block``: block → index → state; most queues have none."""

    __slots__ = ("by_block", "nbytes")

    def __init__(self) -> None:
        self.by_block: dict[int, dict[int, bytes]] = {}
        self.nbytes = 0

    def require_room(self, nbytes: int) -> None:
        """Raises ResourceAllocationError when there is none for so many bytes more."""
        if self.nbytes + nbytes > BYTES_MAX:
            raise ResourceAllocationError(
                f"the checkpoints of its messages have {self.nbytes} bytes, and no more than {BYTES_MAX} are kept;"
                " acknowledge some, or make them smaller"
            )

    def put(self, ordinal: int, index: int, state: bytes) -> None:
        """Keep what was said of a message."""
        block = self.by_block.setdefault(ordinal, {})
        self.nbytes += len(state) - len(block.get(index, b""))
        block[index] = state

    def states_of(self, ordinal: int, mask: int) -> Mapping[int, bytes]:
        """Index → state, of these messages of a block."""
        block = self.by_block.get(ordinal)
        return {index: state for index, state in block.items() if mask >> index & 1} if block is not None else {}

    def drop(self, ordinal: int, mask: int) -> None:
        """The messages are settled."""
        block = self.by_block.get(ordinal)
        if block is None:
            return
        for index in pk.indexes(mask):
            self.nbytes -= len(block.pop(index, b""))
        if not block:
            del self.by_block[ordinal]

    def __iter__(self) -> Iterator[tuple[int, int, bytes]]:
        """(block, index, state) of all of them."""
        for ordinal, block in self.by_block.items():
            for index, state in block.items():
                yield ordinal, index, state
