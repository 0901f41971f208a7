"""The runner: releases effects in the order that an outcome states.

An effect that depends on records is released when they, and everything appended before them, are durable. No other
module decides this, so a message cannot be acknowledged before it is on disk unless this file is wrong; mutants in the
simulation show that an error here is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raybroker.engine.ports import Committer
from raybroker.model.blocks.record import LogEntry


class Runner:
    """Appends in the order of the calls. ``in_flight`` counts batches that are not durable yet."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self.in_flight = 0

    def append(self, records: Sequence[LogEntry], durable: Callable[[], None] | None) -> None:
        """Append; call ``durable`` once the records, and everything appended before them, are durable."""
        if not records:
            if durable is None:
                return
            # Without records of its own the effect still depends on what was appended before: it waits behind that.
            if not self.in_flight:
                durable()
                return
        self.in_flight += 1

        def committed() -> None:
            self.in_flight -= 1
            if durable is not None:
                durable()

        self._committer.submit(records, committed)
