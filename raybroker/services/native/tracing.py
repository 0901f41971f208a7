"""Traced sends: when the frame of one was read, decided, committed and confirmed, told to its producer with the
confirmation.

A send that is not traced costs a look at an empty table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from raybroker.engine.ports import CommitStamps, Committer
from raybroker.system.clock import monotonic_clock
from raybroker.system.memory import collections
from raybroker.wire.native.frames import COLLECTED, ELSEWHERE, SendTracedFrame, TracedFrame

TRACES_MAX: Final = 1_024
"""Traced sends of a host that are not confirmed; one more goes its way as any other, and is not told of."""
Key = tuple[object, int, int]
"""Connection, handle and first sequence number of a block."""


class SendTrace:
    """One traced send."""

    __slots__ = ("collections", "commit", "decided_ns", "read_ns")

    def __init__(self, read_ns: int) -> None:
        self.collections = collections()
        self.read_ns = self.decided_ns = read_ns
        self.commit = CommitStamps()


class SendTraces:
    """The traced sends of a host that are not confirmed yet: ``open``."""

    __slots__ = ("_clock", "open")

    def __init__(self) -> None:
        self.open: dict[Key, SendTrace] = {}
        self._clock = monotonic_clock()

    def carry_out(
        self,
        connection: object,
        frame: SendTracedFrame,
        committer: Committer | None,
        now_ns: Callable[[], int],
        send: Callable[[], None],
    ) -> None:
        """Have a traced send carried out by ``send``, which was read now."""
        if committer is None or len(self.open) >= TRACES_MAX:
            send()
            return
        trace = self.open[connection, frame.handle, frame.block.first_seq] = SendTrace(now_ns())
        committer.trace(trace.commit)
        try:
            send()
        finally:
            committer.trace(None)
            trace.decided_ns = now_ns()

    def confirm(self, connection: object, handle: int, first_seq: int, now_ns: int) -> TracedFrame | None:
        """What to tell of a send that is about to be confirmed; None when it is not traced."""
        trace = self.open.pop((connection, handle, first_seq), None)
        if trace is None:
            return None
        commit = trace.commit
        events = COLLECTED if collections() != trace.collections else 0
        if commit.elsewhere:
            events |= ELSEWHERE
        return TracedFrame(
            handle,
            first_seq,
            self._clock,
            trace.read_ns,
            trace.decided_ns,
            commit.began_ns,
            commit.ended_ns,
            commit.sync_ns,
            now_ns,
            events,
        )

    def drop_connection(self, connection: object) -> None:
        """A connection has ended: nobody is told."""
        for key in [key for key in self.open if key[0] is connection]:
            del self.open[key]
