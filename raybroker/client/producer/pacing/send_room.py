"""Room in a producer's buffer: which messages are taken at once, which wait, and which are refused.

There is room while the producer holds less than ``raybroker.producer.buffer_bytes`` and while its credit is not used up
at a destination that slows its producers.  A transaction waits at a full destination before it begins: once it holds
something it waits for nobody, since others may wait for what it holds, and its commit may be what makes room.  While
the destination is over a threshold, messages are taken at a limited rate as well (``flow_rate``), those of transactions
too: time alone ends that waiting.
Nothing is taken while the destination is paused or no transaction is open, and nothing after the producer has ended:

    SENDING, STOPPED   stopped   STOPPED
    SENDING, STOPPED   let go    SENDING
    any other          ended     ENDED

It is SENDING when it is made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from enum import StrEnum
from typing import Final

from raybroker.client.io.io_thread import fulfil
from raybroker.client.producer.pacing.flow_rate import SECOND_NS, FlowRate, FlowRates
from raybroker.client.producer.producer_state import ProducerState
from raybroker.config.config import Config
from raybroker.model.errors import BrokerError, DestinationPausedError, RequestTimeoutError
from raybroker.model.machine import Machine

_WAITS: Final = {"low_memory": "the memory of its broker is out", "ending": "its broker is being shut down"}
"""State in which the broker has a producer wait → why, for who waits too long."""


class SendState(StrEnum):
    SENDING = "SENDING"
    STOPPED = "STOPPED"
    ENDED = "ENDED"


class SendEvent(StrEnum):
    STOP = "stopped"
    GO = "let go"
    END = "ended"


_S, _E = SendState, SendEvent
PRODUCER: Final = Machine(
    "the producer",
    [
        ((_S.SENDING, _S.STOPPED), _E.STOP, _S.STOPPED),
        ((_S.SENDING, _S.STOPPED), _E.GO, _S.SENDING),
        (tuple(_S), _E.END, _S.ENDED),
    ],
)


class RoomWaiters:
    """Threads and futures that wait for room; ``lock`` guards the room and this.

    changed, waiting  what threads wait at for room, and how many do
    turns, in_line    what threads wait at for a turn by the rate, and how many do
    futures, empty    futures of those who wait for room, and of those who wait until nothing is held
    """

    __slots__ = ("changed", "empty", "futures", "in_line", "later", "some", "timed", "turns", "waiting")

    def __init__(self, lock: threading.Lock, later: Callable[[float], None] | None) -> None:
        self.changed = threading.Condition(lock)
        self.some = False
        """Somebody may wait for :meth:`SendRoom.changed`."""
        self.waiting = 0
        self.turns = threading.Condition(lock)
        self.in_line = 0
        self.futures: list[Future[None]] = []
        self.empty: list[Future[None]] = []
        self.later = later
        self.timed = False
        """:meth:`SendRoom.due` will be called."""

    def __bool__(self) -> bool:
        return bool(self.waiting or self.in_line or self.futures or self.empty)

    def tell(self, count: int | None) -> None:
        """There is room: threads look for themselves, and the first ``count`` futures are done; None: all of them."""
        self.changed.notify_all()
        self.tell_first(count)

    def tell_first(self, count: int | None) -> None:
        """The first ``count`` futures are done; None: all of them."""
        _fulfil_first(self.futures, len(self.futures) if count is None else count)

    def call_later(self, rate: FlowRate) -> None:
        """Whoever waits with a future, for the rate alone, is told in time."""
        if self.futures and not self.timed and self.later is not None:
            self.timed = True
            self.later(rate.wait_ns / SECOND_NS)


class SendRoom:
    """The room of one producer of destination ``name``; ``lock`` guards it and ``held``.

    Every method is called with the lock held, in any thread; :meth:`enter` gives it up while it waits.

    under_way  messages belong to transactions: whether the open one has begun; None: they belong to none
    rates      what the producer obeys while its destination is over a threshold; None: it obeys nothing
    later      has :meth:`due` called, with the lock held, after so many seconds
    """

    __slots__ = (
        "_held",
        "_monotonic_ns",
        "_name",
        "_rate",
        "_rates",
        "_sending",
        "_timeout_ms",
        "_under_way",
        "bytes_max",
        "easy_bytes",
        "ending",
        "low",
        "slow",
        "stopped",
        "waiters",
    )

    def __init__(
        self,
        held: ProducerState,
        lock: threading.Lock,
        name: str,
        attributes: Config,
        monotonic_ns: Callable[[], int],
        *,
        under_way: Callable[[], bool] | None = None,
        rates: FlowRates | None = None,
        later: Callable[[float], None] | None = None,
    ) -> None:
        self.bytes_max: int = attributes["raybroker.producer.buffer_bytes"]
        self.easy_bytes = self.bytes_max
        """While less is held, and there is no credit and nothing stops it, a message needs no :meth:`enter`; 0 while
        there is a rate."""
        self.stopped: BrokerError | None = None
        """Why nothing may be sent: it failed, was closed, its destination is paused, or no transaction is open."""
        self.ending: BrokerError | None = None
        """Why nobody waits for a slow destination any more: the session is being closed."""
        self.slow = False
        """Nothing may leave: the destination slows its producers, or its broker does."""
        self.low = ""
        """Why its broker takes nothing from any producer at present; "" when it does."""
        self._held = held
        self._name = name
        self._timeout_ms: int = attributes["imqAckTimeout"]
        self._monotonic_ns = monotonic_ns
        self._under_way = under_way
        self._sending = SendState.SENDING
        self.waiters = RoomWaiters(lock, later)
        self._rates = rates
        self._rate: FlowRate | None = None

    @property
    def takes_more(self) -> bool:
        """A message would be taken, or refused, without waiting."""
        return self.ending is not None or (self._is_free and not self.waits_for_rate)

    @property
    def waits_for_rate(self) -> bool:
        """The rate holds the next message back, and nothing else does."""
        if self._rate is None or self.stopped is not None or self.ending is not None or not self._is_free:
            return False
        self._rate.advance(self._monotonic_ns())
        return self._rate.limit is not None and not self._rate.turns

    @property
    def _is_free(self) -> bool:
        if self.stopped is not None:
            return True
        return self._held.held_bytes < self.bytes_max and not self._is_crowded

    @property
    def _is_crowded(self) -> bool:
        """The destination slows its producers, or this one has used up its credit."""
        if self._held.credit <= 0:
            return False
        slowed = self.slow and not self.low
        if self._under_way is None:
            return slowed or self._held.crowded
        return slowed and not self._under_way()

    def enter(self, *, settled: bool = True, block: bool = True) -> bool:
        """Wait for room for a message, or for a block of them; False when there is none and ``block`` is False.

        settled  somebody waits for its settlement: the buffer alone bounds it outside of transactions, and not the
                 credit

        Raises why nothing may be sent, or RequestTimeoutError when there was no room within imqAckTimeout.
        """
        crowded = self._is_crowded
        if crowded and self.ending is not None:
            raise self.ending
        passes = not crowded or (settled and self._under_way is None)
        if passes and self.stopped is None and self._held.held_bytes < self.bytes_max:
            return self._rate is None or self._turn(self._rate, 1, block=block)
        return self.wait(block=block)

    def wait(self, count: int = 1, *, block: bool = True) -> bool:
        """Wait until the buffer and the credit have room, and by the rate for ``count`` messages; as :meth:`enter`.

        Time that is spent waiting for the rate is none of imqAckTimeout: a rate slows, and refuses nothing.
        """
        if self._rate is not None and block:
            self._turn(self._rate, count)
        timeout_s, since_ns = (self._timeout_ms / 1000) or None, self._monotonic_ns()
        while not self._is_free:
            if self.ending is not None:
                raise self.ending
            if not block:
                return False
            left_s = timeout_s and timeout_s - (self._monotonic_ns() - since_ns) / 1e9
            if left_s is not None and left_s <= 0:
                raise no_room(self._name, timeout_s, self.low)
            self.waiters.some = True
            self.waiters.waiting += 1
            try:
                self.waiters.changed.wait(left_s)
            finally:
                self.waiters.waiting -= 1
        if self.stopped is not None:
            raise self.stopped
        return block or self._rate is None or self._turn(self._rate, count, block=False)

    def _turn(self, rate: FlowRate, count: int, *, block: bool = True) -> bool:
        """A turn by the rate, for threads in the order in which they came; False when none is there and ``block`` is
        False."""
        self._update_rate(rate)
        if rate.limit is None:
            return True
        if not block:
            taken = rate.take_tokens(count)
            if not taken and self.ending is not None:
                raise self.ending
            return taken
        now_ns = self._monotonic_ns()
        until_ns = now_ns + rate.reserve(count)
        while now_ns < until_ns and self._rate is rate:
            if self.ending is not None or self.stopped is not None:
                rate.give_back(count)
                break
            self.waiters.some = True
            self.waiters.in_line += 1
            try:
                self.waiters.turns.wait((until_ns - now_ns) / SECOND_NS)
            finally:
                self.waiters.in_line -= 1
            now_ns = self._monotonic_ns()
        if (error := self.stopped or self.ending) is not None:
            raise error
        return True

    def _update_rate(self, rate: FlowRate) -> None:
        """Bring the rate up to date; one that is over is forgotten."""
        rate.advance(self._monotonic_ns())
        if rate.limit is None and self._rate is rate:
            self._rate = None
            self.easy_bytes = self.bytes_max
            self.changed()

    @property
    def limit(self) -> float | None:
        """Messages a second that may be sent now; None: as many as come."""
        if self._rate is not None:
            self._update_rate(self._rate)
        return self._rate.limit if self._rate is not None else None

    @property
    def run(self) -> int:
        """Messages that a block may have by the rate; 0: any number."""
        return self._rate.run if self._rate is not None else 0

    def signal(self, *, armed: bool) -> None:
        """The destination is over a threshold, or is not."""
        if self._rate is not None:
            self._rate.signal(self._monotonic_ns(), armed=armed)
            self._update_rate(self._rate)
        elif armed and self._rates is not None:
            self._rate = FlowRate(self._rates, self._monotonic_ns())
            self.easy_bytes = 0

    def due(self) -> None:
        """The rate may have turns for those who wait with a future."""
        self.waiters.timed = False
        if self._rate is not None:
            self._update_rate(self._rate)
        self.waiters.tell_first(None if self._rate is None else self._rate.turns)
        self._call_later()

    def _call_later(self) -> None:
        if self._rate is not None and self._is_free:
            self.waiters.call_later(self._rate)

    def future(self) -> Future[None]:
        """Done when there may be room again."""
        future = self._listed(self.waiters.futures, done=self.takes_more)
        self._call_later()
        return future

    def empty_future(self) -> Future[None]:
        """Done when the producer holds nothing."""
        return self._listed(self.waiters.empty, done=not self._held.held_bytes)

    def _listed(self, waiting: list[Future[None]], *, done: bool) -> Future[None]:
        future: Future[None] = Future()
        if done:
            future.set_result(None)
        else:
            self.waiters.some = True
            waiting.append(future)
        return future

    def changed(self) -> None:
        """There may be room, or nothing is held any more: tell those who wait for it."""
        if not self.waiters.some:
            return
        ended, waiters = self.stopped is not None or self.ending is not None, self.waiters
        if waiters.in_line and (ended or self._rate is None):
            waiters.turns.notify_all()
        if (waiters.waiting or waiters.futures) and (ended or self._is_free):
            waiters.tell(None if ended or self._rate is None else self._rate.turns)
        if not self._held.held_bytes:
            _fulfil_first(waiters.empty, len(waiters.empty))
        self.waiters.some = bool(waiters)
        self._call_later()

    def stop(self, error: BrokerError | None) -> None:
        """Nothing may be sent because of ``error``; None: it may be again. Nothing changes once it has ended."""
        event = SendEvent.GO if error is None else SendEvent.STOP
        if PRODUCER.takes(self._sending, event):
            self._sending = PRODUCER.after(self._sending, event)
            self.stopped = error
            self.changed()

    def finish(self, error: BrokerError) -> None:
        """Nothing is sent any more."""
        self._sending = PRODUCER.after(self._sending, SendEvent.END)
        self.stopped = error
        self.changed()

    def end_waiting(self, error: BrokerError) -> None:
        """Whoever waits for a slow destination gets ``error``."""
        self.ending = error
        self.changed()

    def gate(self, state: str) -> None:
        """The destination takes messages ("open"), takes them slowly ("slow", "low_memory" when its broker has no
        memory for more, "ending" when that is about to end), or not at all ("paused")."""
        self.low = _WAITS.get(state, "")
        self.slow = state == "slow" or self.low != ""
        if state == "paused":
            self.stop(DestinationPausedError(f"{self._name} takes no messages now: its producers are paused"))
        elif isinstance(self.stopped, DestinationPausedError):
            self.stop(None)


def no_room(name: str, timeout_s: float | None, low: str) -> RequestTimeoutError:
    """What a send raises that found no room in time; ``low``: see SendRoom."""
    why = low and f": {low}"
    return RequestTimeoutError(
        f"{name} made no room within imqAckTimeout={timeout_s or 0:g} s{why}; the message was not sent"
    )


def _fulfil_first(futures: list[Future[None]], count: int) -> None:
    """Tell the first ``count`` of those who wait."""
    for future in futures[:count]:
        fulfil(future, None)
    del futures[:count]
