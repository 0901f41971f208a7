"""The judge of a run: what was noted, held against what a broker promises.

* Nothing confirmed is lost: once all is drained, each message whose send was confirmed was delivered.
* Nothing comes twice without saying so: of all deliveries of a message one at most is without the flag of a redelivery.
* What was acknowledged does not come again.
* Of a unit of order, confirmed messages are delivered for the first time in the order in which they were sent.
* Of a transaction that was rolled back nothing is delivered, and what was moved was moved once.
* Nothing comes that nobody sent.

A send whose answer was lost may have happened or not, and is no finding either way.  The first of these needs a
complete drain; the others hold at any moment.  Notes are taken in an order in which no effect is before its cause: a
client is answered that a note is taken before it goes on.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from raybroker.verify.notes import (
    NUMBER_BITS,
    Acknowledged,
    Delivered,
    ErrorTold,
    Foreign,
    Note,
    NotedDelivery,
    RolledBack,
    SendsBegun,
    SendsConfirmed,
    VerifyLane,
)

ATTEMPTS_MAX: Final = 255
"""Deliveries of one message are told apart up to this number."""
EXAMPLES_MAX: Final = 20
"""Findings of a kind that are written out; all are counted."""
TOLD_MAX: Final = 50
"""Different errors of clients that are kept."""


class Breach(StrEnum):
    """A promise that was broken."""

    LOST = "lost"
    REPEATED = "repeated"
    AGAIN = "again"
    DISORDERED = "disordered"
    ROLLED_BACK = "rolled_back"
    INVENTED = "invented"


MEANING: Final = {
    Breach.LOST: "confirmed and never delivered",
    Breach.REPEATED: "delivered more than once without the flag of a redelivery",
    Breach.AGAIN: "delivered again after their acknowledgement was answered",
    Breach.DISORDERED: "delivered before an earlier message of their unit of order",
    Breach.ROLLED_BACK: "delivered though their transaction was rolled back",
    Breach.INVENTED: "delivered though nobody sent them",
}


@dataclass(slots=True)
class LaneCounts:
    """Messages of a lane so far; ``delivered`` counts each message once, ``deliveries`` each time."""

    begun: int = 0
    confirmed: int = 0
    delivered: int = 0
    deliveries: int = 0
    flagged: int = 0
    acknowledged: int = 0
    recovered: int = 0
    """Delivered though their producer never heard that they were stored, which is allowed."""

    def __add__(self, other: LaneCounts) -> LaneCounts:
        return LaneCounts(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


class _Course:
    """One producer in one lane, by the numbers of its messages."""

    __slots__ = ("acknowledged", "attempts", "begun", "confirmed", "unflagged")

    def __init__(self) -> None:
        self.begun = 0
        self.confirmed = bytearray()
        self.attempts = bytearray()
        """The highest attempt that was delivered; 0: none."""
        self.unflagged = bytearray()
        """1 when it came without a flag."""
        self.acknowledged = bytearray()
        """The highest attempt whose acknowledgement was answered; 0: none."""

    def extend_to(self, first: int, count: int) -> None:
        self.begun = max(self.begun, first + count)
        more = self.begun - len(self.confirmed)
        if more > 0:
            for column in (self.confirmed, self.attempts, self.unflagged, self.acknowledged):
                column.extend(bytes(more))


@dataclass(slots=True)
class _Lane:
    counts: LaneCounts = field(default_factory=LaneCounts)
    courses: dict[int, _Course] = field(default_factory=dict)
    firsts: dict[tuple[int, int], array[int]] = field(default_factory=dict)
    """(producer, unit) → numbers in the order of their first deliveries."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The verdict. ``broken``: promise → how many messages; ``examples``: the first of each in words."""

    broken: dict[Breach, int]
    examples: dict[Breach, list[str]]
    counts: dict[VerifyLane, LaneCounts]
    told: dict[str, int]

    @property
    def good(self) -> bool:
        return not any(self.broken.values())

    @property
    def total(self) -> LaneCounts:
        return sum(self.counts.values(), LaneCounts())


class HistoryLedger:
    """Takes notes and judges them. ``units``: units of order of each producer; a message of number n is of unit n
    modulo that."""

    def __init__(self, units: int = 1) -> None:
        self._units = units
        self._lanes: dict[VerifyLane, _Lane] = {}
        self._rolled_back: set[int] = set()
        self._broken: Counter[Breach] = Counter()
        self._examples: dict[Breach, list[str]] = {breach: [] for breach in Breach}
        self._told: Counter[str] = Counter()

    def add_note(self, note: Note) -> None:
        """Take one note."""
        match note:
            case SendsBegun():
                lane = self._lane(note.lane)
                lane.courses.setdefault(note.producer, _Course()).extend_to(note.first, note.count)
                lane.counts.begun += note.count
            case SendsConfirmed():
                self._confirm(note)
            case Delivered():
                lane = self._lane(note.lane)
                for delivery in note.deliveries:
                    self._deliver(lane, note, delivery)
            case Acknowledged():
                lane = self._lane(note.lane)
                for delivery in note.deliveries:
                    self._acknowledge(lane, note, delivery)
            case RolledBack():
                self._rolled_back.add(note.transaction)
            case Foreign():
                self._find(Breach.INVENTED, f"{note.lane}: {note.count} messages that are not of this run", note.count)
            case ErrorTold():
                text = f"{note.who}: {note.text}"
                if text in self._told or len(self._told) < TOLD_MAX:
                    self._told[text] += 1

    def _lane(self, name: VerifyLane) -> _Lane:
        return self._lanes.setdefault(name, _Lane())

    def _find(self, breach: Breach, text: str, count: int = 1) -> None:
        self._broken[breach] += count
        if len(self._examples[breach]) < EXAMPLES_MAX:
            self._examples[breach].append(text)

    def _confirm(self, note: SendsConfirmed) -> None:
        lane = self._lane(note.lane)
        course = lane.courses[note.producer]
        for number in range(note.first, note.first + note.count):
            if not course.confirmed[number]:
                course.confirmed[number] = 1
                lane.counts.confirmed += 1

    def _deliver(self, lane: _Lane, note: Delivered, delivery: NotedDelivery) -> None:
        course, number = lane.courses.get(delivery.producer), delivery.number
        what = f"{note.lane}: message {number} of producer {delivery.producer}"
        if delivery.transaction:
            mover = delivery.transaction >> NUMBER_BITS
            what += f", moved by transaction {delivery.transaction - (mover << NUMBER_BITS)} of mover {mover}"
        lane.counts.deliveries += 1
        lane.counts.flagged += delivery.flagged
        if course is None or number >= course.begun:
            self._find(Breach.INVENTED, f"{what} at consumer {note.consumer}")
            return
        if delivery.transaction in self._rolled_back:
            self._find(Breach.ROLLED_BACK, f"{what} at consumer {note.consumer}")
        attempt = min(delivery.attempt, ATTEMPTS_MAX)
        if not course.attempts[number]:
            lane.counts.delivered += 1
            if note.lane is VerifyLane.UNITS:
                lane.firsts.setdefault((delivery.producer, number % self._units), array("Q")).append(number)
        if not delivery.flagged:
            if course.unflagged[number]:
                self._find(Breach.REPEATED, f"{what} at consumer {note.consumer}, attempt {delivery.attempt}")
            course.unflagged[number] = 1
        if 0 < course.acknowledged[number] <= attempt:
            self._find(Breach.AGAIN, f"{what} at consumer {note.consumer}, attempt {delivery.attempt}")
        course.attempts[number] = max(attempt, course.attempts[number])

    def _acknowledge(self, lane: _Lane, note: Acknowledged, delivery: NotedDelivery) -> None:
        course, number = lane.courses.get(delivery.producer), delivery.number
        if course is None or number >= course.begun:
            return  # Its delivery is a finding already.
        attempt = min(delivery.attempt, ATTEMPTS_MAX)
        if course.attempts[number] > attempt:
            self._find(
                Breach.AGAIN,
                f"{note.lane}: message {number} of producer {delivery.producer}, acknowledged at attempt"
                f" {attempt} by consumer {note.consumer} and given out at attempt {course.attempts[number]}",
            )
        if not course.acknowledged[number]:
            lane.counts.acknowledged += 1
        course.acknowledged[number] = max(attempt, course.acknowledged[number])

    # ---- the verdict -------------------------------------------------------------------------------------------------

    def total(self) -> LaneCounts:
        """All lanes together, so far."""
        return sum((lane.counts for lane in self._lanes.values()), LaneCounts())

    def broken_so_far(self) -> int:
        """Findings that need no complete drain and no look at the whole."""
        return sum(self._broken.values())

    def _missing(self) -> Iterator[tuple[VerifyLane, int, list[int]]]:
        for name, lane in self._lanes.items():
            for producer, course in lane.courses.items():
                pairs = zip(course.confirmed, course.attempts, strict=True)
                yield name, producer, [number for number, (known, came) in enumerate(pairs) if known and not came]

    def findings(self, *, drained: bool) -> Findings:
        """The verdict on all that was noted; ``drained``: nothing is left in the queues, so that what has not come is
        lost."""
        broken = Counter(self._broken)
        examples = {breach: list(texts) for breach, texts in self._examples.items()}
        if drained:
            for lane, producer, numbers in self._missing():
                broken[Breach.LOST] += len(numbers)
                examples[Breach.LOST] += [
                    f"{lane}: messages {text} of producer {producer}" for text in runs_of(numbers)
                ]
        for producer, unit, number, before in self._disordered():
            broken[Breach.DISORDERED] += 1
            examples[Breach.DISORDERED].append(
                f"message {number} of producer {producer} after {before}, of unit {unit}"
            )
        return Findings(
            broken={breach: broken[breach] for breach in Breach},
            examples={breach: texts[:EXAMPLES_MAX] for breach, texts in examples.items()},
            counts={name: self._with_recovered(lane) for name, lane in self._lanes.items()},
            told=dict(self._told.most_common()),
        )

    def _disordered(self) -> Iterator[tuple[int, int, int, int]]:
        """(producer, unit, number, the later one that came before it) of confirmed messages of units."""
        lane = self._lanes.get(VerifyLane.UNITS)
        if lane is None:
            return
        for (producer, unit), numbers in lane.firsts.items():
            confirmed = lane.courses[producer].confirmed
            last = -1
            for number in numbers:
                if confirmed[number]:
                    if number < last:
                        yield producer, unit, number, last
                    last = max(last, number)

    @staticmethod
    def _with_recovered(lane: _Lane) -> LaneCounts:
        recovered = 0
        for course in lane.courses.values():
            pairs = zip(course.confirmed, course.attempts, strict=True)
            recovered += sum(1 for known, came in pairs if came and not known)
        return lane.counts + LaneCounts(recovered=recovered)


def runs_of(numbers: Iterable[int]) -> Iterator[str]:
    """Ascending numbers as runs: ``3``, ``5-9``."""
    first = last = -1
    for number in numbers:
        if number == last + 1 and first >= 0:
            last = number
            continue
        if first >= 0:
            yield str(first) if first == last else f"{first}-{last}"
        first = last = number
    if first >= 0:
        yield str(first) if first == last else f"{first}-{last}"
