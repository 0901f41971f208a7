"""Messages that a session has handed out, and what of them the application is done with."""

from __future__ import annotations

from typing import Any

from raybroker.client.consumer.acknowledging.life_ties import LifeTies
from raybroker.client.consumer.acknowledging.uncovered import UncoveredDeliveries
from raybroker.client.consumer.message import Message


class HandedOut:
    """``keeps_track``: what is handed out is remembered until it is acknowledged. ``tells_in_hand``: lazy
    acknowledgements leave out what the application has in hand, until it comes back. ``redelivery_delay_ms``: pause
    before what is given back comes again; the destination's own wins."""

    __slots__ = (
        "abandoned",
        "armed",
        "done",
        "holds_back",
        "in_batch",
        "in_hand",
        "keeps_track",
        "leaving",
        "owing",
        "redelivery_delay_ms",
        "serial",
        "ties",
        "uncovered",
        "unsettled",
    )

    def __init__(self, *, keeps_track: bool, tells_in_hand: bool, redelivery_delay_ms: int) -> None:
        self.keeps_track = keeps_track
        self.redelivery_delay_ms = redelivery_delay_ms
        self.owing: dict[Any, None] = {}
        """Consumers that something was handed out from, in the order in which they began, and maybe some of which all
        is acknowledged by now: what to look through, however many consumers the session has."""
        self.leaving: dict[Any, None] = {}
        """Those that nobody refers to any more, and that are closed once what they gave out is settled."""
        self.ties: LifeTies | None = None
        """What is tied to the life of somebody; None: nothing was yet."""
        self.uncovered = UncoveredDeliveries()
        """What was handed out and went back, for the next acknowledgement to tell."""
        self.serial = 0
        """Of the last message, in the order of the whole session."""
        self.unsettled = 0
        """Messages handed out since the last acknowledgement ("auto" and "dups_ok")."""
        self.holds_back = 0
        """Messages of units of order that are being given back: until that is done nothing is handed out."""
        self.in_hand: Message | None = None
        """What a listener is called with at the moment."""
        self.in_batch = False
        """With "dups_ok": what is handed out now, the application gets together with what it has in hand."""
        self.done: int | None = 0 if tells_in_hand else None
        """Serial of the last message that the application is done with; None: of all that were handed out."""
        self.armed = False
        """A timer will acknowledge, or report, what is handed out."""
        self.abandoned = False
        """Nothing is acknowledged any more (:meth:`SessionCore.leave_in_hand`)."""

    def call_ended(self) -> None:
        """A listener has returned, or what it had in hand has its end otherwise."""
        self.done = self.serial

    def forget_consumer(self, consumer: object) -> None:
        """It is closed."""
        self.owing.pop(consumer, None)
        self.leaving.pop(consumer, None)
