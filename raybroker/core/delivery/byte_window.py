"""The byte window: how many bytes of bodies may lie in the buffer of a consumer, besides its window of messages.

A window of messages says nothing of memory, since a message may have a byte or 70 MiB.  A consumer whose program has
little memory for each of its clients, as a gateway, says how many bytes may come ahead of it; it tells how far its
buffer is empty again (``Taken``), acknowledged or not.

One message always goes while no more than a quarter is out, whatever it has: so the buffer has at most ``most`` bytes,
or a quarter and one message.  The consumer tells once it has taken an eighth, so that nobody waits for the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_entry import BlockEntry

ONE_GOES_PART: Final = 4
"""One message always goes while at most this part of the window is out."""


class ByteWindow:
    """``most``: bytes. ``full``: the next message does not fit; it gets nothing before it has taken some."""

    __slots__ = ("_out", "full", "most", "nbytes")

    def __init__(self, most: int) -> None:
        assert most > 0
        self.most = most
        self.nbytes = 0
        self.full = False
        self._out: deque[tuple[int, Sequence[int]]] = deque()
        """(first tag, bytes of each) of what was sent and not taken."""

    def fitting(self, block: BlockEntry, mask: int) -> int:
        """The first of these messages of a block, as far as they fit; less than all of them make it full."""
        room = self.most - self.nbytes
        if block.bytes_of(mask) <= room:
            return mask
        self.full = True
        count = 0
        for size in _sizes(block, mask):
            room -= size
            if room < 0:
                break
            count += 1
        if not count and self.nbytes * ONE_GOES_PART <= self.most:
            count = 1
        return pk.lowest(mask, count) if count else 0

    def sent(self, tag: int, block: BlockEntry, mask: int) -> None:
        """These messages go, the first of them with that tag."""
        self.nbytes += block.bytes_of(mask)
        self._out.append((tag, _sizes(block, mask)))

    def taken(self, tag: int) -> bool:
        """Nothing up to a tag is in the consumer's buffer any more; True when it may get something again."""
        out = self._out
        while out and out[0][0] <= tag:
            first, sizes = out.popleft()
            gone = tag + 1 - first
            self.nbytes -= sum(sizes[:gone])
            if gone < len(sizes):
                out.appendleft((tag + 1, sizes[gone:]))
        was_full, self.full = self.full, False
        return was_full

    def restart(self) -> None:
        """The buffer is empty."""
        self._out.clear()
        self.nbytes = 0
        self.full = False


def _sizes(block: BlockEntry, mask: int) -> Sequence[int]:
    sizes = block.sizes
    return (sizes,) * mask.bit_count() if isinstance(sizes, int) else tuple(pk.chosen(sizes, mask))
