"""A reader: an actor that holds what one read task has taken, until the driver says what has become of it.

A read task cannot hold messages: its process may end with its last block, long before anybody has seen a row, and Ray
runs it again when its process or one of its blocks is lost.  So the task passes on what a reader gives it, by index,
and a second run is given the same again.  The reader keeps the session in which the messages were received.  The driver
tells it which rows were handed over (``handed``), and ends it (``finish``).  A reader that dies, with its driver or its
node, has acknowledged nothing but that: the other messages come again, flagged.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from enum import Enum
from itertools import islice
from typing import Any, Final, NamedTuple

from raybroker.client.connection.factory import connect
from raybroker.client.consumer.message import Message, MessageRun, runs_of
from raybroker.client.producer.bodies.body_encoding import Serializer
from raybroker.system.clock import SystemClock
from raybroker.tabular.arrow_table import compact, table_of
from raybroker.tabular.kept_tables import KeptTables

REFILL_PERCENT: Final = 50
SLICE_S: Final = 0.25
"""How long a reader waits for messages before it looks whether it was stopped."""
FILL_S: Final = 0.01
"""A block that is not full goes when no other message has come for so long: what a block costs on its way through Ray
is the same for few messages and for many."""
FILL_BYTES: Final = 8 << 20
"""A block of so many bytes of bodies waits for no other message."""
PREFETCH_MAX: Final = 1_000
"""Messages that a reader has asked for and not got, at most: a block of more is received in parts."""
KEPT_BYTES: Final = 256 << 20
"""Tables that a reader keeps for a second run of its task."""


class ReadingOptions(NamedTuple):
    """What every reader of one dataset has alike; the meaning is that of the arguments of ``read_queue``."""

    queue: str
    cluster: str
    selector: str | None
    batch: int
    idle_s: float
    serializer: Serializer | None
    ends_empty: bool = True


class ReaderPart(NamedTuple):
    """What one reader takes at most: messages, bytes of bodies, seconds; None: no such bound.

    ``stepwise``: messages are acknowledged as they are handed over. Else all are at the end, or none is.
    """

    limit: int | None = None
    limit_bytes: int | None = None
    left_s: float | None = None
    stepwise: bool = False


class RoundBegin(Enum):
    """What a reader has for a round that begins."""

    SOME = "some"
    NONE = "none"
    OVER = "over"


class TakenMessages:
    """Receives the messages of a queue, within the bounds of a reader."""

    def __init__(self, session: Any, options: ReadingOptions, part: ReaderPart) -> None:
        batch, limit = min(options.batch, PREFETCH_MAX), part.limit
        # With a threshold, what was received and waits to be handed over does not count against the prefetch limit.
        self._consumer = session.consumer(
            options.queue,
            options.selector,
            prefetch=batch if limit is None else min(batch, limit),
            threshold=REFILL_PERCENT,
            serializer=options.serializer,
        )
        self._left = part.limit
        self._left_bytes = part.limit_bytes
        self._clock = SystemClock()
        self._ends_ns = None if part.left_s is None else self._clock.monotonic_ns() + round(part.left_s * 1e9)
        self.stopped = threading.Event()

    @property
    def over(self) -> bool:
        """A bound was reached, or it was stopped."""
        return self.stopped.is_set() or self._left == 0 or self._left_bytes == 0 or self._left_s() == 0

    def more(self, most: int, wait_s: float | None, meanwhile: Callable[[], None]) -> list[MessageRun]:
        """Up to ``most`` messages; none when it is over, or ``wait_s`` seconds passed without one."""
        waited = 0.0
        while not self.over:
            meanwhile()
            bounds = (SLICE_S, self._left_s(), None if wait_s is None else wait_s - waited)
            part = min(bound for bound in bounds if bound is not None)
            if part <= 0:
                return []
            if runs := self._taken(most, part):
                return self._filled(runs, most)
            waited += part
        return []

    def _filled(self, runs: list[MessageRun], most: int) -> list[MessageRun]:
        """The messages, and those that come right behind them, for one block."""
        count, nbytes = sum(map(len, runs)), sum(run.nbytes for run in runs)
        while count < most and nbytes < FILL_BYTES and not self.over:
            found = self._taken(most - count, FILL_S)
            if not found:
                break
            count += sum(map(len, found))
            nbytes += sum(run.nbytes for run in found)
            runs += found
        return runs

    def _taken(self, most: int, timeout_s: float) -> list[MessageRun]:
        """Up to ``most`` messages that come in time. They are runs from here on: some thousand objects that live for
        some time have the garbage collector look at them again and again, which costs more than to receive them."""
        wanted = most if self._left is None else min(most, self._left)
        messages = self._consumer.receive_many(wanted, timeout=timeout_s)
        return runs_of(self._within(messages)) if messages else []

    def _left_s(self) -> float | None:
        return None if self._ends_ns is None else max(0.0, (self._ends_ns - self._clock.monotonic_ns()) / 1e9)

    def _within(self, messages: list[Message]) -> list[Message]:
        """The messages up to the one that reaches the bound of bytes; the others are given back."""
        if self._left_bytes is not None:
            for index, message in enumerate(messages):
                self._left_bytes = max(0, self._left_bytes - len(message))
                if self._left_bytes == 0:
                    for surplus in messages[index + 1 :]:
                        surplus.release()
                    messages = messages[: index + 1]
                    break
        if self._left is not None:
            self._left -= len(messages)
        return messages


class BrowsedMessages:
    """Browses a queue: nothing is taken."""

    def __init__(self, session: Any, options: ReadingOptions, part: ReaderPart) -> None:
        browser = session.browser(options.queue, options.selector, serializer=options.serializer)
        self._messages = islice(browser, part.limit)
        self.stopped = threading.Event()

    @property
    def over(self) -> bool:
        return self.stopped.is_set()

    def more(self, most: int, wait_s: float | None, meanwhile: Callable[[], None]) -> list[MessageRun]:
        """The next ones, as many as there are."""
        return [] if self.over else runs_of(islice(self._messages, most))


class QueueReader:
    """Messages of one queue as tables, held until they are acknowledged; ``looks``: it browses, and takes nothing.

    A streaming read is a row of rounds, each an execution of its own, whose messages are acknowledged at its end.
    """

    def __init__(self, options: ReadingOptions, part: ReaderPart, looks: bool = False) -> None:
        self._options = options
        self._part = part
        self._connection = connect(cluster=options.cluster)
        self._connection.start()
        session = self._connection.session(ack="client")
        self._source: TakenMessages | BrowsedMessages = (BrowsedMessages if looks else TakenMessages)(
            session, options, part
        )
        self._held: deque[MessageRun] = deque()
        """Messages that are not acknowledged, ``stepwise``; else the last run alone."""
        self._settled = 0
        self._handed = 0
        """Messages that were handed over, and how many of these are acknowledged."""
        self._one_at_a_time = threading.Lock()
        self._round = ReaderRound(0, kept_bytes=0 if part.stepwise else KEPT_BYTES)
        self._clock = SystemClock()

    def begin_round(self, number: int, most: int, seconds: float, wait_s: float) -> RoundBegin:
        """A round of ``most`` messages or ``seconds`` at most begins, with what comes within ``wait_s``."""
        with self._one_at_a_time:
            first = self._source.more(min(self._options.batch, most), wait_s, self._settle)
            self._round = ReaderRound(
                number, first, most, self._clock.monotonic_ns() + round(seconds * 1e9), KEPT_BYTES
            )
            if first:
                return RoundBegin.SOME
            return RoundBegin.OVER if self._source.over else RoundBegin.NONE

    def end_round(self) -> None:
        """All of the round was handed over: it is acknowledged. Raises what ``acknowledge()`` raises."""
        with self._one_at_a_time:
            if self._held:
                _last_of(self._held.pop()).acknowledge_up_to()

    def table(self, round_number: int, index: int) -> Any:
        """A table of the round by its index, compact, and the same again whenever it is asked for; None behind the last
        one."""
        with self._one_at_a_time:
            if round_number != self._round.number:
                return None
            if index < self._round.kept.made:
                return self._round.kept.table(index)
            runs = self._runs()
            if not runs:
                self._round.ended = True
                return None
            table = compact(table_of(runs))
            self._round.kept.add(table)
            if not self._part.stepwise:
                self._held.clear()
                runs = runs[-1:]
            self._held.extend(runs)
            return table

    def handed(self, count: int) -> None:
        """The application was given the first ``count`` messages."""
        self._handed = count
        if self._one_at_a_time.acquire(blocking=False):  # Else whoever receives sees it within SLICE_S.
            try:
                self._settle()
            finally:
                self._one_at_a_time.release()

    def receive_no_more(self) -> None:
        """Nothing more is received: what was, is passed on to its end."""
        self._source.stopped.set()

    def finish(self, acknowledge: bool) -> None:
        """Acknowledge what was handed over, or all unless ``acknowledge`` is false; give back the rest; the end of the
        reader.

        Raises what ``acknowledge()`` raises: then what it names comes again although it was handed over.
        """
        self.receive_no_more()
        with self._one_at_a_time:
            try:
                if self._part.stepwise:
                    self._settle()
                elif acknowledge and self._held:
                    _last_of(self._held[-1]).acknowledge_up_to()
            finally:
                self._connection.close()

    def _runs(self) -> list[MessageRun]:
        """The next messages of the round."""
        now = self._round
        if now.first:
            runs, now.first = now.first, []
        elif now.ended or now.left == 0:
            return []
        else:
            most = self._options.batch if now.left is None else min(self._options.batch, now.left)
            runs = self._source.more(most, self._patience_s(), self._settle)
        if now.left is not None:
            now.left -= sum(map(len, runs))
        return runs

    def _patience_s(self) -> float | None:
        """How long without a message makes the end; None: that never does."""
        idle_s = self._options.idle_s
        if self._round.ends_ns is not None:
            return min(idle_s, max(0.0, (self._round.ends_ns - self._clock.monotonic_ns()) / 1e9))
        return idle_s if self._options.ends_empty else None

    def _settle(self) -> None:
        """Acknowledge what was handed over."""
        last = None
        while (count := self._handed - self._settled) > 0:
            run = self._held.popleft()
            if len(run) > count:
                self._held.appendleft(run.after(count))
            count = min(count, len(run))
            last = run.message(count - 1)
            self._settled += count
        if last is not None:
            last.acknowledge_up_to()


def _last_of(run: MessageRun) -> Message:
    return run.message(len(run) - 1)


class ReaderRound:
    """What a reader passes on in one execution.

    left     messages that it still takes; None: no bound
    ends_ns  when it ends; None: no such time
    """

    __slots__ = ("ended", "ends_ns", "first", "kept", "left", "number")

    def __init__(
        self,
        number: int,
        first: list[MessageRun] | None = None,
        left: int | None = None,
        ends_ns: int | None = None,
        kept_bytes: int = 0,
    ) -> None:
        self.number = number
        self.first = first or []
        self.left = left
        self.ends_ns = ends_ns
        self.ended = False
        self.kept = KeptTables(kept_bytes)
