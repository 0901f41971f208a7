"""Times for which producers are without a confirmation after a fault."""

from __future__ import annotations

from dataclasses import dataclass, field

from raybroker.verify.notes import Note, SendsBegun, SendsConfirmed, VerifyLane


@dataclass(slots=True)
class FaultOutage:
    """A fault and the producers that have not been confirmed a send since that they began after it."""

    name: str
    at_ns: int
    waiting: set[tuple[VerifyLane, int]]
    seconds: list[float] = field(default_factory=list)
    begun: dict[tuple[VerifyLane, int], int] = field(default_factory=dict)


class Recoveries:
    """Times of the next confirmed send of each producer after each fault.

    A send counts that began after the fault: the answer to an earlier one may have been on its way.
    """

    def __init__(self) -> None:
        self.outages: list[FaultOutage] = []
        self._producers: set[tuple[VerifyLane, int]] = set()
        self._open: list[FaultOutage] = []

    def mark(self, name: str, at_ns: int) -> None:
        """A fault happens now."""
        outage = FaultOutage(name, at_ns, set(self._producers))
        self.outages.append(outage)
        self._open.append(outage)

    def forget_producer(self, producer: int) -> None:
        """A producer has ended, and is not waited for."""
        gone = {key for key in self._producers if key[1] == producer}
        self._producers -= gone
        for outage in self._open:
            outage.waiting -= gone

    def add_note(self, note: Note, now_ns: int) -> None:
        """Look at one note."""
        if not isinstance(note, SendsBegun | SendsConfirmed):
            return
        key = (note.lane, note.producer)
        self._producers.add(key)
        for outage in self._open:
            if key not in outage.waiting:
                continue
            if isinstance(note, SendsBegun):
                outage.begun.setdefault(key, note.first)
            elif note.first >= outage.begun.get(key, note.first + 1):
                outage.waiting.discard(key)
                outage.seconds.append((now_ns - outage.at_ns) / 1e9)
        self._open = [outage for outage in self._open if outage.waiting]
