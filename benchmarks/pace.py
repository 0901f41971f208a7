"""Messages at a given rate, for latencies of every system by the same rules as ``raybroker bench --rate``.

Message *k* is due at start + *k* intervals, whatever became of those before it.  Each body carries its due time, and a
latency counts from there: a sender that was kept from sending does not hide it (coordinated omission).  Messages of the
warm-up are not counted.  The stamp and the counts are those of :mod:`raybroker.bench`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns, sleep
from typing import Any, Final

from raybroker.bench.latency import LatencyCounts
from raybroker.bench.plan import STAMP_BYTES
from raybroker.bench.work import MARK, STAMP

HEAD_START_NS: Final = 300_000_000
"""Between the word to start and the first due time."""
LATE_SECONDS: Final = 5.0
"""How long after the last due time a consumer waits for what has not come."""
RUN: Final = 1


@dataclass(frozen=True, slots=True)
class Pace:
    """``rate`` messages a second of ``size_bytes`` for ``warmup_s`` and then, measured, for ``duration_s``."""

    rate: float
    duration_s: float
    warmup_s: float = 1.0
    size_bytes: int = 1024

    @property
    def messages(self) -> int:
        return int(self.rate * (self.warmup_s + self.duration_s))

    def due_ns(self, start_ns: int, number: int) -> int:
        """When message ``number`` is to be sent."""
        return start_ns + int(number * 1e9 / self.rate)

    def due_by(self, start_ns: int, now_ns: int) -> int:
        """How many messages are due until now."""
        return min(self.messages, max(0, int((now_ns - start_ns) * self.rate / 1e9) + 1) if now_ns >= start_ns else 0)

    def first_measured(self) -> int:
        """The number of the first message after the warm-up."""
        return int(self.rate * self.warmup_s)


class Sender:
    """Stamped bodies of a pace, in turn; ``due`` gives those whose time has come."""

    def __init__(self, pace: Pace, start_ns: int) -> None:
        self.pace = pace
        self.start_ns = start_ns
        self.sent = 0
        self._rest = bytes(pace.size_bytes - STAMP_BYTES)
        self._first = pace.first_measured()

    @property
    def over(self) -> bool:
        return self.sent >= self.pace.messages

    def wait_seconds(self) -> float:
        """Seconds until the next message is due, 0 when it is."""
        return max(0.0, (self.pace.due_ns(self.start_ns, self.sent) - monotonic_ns()) / 1e9)

    def due(self, most: int = 1_000) -> list[bytes]:
        """Bodies of the messages that are due and were not sent, at most ``most``."""
        now = monotonic_ns()
        end = min(self.pace.due_by(self.start_ns, now), self.sent + most)
        bodies = []
        for number in range(self.sent, end):
            # The run of a message is 1 when it counts and 0 in the warm-up.
            stamp = STAMP.pack(MARK, RUN * (number >= self._first), self.pace.due_ns(self.start_ns, number), now)
            bodies.append(stamp + self._rest)
        self.sent = max(self.sent, end)
        return bodies


class Receiver:
    """Counts of what came: latency from the due time, and from the send."""

    def __init__(self, pace: Pace, start_ns: int) -> None:
        self._expected = pace.messages
        self._until_ns = pace.due_ns(start_ns, pace.messages) + int(LATE_SECONDS * 1e9)
        self.received = 0
        self.from_due = LatencyCounts()
        self.from_send = LatencyCounts()

    @property
    def over(self) -> bool:
        """Whether everything came; raises TimeoutError when what is missing is too late."""
        if self.received < self._expected and monotonic_ns() > self._until_ns:
            raise TimeoutError(f"{self.received} of {self._expected} messages came in time: it does not keep up")
        return self.received >= self._expected

    def take(self, body: bytes, now_ns: int) -> None:
        """One message."""
        mark, counted, due_ns, sent_ns = STAMP.unpack_from(body)
        if mark != MARK:
            raise ValueError("a body of another run came")
        self.received += 1
        if counted:
            self.from_due.record((now_ns - due_ns) // 1000)
            self.from_send.record((now_ns - sent_ns) // 1000)

    def found(self) -> dict[str, LatencyCounts]:
        """Both counts, by name."""
        return {"due": self.from_due, "send": self.from_send}


def send_all(sender: Sender, publish: Callable[[list[bytes]], Any]) -> None:
    """Give ``publish`` what is due, again and again, and sleep in between; for clients that block."""
    while not sender.over:
        if bodies := sender.due():
            publish(bodies)
        elif (left := sender.wait_seconds()) > 0:
            sleep(left)
