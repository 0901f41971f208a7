"""What every compared system offers the harness, and how the common figures are taken of it.

Four figures, the same for all, with durable settings, 1 producer and 1 consumer in processes of their own:

    produce    first send to last confirmation, nobody consuming
    consume    first receive to last acknowledgement, of the messages just produced
    through    both at once: first send to last acknowledgement
    blocking   one send at a time, the next one after the confirmation of the last

A peer may have ``receipts`` too: each send with a confirmation of its own, 100 on their way.

Clocks are CLOCK_MONOTONIC of one machine, so that times of two processes can be subtracted.
"""

from __future__ import annotations

import abc
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.pace import Pace
from benchmarks.readings import Amounts, Reading, Skipped
from benchmarks.workers import Team

Address = dict[str, Any]
Span = dict[str, int]
Work = Callable[[Any, Address, str, int, int], Span]
"""(job, address, queue, messages, size_bytes) -> {"began_ns", "ended_ns"}; a module-level function."""

PacedWork = Callable[[Any, Address, str, Pace], Any]
"""(job, address, queue, pace); ``job.ready`` returns the start. A consumer returns ``Receiver.found()``."""


def bodies_of(size_bytes: int, count: int = 64) -> list[bytes]:
    """Distinct bodies that do not compress."""
    return [os.urandom(size_bytes) for _ in range(count)]


def stream_of(size_bytes: int, messages: int) -> Iterator[bytes]:
    """``messages`` bodies, a few distinct ones again and again."""
    return itertools.islice(itertools.cycle(bodies_of(size_bytes)), messages)


class Peer(abc.ABC):
    """One system: how it is started, with which settings, and the worker functions that use it."""

    name: ClassVar[str]
    produce: ClassVar[Work]
    consume: ClassVar[Work]
    blocking: ClassVar[Work | None] = None
    receipts: ClassVar[Work | None] = None
    paced: ClassVar[tuple[PacedWork, PacedWork] | None] = None
    """Producer and consumer at a given rate, for latencies; None for a system that is not measured so."""
    share: ClassVar[float] = 1.0
    """Fraction of the messages of a round that this system gets: slow ones get fewer."""
    warmup: ClassVar[int] = 0
    """Messages that go through before the clock runs, for servers that compile as they run."""

    @property
    def mark(self) -> str:
        """A word or two beside the name in tables, when the system promises less than the others."""
        return ""

    @abc.abstractmethod
    def missing(self) -> str | None:
        """Why it cannot run here, or None."""

    @abc.abstractmethod
    def versions(self) -> list[str]:
        """Server and client versions."""

    @abc.abstractmethod
    def settings(self) -> list[str]:
        """The durable settings it runs with, and what they do not promise."""

    @abc.abstractmethod
    def start(self, folder: Path) -> Address:
        """Starts a fresh server whose data lie in ``folder``; what workers need to reach it."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Ends what ``start`` started."""

    def prepare(self, address: Address, queue: str) -> None:  # noqa: B027 - some systems need nothing prepared
        """Creates the queue before the clock runs; nothing by default."""

    def environment(self) -> dict[str, str]:
        """Environment of the workers."""
        return {}

    def measure(self, amounts: Amounts, folder: Path, round_no: int) -> Iterator[Reading | Skipped]:
        """Starts the system, yields its readings one by one, stops it."""
        try:
            address = self.start(folder)
            yield from self.figures(address, self._scaled(amounts), round_no)
        finally:
            self.stop()

    def _scaled(self, amounts: Amounts) -> Amounts:
        return replace(amounts, messages=max(1000, int(amounts.messages * self.share)))

    def figures(self, address: Address, amounts: Amounts, round_no: int) -> Iterator[Reading | Skipped]:
        """The four common figures."""
        count, size = amounts.messages, amounts.size_bytes
        cls = type(self)
        if self.warmup:
            self.prepare(address, "bench-warm")
            self.run_one(cls.produce, address, "bench-warm", self.warmup, size)
            self.run_one(cls.consume, address, "bench-warm", self.warmup, size)
        self.prepare(address, "bench-one")
        span = self.run_one(cls.produce, address, "bench-one", count, size)
        yield Reading(self.name, "produce", count / seconds(span), round_no)
        span = self.run_one(cls.consume, address, "bench-one", count, size)
        yield Reading(self.name, "consume", count / seconds(span), round_no)
        self.prepare(address, "bench-two")
        yield Reading(self.name, "through", count / self.run_both(address, "bench-two", count, size), round_no)
        if cls.blocking is not None:
            self.prepare(address, "bench-three")
            span = self.run_one(cls.blocking, address, "bench-three", amounts.singles, size)
            yield Reading(self.name, "blocking", amounts.singles / seconds(span), round_no)

    def run_one(self, work: Work, address: Address, queue: str, count: int, size: int) -> Span:
        """One worker alone; its span."""
        with Team(self.environment()) as team:
            worker = team.start(work, address, queue, count, size)
            worker.wait_ready()
            worker.go()
            span: Span = worker.result()
            return span

    def run_both(self, address: Address, queue: str, count: int, size: int) -> float:
        """Producer and consumer at once; seconds from the first send to the last acknowledgement."""
        with Team(self.environment()) as team:
            consumer = team.start(type(self).consume, address, queue, count, size)
            producer = team.start(type(self).produce, address, queue, count, size)
            consumer.wait_ready()
            producer.wait_ready()
            consumer.go()
            producer.go()
            began = producer.result()["began_ns"]
            ended = consumer.result()["ended_ns"]
            return float(ended - began) / 1e9


def seconds(span: Span) -> float:
    """Length of a span."""
    return (span["ended_ns"] - span["began_ns"]) / 1e9
