"""Tables that were passed on, kept for a read task that runs a second time: it has to pass on the same ones."""

from __future__ import annotations

from collections import deque
from typing import Any

from raybroker.model.errors import IllegalStateError


class KeptTables:
    """Tables by their index, the first one 0, up to ``most_bytes`` of them.

    What does not fit is forgotten from the front, and then a second run is refused.
    """

    __slots__ = ("_bytes", "_first", "_kept", "_most")

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._kept: deque[Any] = deque()
        self._first = 0
        """Index of the first one that is kept."""
        self._bytes = 0

    @property
    def made(self) -> int:
        """How many tables there were."""
        return self._first + len(self._kept)

    def add(self, table: Any) -> None:
        self._bytes += table.nbytes
        self._kept.append(table)
        while self._bytes > self._most and len(self._kept) > 1:
            self._bytes -= self._kept.popleft().nbytes
            self._first += 1

    def table(self, index: int) -> Any:
        """One of the tables that were made; raises IllegalStateError when it is forgotten."""
        if index < self._first:
            raise IllegalStateError(
                f"a read task was lost after it had passed on more than {self._most} bytes, and cannot run again in"
                " this execution: its messages come again; execute the dataset once more, or read less at a time"
                " (limit=…, limit_bytes=…)"
            )
        return self._kept[index - self._first]
