"""The one place that obeys the order an outcome states.

``immediate`` goes at once.  ``after_durable`` goes when this outcome's records, and everything appended before them,
are durable.  Nothing else in the system releases an effect, so a message cannot be acknowledged before it is on disk
unless this file is wrong; the simulator switches its rules off one at a time to see that it would be noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raybroker.core.outcome import Effect
from raybroker.engine.ports import Committer
from raybroker.model.record import Entry

Release = Callable[[Sequence[Effect]], None]


class Runner:
    """Carries outcomes out in the order of the calls. ``in_flight`` counts batches that are not durable yet."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self.in_flight = 0

    def carry(
        self,
        records: Sequence[Entry],
        after_durable: Sequence[Effect],
        immediate: Sequence[Effect],
        release: Release,
    ) -> None:
        """Append, and release when it may be."""
        if immediate:
            release(immediate)
        if not records and not self.in_flight:
            if after_durable:
                release(after_durable)
            return
        if not records and not after_durable:
            return
        self.in_flight += 1

        def durable() -> None:
            self.in_flight -= 1
            if after_durable:
                release(after_durable)

        self._committer.submit(records, durable)
