"""The asynchronous producer, consumer and browser; what makes them is ``aio.py``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, Protocol

from raybroker.client.arguments import check_arguments, check_names
from raybroker.client.connection.callbacks import Callbacks, SendFuture
from raybroker.client.connection.unreferenced import Handles
from raybroker.client.consumer.browser import BrowserCore, require_open
from raybroker.client.consumer.lost_consumers import ConsumerHandles, let_go
from raybroker.client.consumer.message import Message
from raybroker.client.destinations import Destination
from raybroker.client.listener.handler import Backoff, Handler, Retries, Types
from raybroker.client.pickled import Unpicklable
from raybroker.client.producer.header_hints import HeaderHints
from raybroker.client.producer.producer_state import Shared
from raybroker.client.producer.schedule import check_unscheduled, plan_of, scheduled
from raybroker.client.producer.send_many import many_options
from raybroker.client.producer.send_options import send_options
from raybroker.client.producer.unnamed import AnyProducer, OwnProducer
from raybroker.client.session.opening import (
    AnyConsumer,
    check_window,
    closed_consumer,
    closed_while_full,
    closing_s,
    no_room,
    own_or_named,
    unconfirmed,
)
from raybroker.client.session.session import SessionCore
from raybroker.model.errors import ConnectionLostError, IllegalStateError

SEND_OPTIONS: Final = (
    "correlation_id", "reply_to", "type", "priority", "ttl_ms", "delivery_delay_ms", "unit_of_order", "persistent",
    "dedup_id",
)  # fmt: skip
"""Options of ``send_async`` beside the properties."""


class HandleSession(Protocol):
    """The session that made a handle, as the handle sees it."""

    _core: SessionCore
    _producers: Handles[Producer]
    _consumers: ConsumerHandles[Consumer]
    _browsers: list[Browser]

    def _run(self, work: Any) -> Awaitable[Any]: ...

    def _come_back(self) -> Awaitable[None]: ...

    def _require_no_listener(self) -> None: ...

    def _listen(self) -> None: ...


class Producer(Unpicklable, HeaderHints):
    """See :class:`raybroker.client.blocking.handles.Producer`."""

    def __init__(self, session: HandleSession, core: OwnProducer) -> None:
        self.session = session
        self._core = core
        self._callbacks = Callbacks(f"callbacks of {core.name}")
        self._timeout_s = (core._connection.attributes["imqAckTimeout"] / 1000) or None

    async def send(
        self,
        body: Any,
        properties: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: Any = None,
        type: str | None = None,  # noqa: A002
        priority: int | None = None,
        ttl_ms: int | None = None,
        delivery_delay_ms: int | None = None,
        unit_of_order: str | None = None,
        persistent: bool | None = None,
        dedup_id: str | None = None,
        schedule: str | None = None,
        timezone: str = "UTC",
        repeat: int | None = None,
        catch_up: bool = False,
        destination: Destination | str | None = None,
    ) -> str:
        header, shared = send_options(
            self._core.shared, properties, correlation_id, reply_to, type, priority, ttl_ms, delivery_delay_ms,
            unit_of_order, persistent, dedup_id,
        )  # fmt: skip
        target = await self._target(destination)
        if dedup_id is not None:
            check_window(target)
        if schedule is not None:
            plan = plan_of(schedule, timezone, repeat, catch_up, dedup_id)
            work = scheduled(target, body, header, shared, plan, self._timeout_s)
            return await self.session._run(work)
        if repeat is not None or catch_up or timezone != "UTC":
            check_unscheduled(timezone, repeat, catch_up)
        waiter: Future[str] | None = None
        if shared.persistent and not self._core.transacted:
            waiter = Future()
        try:
            async with asyncio.timeout(self._timeout_s if waiter is None else None):
                sent = await self._put(target, body, header, shared, waiter, urgent=waiter is not None)
        except TimeoutError:
            raise no_room(target, self._timeout_s) from None
        if waiter is None:
            return sent
        try:
            return await asyncio.wait_for(asyncio.wrap_future(waiter), self._timeout_s)
        except TimeoutError:
            raise unconfirmed(target, waiter, self._timeout_s) from None

    async def send_async(
        self, body: Any, properties: Mapping[str, Any] | None = None, *, destination: Destination | str | None = None,
        **options: Any,
    ) -> Future[str]:  # fmt: skip
        """Hand a message over; returns a future of its id once there is room for it in the handle."""
        check_names(options, SEND_OPTIONS, "send_async")
        header, shared = send_options(self._core.shared, properties, *map(options.get, SEND_OPTIONS))
        target = await self._target(destination)
        if options.get("dedup_id") is not None:
            check_window(target)
        if self._callbacks.full:
            await asyncio.to_thread(self._callbacks.wait_for_room)
        waiter = SendFuture(self._callbacks)
        await self._put(target, body, header, shared, waiter, urgent=False)
        return waiter

    async def send_many(
        self,
        bodies: Iterable[Any],
        *,
        persistent: bool | None = None,
        properties: Iterable[Mapping[str, Any]] | None = None,
        priority: int | Iterable[int] | None = None,
        ttl_ms: int | Iterable[int] | None = None,
        unit_of_order: str | Iterable[str | None] | None = None,
        destination: Destination | str | None = None,
    ) -> int:
        shared, each = many_options(self._core.shared, persistent, properties, priority, ttl_ms, unit_of_order)
        target = await self._target(destination)
        parts = target.put_many(bodies, shared, each)
        count, futures = 0, []
        while True:
            await asyncio.wrap_future(target.room_future())
            part = next(parts, None)
            if part is None:
                break
            count += part[0]
            futures.append(part[1])
        if not self._core.transacted:
            await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
            for future in futures:
                future.result()
        return count

    @property
    def duplicates(self) -> int:
        return self._core.duplicates

    @property
    def refused(self) -> int:
        return self._core.refused

    async def _target(self, destination: Destination | str | None) -> AnyProducer:
        own = self._core
        found = own_or_named(own, destination)
        if not isinstance(found, Destination):
            return found
        opened: AnyProducer = await self.session._run(own.find(found))  # type: ignore[union-attr]
        return opened

    async def _put(
        self, target: AnyProducer, body: Any, header: bytes, shared: Shared, waiter: Future[str] | None, *,
        urgent: bool,
    ) -> str:  # fmt: skip
        while True:
            sent = target.put(body, header, shared, waiter, urgent=urgent, block=False)
            if sent is not None:
                return sent
            await asyncio.wrap_future(target.room_future())

    async def close(self) -> None:
        self._core._connection.io.require_usable()
        if self._core.closed:
            return
        given_up = False
        for settled in self._core.settled_futures():
            while not given_up and not settled.done():
                await asyncio.wait([asyncio.wrap_future(settled)], timeout=closing_s(self._core))
                given_up = not settled.done() and self._core.throttled
        await self.session._run(self._core.close())
        self.session._producers.remove(self)
        if given_up:
            raise closed_while_full(self._core)


class Consumer(Unpicklable):
    """See :class:`raybroker.client.blocking.handles.Consumer`; ``async for`` instead of ``for``."""

    def __init__(self, session: HandleSession, core: AnyConsumer) -> None:
        self.session = session
        self._core = core

    async def receive(self, timeout: float | None = None) -> Message | None:
        found = await self.receive_many(1, timeout)
        return found[0] if found else None

    async def receive_nowait(self) -> Message | None:
        self.session._require_no_listener()
        await self.session._come_back()
        if self._core.closed:
            raise closed_consumer(self._core)
        message = self._core.take_one()
        if message is None:
            self._core.wait(0)
        return message

    async def receive_many(
        self, max: int = 100, timeout: float | None = None  # noqa: A002
    ) -> list[Message]:  # fmt: skip
        check_arguments(max=max, timeout=timeout)
        self.session._require_no_listener()
        await self.session._come_back()
        core, loop = self._core, asyncio.get_running_loop()
        if self._closed():
            raise closed_consumer(core)
        if not core._connection.started:
            core._connection.warn_unless_started()
        left, since_s = timeout, loop.time()
        while not core.closed:
            found = core.take(max)
            if found:
                return found
            try:
                await asyncio.wait_for(asyncio.wrap_future(core.arrival_future()), left)
            except TimeoutError:
                return []
            if timeout is not None:
                left = timeout - (loop.time() - since_s)
        return []

    async def on_message(
        self, listener: Callable[[Message], Awaitable[object] | object], *, retry_on: Types | type[BaseException] = (),
        reject_on: Types | type[BaseException] = (), backoff: Backoff = None,
    ) -> Consumer:  # fmt: skip
        """Call ``listener`` for each message, in the session's task, one after another for all its consumers.

        See the blocking one for the arguments.
        """
        core: Any = self._core
        if core.closed:
            raise closed_consumer(core)
        handler = Handler(listener, Retries.checked(retry_on, reject_on, backoff))
        core._connection.warn_unless_started()
        core.listener = handler
        self.session._consumers.keep(self)
        self.session._listen()
        return self

    @property
    def active(self) -> bool:
        return self._core.active

    def info(self) -> dict[str, Any]:
        return self._core.info()

    async def close(self) -> None:
        self._core._connection.io.require_usable()
        if self._core.closed:
            return
        if self.session._core.mode == "auto":
            await self.session._come_back()
        self._core.shut()
        with contextlib.suppress(ConnectionLostError):
            await self.session._run(self._core.close())
        self.session._consumers.discard(self)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._iterate()

    def _closed(self) -> bool:
        return self._core.closed

    def __del__(self) -> None:
        if self.__dict__.get("_core") is not None:
            let_go(self._core)

    async def _iterate(self) -> AsyncIterator[Message]:
        while not self._closed():
            try:
                message = await self.receive()
            except IllegalStateError:
                if self._closed():
                    return  # Another task has closed it at this moment.
                raise
            if message is not None:
                yield message


class Browser(Unpicklable):
    """See :class:`raybroker.client.blocking.handles.Browser`; ``async for`` instead of ``for``."""

    def __init__(self, session: HandleSession, make: Callable[[], BrowserCore]) -> None:
        self.session = session
        self.closed = False
        self._make = make
        self._passes: list[BrowserCore] = []
        self._fresh: BrowserCore | None = None

    async def _open(self) -> BrowserCore:
        core = self._make()
        await self.session._run(core.open())
        self._passes.append(core)
        return core

    def __aiter__(self) -> AsyncIterator[Message]:
        require_open(self.closed)
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Message]:
        core, self._fresh = self._fresh, None
        if core is None:
            core = await self._open()
        try:
            while chunk := await self.session._run(core.fetch()):
                for message in chunk:
                    yield message
        finally:
            await self._end(core)

    async def _end(self, core: BrowserCore) -> None:
        if core in self._passes:
            self._passes.remove(core)
        with contextlib.suppress(ConnectionLostError):
            await self.session._run(core.close())

    async def close(self) -> None:
        self.session._core.connection.io.require_usable()
        if self.closed:
            return
        self.closed = True
        for core in list(self._passes):
            await self._end(core)
        if self in self.session._browsers:
            self.session._browsers.remove(self)

    async def __aenter__(self) -> Browser:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
