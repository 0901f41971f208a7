"""Receipts: what was received over HTTP is held for a time, and settled by its receipt.

A receipt is unguessable, is good once, and is its user's alone. What became of the last ENDED_MAX ones is remembered,
so that a second or late one is told what happened. Pure: time comes in.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, Generic, NamedTuple, TypeVar

HELD_MAX: Final = 10_000
"""Messages that one user may hold."""
ENDED_MAX: Final = 10_000
"""Receipts that have ended and are remembered."""

M = TypeVar("M")


class Lease(NamedTuple, Generic[M]):
    """A message that is held under a receipt, and where it came from."""

    message: M
    queue: str
    until_s: float


class Leases(Generic[M]):
    """Those of one user."""

    def __init__(self) -> None:
        self._held: dict[str, Lease[M]] = {}
        self._ended: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def room(self) -> int:
        """How many more may be held."""
        return HELD_MAX - len(self._held)

    def hold(self, receipt: str, lease: Lease[M]) -> None:
        """``receipt`` is new."""
        assert receipt not in self._held
        self._held[receipt] = lease

    def redeem(self, receipt: str, queue: str, outcome: str) -> M | str:
        """The message, which is not held any more and becomes ``outcome``; or why there is none: what became of it
        before, or "unknown", also for one of another queue."""
        lease = self._held.get(receipt)
        if lease is None or lease.queue != queue:
            return self._ended.get(receipt, "unknown") if lease is None else "unknown"
        del self._held[receipt]
        self._end_lease(receipt, outcome)
        return lease.message

    def over(self, receipts: Iterable[str], now_s: float) -> list[M]:
        """The messages of those whose time has passed; their receipts have ended."""
        found = []
        for receipt in receipts:
            lease = self._held.get(receipt)
            if lease is not None and lease.until_s <= now_s:
                del self._held[receipt]
                self._end_lease(receipt, "lease over")
                found.append(lease.message)
        return found

    def _end_lease(self, receipt: str, outcome: str) -> None:
        self._ended[receipt] = outcome
        while len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)
