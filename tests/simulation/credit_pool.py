"""The books of a consumer in drain mode, as simple as they can be, with the law that they have to keep."""

from __future__ import annotations

GENEROUS = 1_000
"""Asked for at a time by a consumer without a limit."""


class CreditPool:
    """``buffered`` messages are here and ``to_come`` are granted; together never more than ``limit`` (-1: none)."""

    def __init__(self, limit: int, to_come: int = 0, buffered: int = 0) -> None:
        self.limit = limit
        self.to_come = to_come
        self.buffered = buffered
        self.wanting = False
        """The broker has something, as far as is known."""

    def free(self) -> int:
        return GENEROUS if self.limit < 0 else self.limit - self.buffered - self.to_come

    def check(self, count: int) -> None:
        """``count`` messages come now."""
        assert count <= self.to_come, f"{count} messages came, {self.to_come} were granted"
        assert self.limit < 0 or self.buffered + self.to_come <= self.limit, "more was granted than the limit allows"

    def arrived(self, count: int) -> int:
        self.to_come -= count
        self.buffered += count
        return self._ask()

    def consumed(self, count: int) -> int:
        self.buffered -= count
        return self._ask()

    def ready(self) -> int:
        self.wanting = True
        return self._ask()

    def drained(self, unused: int) -> None:
        assert unused <= self.to_come, f"{unused} messages are void, {self.to_come} were granted"
        self.to_come -= unused
        self.wanting = False

    def _ask(self) -> int:
        if self.to_come or not self.wanting:
            return 0
        ask = max(self.free(), 0)
        self.to_come += ask
        return ask

    def restart(self) -> None:
        self.to_come = self.buffered = 0
        self.wanting = False
