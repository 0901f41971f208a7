"""The verdict on what threads wrote down: pure, so that a test can show that it notices what it should.

A note is a tuple ``(at_ns, kind, ids, details)``; ``at_ns`` is of the machine's monotonic clock, which all processes of
a run share. Kinds:

    send, sent, refused          ids were asked for, in ``queue``; are confirmed; are certainly not there; ``short``:
                                 they expire within the run; ``loose``: they may go with what holds them
    got                          ids were handed to the application; ``flags``: redelivered of each; ``began_ns``
    settle, settled              an acknowledgement or a commit of ids began; was confirmed; ``auto``: by coming back
                                 for more, which confirms nothing that was in hand when a broker was killed
    unsettled                    it is certain that ids were not acknowledged: the attempt was refused as a whole
    purge, moved, moves          ``queue``: what it held at that time may be gone; a move from ``queue`` to ``to``
                                 ended well; one began, which may leave two when it never ends
    killed                       the process was killed; what was not persistent may be gone; ``others``: there are
                                 others to which it may be sent again
    left, count                  ids that were drained at the end, by queue; what the broker said it held there
    late, raw                    a call that took too long; an exception that is no BrokerError

Others only tell whoever reads them what led to a fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from raybroker.model.naming.names import DEAD_MESSAGE_QUEUE


class Note(NamedTuple):
    at_ns: int
    kind: str
    ids: list[int]
    details: dict[str, Any]


@dataclass
class Life:
    """What is known of one message."""

    asked: int = 0
    queues: set[str] = field(default_factory=set)
    """Where it was sent to."""
    refused: int = 0
    confirmed_persistent: bool = False
    confirmed_volatile: bool = False
    settled_ns: int | None = None
    trying: bool = False
    """An acknowledgement began, and nobody knows what became of it."""
    may_be_gone: bool = False
    kinds: int = 0
    """1: asked to be persistent, 2: not to be, 3: both, with one deduplication id, and then there may be two."""
    forgotten: bool = False
    """It was asked not to be persistent, and a broker was killed since: one that is sent again with its deduplication
    id is another message, for the id was not stored either."""
    in_doubt: bool = False
    """It was sent and not confirmed when one of several brokers was killed: it may have gone to another one as well,
    flagged for whoever got the first copy in the same connection."""
    short: bool = False
    """It expires within the run. It counts as held until the broker comes across it."""
    first_got_ns: int | None = None
    last_got_ns: int = 0
    left: int = 0
    dead: int = 0
    """Of these, in the dead message queue: where a broker is killed between the two, a dead message is moved again."""


@dataclass
class Verdict:
    """``faults``: what must not be, in words. The other fields say how much was looked at."""

    faults: list[str] = field(default_factory=list)
    messages: int = 0
    settled: int = 0
    received: int = 0
    left: int = 0
    unknown: int = 0

    def __str__(self) -> str:
        return (
            f"{self.messages} messages, {self.received} received, {self.settled} settled, {self.left} left,"
            f" {self.unknown} unknown; faults {len(self.faults)}"
        )


def judge(notes: Iterable[Note]) -> Verdict:
    """Read notes of all processes of a run, in any order."""
    lives: dict[int, Life] = {}
    verdict = Verdict()
    killed = False
    killed_ns = 0
    counts: dict[str, int] = {}
    drained: Counter[str] = Counter()
    ordered = sorted(notes, key=lambda note: note.at_ns)
    ways = _ways(ordered)
    cut_short = _cut_short(ordered)

    def came_to(life: Life, queues: Iterable[str]) -> bool:
        """Whether it may have been in one of these queues."""
        return any(queue in ways.get(begin, {begin}) for begin in life.queues for queue in queues)

    def doubled(life: Life) -> bool:
        """There may be two of it: a move was cut short, or of two with the same id one was not persistent, and the
        other one was or came to another broker's process."""
        if life.kinds == 3 or life.in_doubt or (life.forgotten and life.asked > 1):
            return True
        return DEAD_MESSAGE_QUEUE in cut_short or came_to(life, cut_short)

    for at_ns, kind, ids, details in ordered:
        found = [lives.setdefault(number, Life()) for number in ids]
        if kind == "send":
            for life in found:
                life.asked += 1
                life.queues.add(details.get("queue", ""))
                life.may_be_gone |= bool(details.get("loose"))
                life.kinds |= 1 if details.get("persistent", True) else 2
                if details.get("short"):
                    life.may_be_gone = life.short = True
        elif kind == "sent":
            for life in found:
                life.confirmed_persistent |= bool(details["persistent"])
                life.confirmed_volatile |= not details["persistent"]
        elif kind == "refused":
            for life in found:
                life.refused += 1
        elif kind == "got":
            verdict.received += len(ids)
            for number, life, flagged in zip(ids, found, details["flags"], strict=True):
                if life.settled_ns is not None and details["began_ns"] > life.settled_ns and not doubled(life):
                    verdict.faults.append(f"{number} was acknowledged, and came again")
                elif life.first_got_ns is not None and not flagged and not doubled(life):
                    verdict.faults.append(f"{number} came a second time without redelivered")
                if life.first_got_ns is None:
                    life.first_got_ns = at_ns
                life.last_got_ns = at_ns
        elif kind == "settle":
            for life in found:
                life.trying = True
        elif kind == "settled":
            for life in found:
                if not (details.get("auto") and life.last_got_ns < killed_ns):
                    life.settled_ns = life.settled_ns or at_ns
        elif kind == "unsettled":
            for life in found:
                life.trying = False
        elif kind == "purge":
            for life in lives.values():
                life.may_be_gone |= came_to(life, [details.get("queue", "")])
        elif kind == "killed":
            killed, killed_ns = True, at_ns
            for life in lives.values():
                life.may_be_gone |= not life.confirmed_persistent
                life.forgotten |= bool(life.kinds & 2)
                life.in_doubt |= details.get("others", False) and not life.confirmed_persistent
        elif kind == "left":
            drained[details["queue"]] += len(ids)
            for life in found:
                life.left += 1
                life.dead += details["queue"] == DEAD_MESSAGE_QUEUE
        elif kind == "count":
            counts[details["queue"]] = details["messages"]
        elif kind in ("late", "raw"):
            verdict.faults.append(f"{kind}: {details['text']}")
    _faults_at_the_end(lives, verdict, killed=killed, doubled=doubled)
    expired = sum(life.short for life in lives.values())
    for queue, messages in counts.items():
        if not 0 <= messages - drained[queue] <= expired:
            verdict.faults.append(f"{queue} held {messages} messages by its count, and {drained[queue]} came")
    return verdict


def _ways(notes: Iterable[Note]) -> dict[str, set[str]]:
    """For each queue from which something is moved, where that may come to in the end."""
    steps = {(note.details.get("queue", ""), note.details.get("to", "")) for note in notes if note.kind == "moves"}
    ways = {begin: {begin} for begin, _ in steps}
    for found in ways.values():
        while more := {end for begin, end in steps if begin in found} - found:
            found.update(more)
    return ways


def _cut_short(notes: Iterable[Note]) -> list[str]:
    """The queues from which a move never ended."""
    count: Counter[str] = Counter()
    for note in notes:
        if note.kind in ("moves", "moved"):
            count[note.details.get("queue", "")] += 1 if note.kind == "moves" else -1
    return [queue for queue, times in count.items() if times > 0]


def _faults_at_the_end(
    lives: dict[int, Life], verdict: Verdict, *, killed: bool, doubled: Callable[[Life], bool]
) -> None:
    verdict.messages = len(lives)
    for number, life in sorted(lives.items()):
        verdict.settled += life.settled_ns is not None
        verdict.left += life.left
        certain = life.confirmed_persistent or (life.confirmed_volatile and not killed)
        known = life.settled_ns is None and not life.trying and not life.may_be_gone
        verdict.unknown += not known and life.settled_ns is None
        if certain and known and not life.left:
            verdict.faults.append(f"{number} was confirmed and is lost")
        if life.left > 1 and not doubled(life) and not (killed and life.left == life.dead):
            verdict.faults.append(f"{number} is there {life.left} times at the end")
        if life.left and life.settled_ns is not None and not doubled(life):
            verdict.faults.append(f"{number} was acknowledged, and is there at the end")
        if (life.left or life.first_got_ns is not None) and life.refused == life.asked:
            verdict.faults.append(f"{number} was refused, and is there")
