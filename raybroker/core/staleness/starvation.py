"""Starvation: for how long a consumer that has nothing has waited for a message."""

from __future__ import annotations


class Starvation:
    """``since_ms``: since when there is such a consumer, None while there is none; ``starving``: for longer than it
    may; ``episodes``: how often that began; ``total_ms``: how long it was in all, of the times that are over."""

    __slots__ = ("episodes", "since_ms", "starving", "total_ms")

    def __init__(self) -> None:
        self.since_ms: int | None = None
        self.starving = False
        self.episodes = self.total_ms = 0

    def observe(self, now_ms: int, limit_ms: int, *, hungry: bool) -> int | None:
        """Take notice of whether there is such a consumer now; returns when time alone makes it starve. ``limit_ms``
        -1: it never does."""
        since_ms = self.since_ms if self.since_ms is not None else now_ms
        starving = hungry and 0 <= limit_ms <= now_ms - since_ms
        if self.starving and not starving:
            self.total_ms += now_ms - since_ms
        self.episodes += starving and not self.starving
        self.since_ms, self.starving = (since_ms if hungry else None), starving
        return since_ms + limit_ms if hungry and limit_ms >= 0 and not starving else None

    def waited_ms(self, now_ms: int) -> int:
        """Return for how long it starves; 0 when it does not."""
        return now_ms - self.since_ms if self.starving and self.since_ms is not None else 0

    def in_all_ms(self, now_ms: int) -> int:
        """Return for how long it has starved since the host started."""
        return self.total_ms + self.waited_ms(now_ms)
