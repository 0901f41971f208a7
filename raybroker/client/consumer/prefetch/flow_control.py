"""Flow control of a consumer, the client's side: it decides when more is asked for, and how much.

RUNNING while granted messages are still to come; when the last one has arrived the broker is silent (PAUSED).  The
consumer asks once it is paused and no more than ``threshold`` messages are left in its buffer, and then for
``limit - left``.  What counts is what was handed to the application, acknowledged or not.
"""

from __future__ import annotations

import asyncio
from typing import Final

UNLIMITED: Final = -1


def threshold_messages(limit: int, percent: int) -> int:
    """How many messages may be left when the consumer asks: floor(limit × percent / 100), below the limit."""
    percent = min(max(percent, 0), 100)
    return min(limit * percent // 100, limit - 1)


def memory_bytes_needed(consumers: int, limit: int, message_bytes: int) -> int:
    """The memory that clients need for their buffers, twice the messages themselves."""
    return consumers * limit * message_bytes * 2


class CreditFlow:
    """Counts for one consumer. ``limit`` -1: granted without limit once and for all."""

    __slots__ = ("buffered", "limit", "threshold", "to_come")

    def __init__(self, limit: int, percent: int) -> None:
        self.limit = limit
        self.threshold = threshold_messages(limit, percent) if limit > 0 else 0
        self.to_come = limit
        self.buffered = 0

    def arrived(self, count: int) -> int:
        """``count`` messages came; returns how many to ask for, 0 for none."""
        self.buffered += count
        if self.limit <= 0:
            return 0
        self.to_come -= count
        return self._request_rest() if self.to_come <= 0 else 0

    def consumed(self, count: int) -> int:
        """``count`` messages were handed to the application; returns how many to ask for, 0 for none."""
        self.buffered -= count
        return self._request_rest() if self.limit > 0 and self.to_come <= 0 else 0

    def dropped(self, count: int) -> int:
        """``count`` messages have left the buffer, and the application has not got them."""
        return self.consumed(count)

    def wanted(self) -> int:
        """The application waits; that is no reason to ask for more."""
        return 0

    def _request_rest(self) -> int:
        """How many to ask for once everything that was granted has come."""
        if self.buffered > self.threshold:
            return 0
        self.to_come = self.limit - self.buffered
        return self.to_come

    def restart(self) -> None:
        """The buffer is empty and the broker has granted the whole limit anew."""
        self.to_come = self.limit
        self.buffered = 0


class PrefetchFlow:
    """The client's side of ActiveMQ's prefetch: the broker counts acknowledgements; only a limit of 0 asks.

    ``wish``: messages that are here or asked for, with a limit of 0, while the application waits.
    """

    __slots__ = ("buffered", "drains", "limit", "polls", "wish")

    def __init__(self, limit: int, wish: int = 1) -> None:
        self.limit = limit
        self.buffered = 0
        self.polls = 0
        self.wish = wish
        self.drains: list[asyncio.Future[None]] = []
        """Who waits for the broker to say that nothing more comes for what was asked for; nothing is asked for then."""

    def arrived(self, count: int) -> int:
        self.buffered += count
        self.polls = max(0, self.polls - count)
        return 0

    def consumed(self, count: int) -> int:
        self.buffered -= count
        return 0

    def dropped(self, count: int) -> int:
        self.buffered -= count
        return 0

    def wanted(self) -> int:
        """The application waits and less is here than it wishes: how many to poll for."""
        missing = self.wish - self.polls - self.buffered
        if self.limit != 0 or missing <= 0 or self.drains:
            return 0
        self.polls += missing
        return missing

    def drained(self) -> None:
        """Nothing more comes for what was asked for."""
        self.polls = 0
        drains, self.drains = self.drains, []
        for drain in drains:
            if not drain.done():
                drain.set_result(None)

    def restart(self) -> None:
        self.buffered = 0
        self.drained()


class BatchFlow:
    """A consumer of batches: it asks for one when the application waits and nothing is here.

    ``here``: batches of which everything has come that comes; 0 or 1. ``asked``: one is to come, or the broker has to
    say that none does; ``revoked``: the latter.
    """

    __slots__ = ("asked", "buffered", "here", "limit", "revoked")

    def __init__(self) -> None:
        self.limit = 0
        self.buffered = 0
        self.asked = self.revoked = False
        self.here = 0

    def arrived(self, count: int) -> int:
        self.buffered += count
        return 0

    def consumed(self, count: int) -> int:
        self.buffered -= count
        return 0

    def wanted(self) -> int:
        """The application waits: how many batches to ask for."""
        if self.asked or self.here or self.buffered:
            return 0
        self.asked = True
        return 1

    def ended(self) -> None:
        """All of the batch has come that was asked for."""
        self.asked = self.revoked = False
        self.here = 1

    def revoke(self) -> bool:
        """Want the batch no more that was asked for, as long as it has not left; returns whether to say so."""
        if not self.asked or self.revoked:
            return False
        self.revoked = True
        return True

    def voided(self) -> None:
        """What was asked for does not come."""
        self.asked = self.revoked = False

    def dropped(self, count: int) -> int:
        self.buffered -= count
        return 0

    def hand_over(self) -> bool:
        """Whether there is a batch; it is not here any more then."""
        here, self.here = self.here, 0
        return here > 0

    def restart(self) -> None:
        self.buffered = self.here = 0
        self.asked = self.revoked = False
