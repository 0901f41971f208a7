"""Sequence numbers that were already taken, by producer, so that a retried send is stored once.

A producer that lost its connection sends again what was not confirmed.  Exact ranges are kept rather than a highest
number: a block that was refused in between must not look like one that was stored.  It stays refused once later ones
were taken, since a producer's messages are in order.  A producer is on one connection at a time: what still
arrives over an older one is recognised by its attachment.  A producer's ``floor`` says what it will never retry, so
the ranges of a well-behaved producer are one range; those that went away without a word are kept up to
``PRODUCERS_REMEMBERED_MAX``, the longest unheard forgotten first.
"""

from __future__ import annotations

from typing import Final

from raybroker.core.blocks import ranges
from raybroker.core.blocks.ranges import Ranges

PRODUCERS_REMEMBERED_MAX: Final = 1_000
"""Producers without an attachment whose retries a destination still recognises."""
GENERATIONS_REMEMBERED_MAX: Final = 2_000
"""Producers of which a destination knows which connection is the latest, beside those that are attached."""
_SAID_GOODBYE: Final = 1 << 64
"""The generation of a producer that will never open again."""


class ProducerSequences:
    """``attached``: attachment → producer id.  ``taken``: producer id → ranges, the least recently heard first.
    ``generations``: producer id → how often it had opened when it did so last.  ``unwritten``: producer id → what was
    taken of it and is in no stored block, because nobody who outlives a restart wanted it; a later block that is stored
    brings a record of it, or after a restart it would look like what was refused."""

    __slots__ = ("attached", "generations", "taken", "unwritten")

    def __init__(self) -> None:
        self.attached: dict[int, int] = {}
        self.generations: dict[int, int] = {}
        self.taken: dict[int, Ranges] = {}
        self.unwritten: dict[int, Ranges] = {}

    def others(self, producer: int) -> int:
        """How many are attached beside this one, which may be attached over a connection that it has lost."""
        return sum(p != producer for p in self.attached.values())

    def knows(self, producer: int) -> bool:
        """Whether the producer has been attached, and was not closed."""
        return producer in self.taken

    def attach(self, attachment: int, producer: int, generation: int = 0) -> None:
        """Make this attachment the producer's only one."""
        assert attachment not in self.attached
        for older in [a for a, p in self.attached.items() if p == producer]:
            del self.attached[older]
        self.attached[attachment] = producer
        self.generations.pop(producer, None)
        self.generations[producer] = generation
        self.taken[producer] = self.taken.pop(producer, [])
        self._forget_surplus()

    def detach(self, attachment: int, *, forget: bool) -> None:
        producer = self.attached.pop(attachment, None)
        if producer is not None and forget:
            self.taken.pop(producer, None)
            self.unwritten.pop(producer, None)
            self.generations[producer] = _SAID_GOODBYE

    def fresh(self, producer: int, first: int, end: int, floor: int) -> tuple[Ranges, Ranges]:
        """The parts of first … end - 1 that were not taken yet: those after everything taken, and those before
        something taken, which must have been refused; forgets what is below ``floor``."""
        taken = self.taken.get(producer)
        if taken is None:
            taken = self.taken[producer] = []
        if len(taken) == 1 and floor <= first == taken[0][1]:  # Behind the last one, and nothing in between: as usual.
            if taken[0][0] < floor:
                if floor < first:
                    taken[0] = floor, first
                else:
                    taken.clear()
                if producer in self.unwritten:
                    ranges.drop_below(self.unwritten[producer], floor)
            return [(first, end)], []
        if taken and taken[0][0] < floor:
            ranges.drop_below(taken, min(floor, first))
            if producer in self.unwritten:
                ranges.drop_below(self.unwritten[producer], min(floor, first))
        if not taken or taken[-1][1] <= first:
            return [(first, end)], []
        gaps = list(ranges.missing(taken, first, end))
        top = taken[-1][1]
        return [gap for gap in gaps if gap[0] >= top], [gap for gap in gaps if gap[0] < top]

    def take_sequences(self, producer: int, first: int, end: int) -> None:
        taken = self.taken.get(producer)
        if not taken:
            self.taken[producer] = [(first, end)]
        elif taken[-1][1] == first:
            taken[-1] = (taken[-1][0], end)
        else:
            ranges.add(taken, first, end)

    def leave_unwritten(self, producer: int, first: int, end: int) -> None:
        """Those were taken, and the store does not have them."""
        ranges.add(self.unwritten.setdefault(producer, []), first, end)

    def _forget_surplus(self) -> None:
        while len(self.generations) > len(self.attached) + GENERATIONS_REMEMBERED_MAX:
            del self.generations[next(iter(self.generations))]
        surplus = len(self.taken) - len(self.attached) - PRODUCERS_REMEMBERED_MAX
        if surplus <= 0:
            return
        live = set(self.attached.values())
        for producer in [p for p in self.taken if p not in live][:surplus]:
            del self.taken[producer]
            self.unwritten.pop(producer, None)
