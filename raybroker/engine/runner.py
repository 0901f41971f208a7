"""The one place that obeys the order an outcome states.

What waits for the disk goes when the records that were appended with it, and everything appended before them, are
durable.  Nothing else in the system decides when a durable effect is released, so a message cannot be acknowledged
before it is on disk unless this file is wrong; the simulator switches its rules off one at a time to see that it would
be noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raybroker.engine.ports import Committer
from raybroker.model.record import Entry


class Runner:
    """Appends in the order of the calls. ``in_flight`` counts batches that are not durable yet."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self.in_flight = 0

    def append(self, records: Sequence[Entry], durable: Callable[[], None] | None) -> None:
        """Append; call ``durable`` once the records, and everything appended before them, are durable."""
        if not records:
            if durable is None:
                return
            if not self.in_flight:
                durable()
                return
        self.in_flight += 1

        def committed() -> None:
            self.in_flight -= 1
            if durable is not None:
                durable()

        self._committer.submit(records, committed)
