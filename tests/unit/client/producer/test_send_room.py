"""Room in a producer's buffer, without a producer: who waits, who is told, and who is refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest

from raybroker.client.producer.pacing.flow_rate import FlowRates
from raybroker.client.producer.pacing.send_room import SendRoom
from raybroker.errors import DestinationPausedError, IllegalStateError, RequestTimeoutError

CLOSED = IllegalStateError("the producer is closed")


@dataclass
class Held:
    held_bytes: int = 0
    credit: int = 0
    crowded: bool = False


@dataclass
class Rig:
    """A room of 100 bytes; the time is what a test says, or that of the machine."""

    timeout_ms: int = 0
    under_way: Callable[[], bool] | None = None
    held: Held = field(default_factory=Held)

    def __post_init__(self) -> None:
        attributes: Any = {"raybroker.producer.buffer_bytes": 100, "imqAckTimeout": self.timeout_ms}
        self.lock = threading.Lock()
        self.room = SendRoom(self.held, self.lock, "orders", attributes, time.monotonic_ns, under_way=self.under_way)

    def enter(self, *, settled: bool = True, block: bool = False) -> bool:
        with self.lock:
            return self.room.enter(settled=settled, block=block)

    def changed(self, **held: Any) -> None:
        with self.lock:
            for name, value in held.items():
                setattr(self.held, name, value)
            self.room.changed()


def test_the_buffer_bounds_what_is_taken() -> None:
    rig = Rig()
    assert rig.enter()
    rig.held.held_bytes = 99
    assert rig.enter(), "the last message may be larger than what is left"
    rig.held.held_bytes = 100
    assert not rig.enter()
    assert not rig.room.takes_more


SLOW: Mapping[str, tuple[bool, int, bool]] = {
    # slow, credit, crowded
    "slow with credit": (True, 5, False),
    "credit used up": (False, 5, True),
}


@pytest.mark.parametrize("case", SLOW)
def test_credit_holds_back_what_nobody_waits_for(case: str) -> None:
    slow, credit, crowded = SLOW[case]
    rig = Rig(held=Held(0, credit, crowded))
    rig.room.gate("slow" if slow else "open")
    assert rig.enter(settled=True)
    assert not rig.enter(settled=False)
    assert not rig.room.takes_more


@pytest.mark.parametrize("settled", [False, True])
def test_a_full_destination_holds_a_transaction_back_until_it_has_begun(settled: bool) -> None:
    begun = False
    rig = Rig(under_way=lambda: begun, held=Held(0, 5, crowded=True))
    assert rig.enter(settled=settled), "a transaction needs no credit"
    rig.room.gate("slow")
    assert not rig.enter(settled=settled)
    assert not rig.room.takes_more
    begun = True
    assert rig.enter(settled=settled)
    assert rig.room.takes_more


def test_a_transaction_waits_for_room_no_longer_than_it_may() -> None:
    rig = Rig(timeout_ms=20, under_way=lambda: False, held=Held(0, 5))
    rig.room.gate("slow")
    with pytest.raises(RequestTimeoutError, match=r"orders made no room within imqAckTimeout=0\.02 s"):
        rig.enter(block=True)


def test_without_credit_a_slow_destination_fills_the_buffer() -> None:
    rig = Rig()
    rig.room.gate("slow")
    assert rig.enter(settled=False)
    rig.held.held_bytes = 100
    assert not rig.enter(settled=False)


def test_a_thread_waits_until_there_is_room() -> None:
    rig = Rig(held=Held(100))
    took: list[bool] = []
    thread = threading.Thread(target=lambda: took.append(rig.enter(block=True)))
    thread.start()
    while not rig.room.waiters.some:
        time.sleep(0.001)
    rig.changed(held_bytes=100)
    thread.join(0.05)
    assert took == [], "nothing has left"
    rig.changed(held_bytes=40)
    thread.join(30)
    assert took == [True]
    rig.changed()
    assert not rig.room.waiters.some, "nobody waits any more"


def test_waiting_ends_after_the_time_for_an_answer() -> None:
    rig = Rig(timeout_ms=20, held=Held(100))
    with pytest.raises(RequestTimeoutError, match=r"orders made no room within imqAckTimeout=0\.02 s"):
        rig.enter(block=True)
    rig.changed(held_bytes=0)
    assert rig.enter(), "it counts anew for the next message"


def test_futures_tell_of_room_and_of_an_empty_buffer() -> None:
    rig = Rig(held=Held(100))
    with rig.lock:
        room, empty = rig.room.future(), rig.room.empty_future()
    rig.changed(held_bytes=100)
    assert [room.done(), empty.done()] == [False, False]
    rig.changed(held_bytes=60)
    assert [room.done(), empty.done()] == [True, False]
    assert rig.room.waiters.some, "somebody still waits for the rest"
    rig.changed(held_bytes=0)
    assert empty.done()
    with rig.lock:
        again: list[Future[None]] = [rig.room.future(), rig.room.empty_future()]
    assert all(future.done() for future in again)
    assert not rig.room.waiters.some


def test_a_paused_destination_refuses_until_it_opens() -> None:
    rig = Rig(held=Held(100))
    with rig.lock:
        waiting = rig.room.future()
        rig.room.gate("paused")
    assert waiting.done(), "whoever waits for room is refused"
    with pytest.raises(DestinationPausedError, match="orders takes no messages"):
        rig.enter()
    rig.room.gate("slow")
    assert rig.room.stopped is None
    assert rig.room.slow
    rig.room.gate("open")
    assert not rig.room.slow


def test_opening_the_gate_ends_no_other_reason_to_refuse() -> None:
    rig = Rig()
    rig.room.stop(CLOSED)
    rig.room.gate("open")
    with pytest.raises(IllegalStateError, match="closed"):
        rig.enter()
    rig.room.stop(None)
    assert rig.enter()


def test_what_is_final_stays() -> None:
    rig = Rig()
    rig.room.finish(CLOSED)
    rig.room.stop(None)
    rig.room.gate("paused")
    rig.room.gate("open")
    with pytest.raises(IllegalStateError, match="closed"):
        rig.enter()


@pytest.mark.parametrize("held", [Held(100), Held(0, 5, crowded=True)])
def test_nobody_waits_for_a_full_destination_while_the_session_is_closed(held: Held) -> None:
    rig = Rig(held=held)
    with rig.lock:
        waiting = rig.room.future()
        rig.room.end_waiting(CLOSED)
    assert waiting.done()
    with pytest.raises(IllegalStateError, match="closed"):
        rig.enter(block=True)
    assert rig.room.takes_more, "it would be refused without waiting"
    rig.changed(held_bytes=0, crowded=False)
    assert rig.enter(), "what has room is taken"


RATES = FlowRates(10, 10, 0, 1)


class Paced(Rig):
    """A room with a limit of ten messages a second while it is armed; the time is what a test says."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.now_ns, self.alarms = 0, list[float]()
        attributes: Any = {"raybroker.producer.buffer_bytes": 100, "imqAckTimeout": self.timeout_ms}
        self.room = SendRoom(
            self.held,
            self.lock,
            "orders",
            attributes,
            lambda: self.now_ns,
            under_way=self.under_way,
            rates=RATES,
            later=self.alarms.append,
        )

    def signal(self, *, armed: bool) -> None:
        with self.lock:
            self.room.signal(armed=armed)

    def due(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)
        with self.lock:
            self.room.due()

    def future(self) -> Future[None]:
        with self.lock:
            return self.room.future()


@pytest.mark.parametrize("transacted", [False, True])
def test_while_armed_messages_are_taken_at_the_rate_and_afterwards_as_they_come(transacted: bool) -> None:
    rig = Paced(under_way=(lambda: True) if transacted else None)
    assert (rig.room.easy_bytes, rig.room.limit, rig.room.run) == (100, None, 0)
    rig.signal(armed=True)
    assert (rig.room.easy_bytes, rig.room.limit, rig.room.run) == (0, 10, 1)
    assert [rig.enter(), rig.enter(), rig.room.waits_for_rate] == [True, False, True]
    rig.now_ns += 100_000_000
    assert [rig.enter(), rig.enter()] == [True, False]
    rig.signal(armed=False)
    assert [rig.enter() for _ in range(100)] == [True] * 100
    assert (rig.room.easy_bytes, rig.room.limit, rig.room.waits_for_rate) == (100, None, False)


def test_a_producer_without_rates_obeys_nothing() -> None:
    rig = Rig()
    with rig.lock:
        rig.room.signal(armed=True)
    assert (rig.room.easy_bytes, rig.room.limit) == (100, None)
    assert rig.enter()


def test_those_who_wait_with_futures_are_told_one_by_one_and_an_alarm_is_set_for_the_next() -> None:
    rig = Paced()
    rig.signal(armed=True)
    assert rig.future().done(), "one may go"
    assert rig.enter()
    waiting = [rig.future() for _ in range(3)]
    assert rig.alarms == [pytest.approx(0.1)], "one alarm for all"
    rig.due(0.1)
    assert [future.done() for future in waiting] == [True, False, False]
    assert rig.enter()
    rig.due(0.2)
    assert [future.done() for future in waiting] == [True, True, True]
    assert len(rig.alarms) == 2
    assert [rig.enter(), rig.enter()] == [True, True]
    last = rig.future()
    rig.signal(armed=False)
    assert last.done()


def test_no_alarm_is_set_while_the_buffer_is_full_and_the_rate_is_asked_again_once_it_is_not() -> None:
    rig = Paced(held=Held(100))
    rig.signal(armed=True)
    waiting = [rig.future(), rig.future()]
    assert (rig.alarms, rig.room.waits_for_rate) == ([], False)
    rig.changed(held_bytes=0)
    assert [future.done() for future in waiting] == [True, False]
    assert len(rig.alarms) == 1


@pytest.mark.parametrize("end", ["finish", "end_waiting", "stop"])
def test_nobody_waits_for_the_rate_of_a_producer_that_ends(end: str) -> None:
    rig = Paced(timeout_ms=1)
    rig.signal(armed=True)
    assert rig.enter()
    faults: list[BaseException] = []

    def send() -> None:
        try:
            rig.enter(block=True)
        except IllegalStateError as error:
            faults.append(error)

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    while rig.room.waiters.in_line < len(threads):
        time.sleep(0.001)
    waiting = rig.future()
    with rig.lock:
        getattr(rig.room, end)(CLOSED)
    for thread in threads:
        thread.join(30)
    assert faults == [CLOSED] * 3, "and the time for an answer has nothing to do with it"
    assert waiting.done()
    with pytest.raises(IllegalStateError, match="closed"):
        rig.enter(block=True)
    with pytest.raises(IllegalStateError, match="closed"):
        rig.enter(block=False)


def test_a_rate_that_is_over_lets_threads_go() -> None:
    rig = Paced()
    rig.signal(armed=True)
    assert rig.enter()
    took: list[bool] = []
    thread = threading.Thread(target=lambda: took.append(rig.enter(block=True)))
    thread.start()
    while not rig.room.waiters.in_line:
        time.sleep(0.001)
    rig.signal(armed=False)
    thread.join(30)
    assert took == [True]
