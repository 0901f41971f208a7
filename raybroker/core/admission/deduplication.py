"""Publisher deduplication: ids that were taken within a window are not taken again.

The window is bounded in time (``duplicateWindowMs``) and in number (``duplicateIdsMax``); the oldest are forgotten
first.

An id is taken when its message is: when that is stored, or with the commit of its transaction.  An open or prepared
transaction reserves nothing: another sender's message with the same id is stored, and the commit leaves its own out.

An id stands for a later message as far as the one that took it lives: a non-persistent message, which a restart ends,
is no reason to confirm a persistent one without storing it.  That one is taken as well, and is what the id stands for
from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter

from raybroker.core.blocks import message_mask as pk


class Deduplication:
    """``taken``: id → when, milliseconds, oldest first.  ``volatile``: those that only non-persistent messages have."""

    __slots__ = ("taken", "volatile")

    def __init__(self) -> None:
        self.taken: dict[str, int] = {}
        self.volatile: set[str] = set()

    def known(self, text: str | None) -> bool:
        return text is not None and text in self.taken

    def without_known(self, ids: Sequence[str | None], mask: int, *, persistent: bool) -> int:
        """Return those of ``mask`` whose ids are not in the window; ``persistent``: or only of messages that are
        not."""
        if not self.taken:
            return mask
        known = pk.of_indexes(
            index
            for index in pk.indexes(mask)
            if ids[index] in self.taken and not (persistent and ids[index] in self.volatile)
        )
        return mask & ~known

    def take_ids(self, ids: Iterable[tuple[str, int]], most: int, *, persistent: bool) -> None:
        for text, at_ms in ids:
            self.taken.pop(text, None)
            self.taken[text] = at_ms
            if not persistent:
                self.volatile.add(text)
            else:
                self.volatile.discard(text)
        while len(self.taken) > most:
            self._forget(next(iter(self.taken)))

    def take_earlier(self, ids: Iterable[tuple[str, int, bool]], most: int) -> None:
        """Know what another place took, and when; the last of each says whether that outlives a restart.  An id that is
        known was taken at the later of both times."""
        for text, at_ms, lasting in ids:
            if text not in self.taken and not lasting:
                self.volatile.add(text)
            elif lasting:
                self.volatile.discard(text)
            self.taken[text] = max(at_ms, self.taken.get(text, at_ms))
        self.taken = dict(sorted(self.taken.items(), key=itemgetter(1)))
        while len(self.taken) > most:
            self._forget(next(iter(self.taken)))

    def lasting(self) -> list[tuple[str, int]]:
        """What a restart leaves of the window."""
        return [row for row in self.taken.items() if row[0] not in self.volatile]

    def forget_before(self, before_ms: int) -> None:
        """Ids taken before that time are out of the window."""
        while self.taken:
            oldest = next(iter(self.taken))
            if self.taken[oldest] >= before_ms:
                return
            self._forget(oldest)

    def _forget(self, text: str) -> None:
        del self.taken[text]
        self.volatile.discard(text)


def first_of_each(ids: Sequence[str | None], mask: int) -> int:
    """Return those of ``mask`` that have no id, or are the first of these with theirs."""
    seen: set[str] = set()
    first = 0
    for index in pk.indexes(mask):
        text = ids[index]
        if text is None or text not in seen:
            first |= 1 << index
        if text is not None:
            seen.add(text)
    return first
