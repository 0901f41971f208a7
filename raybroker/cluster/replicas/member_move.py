"""Moving of a broker's part of a queue into a log with copies: what is done next, and when its clients have to wait.

A queue without copies has a member on each broker, with messages of its own.  When it gets copies each of these moves
into the log, in the order in which its messages would have been delivered:

    SETTLING   consumers get nothing more, and settle what they have; producers go on
    COPYING    what waits moves; producers go on, until little is left at all brokers
    CLOSING    all clients are ended: what they still held is there again, and they look for the queue until it is moved
    EMPTYING   the rest moves
    OVER       nothing is left, and the member ends

Consumers that do not settle in time are ended with what they hold, so that nothing is overtaken: then all of it moves
while clients wait.  So they wait for as long as LAST_MESSAGES take, or else for all.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

SETTLE_MS: Final = 10_000
"""How long consumers may take to settle what they have."""
COPY_MS: Final = 300_000
"""After so long clients are ended whatever is left: producers may be faster than what moves."""
LAST_MESSAGES: Final = 2_000
"""So many at most are left when clients are ended, unless COPY_MS is over."""


class MovePhase(StrEnum):
    """See the module."""

    SETTLING = "waits until consumers have settled what they have"
    COPYING = "messages move, producers go on"
    CLOSING = "its clients are ended"
    EMPTYING = "the rest moves"
    OVER = "it has moved"


class SeenMember(NamedTuple):
    """One member now.

    messages         that it has in all
    unacknowledged   of them with consumers
    clients          connections to its host
    others_wait      no other broker's member has more than LAST_MESSAGES
    """

    messages: int
    unacknowledged: int
    clients: int
    others_wait: bool


class MemberMove:
    """The move of one member.  ``late``: clients are served from the log already, and none is here."""

    def __init__(self, now_ms: int, *, late: bool = False) -> None:
        self.phase = MovePhase.CLOSING if late else MovePhase.SETTLING
        self.since_ms = now_ms
        self.closed_ms = now_ms if late else -1
        """When its clients were ended; -1: they are served."""

    @property
    def serves(self) -> bool:
        """Whether clients may use the member."""
        return self.phase in (MovePhase.SETTLING, MovePhase.COPYING)

    def is_waiting(self, messages: int) -> bool:
        """Whether this member is ready for its clients to be ended."""
        return not self.serves or (self.phase is MovePhase.COPYING and messages <= LAST_MESSAGES)

    def saw(self, seen: SeenMember, now_ms: int) -> MovePhase:
        """The member is so now.  Returns the phase that it is in, and that something is to be done for."""
        before, in_phase_ms = self.phase, now_ms - self.since_ms
        match before:
            case MovePhase.SETTLING if not seen.unacknowledged:
                self.phase = MovePhase.COPYING
            case MovePhase.SETTLING if in_phase_ms >= SETTLE_MS:
                self.phase = MovePhase.CLOSING
            case MovePhase.COPYING if seen.unacknowledged:
                self.phase = MovePhase.SETTLING  # Its consumers were let go on, by whoever did not know.
            case MovePhase.COPYING if in_phase_ms >= COPY_MS or (seen.messages <= LAST_MESSAGES and seen.others_wait):
                self.phase = MovePhase.CLOSING
            case MovePhase.CLOSING if not seen.clients and not seen.unacknowledged:
                self.phase = MovePhase.EMPTYING
            case MovePhase.EMPTYING if not seen.messages:
                self.phase = MovePhase.OVER
        if self.phase is not before:
            self.since_ms = now_ms
            if self.phase is MovePhase.CLOSING:
                self.closed_ms = now_ms
        return self.phase
