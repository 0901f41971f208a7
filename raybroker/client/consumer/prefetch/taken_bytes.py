"""The frame Taken: a consumer with a bound in bytes or cost tells its host how far its buffer is empty again."""

from __future__ import annotations

from typing import Final

TOLD_PART: Final = 8
"""The host is told once this part of the bound has left the buffer; it never waits for less, see
core.delivery.byte_window."""


class TakenBytes:
    """Counts for one attachment; with the lock of its buffer. ``last``: the highest tag that has come."""

    __slots__ = ("_due", "_gone", "last")

    def __init__(self, most: int) -> None:
        self._due = max(most // TOLD_PART, 1)
        self._gone = 0
        self.last = 0

    def gone(self, nbytes: int) -> bool:
        """A delivery with so many bytes has left the buffer; True when the host is to be told."""
        self._gone += nbytes
        if self._gone < self._due:
            return False
        self._gone = 0
        return True

    def restart(self) -> None:
        """The buffer is empty, and the host knows."""
        self._gone = self.last = 0


class TakenCost(TakenBytes):
    """Counts with a bound in cost: what comes at a time is a part of that, so the host is told of each delivery."""

    def __init__(self) -> None:
        super().__init__(0)

    def gone(self, nbytes: int) -> bool:
        return True
