"""Journal records of recurring schedules, as blocks and notes of destination 0.

    BLOCK      number; in its meta what the schedule is, in its payload the message as it was sent
    a note     {"fired": number, "count", "last"}: so many firings so far, the last one for that occurrence
    a note     {"ended": number, "id"}: there are no more firings; its block is dead, and may be gone from then on

The note of a firing is written in one batch with the message that the firing brings: both are there after a crash, or
neither.  A checkpoint carries the counts of the schedules that live; a block before it that is not among them is dead.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from raybroker.model.blocks.record import BLOCK, NOTE, Buffer, LogEntry
from raybroker.model.errors import StoreDamagedError

ENDED_MAX: Final = 1_000
"""Ids of schedules that are over and are remembered, for whoever asks again because the answer was lost."""


@dataclass(slots=True)
class ScheduleRow:
    """One schedule. ``number`` is the host's; ``id`` the one that users know.

    destination  number of where it sends
    expression   when, see recurrence.py; ``zone``: in which time zone
    repeat       firings after which it ends; 0: never
    catch_up     occurrences that were missed are all made up for; else one firing stands for them
    ttl_ms       time to live of what it sends, from each firing; 0: for ever. ``delay_ms``: delivery delay likewise
    created_ms   when it was made
    fired        firings so far
    last_ms      the occurrence of the last one, or when the schedule began
    """

    number: int
    id: str
    destination: int
    expression: str
    zone: str
    repeat: int
    catch_up: bool
    ttl_ms: int
    delay_ms: int
    created_ms: int
    fired: int
    last_ms: int

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> ScheduleRow:
        """Raises StoreDamagedError."""
        try:
            return cls(**json.loads(data))
        except (ValueError, TypeError) as error:
            raise StoreDamagedError(f"a stored schedule does not decode: {error!r}") from None


@dataclass(slots=True)
class ScheduleLog:
    """``rows``: the schedules that live, by number.  ``ended``: ids of those that are over, the oldest first.
    ``dead``: blocks that recovery found and nobody needs."""

    next_number: int = 1
    rows: dict[int, ScheduleRow] = field(default_factory=dict)
    ended: dict[str, None] = field(default_factory=dict)
    dead: list[int] = field(default_factory=list)
    _counts: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Number → (fired, last occurrence) of those whose block was not given back: it is still to come after the
    checkpoint that names it, or it is gone and a note says that they are over."""
    _before: int = 1
    """Blocks below this number were written before the checkpoint."""

    def remember(self, id_: str) -> None:
        """That schedule is over."""
        self.ended[id_] = None
        while len(self.ended) > ENDED_MAX:
            del self.ended[next(iter(self.ended))]

    def needs(self, destination: int) -> bool:
        """Whether a schedule sends there."""
        return any(row.destination == destination for row in self.rows.values())

    # ---- reading ---------------------------------------------------------------------------------------------------

    @staticmethod
    def owns(entry: LogEntry) -> bool:
        """Whether an entry of destination 0 is about schedules; the others are about transactions."""
        return entry.kind == BLOCK or entry.meta[:1] == b"{"

    def apply(self, entry: LogEntry) -> None:
        """One block or note, in the order of the log. Raises StoreDamagedError."""
        if entry.kind == BLOCK:
            self._block(entry.ordinal, entry.meta)
            return
        try:
            note = json.loads(entry.meta)
            if "fired" in note:
                self._fired(int(note["fired"]), int(note["count"]), int(note["last"]))
            else:
                self._ended(int(note["ended"]), str(note["id"]))
        except (ValueError, TypeError, KeyError) as error:
            raise StoreDamagedError(f"a stored note about a schedule does not decode: {error!r}") from None

    def _fired(self, number: int, count: int, last_ms: int) -> None:
        self.next_number = max(self.next_number, number + 1)
        row = self.rows.get(number)
        if row is None:
            self._counts[number] = count, last_ms
        else:
            row.fired, row.last_ms = count, last_ms

    def _ended(self, number: int, id_: str) -> None:
        self.next_number = max(self.next_number, number + 1)
        self._counts.pop(number, None)
        if self.rows.pop(number, None) is not None:
            self.dead.append(number)
        self.remember(id_)

    def _block(self, number: int, meta: bytes) -> None:
        self.next_number = max(self.next_number, number + 1)
        counts = self._counts.pop(number, None)
        if number < self._before and counts is None:
            self.dead.append(number)
            return
        row = ScheduleRow.decode(meta)
        if counts is not None:
            row.fired, row.last_ms = counts
        self.rows[number] = row

    def check_complete(self) -> None:
        """Raises StoreDamagedError for a schedule whose message the store did not give back."""
        if self._counts:
            raise StoreDamagedError(f"schedule {min(self._counts)} is to be there, and its message is not")

    def without_messages(self) -> list[int]:
        """Give up the schedules whose messages the store did not give back, and say which those are."""
        lost, self._counts = sorted(self._counts), {}
        return lost

    # ---- writing ---------------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """Encode the log for a checkpoint."""
        counts = [[row.number, row.fired, row.last_ms] for row in self.rows.values()]
        state = {"next": self.next_number, "counts": counts, "ended": list(self.ended)}
        return json.dumps(state, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> ScheduleLog:
        """What :meth:`encode` made; nothing stands for no schedules. Raises StoreDamagedError."""
        if not data:
            return cls()
        try:
            state = json.loads(data)
            counts = {int(number): (int(fired), int(last_ms)) for number, fired, last_ms in state["counts"]}
            return cls(state["next"], ended=dict.fromkeys(state["ended"]), _counts=counts, _before=state["next"])
        except (ValueError, TypeError, KeyError) as error:
            raise StoreDamagedError(f"a checkpoint's schedules do not decode: {error!r}") from None


def made(row: ScheduleRow, message: Buffer) -> LogEntry:
    """A new schedule."""
    return LogEntry(BLOCK, 0, row.number, row.encode(), (message,))


def fired(row: ScheduleRow) -> LogEntry:
    return _note({"fired": row.number, "count": row.fired, "last": row.last_ms})


def ended(row: ScheduleRow) -> LogEntry:
    return _note({"ended": row.number, "id": row.id})


def _note(fields: dict[str, Any]) -> LogEntry:
    return LogEntry(NOTE, 0, 0, json.dumps(fields, separators=(",", ":")).encode())
