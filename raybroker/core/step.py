"""The step that a destination is taking: its time, what it has decided so far, and how that is written down.

The parts of a destination receive this instead of the destination.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raybroker.core.durable import records
from raybroker.core.outcome import Outcome
from raybroker.core.selector.content import Content
from raybroker.model.blocks.record import NOTE, LogEntry


class Step:
    """One object for all steps of a destination, one after another.

    now_ms        time that is measured: it goes on evenly.  Durations are by it, and so is ``wake``
    ahead_ms      how far the wall clock is ahead of it.  Points in time are by ``wall_ms``, and so is what is written
    destination   its number, for records
    touched       numbers of the delivery queues that may have something to hand out at the end of the step
    read_headers  the headers of a held block, from wherever they are; the engine sets it
    arriving      headers of the block that this step brings: whoever reads blocks does not have it yet
    """

    __slots__ = ("ahead_ms", "arriving", "destination", "now_ms", "out", "read_headers", "touched", "wall_ms")

    def __init__(self, destination: int) -> None:
        self.destination = destination
        self.now_ms = self.wall_ms = self.ahead_ms = 0
        self.out = Outcome()
        self.touched: dict[int, None] = {}
        self.read_headers: Callable[[int], Content | None] = lambda ordinal: None
        self.arriving: Content | None = None

    def begin(self, now_ms: int, ahead_ms: int = 0) -> Outcome:
        """A step begins; returns its outcome, in which nothing is decided yet."""
        self.now_ms, self.ahead_ms, self.wall_ms = now_ms, ahead_ms, now_ms + ahead_ms
        self.touched.clear()
        self.arriving = None
        out = self.out = Outcome()
        return out

    def at(self, now_ms: int, ahead_ms: int) -> None:
        """It is that time, though no step begins."""
        self.now_ms, self.ahead_ms, self.wall_ms = now_ms, ahead_ms, now_ms + ahead_ms

    def touch(self, queue: int) -> None:
        """Something has changed that may let the delivery queue hand out messages."""
        self.touched[queue] = None

    def wake(self, at_ms: int | None) -> None:
        """Time alone will change something then."""
        if at_ms is not None and (self.out.wake_at is None or at_ms < self.out.wake_at):
            self.out.wake_at = at_ms

    def record(self, meta: bytes) -> None:
        """Write down an encoded record."""
        self.out.records.append(LogEntry(NOTE, self.destination, 0, meta))

    def record_rows(
        self,
        kind: int,
        queue: int,
        rows: Sequence[records.RecordRow],
        spans: Sequence[records.Span] = (),
        rest: bytes = b"",
    ) -> None:
        """Write rows and spans down, in as many records as they need, each with ``rest`` behind them."""
        if 0 < len(spans) + len(rows) <= records.ROWS_MAX:
            self.out.records.append(LogEntry(NOTE, self.destination, 0, records.encode(kind, queue, spans, rows, rest)))
            return
        for some, others in records.in_records(spans, rows):
            self.record(records.encode(kind, queue, some, others, rest))

    def glance(self, ordinal: int) -> Content | None:
        """The headers of a held block; None when they cannot be read now."""
        return self.arriving if ordinal == self.out.accepted else self.read_headers(ordinal)

    def peek(self, ordinal: int) -> Content | None:
        """The headers of a held block; None when they cannot be read, which the outcome says."""
        content = self.glance(ordinal)
        if content is None:
            self.out.damaged.append(ordinal)
        return content
