"""The actor that clients tell what they do; it keeps the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raybroker.system.clock import SystemClock
from raybroker.verify.ledger import Findings, HistoryLedger
from raybroker.verify.notes import Note
from raybroker.verify.recovery import Recoveries


class Recorder:
    """The ledger as an actor. Notes that are told twice, because an answer was lost, are taken once."""

    def __init__(self, units: int) -> None:
        self._ledger = HistoryLedger(units)
        self._recoveries = Recoveries()
        self._numbers: dict[str, int] = {}
        self._clock = SystemClock()

    def note(self, who: str, number: int, notes: Sequence[Note]) -> None:
        """Take the notes of a client; ``number``: of its call, from 1 on."""
        if number <= self._numbers.get(who, 0):
            return
        self._numbers[who] = number
        now_ns = self._clock.monotonic_ns()
        for note in notes:
            self._ledger.add_note(note)
            self._recoveries.add_note(note, now_ns)

    def mark(self, fault: str) -> None:
        """A fault happens now."""
        self._recoveries.mark(fault, self._clock.monotonic_ns())

    def forget_producer(self, producer: int) -> None:
        """A producer has ended."""
        self._recoveries.forget_producer(producer)

    def progress(self) -> dict[str, Any]:
        """LaneCounts so far, of all lanes together, and how many findings there are."""
        total = self._ledger.total()
        return {
            "sent": total.begun,
            "confirmed": total.confirmed,
            "delivered": total.delivered,
            "flagged": total.flagged,
            "acknowledged": total.acknowledged,
            "broken": self._ledger.broken_so_far(),
        }

    def findings(self, drained: bool) -> Findings:
        return self._ledger.findings(drained=drained)

    def recoveries(self) -> list[tuple[str, list[float], int]]:
        """(fault, seconds until the next confirmed send of each producer, producers that had none) of each fault."""
        return [(outage.name, outage.seconds, len(outage.waiting)) for outage in self._recoveries.outages]
