"""The asynchronous producer, consumer and browser; a session makes them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Literal, Protocol, Unpack, overload

from raybroker.client.aio.waiting import (
    ProducerBase,
    arrival,
    done_within,
    put,
    room_for_callbacks,
    stored,
    with_room,
)
from raybroker.client.arguments import check_arguments, check_timeout
from raybroker.client.consumer.acknowledging.acknowledgement_window import AcknowledgementWindow
from raybroker.client.consumer.browser import BrowserCore, require_open
from raybroker.client.consumer.lost_consumers import ConsumerHandles, let_go
from raybroker.client.consumer.message import Message
from raybroker.client.destinations import Destination
from raybroker.client.io.callbacks import Callbacks
from raybroker.client.io.closing import AGAIN_S, Deadline, collected, noted_on, raise_first
from raybroker.client.io.unreferenced import Handles
from raybroker.client.listener.handler import Backoff, Handler, Retries, Types
from raybroker.client.options import MessageOptions, SendOptions, with_options
from raybroker.client.pickled import Made, PicklableConnection, Unpicklable
from raybroker.client.producer.bodies.header_hints import HeaderHints
from raybroker.client.producer.header_overrides import OverriddenOptions, common_options
from raybroker.client.producer.members.unnamed import AnyProducer, OwnProducer, UnnamedProducer
from raybroker.client.producer.schedule import OF_SCHEDULES, scheduled, take_plan
from raybroker.client.producer.send_future import SendFuture
from raybroker.client.producer.send_many import many_options
from raybroker.client.session.opening import (
    AnyConsumer,
    check_window,
    closed_consumer,
    closed_while_full,
    closing_deadline,
    let_consumer_go,
    own_or_named,
    partly_sent,
)
from raybroker.client.session.session import SessionCore
from raybroker.model.errors import BrokerError, ConnectionLostError, IllegalStateError, RequestTimeoutError


class HandleCalls(Protocol):
    """The calls of a session's listeners, as a handle sees them."""

    def calls(self, consumer: AnyConsumer, /) -> bool: ...

    async def call_of(self, consumer: AnyConsumer, /) -> None: ...


class HandleSession(Protocol):
    """The session that made a handle, as the handle sees it."""

    closed: bool
    _core: SessionCore
    _producers: Handles[Producer]
    _consumers: ConsumerHandles[Consumer]
    _browsers: list[Browser]
    _window: AcknowledgementWindow | None

    @property
    def connection(self) -> PicklableConnection: ...

    @property
    def _listening(self) -> HandleCalls | None: ...

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any: ...

    async def _come_back(self, wanted: int = 1, *, in_hand: bool = True) -> None: ...

    def _require_no_listener(self) -> None: ...

    def _listen(self) -> None: ...

    async def commit(self) -> None: ...


class Producer(ProducerBase, HeaderHints):
    """Made by :meth:`Session.producer`. Sends of one producer arrive in order."""

    def __init__(self, session: HandleSession, core: OwnProducer, made: Made) -> None:
        self.session = session
        self._core = core
        self._own = None if isinstance(core, UnnamedProducer) else core
        """That of the destination that it was made for."""
        self._io = core._connection.io
        self._common = common_options(core._connection.attributes, core.destination)
        self._callbacks = Callbacks(f"callbacks of {core.name}")
        self._timeout_s = (core._connection.attributes["imqAckTimeout"] / 1000) or None
        self._made = made

    @with_options(SendOptions)
    async def send(
        self,
        body: Any,
        properties: Mapping[str, Any] | None = None,
        *,
        destination: Destination | str | None = None,
        **options: Unpack[SendOptions],
    ) -> str:
        """Send one message; returns its id.

        A persistent message: returns when the broker has stored it; raises RequestTimeoutError after
        imqAckTimeout, QuotaExceededError or MessageTooLargeError when it is refused. Another: returns when it is handed
        over, or waits as OneWaySendMode says; so does any message in a transacted session, where commit() tells of a
        refusal.

        properties   names and values that selectors know: bool, int, float, str or None
        destination  where to, for a producer that was made without; IllegalStateError for another
        options      see :class:`raybroker.SendOptions`; what a message does not say is the producer's
        """
        plan = take_plan(options) if options and not OF_SCHEDULES.isdisjoint(options) else None
        header, shared = self._common.find(self._core.shared, properties, options, destination)
        target = self._own if destination is None else None
        if target is None:
            target = await self._target(destination)
        if options and options.get("dedup_id") is not None:
            check_window(target)
        if plan is not None:
            work = scheduled(target, body, header, shared, plan, self._timeout_s)
            made: str = await self.session._run(work)
            return made
        if (not shared.persistent or self.session._core.transactions is not None) and (
            target.one_way is None or not target.one_way.is_two_way(shared.unit, header)
        ):
            sent = target.put(body, header, shared, None, urgent=False, block=False)
            return sent or await put(target, body, header, shared, None, self._timeout_s, urgent=False)
        return await stored(target, body, header, shared, self._timeout_s)

    @overload
    async def send_async(
        self,
        body: Any,
        properties: Mapping[str, Any] | None = None,
        *,
        destination: Destination | str | None = None,
        fire_and_forget: Literal[True],
        **options: Unpack[MessageOptions],
    ) -> None: ...

    @overload
    async def send_async(
        self,
        body: Any,
        properties: Mapping[str, Any] | None = None,
        *,
        destination: Destination | str | None = None,
        fire_and_forget: Literal[False] = False,
        **options: Unpack[MessageOptions],
    ) -> Future[str]: ...

    @with_options(MessageOptions)
    async def send_async(
        self,
        body: Any,
        properties: Mapping[str, Any] | None = None,
        *,
        destination: Destination | str | None = None,
        fire_and_forget: bool = False,
        **options: Unpack[MessageOptions],
    ) -> Future[str] | None:
        """Send without waiting: a future of the message id. Waits only while the handle's buffer is full.

        ``properties``, ``destination`` and ``options`` are those of :meth:`send`, without a schedule.

        The future raises RequestTimeoutError when the broker has not answered within
        imqAsyncSendCompletionWaitTimeout; ``add_done_callback`` of it is what JMS calls a completion listener:
        callbacks run in a thread of the producer's own, one after another, and may make any call. ``cancel()`` of it
        returns False: what was handed over is sent. A future with an error says by ``error.definite`` whether the
        message was certainly not stored.

        In a transacted session the future is done when the message has left; the commit tells what became of it.

        fire_and_forget  True: no future is made and None is returned. The message is stored, sent again after a lost
                  connection and kept in order as any other, and whoever wants to know that all of them are settled
                  closes the producer; but the caller is not told what became of this one: a refusal (a full
                  destination, a message that is too large for it) and the end of a producer with messages in it are
                  counted by ``refused``, logged, and told to ``connection.on_event``. It waits for room as
                  ``send(…, persistent=False)`` does, at most imqAckTimeout, and then raises RequestTimeoutError
        """
        header, shared = self._common.find(self._core.shared, properties, options, destination)
        target = self._own if destination is None else None
        if target is None:
            target = await self._target(destination)
        if options and options.get("dedup_id") is not None:
            check_window(target)
        if fire_and_forget is False:
            if self._callbacks.full:
                await room_for_callbacks(self._callbacks)
            waiter = SendFuture(self._callbacks, self._io)
            if target.put(body, header, shared, waiter, urgent=False, block=False) is None:
                await put(target, body, header, shared, waiter, self._timeout_s, urgent=False)
            return waiter
        check_arguments(fire_and_forget=fire_and_forget)
        if target.put(body, header, shared, None, urgent=False, block=False) is None:
            await put(target, body, header, shared, None, self._timeout_s, urgent=False)
        return None

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
        """Send all bodies in full blocks; returns their number once all are stored, or handed over if they are not
        persistent.

        ``properties``, ``priority``, ``ttl_ms`` and ``unit_of_order`` may be iterables with one value for each body.
        The first refusal is raised, after the others have been settled; when no further block has been settled, or no
        room was made, for imqAckTimeout, RequestTimeoutError says how many were taken, and blocks that have not left
        are not sent.
        """
        shared, each = many_options(self._core.shared, persistent, properties, priority, ttl_ms, unit_of_order)
        if isinstance(self._common, OverriddenOptions):
            shared, each = self._common.of_many(shared, each, destination)
        target = await self._target(destination)
        sent, blocks = 0, list[tuple[int, Future[str]]]()
        try:
            async for count, future in with_room(target, target.put_many(bodies, shared, each), self._timeout_s):
                sent += count
                blocks.append((count, future))
        except RequestTimeoutError as error:
            raise partly_sent(target, blocks, self._timeout_s) from error
        if self.session._core.transactions is None:
            for _, future in blocks:
                if not await done_within(self._core._connection.io, future, self._timeout_s):
                    raise partly_sent(target, blocks, self._timeout_s)
            for _, future in blocks:
                future.result()
        return sent

    async def _target(self, destination: Destination | str | None) -> AnyProducer:
        if destination is None and self._own is not None:
            return self._own
        own = self._core
        found = own_or_named(own, destination)
        if not isinstance(found, Destination):
            return found
        opened: AnyProducer = await self.session._run(own.find(found))  # type: ignore[union-attr]  # one without a destination has its own way to find one
        return opened

    @property
    def duplicates(self) -> int:
        """Messages that were not taken because the destination had seen their dedup_id."""
        return self._core.duplicates if self._is_made else 0

    @property
    def refused(self) -> int:
        """Messages that nobody waited for (persistent=False, fire_and_forget) and that the destination did not take, or
        of which nothing is known because the producer ended before they were confirmed."""
        return self._core.refused if self._is_made else 0

    @property
    def flow_limit(self) -> float | None:
        """Messages a second that it may send now, since its destination is over a threshold or was lately; None: as
        many as it likes. Of several destinations, the lowest. See FlowControlEnabled, FlowMaximum, FlowMinimum."""
        own = self._core if self._is_made else None
        return own.flow_limit if own is not None else None

    async def close(self) -> None:
        """Wait until everything sent is settled, then close.

        Raises IllegalStateError when its destination was full for raybroker.reconnect.timeout_ms: what was left is
        lost, and its futures say so.
        """
        self._core._connection.io.require_usable()
        await self._close(closing_deadline(self._core._connection))

    async def _close(self, deadline: Deadline) -> None:
        core = self._core
        if core.closed:
            return
        given_up = False
        for settled in core.settled_futures():
            while not (given_up or settled.done()):
                in_time = await done_within(core._connection.io, settled, deadline.left_s)
                given_up = not in_time and core.throttled
                if not (in_time or given_up):
                    await done_within(core._connection.io, settled, AGAIN_S)
        await self.session._run(core.close())
        self.session._producers.remove(self)
        if given_up:
            raise closed_while_full(core)

    def __repr__(self) -> str:
        if not self._is_made:
            return f"<{type(self).__name__}, not opened yet>"
        core = self._core
        where = core.destination.text if core.destination is not None else core.name
        return f"<{type(self).__name__} for {where}{', closed' if core.closed else ''}>"

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with noted_on(error):
            await self.close()


class Consumer(Unpicklable):
    """Made by :meth:`Session.consumer`; iterate over it, or call receive."""

    def __init__(self, session: HandleSession, core: AnyConsumer) -> None:
        self.session = session
        self._core = core

    async def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None when ``timeout`` seconds are over, or the consumer is closed meanwhile.

        Raises IllegalStateError when it was closed before. While the connection is not started nothing comes; that is
        logged as a warning, once.
        """
        session, core = self.session, self._core
        if timeout is not None:
            check_timeout(timeout)
        if session._listening is not None:
            session._require_no_listener()
        if core.closed:
            raise closed_consumer(core)
        if session._core.comes_back and (session._core.handed.unsettled or session._window is not None):
            await session._come_back()
        message = core.take_one()
        if message is None:  # "take_one" is looked up on every pass: joining a broker replaces it.
            session._core.waits()
            message = await arrival(core, lambda: core.take_one(), timeout)  # noqa: PLW0108
        return message

    async def receive_nowait(self) -> Message | None:
        """The next message if one is in the buffer."""
        self.session._require_no_listener()
        if self._core.closed:
            raise closed_consumer(self._core)
        await self.session._come_back()
        message = self._core.take_one()
        if message is None:
            self._core.wait(0)
        return message

    async def receive_many(self, max: int = 100, timeout: float | None = None) -> list[Message]:
        """Up to ``max`` messages: waits for the first as ``receive`` does, then takes what is in the buffer."""
        check_arguments(max=max, timeout=timeout)
        self.session._require_no_listener()
        core = self._core
        if core.closed:
            raise closed_consumer(core)
        await self.session._come_back(max)
        return await self._follow(max, timeout)

    async def _follow(self, most: int, timeout: float | None) -> list[Message]:
        """Up to ``most`` messages, together with those that the application is about to get."""
        core, handed = self._core, self.session._core.handed
        handed.in_batch = True
        try:
            return core.take(most) or await arrival(core, lambda: core.take(most), timeout) or []
        finally:
            handed.in_batch = False

    async def on_message(
        self,
        listener: Callable[[Message], object],
        *,
        retry_on: Types | type[BaseException] = (),
        reject_on: Types | type[BaseException] = (),
        backoff: Backoff = None,
    ) -> Consumer:
        """Call ``listener`` for each message, in the session's task, one after the other.

        In an "auto" session a message is acknowledged when the listener returns. When it raises, that is logged and
        told to ``on_exception``, and the message comes again after a pause, flagged, while others go on; what dies by
        it says why. In a transacted session up to maxMessagesInTransaction calls are committed together, and rolled
        back when one of them raises.

        listener   a function of one message; a coroutine that it returns is run to its end before the next call
        retry_on   only these types of exceptions are worth another attempt, with others the message is dead at once
        reject_on  with these it is dead at once
        backoff    seconds before the second attempt, doubled for each further one up to 30 s, or a pair with another
                   longest pause; 0: at once, before other messages; None: the session's redelivery_delay_ms, or 0.25.
                   redeliveryDelayOverride of the destination wins
        Raises ConfigError for what cannot be called with a message.
        """
        core = self._core
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
        """False for a backup consumer that was not promoted yet."""
        return self._core.active

    def info(self) -> dict[str, Any]:
        """Destination, limit, messages buffered, and consumed but not acknowledged."""
        return self._core.info()

    async def close(self) -> None:
        """Detach: what is not acknowledged goes back to the destination. In "auto" and "dups_ok" sessions what was
        received is acknowledged first; not so when an exception leaves the ``async with`` of the consumer.

        Waits for a call of its listener that runs; closed by that call, it ends once the call has returned.
        With an ``ack_window`` it waits until all is confirmed, closes, and raises the first failure.
        """
        await self._close(in_hand=True)

    async def _close(self, *, in_hand: bool) -> None:
        """Close it; ``in_hand``: the application is done with what it was given last."""
        core, session = self._core, self.session
        core._connection.io.require_usable()
        if core.closed:
            return
        if session._listening is not None:
            core.listener = None
            if session._listening.calls(core):
                session._consumers.discard(self)
                await session._run(let_consumer_go(core))
                return
            await session._listening.call_of(core)
            in_hand = False  # What was called is settled, and another consumer's call may run.
        faults: list[BrokerError] = []
        if session._core.mode in ("auto", "dups_ok"):
            with collected(faults):
                await session._come_back(0, in_hand=in_hand)
            if session._core.mode == "dups_ok":
                core._connection.io.post(session._core.flush_lazily)
        core.shut()
        with contextlib.suppress(ConnectionLostError):
            await session._run(core.close())
        session._consumers.discard(self)
        raise_first(faults)

    def _closed(self) -> bool:
        return self._core.closed

    def __del__(self) -> None:
        if self.__dict__.get("_core") is not None:
            let_go(self._core)

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Messages as they come, until the consumer is closed."""
        self._core._connection.io.require_usable()
        while not self._closed():
            try:
                message = await self.receive()
            except IllegalStateError:
                if self._closed():
                    return  # Another task has closed it at this moment.
                raise
            if message is not None:
                yield message

    def __repr__(self) -> str:
        core = self._core
        state = "closed" if core.closed else f"{core.info()['buffered']} buffered"
        return f"<{type(self).__name__} of {core.destination.text}, {state}>"

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with noted_on(error):
            await self._close(in_hand=error is None)


class Browser(Unpicklable):
    """Made by :meth:`Session.browser`: iterate over it, as often as you like; every pass sees the queue anew."""

    def __init__(self, session: HandleSession, make: Callable[[], BrowserCore], text: str) -> None:
        """``text``: what it looks at."""
        self.session = session
        self._text = text
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
        """The messages that wait, in order; raises RequestTimeoutError after imqQueueBrowserRetrieveTimeout."""
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
            await self._end_pass(core)

    async def _end_pass(self, core: BrowserCore) -> None:
        if core in self._passes:
            self._passes.remove(core)
        with contextlib.suppress(ConnectionLostError):
            await self.session._run(core.close())

    async def close(self) -> None:
        """End it, and every pass that is under way."""
        self.session._core.connection.io.require_usable()
        if self.closed:
            return
        self.closed = True
        for core in list(self._passes):
            await self._end_pass(core)
        if self in self.session._browsers:
            self.session._browsers.remove(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._text}{', closed' if self.closed else ''}>"

    async def __aenter__(self) -> Browser:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with noted_on(error):
            await self.close()
