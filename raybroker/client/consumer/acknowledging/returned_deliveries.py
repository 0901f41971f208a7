"""Deliveries that were handed to the application and went back to the broker without having been settled.

A message that its consumer does not count as unacknowledged is settled, or it went back: after a lost connection, a
recover, a rollback, or because its consumer was closed.  Acknowledging it must say which.  Only what went back is kept,
as ranges of tags, so that receiving and acknowledging cost nothing more.
"""

from __future__ import annotations

from typing import Final

from raybroker.client.consumer.acknowledging.unacknowledged_ranges import Ranges, Rows
from raybroker.model.errors import BrokerError, ConnectionLostError, IllegalStateError

RANGES_MAX: Final = 1024
"""Ranges that one consumer remembers; with more the oldest two of an attachment become one that covers both."""

LOST: Final = "the connection to its broker was lost after it was received"
RECOVERED: Final = "the session was recovered or rolled back after it was received"
WITHDRAWN: Final = "an earlier message of its unit of order went back, and it went back with that"
OVERDUE: Final = "its ack deadline (ack_timeout_ms) had passed, or an earlier message of its unit of order went back"
TIMED_OUT: Final = "its transaction was open for longer than raybroker.transaction.timeout_ms, or was ended elsewhere"
CLOSED: Final = "its consumer was closed before"
UNCONFIRMED: Final = "the broker has not confirmed that when it was asked before"


class ReturnedDeliveries:
    """What went back from one consumer; called with the lock of its buffer held."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, str]] = []
        """(epoch, first tag, last tag, why), oldest first."""

    def add(self, epoch: int, rows: Rows | Ranges, why: str) -> None:
        """Deliveries of an attachment went back; of a row of unacknowledged ones only the tags are looked at."""
        self.rows += [(epoch, row[0], row[1], why) for row in rows]
        while len(self.rows) > RANGES_MAX:
            first, second = self.rows[:2]
            if first[0] == second[0]:
                hull = (first[0], min(first[1], second[1]), max(first[2], second[2]), second[3])
                self.rows[:2] = [hull]
            else:
                del self.rows[0]

    def why(self, epoch: int, tag: int) -> str | None:
        """Why a delivery went back; None when it did not."""
        for of, first, last, why in reversed(self.rows):
            if of == epoch and first <= tag <= last:
                return why
        return None


def not_settled(what: str, why: str) -> BrokerError:
    """The error for ``what``, such as "acknowledge()", on a message that went back because of ``why``."""
    kind = ConnectionLostError if why in (LOST, UNCONFIRMED) else IllegalStateError
    return kind(f"{what} did nothing: {why}; the message comes again, flagged as redelivered")
