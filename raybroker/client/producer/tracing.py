"""The trace of a producer: when each of its sends left, what its host tells of it, and when it was confirmed.

For whoever measures, one send at a time: a send that follows another one before that was confirmed takes its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import IllegalStateError
from raybroker.system.clock import monotonic_clock
from raybroker.wire.native import frames as wire


class TracedSend(NamedTuple):
    """One send: when its frame was written and its confirmation read, by the clock here, and what the host tells.

    ``same_clock``: the host is on this machine, so that its times may be compared with those here.
    """

    written_ns: int
    heard_ns: int
    host: wire.TracedFrame
    same_clock: bool


class ProducerTrace:
    """The latest send of one producer."""

    __slots__ = ("_clock", "_first_seq", "_latest", "_now_ns", "_written_ns")

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._now_ns = monotonic_ns
        self._clock = monotonic_clock()
        self._first_seq = self._written_ns = 0
        self._latest: TracedSend | None = None

    def frame(self, handle: int, floor: int, first_seq: int, block: Buffer) -> tuple[bytes, Buffer]:
        """The frame of a block that is about to be written."""
        made = wire.send_traced(handle, floor, block)
        self._first_seq, self._latest = first_seq, None
        self._written_ns = self._now_ns()
        return made

    def heard(self, frame: wire.TracedFrame) -> None:
        """The host tells of a send; its confirmation follows."""
        if frame.first_seq == self._first_seq:
            same = frame.clock == self._clock
            self._latest = TracedSend(self._written_ns, self._now_ns(), frame, same)

    def take_last(self) -> TracedSend | None:
        """What is known of the last send, once; None: the host has told nothing, since it was refused or went in
        pieces."""
        latest, self._latest = self._latest, None
        return latest


def trace_of(producer: Any) -> ProducerTrace:
    """The trace of a blocking producer, which measures its sends from now on: those that go to its home broker.

    Raises IllegalStateError for one that has no destination of its own, or a pattern of them.
    """
    core = producer._core
    start = getattr(getattr(core, "home", core), "trace", None)
    if start is None:
        raise IllegalStateError(f"sends of the producer for {core.name} cannot be traced: they go to several places")
    trace: ProducerTrace = start()
    return trace
