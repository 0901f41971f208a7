"""Waiting before a partial batch is handed out, as messagingPerformancePreference says.

A batch is what the consumer whose turn it is has room for, and at most ``BATCH_MAX`` messages.  New messages that do
not fill one wait for others for at most 5 ms (50), 20 ms (75) or 100 ms (100) since the first of them came to a
consumer with room; then all that is there goes.  Nothing waits with 25, which is the default, and with 0, where a
consumer has one message at a time.  Nor does anything wait for a consumer with a limit below ``PIPELINE_MIN``, one that
asks for each message, or one that has attachments on several brokers: it takes what is there now.  Messages that come
back, and those that waited for a consumer to have room, have waited.
"""

from __future__ import annotations

from typing import Final

from raybroker.core.delivery.consumers import Consumers
from raybroker.model.settings.settings import DestinationAttributes

WAIT_MS: Final = {50: 5, 75: 20, 100: 100}
"""messagingPerformancePreference → how long a partial batch waits, milliseconds; the others do not wait."""
PIPELINE_MIN: Final = 10
"""A consumer with a lower limit gets what there is at once."""
BATCH_MAX: Final = 1000
"""A batch of a consumer without a limit, or with a higher one."""


def batch_wait_ms(attributes: DestinationAttributes) -> int:
    """How long a partial batch waits; 0: it does not."""
    return WAIT_MS.get(attributes.messagingPerformancePreference, 0)


class BatchWait:
    """The wait of one delivery queue for a full batch. ``since_ms``: since when a partial batch waits; None: none
    does."""

    __slots__ = ("_seen", "since_ms")

    def __init__(self) -> None:
        self.since_ms: int | None = None
        self._seen = 0

    def holds(self, consumers: Consumers, waiting: int, arrival: int, now_ms: int, wait_ms: int) -> bool:
        """Whether nothing is handed out now.

        waiting  messages
        arrival  the next number in the order of arrival
        """
        turn = consumers.next_with_room() if waiting and arrival != self._seen else None
        if turn is not None and not consumers.draining:
            consumer, room = turn
            small = 0 <= consumer.limit < PIPELINE_MIN
            if not small and waiting < min(room, BATCH_MAX):
                if self.since_ms is None:
                    self.since_ms = now_ms
                if now_ms < self.since_ms + wait_ms:
                    return True
        self.since_ms, self._seen = None, arrival
        return False

    def until_ms(self, now_ms: int, wait_ms: int) -> int | None:
        """Return the end of the wait of a partial batch, at the end of a step; None: none waits, or it was not asked
        for meanwhile, because delivery is paused or nobody is there."""
        if self.since_ms is not None and now_ms >= self.since_ms + wait_ms:
            self.since_ms = None
        return None if self.since_ms is None else self.since_ms + wait_ms
