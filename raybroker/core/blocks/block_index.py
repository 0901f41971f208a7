"""The blocks that a destination holds, and which of their messages are not settled.

A block is held from acceptance until its last message is settled.  Per block this costs one small object however many
messages it has, and less where many of one message wait, see :mod:`~raybroker.core.blocks.held_blocks`; which messages
are settled is one integer (see ``message_mask.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from raybroker.core.blocks import held_blocks
from raybroker.core.blocks.block_entry import BlockEntry
from raybroker.core.blocks.held_blocks import AlonePart, HeldBlocks


class BlockIndex:
    """All held blocks of a destination by ordinal, with the totals that limits and administrators ask for."""

    __slots__ = (
        "_in_page",
        "bytes_held",
        "dead",
        "dead_bytes",
        "held",
        "messages",
        "next_ordinal",
        "peak_bytes",
        "peak_messages",
    )

    def __init__(self) -> None:
        self.held = HeldBlocks()
        self._in_page = (1 << held_blocks.PAGE_BITS) - 1
        self.next_ordinal = 1
        self.messages = 0
        self.bytes_held = 0
        self.peak_messages = 0
        self.peak_bytes = 0
        self.dead = self.dead_bytes = 0
        """Messages that delivery queues hold as dead letters, and their bytes; once for each queue."""

    def accept(self, block: BlockEntry, ordinal: int = 0, *, whole: bool = True) -> int:
        """Hold a block under its ordinal, or the next one, which is returned.

        ``whole``: all of it is taken; if not, the caller settles the rest and then records the peak.
        """
        if not ordinal:
            ordinal = self.next_ordinal
            self.next_ordinal += 1
        self.held[ordinal] = block
        if not ordinal & self._in_page:
            self.held.pack_before(ordinal)
        sizes = block.sizes
        messages = self.messages = self.messages + block.count
        nbytes = self.bytes_held = self.bytes_held + (sizes * block.count if isinstance(sizes, int) else sum(sizes))
        if whole:
            if messages > self.peak_messages:
                self.peak_messages = messages
            if nbytes > self.peak_bytes:
                self.peak_bytes = nbytes
        return ordinal

    def accept_alone(self, parts: Sequence[AlonePart]) -> None:
        """Hold stored blocks of one message, which are behind all others; the caller records the peak."""
        self.held.add_alone(parts)
        self.messages += sum([len(sizes) for _, sizes, _ in parts])
        self.bytes_held += sum([sum(sizes) for _, sizes, _ in parts])

    def note_peak(self) -> None:
        """Record the peak of messages and bytes held."""
        self.peak_messages = max(self.peak_messages, self.messages)
        self.peak_bytes = max(self.peak_bytes, self.bytes_held)

    def forget_peak(self) -> None:
        """Count the peak from now on."""
        self.peak_messages, self.peak_bytes = self.messages, self.bytes_held

    def settle_messages(self, ordinal: int, mask: int) -> bool:
        """Messages of a held block are done with; True when they were its last and the block is no longer held."""
        block = self.held[ordinal]
        assert not block.done & mask, "a message was settled twice"
        count = mask.bit_count()
        self.messages -= count
        self.bytes_held -= block.bytes_of(mask)
        block.left -= count
        if block.left == 0:
            del self.held[ordinal]
            return True
        block.done |= mask
        return False

    def count_dead(self, ordinal: int, mask: int, sign: int = 1) -> None:
        """Messages of a held block are dead letters of a delivery queue, or (``sign`` -1) no longer."""
        self.dead += sign * mask.bit_count()
        self.dead_bytes += sign * self.held[ordinal].bytes_of(mask)


def spans(ordinals: list[int]) -> list[tuple[int, int]]:
    """Ascending numbers as (first, last) of runs without gaps."""
    if len(ordinals) < 2:
        return [(ordinal, ordinal) for ordinal in ordinals]
    cuts = [i + 1 for i, (a, b) in enumerate(pairwise(ordinals)) if b != a + 1]
    edges = [0, *cuts, len(ordinals)]
    return [(ordinals[a], ordinals[b - 1]) for a, b in pairwise(edges)]
