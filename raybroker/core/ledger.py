"""The blocks that a destination holds, and which of their messages are still owed to somebody.

A block is held from acceptance until its last message is settled.  Per block this costs one small object however many
messages it has; ranges of settled messages are kept only while a block is settled in part.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from raybroker.core import ranges
from raybroker.core.notes import Part, Sizes


class Held:
    """One block: ``left`` of its ``count`` messages are not settled; ``done`` says which are, when only some are."""

    __slots__ = ("count", "done", "left", "persistent", "sizes")

    def __init__(self, count: int, sizes: Sizes, persistent: bool) -> None:
        self.count = count
        self.left = count
        self.sizes = sizes
        self.persistent = persistent
        self.done: ranges.Ranges | None = None

    def bytes_of(self, start: int, end: int) -> int:
        if isinstance(self.sizes, int):
            return self.sizes * (end - start)
        return sum(self.sizes[start:end])


class Ledger:
    """All held blocks of a destination by ordinal, with the totals that limits and administrators ask for."""

    __slots__ = ("bytes_held", "held", "messages", "next_ordinal", "peak_bytes", "peak_messages")

    def __init__(self) -> None:
        self.held: dict[int, Held] = {}
        self.next_ordinal = 1
        self.messages = 0
        self.bytes_held = 0
        self.peak_messages = 0
        self.peak_bytes = 0

    def accept(self, sizes: Sizes, count: int, persistent: bool) -> int:
        """Hold a new block; returns its ordinal. The caller settles what of it was not taken, then notes the peak."""
        ordinal = self.next_ordinal
        self.next_ordinal += 1
        self.restore(ordinal, Held(count, sizes, persistent))
        return ordinal

    def restore(self, ordinal: int, block: Held) -> None:
        self.held[ordinal] = block
        self.messages += block.count
        self.bytes_held += block.bytes_of(0, block.count)

    def note_peak(self) -> None:
        self.peak_messages = max(self.peak_messages, self.messages)
        self.peak_bytes = max(self.peak_bytes, self.bytes_held)

    def settle(self, part: Part) -> bool:
        """Messages of a held block are done with; True when they were its last and the block is no longer held."""
        ordinal, start, end = part
        block = self.held[ordinal]
        count = end - start
        self.messages -= count
        self.bytes_held -= block.bytes_of(start, end)
        block.left -= count
        assert block.left >= 0, "a message was settled twice"
        if block.left == 0:
            del self.held[ordinal]
            return True
        if block.done is None:
            block.done = []
        ranges.add(block.done, start, end)
        return False

    def open_parts(self, ordinal: int) -> Iterable[Part]:
        """The parts of a held block that are not settled."""
        block = self.held[ordinal]
        return (Part(ordinal, a, b) for a, b in ranges.missing(block.done or [], 0, block.count))

    def live_spans(self, *, persistent: bool) -> list[tuple[int, int]]:
        """(first, last) ordinals of held blocks, ascending; consecutive ordinals share a span."""
        ordinals = [o for o, block in self.held.items() if block.persistent == persistent]
        ordinals.sort()
        return spans(ordinals)


def spans(ordinals: list[int]) -> list[tuple[int, int]]:
    """Ascending numbers as (first, last) of runs without gaps."""
    if not ordinals:
        return []
    cuts = [i + 1 for i, (a, b) in enumerate(pairwise(ordinals)) if b != a + 1]
    edges = [0, *cuts, len(ordinals)]
    return [(ordinals[a], ordinals[b - 1]) for a, b in pairwise(edges)]
