"""The asynchronous handles: the names of the blocking ones as coroutines, on any event loop of the application.

Waiting happens on the application's loop, work on the IO loop; nothing here blocks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import Future
from typing import Any

from raybroker.client.admin import Admin
from raybroker.client.connection import ConnectionCore
from raybroker.client.consumer import ConsumerCore
from raybroker.client.message import Message
from raybroker.client.options import Queue, check_session_options, consumer_options, producer_shared, send_options
from raybroker.client.producer import ProducerCore
from raybroker.client.producing import Shared
from raybroker.client.session import SessionCore
from raybroker.model.errors import BrokerError, ConnectionLostError, IllegalStateError, RequestTimeoutError


def _confirmed(confirmations: list[Future[int]]) -> Awaitable[None]:
    async def wait() -> None:
        for confirmation in confirmations:
            await asyncio.wrap_future(confirmation)

    return wait()


class Connection:
    """See :class:`raybroker.client.blocking.Connection`; ``async with`` starts and closes it."""

    def __init__(self, core: ConnectionCore) -> None:
        self._core = core
        self._sessions: list[Session] = []

    async def session(self, ack: str = "auto", *, transacted: bool = False) -> Session:
        check_session_options(ack, transacted)
        session = Session(self, SessionCore(self._core, ack, _confirmed))
        self._sessions.append(session)
        return session

    async def start(self) -> None:
        await asyncio.wrap_future(self._core.io.submit(self._core.start()))

    async def stop(self) -> None:
        await asyncio.wrap_future(self._core.io.submit(self._core.stop()))

    def admin(self) -> Admin:
        """Administration; each method returns an awaitable."""
        core = self._core
        return Admin(lambda verb, args: asyncio.wrap_future(core.io.submit(core.directory.admin(verb, args))))

    def on_exception(self, handler: Callable[[BrokerError], object]) -> None:
        self._core.on_exception = handler

    @property
    def client_id(self) -> str | None:
        return self._core.client_id

    async def close(self) -> None:
        if self._core.closed:
            return
        for session in list(self._sessions):
            await session.close()
        await asyncio.wrap_future(self._core.io.submit(self._core.close()))

    async def __aenter__(self) -> Connection:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Session:
    """See :class:`raybroker.client.blocking.Session`."""

    def __init__(self, connection: Connection, core: SessionCore) -> None:
        self.connection = connection
        self._core = core
        self._producers: list[Producer] = []
        self._consumers: list[Consumer] = []
        self._listening: asyncio.Task[None] | None = None
        self._work = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.closed = False
        core.wake_listeners = self._wake
        core.connection.sessions.append(core)

    def queue(self, name: str) -> Queue:
        return Queue.checked(name)

    async def producer(
        self,
        destination: Queue | str,
        *,
        persistent: bool = True,
        priority: int = 4,
        ttl_ms: int = 0,
        delivery_delay_ms: int = 0,
        unit_of_order: str | None = None,
        serializer: str | None = None,
    ) -> Producer:
        self._require_open()
        shared, pickles = producer_shared(
            persistent, priority, ttl_ms, delivery_delay_ms, unit_of_order, serializer
        )  # fmt: skip
        core = self._core.connection
        opening = core.open_producer(Queue.checked(destination).name, shared, pickles=pickles)
        producer = Producer(self, await asyncio.wrap_future(core.io.submit(opening)))
        self._producers.append(producer)
        return producer

    async def consumer(
        self,
        destination: Queue | str,
        selector: str | None = None,
        prefetch: int | None = None,
        threshold: int | None = None,
        no_local: bool = False,
        *,
        serializer: str | None = None,
    ) -> Consumer:
        self._require_open()
        core = self._core.connection
        options = consumer_options(core.attributes, selector, prefetch, threshold, no_local, serializer)
        opening = core.open_consumer(self._core, Queue.checked(destination).name, **options)
        consumer = Consumer(self, await asyncio.wrap_future(core.io.submit(opening)))
        self._consumers.append(consumer)
        return consumer

    async def recover(self) -> None:
        await asyncio.wrap_future(self._core.connection.io.submit(self._core.recover()))

    async def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._work.set()
        if self._listening is not None and self._listening is not asyncio.current_task():
            await self._listening
        await self._come_back()
        for producer in list(self._producers):
            with contextlib.suppress(ConnectionLostError):
                await producer.close()
        if self._core.mode == "dups_ok":
            self._core.connection.io.post(self._core.flush_lazily)
        for consumer in list(self._consumers):
            await consumer.close()
        self._core.connection.sessions.remove(self._core)
        self.connection._sessions.remove(self)

    def _require_open(self) -> None:
        if self.closed:
            raise IllegalStateError("the session is closed")

    def _require_no_listener(self) -> None:
        if self._listening is not None:
            raise IllegalStateError("a session with a message listener cannot receive as well (R-06)")

    def _wake(self) -> None:
        """Called on the IO thread."""
        with contextlib.suppress(RuntimeError):  # The application's loop is closed: nobody listens any more.
            self._loop.call_soon_threadsafe(self._work.set)

    def _listen(self) -> None:
        if self._listening is None:
            self._listening = asyncio.ensure_future(self._serve())
        self._work.set()

    async def _serve(self) -> None:
        """Call listeners serially, one message at a time, for all consumers of the session."""
        while not self.closed:
            await self._work.wait()
            self._work.clear()
            busy = True
            while busy and not self.closed:
                busy = False
                for consumer in list(self._consumers):
                    busy = await consumer._serve_one() or busy

    async def _come_back(self) -> None:
        core = self._core
        if core.unsettled and core.mode == "auto":
            with contextlib.suppress(ConnectionLostError):
                await _confirmed(core.settle())


class Producer:
    """See :class:`raybroker.client.blocking.Producer`."""

    def __init__(self, session: Session, core: ProducerCore) -> None:
        self.session = session
        self._core = core
        self._timeout_s = (core._connection.attributes["imqAckTimeout"] / 1000) or None

    async def send(
        self,
        body: Any,
        properties: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: Any = None,
        type: str | None = None,  # noqa: A002
        priority: int | None = None,
        ttl_ms: int | None = None,
        delivery_delay_ms: int | None = None,
        unit_of_order: str | None = None,
        persistent: bool | None = None,
    ) -> str:
        header, shared = send_options(
            self._core.shared, properties, correlation_id, reply_to, type, priority, ttl_ms, delivery_delay_ms,
            unit_of_order, persistent,
        )  # fmt: skip
        waiter: Future[str] | None = Future() if shared.persistent else None
        sent = await self._put(body, header, shared, waiter, urgent=shared.persistent)
        if waiter is None:
            return sent
        try:
            return await asyncio.wait_for(asyncio.wrap_future(waiter), self._timeout_s)
        except TimeoutError:
            raise RequestTimeoutError(
                f"no acknowledgement from {self._core.name} within imqAckTimeout={self._timeout_s} s"
            ) from None

    async def send_async(self, body: Any, properties: dict[str, Any] | None = None, **options: Any) -> Future[str]:
        """Hand a message over; returns a future of its id once there is room for it in the handle."""
        names = ("correlation_id", "reply_to", "type", "priority", "ttl_ms", "delivery_delay_ms", "unit_of_order",
                 "persistent")  # fmt: skip
        unknown = set(options) - set(names)
        if unknown:
            raise TypeError(f"send_async() got unexpected arguments {sorted(unknown)}")
        header, shared = send_options(self._core.shared, properties, *(options.get(name) for name in names))
        waiter: Future[str] = Future()
        await self._put(body, header, shared, waiter, urgent=False)
        return waiter

    async def send_many(self, bodies: Iterable[Any], *, persistent: bool | None = None) -> int:
        shared = self._core.shared
        if persistent is not None and persistent != shared.persistent:
            shared = Shared(persistent, shared.priority)
        parts = self._core.put_many(bodies, shared)
        before = self._core._state.next_seq
        futures: list[Future[str]] = []
        while True:
            await asyncio.wrap_future(self._core.room_future())
            future = next(parts, None)
            if future is None:
                break
            futures.append(future)
        await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
        for future in futures:
            future.result()
        return self._core._state.next_seq - before

    async def _put(self, body: Any, header: bytes, shared: Shared, waiter: Future[str] | None, *, urgent: bool) -> str:
        while True:
            sent = self._core.put(body, header, shared, waiter, urgent=urgent, block=False)
            if sent is not None:
                return sent
            await asyncio.wrap_future(self._core.room_future())

    async def close(self) -> None:
        if self._core.closed:
            return
        await asyncio.wrap_future(self._core.settled_future())
        await asyncio.wrap_future(self._core._connection.io.submit(self._core.close()))
        if self._core in self._core._connection.producers:
            self._core._connection.producers.remove(self._core)
        if self in self.session._producers:
            self.session._producers.remove(self)


class Consumer:
    """See :class:`raybroker.client.blocking.Consumer`; ``async for`` instead of ``for``."""

    def __init__(self, session: Session, core: ConsumerCore) -> None:
        self.session = session
        self._core = core

    async def receive(self, timeout: float | None = None) -> Message | None:
        found = await self.receive_many(1, timeout)
        return found[0] if found else None

    async def receive_nowait(self) -> Message | None:
        self.session._require_no_listener()
        await self.session._come_back()
        if self._core.closed:
            return None
        message = self._core.take_one()
        if message is None:
            self._core.wait(0)
        return message

    async def receive_many(
        self, max: int = 100, timeout: float | None = None  # noqa: A002
    ) -> list[Message]:  # fmt: skip
        self.session._require_no_listener()
        await self.session._come_back()
        while not self._core.closed:
            found = self._core.take(max)
            if found:
                return found
            try:
                await asyncio.wait_for(asyncio.wrap_future(self._core.arrival_future()), timeout)
            except TimeoutError:
                return []
        return []

    async def on_message(self, listener: Callable[[Message], Awaitable[object] | object]) -> Consumer:
        """Call ``listener`` for each message, in the session's task, one after another for all its consumers (R-06)."""
        self._core.listener = listener
        self.session._listen()
        return self

    async def _serve_one(self) -> bool:
        """Hand one message to the listener; False when there is none."""
        listener, core = self._core.listener, self._core
        if listener is None or core.closed:
            return False
        try:
            message = core.take_one()
        except BrokerError:
            return False
        if message is None:
            core.wait(0)
            return False
        try:
            result = listener(message)
            if isinstance(result, Awaitable):
                await result
        except Exception:  # noqa: BLE001 - a listener's failure is its message's failure
            with contextlib.suppress(BrokerError):
                await self.session.recover()
        else:
            await self.session._come_back()
        return True

    @property
    def active(self) -> bool:
        return self._core.active

    def info(self) -> dict[str, Any]:
        return self._core.info()

    async def close(self) -> None:
        if self._core.closed:
            return
        await self.session._come_back()
        self._core.shut()
        with contextlib.suppress(ConnectionLostError):
            await asyncio.wrap_future(self._core._connection.io.submit(self._core.close()))
        if self in self.session._consumers:
            self.session._consumers.remove(self)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Message]:
        while not self._core.closed:
            message = await self.receive()
            if message is not None:
                yield message
