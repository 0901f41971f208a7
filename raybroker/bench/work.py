"""The producer and the consumer of a load run, over the public blocking handles.

A producer with a rate has a timetable: batch *k* is due at start + *k* intervals, independent of the batches before.
Each body carries its intended time and the time of its send.  Latency from the intended time is the latency of a user
at that rate; latency from the send hides the waiting of a producer that cannot keep up (coordinated omission); the send
delay is the difference.  All clocks are the monotonic clock of one machine.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

from raybroker.bench.latency import LatencyCounts
from raybroker.bench.plan import STAMP_BYTES, LoadPlan
from raybroker.bench.timeline import Timeline
from raybroker.client.producer.tracing import ProducerTrace, trace_of

STAMP: Final = struct.Struct("<4sIqq")
MARK: Final = b"RBL1"
TAKE: Final = 1000
"""Messages a consumer takes at once."""
POLL_SECONDS: Final = 0.25
TELL_NS: Final = 500_000_000

assert STAMP.size == STAMP_BYTES


@dataclass(slots=True)
class Produced:
    """Result of one producer; ``measured`` counts the confirmations within the measured time."""

    sent: int = 0
    confirmed: int = 0
    measured: int = 0
    send_delay: LatencyCounts = field(default_factory=LatencyCounts)
    confirm: LatencyCounts = field(default_factory=LatencyCounts)
    confirm_intended: LatencyCounts = field(default_factory=LatencyCounts)
    timeline: Timeline = field(default_factory=Timeline)


@dataclass(slots=True)
class Consumed:
    """Result of one consumer; ``foreign`` counts messages of other runs."""

    received: int = 0
    measured: int = 0
    foreign: int = 0
    redelivered: int = 0
    end_to_end: LatencyCounts = field(default_factory=LatencyCounts)
    end_to_end_intended: LatencyCounts = field(default_factory=LatencyCounts)


@dataclass(frozen=True, slots=True)
class LoadRun:
    """The run as a worker sees it.  ``tell`` reports the count so far; ``stopping`` is true when it is time to end."""

    plan: LoadPlan
    run_id: int
    start_ns: int
    now_ns: Callable[[], int]
    tell: Callable[[int], None]
    stopping: Callable[[], bool]

    @property
    def measured_from_ns(self) -> int:
        return self.start_ns + self.plan.measured_from_ns

    @property
    def ends_ns(self) -> int:
        return self.start_ns + self.plan.ends_ns


class _Sender:
    """One producer: keeps the timetable and the window, and records the time of each confirmation."""

    def __init__(self, run: LoadRun, producer: Any) -> None:
        self._run, self._producer = run, producer
        self._rest = bytes(run.plan.size_bytes - STAMP_BYTES)
        self._flying: deque[list[Future[Any]]] = deque()
        self._stamps: deque[tuple[int, int, list[int]]] = deque()
        self.done = Produced()
        self._trace: ProducerTrace | None = trace_of(producer) if run.plan.trace else None

    def send(self, intended_ns: int) -> None:
        """Send one batch, after waiting for room in the window."""
        plan = self._run.plan
        while len(self._flying) >= plan.window:
            self._settle()
        sent_ns = self._run.now_ns()
        body = STAMP.pack(MARK, self._run.run_id, intended_ns or sent_ns, sent_ns) + self._rest
        self.done.sent += plan.batch
        if plan.window > 1:
            confirmed_ns: list[int] = []
            futures = [self._producer.send_async(body) for _ in range(plan.batch)]
            futures[-1].add_done_callback(lambda _: confirmed_ns.append(self._run.now_ns()))
            self._flying.append(futures)
            self._stamps.append((intended_ns or sent_ns, sent_ns, confirmed_ns))
            return
        if plan.batch == 1:
            self._producer.send(body)
        else:
            self._producer.send_many([body] * plan.batch)
        returned_ns = self._run.now_ns()
        self._note(intended_ns or sent_ns, sent_ns, returned_ns)
        if self._trace is not None and (intended_ns or sent_ns) >= self._run.measured_from_ns:
            self.done.timeline.record(sent_ns, returned_ns, self._trace.take_last())

    def _settle(self) -> None:
        """Wait for the oldest batch in flight."""
        for future in self._flying.popleft():
            future.result()
        intended_ns, sent_ns, confirmed_ns = self._stamps.popleft()
        # Waiters wake before callbacks run: the time may not be noted yet, and then it is now.
        self._note(intended_ns, sent_ns, confirmed_ns[0] if confirmed_ns else self._run.now_ns())

    def _note(self, intended_ns: int, sent_ns: int, confirmed_ns: int) -> None:
        done, batch = self.done, self._run.plan.batch
        done.confirmed += batch
        if self._run.measured_from_ns <= confirmed_ns < self._run.ends_ns:
            done.measured += batch
        if intended_ns >= self._run.measured_from_ns:
            done.send_delay.record((sent_ns - intended_ns) // 1000, batch)
            done.confirm.record((confirmed_ns - sent_ns) // 1000, batch)
            done.confirm_intended.record((confirmed_ns - intended_ns) // 1000, batch)

    def finish(self) -> Produced:
        """Wait for all batches in flight."""
        while self._flying:
            self._settle()
        return self.done


def produce(run: LoadRun, producer: Any) -> Produced:
    """Send until the measured time is over, then wait for the confirmations."""
    sender, pause = _Sender(run, producer), threading.Event()
    interval_ns, number, told_ns = run.plan.interval_ns, 0, run.now_ns()
    wait_until(run.start_ns, run.now_ns, pause)
    while True:
        intended_ns = run.start_ns + int(number * interval_ns) if interval_ns else 0
        if max(intended_ns, run.now_ns() if not interval_ns else 0) >= run.ends_ns or run.stopping():
            break
        if interval_ns:
            wait_until(intended_ns, run.now_ns, pause)
        sender.send(intended_ns)
        number += 1
        if run.now_ns() - told_ns >= TELL_NS:
            told_ns = run.now_ns()
            run.tell(sender.done.sent)
    return sender.finish()


def wait_until(when_ns: int, now_ns: Callable[[], int], pause: threading.Event) -> None:
    """Wait for a moment of the monotonic clock; returns at once when it is past."""
    while (left_ns := when_ns - now_ns()) > 0:
        pause.wait(left_ns / 1e9)


def consume(run: LoadRun, consumer: Any) -> Consumed:
    """Receive and acknowledge until the run stops and no message is left."""
    done, told_ns = Consumed(), run.now_ns()
    stop_at_ns: int | None = None
    while True:
        messages = consumer.receive_many(max=TAKE, timeout=POLL_SECONDS)
        now_ns = run.now_ns()
        if messages:
            _take(run, done, messages, now_ns)
            messages[-1].acknowledge()
        if stop_at_ns is None and run.stopping():
            stop_at_ns = now_ns + int(run.plan.drain_seconds * 1e9)
        if stop_at_ns is not None and (not messages or now_ns >= stop_at_ns):
            return done
        if now_ns - told_ns >= TELL_NS:
            told_ns = now_ns
            run.tell(done.received)


def _take(run: LoadRun, done: Consumed, messages: list[Any], now_ns: int) -> None:
    from_ns, unpack, run_id = run.measured_from_ns, STAMP.unpack_from, run.run_id
    done.received += len(messages)
    if from_ns <= now_ns < run.ends_ns:
        done.measured += len(messages)
    for message in messages:
        body = message.body
        if message.redelivered:
            done.redelivered += 1
        if not isinstance(body, bytes) or len(body) < STAMP_BYTES:
            done.foreign += 1
            continue
        mark, of_run, intended_ns, sent_ns = unpack(body)
        if mark != MARK or of_run != run_id:
            done.foreign += 1
        elif intended_ns >= from_ns:
            done.end_to_end.record((now_ns - sent_ns) // 1000)
            done.end_to_end_intended.record((now_ns - intended_ns) // 1000)
