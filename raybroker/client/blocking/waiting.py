"""Waiting of the blocking handles: the user's thread blocks, for work on the IO loop and for other threads.

Written by hand, with the names of :mod:`raybroker.client.aio.waiting`, from which the generated handles differ by it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from raybroker.client.consumer.multi_broker import AnyConsumer
from raybroker.client.io.callbacks import Callbacks
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.io.io_thread import Inherited, IoThread
from raybroker.client.io.lone_waiter import LoneWaiter
from raybroker.client.consumer.acknowledging.acknowledgement_answers import Confirmations, check
from raybroker.client.pickled import PicklableProducer
from raybroker.client.producer.producer_state import Shared
from raybroker.client.producer.members.unnamed import AnyProducer
from raybroker.client.session.opening import unconfirmed
from raybroker.system.clock import SystemClock

E = TypeVar("E")
T = TypeVar("T")

_now_ns: Final = SystemClock.monotonic_ns
CANCELLABLE: Final = False
ProducerBase = PicklableProducer


def settle(io: IoThread, user: Inherited) -> None:
    """Threads that wait may serve the sockets: they do not need the IO loop."""


def run(io: IoThread, work: Coroutine[Any, Any, T]) -> T:
    """Run work on the IO loop and wait for it."""
    return io.run(work)


def opened(io: IoThread, work: Coroutine[Any, Any, T], let_go: Callable[[T], Coroutine[Any, Any, None]]) -> T:
    """What some work on the IO loop opens; when a handler of a signal raises meanwhile, ``let_go`` gets it."""
    return io.run(work, let_go)


def about_to_wait(io: IoThread) -> None:
    """What is handed to the IO loop next is waited for right afterwards."""
    io.expect()


def confirmed(io: IoThread, confirmations: Confirmations) -> None:
    """Wait for answers to acknowledgements; raises for the first that is not what was asked for."""
    for one in confirmations:
        if not one.done():
            io.done(one)
    check(confirmations)


def result(io: IoThread, future: Future[T], timeout_s: float | None = None) -> T:
    """The result of a future; raises TimeoutError when the time is over."""
    if not future.done() and not io.done(future, timeout_s):
        raise TimeoutError
    return future.result(0)


def all_done(io: IoThread, futures: Iterable[Future[Any]]) -> None:
    """Wait for all of these, whatever becomes of them."""
    for future in futures:
        if not future.done():
            io.done(future)


def done_within(io: IoThread, future: Future[Any], timeout_s: float | None) -> bool:
    """Wait for a future, whatever becomes of it; False when the time is over."""
    return future.done() or io.done(future, timeout_s)


def answered(io: IoThread, sending: Coroutine[Any, Any, object], answer: Future[T], timeout_s: float | None) -> T:
    """Start ``sending``, and wait for it and for the answer; raises TimeoutError."""
    since_ns = _now_ns()
    io.expect()
    sent = io.submit(sending)
    try:
        result(io, sent, timeout_s)
        left_s = None if timeout_s is None else max(timeout_s - (_now_ns() - since_ns) / 1e9, 0)
        return result(io, answer, left_s)
    finally:
        sent.cancel()
        answer.cancel()


def called_back(core: ConnectionCore, handler: Callable[[E], object] | None) -> Callable[[E], object] | None:
    """The handler, to be called from the IO thread in a thread of the connection's own."""
    return core.events.callbacks.wrap(handler)


def put(
    target: AnyProducer,
    body: Any,
    header: bytes,
    shared: Shared,
    waiter: Future[str] | None,
    timeout_s: float | None = None,
    *,
    urgent: bool,
) -> str:
    """Have a producer accept a message, as soon as there is room; the producer bounds the wait itself."""
    sent = target.put(body, header, shared, waiter, urgent=urgent)
    assert sent is not None
    return sent


def stored(target: AnyProducer, body: Any, header: bytes, shared: Shared, timeout_s: float | None) -> str:
    """Send a message; its id once the broker has stored it. Raises RequestTimeoutError after ``timeout_s``."""
    io = target._connection.io
    waiter: LoneWaiter = LoneWaiter()
    io.expect()
    target.put(body, header, shared, waiter, urgent=True)
    if not waiter.done() and not io.done(waiter, timeout_s):
        raise unconfirmed(target, waiter, timeout_s)
    return waiter.result(0)


def with_room(
    target: AnyProducer, parts: Iterator[tuple[int, Future[str]]], timeout_s: float | None
) -> Iterator[tuple[int, Future[str]]]:
    """The parts that ``put_many`` yields, which waits for room itself, and bounds that."""
    return parts


def room_for_callbacks(callbacks: Callbacks) -> None:
    """Wait while too many callbacks wait to be run."""
    callbacks.wait_for_room()


def arrival(core: AnyConsumer, take: Callable[[], T | None], timeout_s: float | None) -> T | None:
    """The first result of ``take`` that is not empty; None when the time is over or the consumer is closed."""
    core._connection.warn_unless_started()
    clock = core._connection.clock
    left, since_ns = timeout_s, clock.monotonic_ns()
    while core.wait(left) and not core.closed:
        found = take()
        if found:
            return found
        if timeout_s is not None:  # Another consumer took the messages that had arrived, or they had expired.
            left = timeout_s - (clock.monotonic_ns() - since_ns) / 1e9
            if left <= 0:
                return None
    return None
