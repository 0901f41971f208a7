"""Which sequence numbers of which producer were already taken, so that a retried send is stored once.

A producer that lost its connection sends again what was not confirmed.  Exact ranges are kept rather than a highest
number: a block that was refused in between must not look like one that was stored.  A producer's ``floor`` says what it
will never retry, so the ranges of a well-behaved producer are one range; those that went away without a word are kept
up to ``PRODUCERS_REMEMBERED_MAX``, the longest unheard forgotten first.
"""

from __future__ import annotations

from typing import Final

from raybroker.core import ranges
from raybroker.core.ranges import Ranges

PRODUCERS_REMEMBERED_MAX: Final = 1_000
"""Producers without an attachment whose retries a destination still recognises."""


class Producers:
    """``attached``: attachment → producer id.  ``taken``: producer id → ranges, the least recently heard first."""

    __slots__ = ("attached", "taken")

    def __init__(self) -> None:
        self.attached: dict[int, int] = {}
        self.taken: dict[int, Ranges] = {}

    def attach(self, attachment: int, producer: int) -> None:
        assert attachment not in self.attached
        self.attached[attachment] = producer
        self.taken[producer] = self.taken.pop(producer, [])
        self._forget_surplus()

    def detach(self, attachment: int, *, forget: bool) -> None:
        producer = self.attached.pop(attachment, None)
        if producer is not None and forget and producer not in self.attached.values():
            self.taken.pop(producer, None)

    def fresh(self, producer: int, first: int, end: int, floor: int) -> Ranges:
        """The parts of first … end - 1 that were not taken yet; forgets what is below ``floor``."""
        taken = self.taken.get(producer)
        if taken is None:
            taken = self.taken[producer] = []
        if taken and taken[0][0] < floor:
            ranges.drop_below(taken, min(floor, first))
        if not taken or taken[-1][1] <= first:
            return [(first, end)]
        return list(ranges.missing(taken, first, end))

    def take(self, producer: int, first: int, end: int) -> None:
        ranges.add(self.taken.setdefault(producer, []), first, end)

    def _forget_surplus(self) -> None:
        surplus = len(self.taken) - len(self.attached) - PRODUCERS_REMEMBERED_MAX
        if surplus <= 0:
            return
        live = set(self.attached.values())
        for producer in [p for p in self.taken if p not in live][:surplus]:
            del self.taken[producer]
