"""Retries: the fate of a task whose handler raised, or whose replica died. Pure."""

from __future__ import annotations

from typing import NamedTuple

from raybroker.client.listener.handler import doubled_ms


class Retrying(NamedTuple):
    """The rules of one task processor.

    most           so many times a task is tried again after its handler raised; None: without end
    lost_attempts  so many times its replica may die before it is given up
    backoff_s      the first and the longest pause
    """

    most: int | None
    lost_attempts: int
    backoff_s: tuple[float, float]

    def delay_ms(self, retries: int) -> int | None:
        """The pause before a task is tried again that failed ``retries`` times before; None: it has failed for good."""
        if self.most is not None and retries >= self.most:
            return None
        return doubled_ms(*self.backoff_s, retries)

    def is_lost(self, deliveries: int) -> bool:
        """Whether a task is given up that is delivered so many times now, since each replica before has died with it.

        A failure of its handler makes a new message of the task, so that it does not count here.
        """
        return deliveries > self.lost_attempts
