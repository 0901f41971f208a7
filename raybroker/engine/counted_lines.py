"""Lines for the log with a count: one for many messages that have the same to say, however often they say it.

What is noted is told about a second later, and what is noted about the same after that at most every ``TOLD_EVERY_MS``,
each time with what came since the line before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

TOLD_EVERY_MS: Final = 60_000
"""Least time between two lines about one thing."""
KNOWN_MAX: Final = 1_000
"""Things that are told apart; of any other nothing is said until one of these has been quiet for a minute."""


class _Noted:
    """``count`` since the last line, which came at ``told_ms``."""

    __slots__ = ("count", "text", "told_ms")

    def __init__(self) -> None:
        self.count = 0
        self.text: Callable[[int], str]
        self.told_ms: int | None = None


class CountedLines:
    """``now_ms``: a clock that measures; ``report`` takes a line for the log."""

    def __init__(self, now_ms: Callable[[], int], report: Callable[[str], None]) -> None:
        self._now_ms = now_ms
        self._report = report
        self._noted: dict[Hashable, _Noted] = {}

    def note(self, key: Hashable, count: int, text: Callable[[int], str]) -> None:
        """``count`` more messages have that to say; ``text``: the line for so many."""
        noted = self._noted.get(key)
        if noted is None:
            if len(self._noted) >= KNOWN_MAX:
                return
            noted = self._noted[key] = _Noted()
        noted.count += count
        noted.text = text

    def tell_due(self) -> None:
        """Tell what is due, about once a second, and forget what has not come again."""
        now_ms = self._now_ms()
        for key, noted in list(self._noted.items()):
            if noted.told_ms is not None and now_ms - noted.told_ms < TOLD_EVERY_MS:
                continue
            if noted.count:
                self._report(noted.text(noted.count))
                noted.count, noted.told_ms = 0, now_ms
            else:
                del self._noted[key]
