"""Waiting of the asynchronous handles: on the application's event loop, for work on the IO loop and for other threads.

:mod:`raybroker.client.blocking.waiting` has the same names for a thread that blocks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.consumer.acknowledging.acknowledgement_answers import Confirmations, check
from raybroker.client.consumer.multi_broker import AnyConsumer
from raybroker.client.io.callbacks import Callbacks
from raybroker.client.io.io_thread import Inherited, IoThread
from raybroker.client.io.own_loop import begun
from raybroker.client.pickled import PicklableProducer
from raybroker.client.producer.members.unnamed import AnyProducer
from raybroker.client.producer.pacing.send_room import no_room
from raybroker.client.producer.producer_state import Shared
from raybroker.client.session.opening import unconfirmed
from raybroker.transport.loops import running_loop

E = TypeVar("E")
T = TypeVar("T")

CANCELLABLE: Final = True
"""Whoever waits may be cancelled."""


class ProducerBase(PicklableProducer):
    """A producer whose copy is opened in a thread by what is awaited first, and by anything else while that waits."""

    def _travelled(self) -> None:
        for name in ("send", "send_async", "send_many", "close"):
            self.__dict__[name] = partial(self._once_open, name)

    async def _once_open(self, name: str, *args: Any, **named: Any) -> Any:
        await asyncio.to_thread(getattr, self, "_core")
        self.__dict__.pop(name, None)
        return await getattr(self, name)(*args, **named)


def settle(io: IoThread, user: Inherited) -> None:
    """Tasks of the application's event loop wait for what the IO loop does: it serves alone until ``user`` ends."""
    io.join(user, resident=True)


def run(io: IoThread, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
    """Start work on the IO loop, at once; what is returned waits for it."""
    task = begun(io, work)
    return task if task is not None else asyncio.wrap_future(io.submit(work))


async def opened(io: IoThread, work: Coroutine[Any, Any, T], let_go: Callable[[T], Coroutine[Any, Any, None]]) -> T:
    """What some work on the IO loop opens; when whoever waits is cancelled, ``let_go`` gets it, however far it is."""
    future = io.submit(work, let_go)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        if not future.cancel() and not future.cancelled() and future.exception() is None:
            io.submit(let_go(future.result()))
        raise


async def result(io: IoThread, future: Future[T], timeout_s: float | None = None) -> T:
    """The result of a future; when the time is over, cancels it and raises TimeoutError."""
    if timeout_s is None:
        return await _awaited(io, future)
    return await asyncio.wait_for(_awaited(io, future), timeout_s)


def _awaited(io: IoThread, future: Future[T]) -> asyncio.Future[T]:
    """``asyncio.wrap_future``; who waits on the IO loop itself, as gateways do, is told without waking that loop."""
    loop = asyncio.get_running_loop()
    if loop is not io.loop:
        return asyncio.wrap_future(future)
    waiting: asyncio.Future[T] = loop.create_future()

    def tell() -> None:
        if waiting.done():
            return
        if future.cancelled():
            waiting.cancel()
        elif (error := future.exception()) is not None:
            waiting.set_exception(error)
        else:
            waiting.set_result(future.result())

    def done(_: Future[T]) -> None:
        if running_loop() is loop:
            tell()
        else:
            loop.call_soon_threadsafe(tell)

    waiting.add_done_callback(lambda given_up: future.cancel() if given_up.cancelled() else None)
    future.add_done_callback(done)
    return waiting


async def all_done(io: IoThread, futures: Iterable[Future[Any]]) -> None:
    """Wait for all of these, whatever becomes of them."""
    await asyncio.gather(*(_awaited(io, future) for future in futures), return_exceptions=True)


def about_to_wait(io: IoThread) -> None:
    """What is handed to the IO loop next is waited for right afterwards: the IO thread serves it."""


async def confirmed(io: IoThread, confirmations: Confirmations) -> None:
    """Wait for answers to acknowledgements; raises for the first that is not what was asked for."""
    await all_done(io, confirmations)
    check(confirmations)


async def done_within(io: IoThread, future: Future[Any], timeout_s: float | None) -> bool:
    """Wait for a future, whatever becomes of it; False when the time is over."""
    if future.done():
        return True
    waiting = _awaited(io, future)
    waiting.add_done_callback(_heard)  # Whoever asks the future itself hears what went wrong.
    await asyncio.wait([waiting], timeout=timeout_s)
    return future.done()


def _heard(waiting: asyncio.Future[Any]) -> None:
    """Its error is not logged as one that nobody has asked for."""
    if not waiting.cancelled():
        waiting.exception()


async def answered(io: IoThread, sending: Coroutine[Any, Any, object], answer: Future[T], timeout_s: float | None) -> T:
    """Start ``sending``, and wait for it and for the answer; raises TimeoutError."""
    try:
        async with asyncio.timeout(timeout_s):
            await run(io, sending)
            return await _awaited(io, answer)
    finally:
        answer.cancel()


def called_back(core: ConnectionCore, handler: Callable[[E], object] | None) -> Callable[[E], object] | None:
    """The handler, to be called from the IO thread on the loop that runs now; when that loop has ended, never."""
    loop = asyncio.get_running_loop()

    def call(event: E) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(handler, event)  # type: ignore[arg-type]  # it takes one event

    return call if handler is not None else None


async def put(
    target: AnyProducer,
    body: Any,
    header: bytes,
    shared: Shared,
    waiter: Future[str] | None,
    timeout_s: float | None = None,
    *,
    urgent: bool,
) -> str:
    """Have a producer accept a message, as soon as there is room; raises RequestTimeoutError after ``timeout_s``, which
    passes while the rate alone holds the message back as if it stood still."""
    try:
        async with asyncio.timeout(timeout_s) as limit:
            while True:
                sent = target.put(body, header, shared, waiter, urgent=urgent, block=False)
                if sent is not None:
                    return sent
                await _room(target, limit)
    except TimeoutError:
        raise no_room(target.name, timeout_s, target.low) from None


async def _room(target: AnyProducer, limit: asyncio.Timeout) -> None:
    """Wait until there may be room."""
    loop, until_s = asyncio.get_running_loop(), limit.when()
    if until_s is not None and target.waits_for_rate:
        left_s = until_s - loop.time()
        limit.reschedule(None)
        await _awaited(target._connection.io, target.room_future())
        limit.reschedule(loop.time() + left_s)
    else:
        await _awaited(target._connection.io, target.room_future())


async def stored(target: AnyProducer, body: Any, header: bytes, shared: Shared, timeout_s: float | None) -> str:
    """Send a message; its id once the broker has stored it. Raises RequestTimeoutError after ``timeout_s``."""
    waiter: Future[str] = Future()
    await put(target, body, header, shared, waiter, timeout_s, urgent=True)
    try:
        return await result(target._connection.io, waiter, timeout_s)
    except TimeoutError:
        raise unconfirmed(target, waiter, timeout_s) from None


async def with_room(
    target: AnyProducer, parts: Iterator[tuple[int, Future[str]]], timeout_s: float | None
) -> AsyncIterator[tuple[int, Future[str]]]:
    """The parts that ``put_many`` yields; after one of no messages the next is asked for once there is room for it, as
    :func:`put` waits."""
    for part in parts:
        yield part
        if part[0]:
            await asyncio.sleep(0)
            continue
        try:
            async with asyncio.timeout(timeout_s) as limit:
                await _room(target, limit)
                while not target.has_room():  # Another task was quicker.
                    await _room(target, limit)
        except TimeoutError:
            raise no_room(target.name, timeout_s, target.low) from None


async def room_for_callbacks(callbacks: Callbacks) -> None:
    """Wait while too many callbacks wait to be run."""
    await asyncio.to_thread(callbacks.wait_for_room)


async def arrival(core: AnyConsumer, take: Callable[[], T | None], timeout_s: float | None) -> T | None:
    """The first result of ``take`` that is not empty; None when the time is over or the consumer is closed."""
    core._connection.warn_unless_started()
    loop = asyncio.get_running_loop()
    left, since_s = timeout_s, loop.time()
    while True:
        try:
            await asyncio.wait_for(_awaited(core._connection.io, core.arrival_future()), left)
        except TimeoutError:
            return None
        if core.closed:
            return None
        found = take()
        if found:
            return found
        if timeout_s is not None:  # Another consumer took the messages that had arrived, or they had expired.
            left = timeout_s - (loop.time() - since_s)
