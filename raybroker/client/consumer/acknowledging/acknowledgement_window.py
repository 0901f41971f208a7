"""The acknowledgement window of an "auto" session: how many messages may be acknowledged and not confirmed.

With a window of N messages ``receive`` hands out the next message while fewer than N before it are unconfirmed, and
waits for the oldest confirmations otherwise.  So after a crash at most N messages come again, the one in hand included.
What the application comes back for is acknowledged on the IO loop, all that has come together in one frame.

A lost connection is no error: what it had not confirmed comes again, flagged.  Every other failure is kept here until
the application asks for more, or closes.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Final

from raybroker.client.consumer.acknowledging import unacknowledged_ranges
from raybroker.client.consumer.acknowledging.acknowledgement_answers import Confirmation
from raybroker.client.consumer.consumer import ConsumerCore
from raybroker.client.io.io_thread import fulfil
from raybroker.model.errors import BrokerError, ConnectionLostError

FAULTS_MAX: Final = 16
"""Failures that are kept with their texts; of more of them the number is told."""


class AcknowledgementWindow:
    """The window of one session, of ``limit`` messages; in any thread."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.failed = False
        """An acknowledgement has failed, and nobody was told yet."""
        self._lock = threading.Lock()
        self._marked = 0
        """Messages that the application has come back for."""
        self._up_to = 0
        """Serial of the last of them."""
        self._sent = 0
        """Those of them that were acknowledged on the IO loop."""
        self._ended = 0
        """Those of them that are confirmed, or come again."""
        self._scheduled = False
        self._waiting: list[tuple[int, Future[None]]] = []
        """(how many may be unconfirmed, future)."""
        self._faults: list[BrokerError] = []
        self._untold = 0
        """Failures beyond FAULTS_MAX."""

    @property
    def unconfirmed(self) -> int:
        """Messages that the application is done with, and that may come again."""
        return self._marked - self._ended

    # ---- the application's thread ------------------------------------------------------------------------------------

    def mark(self, count: int, up_to: int) -> bool:
        """``count`` more messages, up to a serial, wait to be acknowledged: True when :meth:`take_due` is due."""
        with self._lock:
            self._marked += count
            self._up_to = up_to
            scheduled, self._scheduled = self._scheduled, True
            return not scheduled

    def room(self, wanted: int) -> Future[None] | None:
        """Done when ``wanted`` messages may be handed out; None when they may be now.

        More than the window has go out when nothing is unconfirmed, and 0 waits for that.
        """
        most = max(self.limit - wanted, 0) if wanted else 0
        if self._marked - self._ended <= most:
            return None
        waiting: Future[None] = Future()
        with self._lock:
            if self._marked - self._ended <= most:
                return None
            self._waiting.append((most, waiting))
        return waiting

    def check(self) -> None:
        """Raises the first failure that nobody was told of, with the others as notes."""
        if not self.failed:
            return
        with self._lock:
            faults, self._faults = self._faults, []
            untold, self._untold = self._untold, 0
            self.failed = False
        for other in faults[1:]:
            faults[0].add_note(f"and: {other}")
        if untold:
            faults[0].add_note(f"and {untold} more")
        raise faults[0]

    # ---- the IO loop -------------------------------------------------------------------------------------------------

    def take_due(self) -> tuple[int, int]:
        """(how many are to be acknowledged now, up to which serial)."""
        with self._lock:
            self._scheduled = False
            count, self._sent = self._marked - self._sent, self._marked
            return count, self._up_to

    def await_answer(self, consumer: ConsumerCore, epoch: int, ranges: unacknowledged_ranges.Ranges) -> Confirmation:
        """What the answer about these deliveries of a consumer is to be given to."""
        confirmation = Confirmation(consumer, epoch, ranges)
        count = unacknowledged_ranges.size(ranges)
        confirmation.add_done_callback(lambda _: self._answered(confirmation, count))
        return confirmation

    def _answered(self, confirmation: Confirmation, count: int) -> None:
        fault: BrokerError | None = None
        try:
            fault = confirmation.verdict()
        finally:
            if isinstance(fault, ConnectionLostError):
                fault = None
            self.count_ended(count, fault)

    def count_ended(self, count: int, fault: BrokerError | None = None) -> None:
        """``count`` messages are confirmed, or come again, because of ``fault`` or of a lost connection."""
        with self._lock:
            self._ended += count
            if fault is not None:
                self.failed = True
                if len(self._faults) < FAULTS_MAX:
                    self._faults.append(fault)
                else:
                    self._untold += 1
            ready = [one for one in self._waiting if self.unconfirmed <= one[0]]
            if ready:
                self._waiting = [one for one in self._waiting if one not in ready]
        for _, waiting in ready:
            fulfil(waiting, None)
