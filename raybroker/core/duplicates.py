"""Publisher deduplication: ids that were taken within a window are not taken again (B25).

The window is bounded in time (``duplicateWindowMs``) and in number (``duplicateIdsMax``); the oldest are forgotten
first.
"""

from __future__ import annotations

from collections.abc import Iterable


class Duplicates:
    """``taken``: id → when, milliseconds, oldest first."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        self.taken: dict[str, int] = {}

    def known(self, text: str | None) -> bool:
        return text is not None and text in self.taken

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
