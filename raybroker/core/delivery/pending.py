"""Messages of a delivery queue that wait for a consumer: what the queue needs of them, whoever keeps them.

:class:`~raybroker.core.delivery.plain.PlainPending` keeps messages without units of order.  The other implementation
is :class:`~raybroker.core.unit_of_order.unit_pending.UnitPending`; it serves a queue as long as that has any unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from raybroker.core.delivery.consumers import Consumer, Delivery
from raybroker.core.delivery.dead_letters import Dead
from raybroker.core.delivery.run import Run
from raybroker.core.selector.content import Content

HandOut = Callable[[Consumer, Run], None]
"""Gives a consumer, which has room for it, a run."""
Dies = Callable[[Dead], None]
"""Takes messages that nobody was to have yet and that are dead."""


class Pending(Protocol):
    __slots__ = ()

    @property
    def count(self) -> int:
        """Messages that could be handed out."""

    # ---- coming in: all of these are of held blocks

    def append(self, run: Run, content: Content | None = None) -> None:
        """Messages wait behind all others; ``content``: their headers, if they are at hand."""

    def put_back(self, run: Run) -> None:
        """Messages wait at their old place."""

    def hold_place(self, run: Run) -> None:
        """Messages have their place and cannot go: they rest or are hidden."""

    def drop_blocked(self, ordinal: int, mask: int) -> None:
        """Messages that could not go are gone."""

    def reserve(self, run: Run) -> None:
        """An open transaction sends these: they have their place, and nobody sees them."""

    def unreserve(self, ordinal: int, mask: int) -> None:
        """The transaction has ended; ``mask``: messages of the block that do not come."""

    # ---- going out

    def dispatch(self, hand_out: HandOut, dies: Dies) -> None:
        """Hand out what can go, in order, to consumers in turn, until one of the two runs out."""

    def has_for(self, consumer: Consumer) -> bool:
        """Whether the consumer would get something if it had room."""

    def settled(self, runs: Iterable[Run]) -> None:
        """Messages that were handed out are settled, or dead."""

    def returned(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Deliveries come back; returns what comes back with them, taken from its consumers."""

    def overtaken(self, runs: Iterable[Run]) -> list[Delivery]:
        """Messages come back that nobody had; returns what comes back with them, taken from its consumers."""

    def consumer_left(self) -> None:
        """A consumer of the delivery queue is gone."""

    # ---- transactions

    def staged_elsewhere(self, deliveries: Iterable[Delivery], txn: int) -> str | None:
        """A unit of order of these messages of which another open transaction has consumed some."""

    def stage(self, deliveries: Iterable[Delivery], txn: int, sign: int = 1) -> None:
        """Messages are acknowledged in a transaction, or (``sign`` -1) that is decided."""

    def restage(self, run: Run, txn: int) -> None:
        """A restart found messages acknowledged in a prepared transaction."""

    # ---- taking out

    def clear(self) -> list[Run]:
        """Take out everything that waits."""

    def remove(self, chosen: Mapping[int, int]) -> list[Run]:
        """Take out messages, given as block → mask; returns those that were here."""

    def next_to_remove(self, *, lowest_priority: bool) -> Run | None:
        """The run with which :meth:`take_to_remove` would begin."""

    def take_to_remove(self, room: int, *, lowest_priority: bool) -> list[Run]:
        """Take out up to ``room`` messages of those to discard first: of one block."""

    def runs(self) -> Iterator[Run]:
        """All messages that wait: the highest priority first, in order within it."""

    def tried(self) -> Iterator[Run]:
        """Yield the messages that wait and were handed out before, in no certain order."""

    # ---- selectors

    def selectors_changed(self) -> None:
        """A consumer has come with a selector that nobody had."""

    def sort_some(self) -> bool:
        """Go on comparing messages with the selectors; True when more is left to do."""
