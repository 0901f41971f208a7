"""The byte window: how many bytes of bodies may lie in the buffer of a consumer, besides its window of messages.

A window of messages says nothing of memory, since a message may have a byte or 70 MiB.  A consumer whose program has
little memory for each of its clients, as a gateway, says how many bytes may come ahead of it; it tells how far its
buffer is empty again (``Taken``), acknowledged or not.

One message always goes while no more than a quarter is out, whatever it has: so the buffer has at most ``most`` bytes,
or a quarter and one message.  The consumer tells once it has taken an eighth, so that nobody waits for the other.

The cost window bounds work in the same way: one prompt has ten tokens and another ten thousand.  A message costs what
its property ``cost`` says, a number of any unit that the application chooses; without one, or with anything but a
number of 0 or more, it costs 1.  It is read when the message is handed out, for consumers with such a window alone.
What one gets at a time is an eighth of the window, or one message: it tells once it has taken that, so that it does not
wait for more with an empty buffer.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_entry import BlockEntry
from raybroker.core.delivery.selector_index import Contents, Peek

ONE_GOES_PART: Final = 4
"""One message always goes while at most this part of the window is out."""
COST: Final = "cost"
"""The property of a message that says what it costs."""
PIECES: Final = 8
"""What goes at a time is this part of the window."""
COST_MAX: Final = (1 << 31) - 1
"""A message that says it costs more costs that."""


class ByteWindow:
    """``most``: bytes. ``full``: the next message does not fit; it gets nothing before it has taken some."""

    __slots__ = ("_out", "full", "most", "nbytes")
    unit: ClassVar[str] = "bytes"

    def __init__(self, most: int) -> None:
        assert most > 0
        self.most = most
        self.nbytes = 0
        self.full = False
        self._out: deque[tuple[int, Sequence[int]]] = deque()
        """(first tag, bytes of each) of what was sent and not taken."""

    def fitting(self, block: BlockEntry, mask: int, ordinal: int = 0) -> int:
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

    def sent(self, tag: int, block: BlockEntry, mask: int, ordinal: int = 0) -> None:
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


def cost_of(value: object) -> int:
    """The cost that a property says."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return 1
    return math.ceil(min(value, COST_MAX))


class CostWindow(ByteWindow):
    """``peek``: the headers of a block by its ordinal."""

    __slots__ = ("_contents",)
    unit: ClassVar[str] = "cost"

    def __init__(self, most: int, peek: Peek) -> None:
        super().__init__(most)
        self._contents = Contents(peek)

    def fitting(self, block: BlockEntry, mask: int, ordinal: int = 0) -> int:
        room = self.most - self.nbytes
        piece = min(room, max(self.most // PIECES, 1))
        count = 0
        for cost in self._costs(mask, ordinal):
            alone = not count and (cost <= room or self.nbytes * ONE_GOES_PART <= self.most)
            piece -= cost
            if piece < 0 and not alone:
                break
            count += 1
        if not count:
            self.full = True
            return 0
        return pk.lowest(mask, count)

    def sent(self, tag: int, block: BlockEntry, mask: int, ordinal: int = 0) -> None:
        costs = tuple(self._costs(mask, ordinal))
        self.nbytes += sum(costs)
        self._out.append((tag, costs))

    def _costs(self, mask: int, ordinal: int) -> Iterator[int]:
        content = self._contents.content_of(ordinal)
        for index in pk.indexes(mask):
            yield cost_of(content.properties(index).get(COST)) if content is not None else 1
