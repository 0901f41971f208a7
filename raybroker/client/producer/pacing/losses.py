"""Losses of a producer: messages that were refused and that nobody waited for, counted and told to the application."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raybroker.client.producer.producer_state import SendBatch
from raybroker.client.producer.settlement import DUPLICATE, Row, duplicates_in, first_fault
from raybroker.model.errors import BrokerError

Tell = Callable[[int, BrokerError], None]
"""Tells the application how many messages were refused, and why."""


class Losses:
    """``told``: the commit of a transaction tells what was given up, and it is not counted here."""

    def __init__(self, tell: Tell, *, told: bool) -> None:
        self.refused = 0
        """Messages that were refused and that nobody waited for."""
        self.duplicates = 0
        """Messages that the broker had taken before, by their deduplication ids."""
        self._tell = tell
        self._told = told

    def refuse(self, rows: Sequence[Row]) -> None:
        """Messages were refused that nobody waits for; those that were taken before are none of them."""
        fault = first_fault(rows)
        if fault is not None:
            self._count(sum(end - start for start, end, code, _ in rows if code != DUPLICATE), fault)

    def give_up(self, batches: Sequence[SendBatch], error: BrokerError) -> None:
        """These are not sent any more."""
        count = sum(batch.unawaited for batch in batches) if not self._told else 0
        if count:
            self._count(count, error)

    def know(self, rows: Sequence[Row]) -> None:
        """Count what had been taken before."""
        self.duplicates += duplicates_in(rows)

    def _count(self, count: int, error: BrokerError) -> None:
        self.refused += count
        self._tell(count, error)
