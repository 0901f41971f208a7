"""The windows of one session: how many transfer frames each side may still send."""

from __future__ import annotations

from typing import Final

from raybroker.model.errors import IllegalStateError
from raybroker.wire.amqp.conditions import INVALID_FIELD, WINDOW_VIOLATION, SessionViolation
from raybroker.wire.amqp.performatives import U32

OUTGOING_WINDOW: Final = 0x7FFFFFFF
"""What is told of what this side may send: nothing that it sends is kept for the session."""
_HALF: Final = 1 << 31


class SessionWindow:
    """``incoming_max``: transfer frames that the peer may send before this side has told it more. Numbers of transfers
    go round after 2³² − 1."""

    __slots__ = ("incoming", "incoming_max", "next_incoming_id", "next_outgoing_id", "outgoing")

    def __init__(self, incoming_max: int) -> None:
        self.incoming_max = incoming_max
        self.incoming = incoming_max
        """Transfers that the peer may send."""
        self.next_incoming_id: int | None = None
        """None before the peer has begun the session."""
        self.outgoing = 0
        """Transfers that this side may send."""
        self.next_outgoing_id = 0

    def begun(self, next_outgoing_id: int, incoming_window: int) -> None:
        """The peer has begun the session."""
        self.next_incoming_id = next_outgoing_id
        self.outgoing = incoming_window

    def flowed(self, next_incoming_id: int | None, incoming_window: int) -> None:
        """The peer has told what it has received, and its window from there on. ``None``: it has received nothing yet,
        and does not know what the first number is."""
        under_way = (self.next_outgoing_id - (next_incoming_id or 0)) & U32
        if under_way >= _HALF:
            raise SessionViolation(f"next-incoming-id {next_incoming_id} was not sent", INVALID_FIELD)
        self.outgoing = max(0, incoming_window - under_way)

    def sent(self) -> None:
        """A transfer goes out."""
        if not self.outgoing:
            raise IllegalStateError("the peer's session window is used up")
        self.outgoing -= 1
        self.next_outgoing_id = (self.next_outgoing_id + 1) & U32

    def received(self) -> bool:
        """A transfer came; whether the peer is to be told of a new window. Raises SessionViolation."""
        left = self.incoming - 1
        if left < 0:
            raise SessionViolation("a transfer came when the session window was used up", WINDOW_VIOLATION)
        self.incoming = left
        self.next_incoming_id = ((self.next_incoming_id or 0) + 1) & U32
        return 2 * left <= self.incoming_max
