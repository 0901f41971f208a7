"""Publisher deduplication: ids that were taken within a window are not taken again.

The window is bounded in time (``duplicateWindowMs``) and in number (``duplicateIdsMax``); the oldest are forgotten
first.

An id is taken when its message is: when that is stored, or with the commit of its transaction.  An open or prepared
transaction reserves nothing: another sender's message with the same id is stored, and the commit leaves its own out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from raybroker.core.blocks import message_mask as pk


class Deduplication:
    """``taken``: id → when, milliseconds, oldest first."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        self.taken: dict[str, int] = {}

    def known(self, text: str | None) -> bool:
        return text is not None and text in self.taken

    def without_known(self, ids: Sequence[str | None], mask: int) -> int:
        """Those of ``mask`` whose ids are not in the window."""
        if not self.taken:
            return mask
        return mask & ~pk.of_indexes(index for index in pk.indexes(mask) if ids[index] in self.taken)

    def take(self, ids: Iterable[tuple[str, int]], most: int) -> None:
        for text, at_ms in ids:
            self.taken.pop(text, None)
            self.taken[text] = at_ms
        while len(self.taken) > most:
            del self.taken[next(iter(self.taken))]

    def forget(self, before_ms: int) -> None:
        """Ids taken before that time are out of the window."""
        while self.taken:
            oldest = next(iter(self.taken))
            if self.taken[oldest] >= before_ms:
                return
            del self.taken[oldest]


def first_of_each(ids: Sequence[str | None], mask: int) -> int:
    """Those of ``mask`` that have no id, or are the first of these with theirs."""
    seen: set[str] = set()
    first = 0
    for index in pk.indexes(mask):
        text = ids[index]
        if text is None or text not in seen:
            first |= 1 << index
        if text is not None:
            seen.add(text)
    return first
