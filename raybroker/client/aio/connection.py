"""The asynchronous handles: the names of the blocking ones as coroutines, on any event loop of the application.

Waiting happens on the application's loop, work on the IO loop; nothing here blocks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from raybroker.client.admin.admin import AsyncAdmin
from raybroker.client.aio.handles import Browser, Consumer, Producer
from raybroker.client.aio.listening import Listening
from raybroker.client.arguments import check_arguments
from raybroker.client.connection.closing import collected, noted_on, raise_first
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.connection.events import ConnectionEvent, ConsumerEvent
from raybroker.client.connection.unreferenced import Handles
from raybroker.client.consumer.acknowledgement_answers import Confirmations, check
from raybroker.client.consumer.lost_consumers import ConsumerHandles
from raybroker.client.consumer.message import Message
from raybroker.client.consumer.subscriptions import unsubscribe
from raybroker.client.destinations import Queue, TemporaryQueue, TemporaryTopic, Topic, destination_of
from raybroker.client.pickled import PicklableConnection, Unpicklable
from raybroker.client.session import opening
from raybroker.client.session.request import Requests, answering, options_of_request, request_timed_out, weakly
from raybroker.client.session.session import SessionCore, session_mode
from raybroker.client.session.transaction import SessionTransactions
from raybroker.client.session.xa import Xa, XaTransactions
from raybroker.model.errors import BrokerError, ConnectionLostError, IllegalStateError

if TYPE_CHECKING:
    from raybroker.client.destinations import Destination

__all__ = ["Browser", "Connection", "Consumer", "Producer", "Session", "XaConnection"]

E = TypeVar("E")


def _confirmed(confirmations: Confirmations) -> Awaitable[None]:
    async def wait() -> None:
        await asyncio.gather(*map(asyncio.wrap_future, confirmations), return_exceptions=True)
        check(confirmations)

    return wait()


def _on_this_loop(handler: Callable[[E], object] | None) -> Callable[[E], object] | None:
    """The handler, to be called from the IO thread; one whose loop has ended is called no more."""
    loop = asyncio.get_running_loop()

    def call(event: E) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(handler, event)  # type: ignore[arg-type]

    return call if handler is not None else None


class Connection(PicklableConnection):
    """See :class:`raybroker.client.blocking.connection.Connection`; ``async with`` starts and closes it."""

    _transactions: ClassVar[type[SessionTransactions]] = SessionTransactions
    """Of its transacted sessions."""

    def __init__(self, core: ConnectionCore) -> None:
        self._core = core
        self._sessions: list[Session] = []

    async def session(
        self, ack: str = "auto", *, transacted: bool = False, redelivery_delay_ms: int | None = None
    ) -> Session:
        self._core.require_open()
        mode = session_mode(ack, transacted)
        core = SessionCore(
            self._core, mode, _confirmed, redelivery_delay_ms=redelivery_delay_ms, transactions=self._transactions
        )
        session = Session(self, core)
        self._sessions.append(session)
        return session

    async def start(self) -> None:
        await asyncio.wrap_future(self._core.io.submit(self._core.start()))

    async def stop(self) -> None:
        await asyncio.wrap_future(self._core.io.submit(self._core.stop()))

    def admin(self) -> AsyncAdmin:
        """Administration; each method returns an awaitable."""
        core = self._core
        return AsyncAdmin(lambda verb, args: asyncio.wrap_future(core.io.submit(core.admin(verb, args))))

    def on_exception(self, handler: Callable[[BrokerError], object]) -> None:
        """``handler``, a plain function, is called on the loop that runs now; see the blocking one."""
        check_arguments(handler=handler)
        self._core.events.on_exception(_on_this_loop(handler))

    def on_event(self, handler: Callable[[ConnectionEvent], object] | None) -> None:
        """``handler``, a plain function, is called on the loop that runs now; see the blocking one."""
        check_arguments(handler=handler)
        self._core.events.on_event(_on_this_loop(handler))

    async def on_consumer_event(
        self, destination: Destination | str, handler: Callable[[ConsumerEvent], object] | None
    ) -> None:
        """``handler``, a plain function, is called on the loop that runs now; see the blocking one."""
        check_arguments(handler=handler)
        work = self._core.watch_consumers(destination_of(destination), _on_this_loop(handler))
        await asyncio.wrap_future(self._core.io.submit(work))

    @property
    def client_id(self) -> str | None:
        return self._core.client_id

    @client_id.setter
    def client_id(self, client_id: str) -> None:
        self._core.set_client_id(client_id)

    async def close(self) -> None:
        self._core.io.require_usable()
        if self._core.closed:
            return
        faults: list[BrokerError] = []
        if any(session._listening is not None for session in self._sessions):
            self._core.wait_no_longer(IllegalStateError("the connection is being closed; the message was not sent"))
        for session in list(self._sessions):
            with collected(faults):
                await session.close()
        with collected(faults):
            await asyncio.wrap_future(self._core.io.submit(self._core.close()))
        raise_first(faults)

    async def __aenter__(self) -> Connection:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            for session in self._sessions:
                session._core.leave_in_hand()
        with noted_on(error):
            await self.close()


class XaConnection(Connection):
    """See :class:`raybroker.client.blocking.connection.XaConnection`."""

    _transactions = XaTransactions

    async def session(
        self, ack: str = "auto", *, transacted: bool = True, redelivery_delay_ms: int | None = None
    ) -> Session:
        return await super().session(ack, transacted=True, redelivery_delay_ms=redelivery_delay_ms)


class Session(Unpicklable):
    """See :class:`raybroker.client.blocking.connection.Session`."""

    def __init__(self, connection: Connection, core: SessionCore) -> None:
        self.connection = connection
        self._core = core
        self._producers: Handles[Producer] = Handles(core.connection.io)
        self._consumers: ConsumerHandles[Consumer] = ConsumerHandles()
        self._browsers: list[Browser] = []
        self._received: dict[Destination, Consumer] = {}
        """The consumers of :meth:`receive`, the one that was used last at the end."""
        self._requests: Requests | None = None
        self._listening: Listening | None = None
        self.closed = False
        self._replier: Producer | None = None
        core.reply = weakly(self._reply)
        core.connection.used = True
        core.connection.sessions.append(core)

    # ---- destinations ----------------------------------------------------------------------------------------------

    def queue(self, name: str) -> Queue:
        return Queue.checked(name)

    def topic(self, name: str) -> Topic:
        return Topic.checked(name)

    async def temporary_queue(self) -> TemporaryQueue:
        self._require_open()
        found: TemporaryQueue = await self._run(opening.temporary_queue(self._core, self._run))
        return found

    async def temporary_topic(self) -> TemporaryTopic:
        self._require_open()
        found: TemporaryTopic = await self._run(opening.temporary_topic(self._core, self._run))
        return found

    # ---- producers and consumers -----------------------------------------------------------------------------------

    async def producer(
        self,
        destination: Destination | str | None = None,
        *,
        persistent: bool | None = None,
        priority: int | None = None,
        ttl_ms: int | None = None,
        delivery_delay_ms: int | None = None,
        unit_of_order: str | None = None,
        serializer: str | None = None,
        disable_message_id: bool = False,
        disable_message_timestamp: bool = False,
    ) -> Producer:
        self._require_open()
        check_arguments(disable_message_id=disable_message_id, disable_message_timestamp=disable_message_timestamp)
        work = opening.producer(
            self._core, destination, persistent, priority, ttl_ms, delivery_delay_ms, unit_of_order, serializer
        )
        producer = Producer(self, await self._run(work))
        producer.disable_message_id = disable_message_id
        producer.disable_message_timestamp = disable_message_timestamp
        self._producers.add(producer, partial(opening.let_go, producer._core))
        return producer

    async def consumer(
        self,
        destination: Destination | str,
        selector: str | None = None,
        prefetch: int | None = None,
        threshold: int | None = None,
        no_local: bool = False,
        *,
        serializer: str | None = None,
        ack_timeout_ms: int | None = None,
    ) -> Consumer:
        return await self._consumer(
            destination, selector, prefetch, threshold, no_local, serializer, ack_timeout_ms
        )

    async def receive(self, destination: Destination | str, timeout: float | None = None) -> Message | None:
        self._require_open()
        self._require_no_listener()
        found = destination_of(destination)
        consumer = self._received.get(found)
        if consumer is None or consumer._core.closed:
            consumer = await self.consumer(found)
        self._received.pop(found, None)
        self._received[found] = consumer
        self._core.bound_receivers(self._received)
        try:
            return await consumer.receive(timeout)
        except BrokerError:
            if consumer._core.failed:
                self._received.pop(found, None)
                await consumer.close()
            raise

    async def durable_consumer(
        self, topic: Destination | str, name: str, selector: str | None = None, no_local: bool = False, **options: Any
    ) -> Consumer:
        return await self._subscriber(topic, name, selector, no_local, options, durable=True, shared=False)

    async def shared_consumer(
        self, topic: Destination | str, name: str, selector: str | None = None, **options: Any
    ) -> Consumer:
        return await self._subscriber(topic, name, selector, False, options, durable=False, shared=True)

    async def shared_durable_consumer(
        self, topic: Destination | str, name: str, selector: str | None = None, **options: Any
    ) -> Consumer:
        return await self._subscriber(topic, name, selector, False, options, durable=True, shared=True)

    async def unsubscribe(self, name: str) -> None:
        check_arguments(name=name)
        self._require_open()
        await self._run(unsubscribe(self._core, name))

    async def browser(
        self, queue: Destination | str, selector: str | None = None, *, serializer: str | None = None
    ) -> Browser:
        self._require_open()
        browser = Browser(self, lambda: opening.browser(self._core, queue, selector, serializer))
        browser._fresh = await browser._open()
        self._browsers.append(browser)
        return browser

    async def request(
        self, destination: Destination | str, body: Any, timeout: float | None = None, **options: Any
    ) -> Message:
        check_arguments(timeout=timeout)
        self._require_open()
        target, encode = destination_of(destination), options_of_request(self._core, options)
        requests = self._requests = self._requests or Requests(
            self._core.connection, _confirmed, self._core.reply
        )
        answer: Future[Message] = Future()
        before = requests.strangers
        try:
            async with asyncio.timeout(timeout):
                await self._run(requests.send(target, body, encode, answer))
                return await asyncio.wrap_future(answer)
        except TimeoutError:
            raise request_timed_out(target, timeout, requests.strangers - before) from None
        finally:
            answer.cancel()

    # ---- acknowledgement and transactions --------------------------------------------------------------------------

    async def recover(self) -> None:
        await self._run(self._core.recover())

    async def commit(self) -> None:
        await self._run(self._core.require_transactions().commit())

    async def rollback(self) -> None:
        await self._run(self._core.require_transactions().rollback())

    @property
    def transacted(self) -> bool:
        return self._core.transactions is not None

    @property
    def xa(self) -> Xa:
        """Each method returns an awaitable."""
        transactions = self._core.transactions
        if not isinstance(transactions, XaTransactions):
            raise IllegalStateError("xa is for sessions of aio.connect_xa(); this connection is none")
        return Xa(transactions, self._run)

    @property
    def redelivery_delay_ms(self) -> int:
        return self._core.redelivery_delay_ms

    @redelivery_delay_ms.setter
    def redelivery_delay_ms(self, value: int) -> None:
        self._core.redelivery_delay_ms = value

    async def close(self) -> None:
        self._core.connection.io.require_usable()
        if self.closed:
            return
        self.closed = True
        if self._listening is not None:
            ending = IllegalStateError("the session is being closed; the message was not sent")
            for producer in self._producers:
                producer._core.wait_no_longer(ending)
            await self._listening.stop()
        with contextlib.suppress(ConnectionLostError, IllegalStateError):
            await self._come_back()
        self._core.closed = True
        faults: list[BrokerError] = []
        if self._core.transactions is not None:
            with contextlib.suppress(BrokerError):
                await self._run(self._core.transactions.close())
        if self._requests is not None:
            with contextlib.suppress(BrokerError):
                await self._run(self._requests.close())
        for browser in list(self._browsers):
            with collected(faults):
                await browser.close()
        for producer in list(self._producers):
            with contextlib.suppress(ConnectionLostError), collected(faults):
                await producer.close()
        await asyncio.gather(*map(asyncio.wrap_future, self._producers.closing()), return_exceptions=True)
        if self._core.mode == "dups_ok":
            self._core.connection.io.post(self._core.flush_lazily)
        for consumer in list(self._consumers):
            with collected(faults):
                await consumer.close()
        with contextlib.suppress(ConnectionLostError), collected(faults):
            await self._run(self._core.close_the_rest())
        self._core.connection.sessions.remove(self._core)
        self.connection._sessions.remove(self)
        raise_first(faults)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: object, error: BaseException | None, trace: object
    ) -> None:
        if error is not None:
            self._core.leave_in_hand()
        with noted_on(error):
            await self.close()

    # ---- used by producers and consumers ---------------------------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, Any]) -> Awaitable[Any]:
        return asyncio.wrap_future(self._core.connection.io.submit(work))

    async def _consumer(self, *arguments: Any, **subscription: Any) -> Consumer:
        self._require_open()
        consumer = Consumer(self, await self._run(opening.consumer(self._core, *arguments, **subscription)))
        self._consumers.add(consumer)
        return consumer

    async def _subscriber(
        self, topic: Destination | str, name: str, selector: str | None, no_local: bool, options: dict[str, Any],
        **kind: bool,
    ) -> Consumer:  # fmt: skip
        rest = opening.subscriber_options(options)
        where = opening.topic_of(topic)
        return await self._consumer(where, selector, *rest[:2], no_local, *rest[2:], name=name, **kind)

    async def _reply(self, message: Message, body: Any, options: dict[str, Any]) -> str:
        target, options = answering(message, options)
        if self._replier is None:
            self._replier = await self.producer()
        return await self._replier.send(body, destination=target, **options)

    def _require_open(self) -> None:
        if self.closed:
            raise IllegalStateError("the session is closed")
        self._core.connection.require_open()

    def _require_no_listener(self) -> None:
        if self._listening is not None:
            raise IllegalStateError("a session with a message listener cannot receive as well")

    def _listen(self) -> None:
        if self._listening is None:
            self._listening = Listening(self)
        self._listening.work()

    async def _come_back(self) -> None:
        core = self._core
        if core.comes_back and core.unsettled:
            for confirmation in core.before_more():
                with contextlib.suppress(ConnectionLostError):  # What is not acknowledged comes again, flagged.
                    await asyncio.wrap_future(confirmation)
