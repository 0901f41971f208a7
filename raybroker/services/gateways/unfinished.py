"""Messages that have begun to come and have not ended: how many bytes of them all clients of a listener may hold.

One client may send a message of the largest size as slowly as it likes. Many of them together would fill the memory, so
when there is no more room the message that began first is given up: who means well has ended his long before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")


class Unfinished(Generic[K]):
    """The unfinished messages of one event loop. ``most``: bytes; ``give_up(key, why)``: ends the client that a message
    belongs to, and tells it why; ``name``: of the setting."""

    def __init__(self, most: int, give_up: Callable[[K, str], None], name: str) -> None:
        self._most = most
        self._give_up = give_up
        self._name = name
        self._held: dict[K, int] = {}
        """In the order in which the messages began."""
        self.total = 0

    def __contains__(self, key: K) -> bool:
        return key in self._held

    def grows(self, key: K, size: int) -> None:
        """Note that ``size`` bytes of the message of that client have come."""
        self.total += size - self._held.get(key, 0)
        self._held[key] = size
        while self.total > self._most and self._held:
            oldest = next(iter(self._held))
            size = self._held[oldest]
            self.ends(oldest)
            self._give_up(
                oldest,
                f"messages of all clients that have not ended have more than {self._most} bytes ({self._name}),"
                f" and this one, of which {size} came, began first",
            )

    def ends(self, key: K) -> None:
        """It has come to its end, or its client is gone."""
        self.total -= self._held.pop(key, 0)
