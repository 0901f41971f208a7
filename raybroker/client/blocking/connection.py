# Generated from raybroker/client/aio/connection.py: change that file, then run `python -m tests.tidy.blocking_face`.
"""The blocking Connection and Session; what a session makes is in :mod:`raybroker.client.blocking.handles`.

A session and what it makes belong to one thread at a time, as in JMS; a connection may be shared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from raybroker.client.blocking.handles import Browser, Consumer, Producer
from raybroker.client.blocking.listening import Listening
from raybroker.client.blocking.waiting import (
    CANCELLABLE,
    about_to_wait,
    all_done,
    answered,
    called_back,
    confirmed,
    opened,
    result,
    run,
    settle,
)
from raybroker.client.arguments import check_arguments, check_names
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.connection.events import ConnectionEvent, ConsumerEvent
from raybroker.client.consumer.acknowledging.acknowledgement_window import AcknowledgementWindow
from raybroker.client.consumer.lost_consumers import ConsumerHandles
from raybroker.client.consumer.message import Message
from raybroker.client.consumer.subscriptions import delete_temporary, unsubscribe
from raybroker.client.destinations import Queue, TemporaryQueue, TemporaryTopic, Topic, destination_of
from raybroker.client.io.closing import Deadline, collected, noted_on, raise_first
from raybroker.client.io.unreferenced import Handles
from raybroker.client.listener.in_call import require_may_end
from raybroker.client.options import (
    SUBSCRIBER,
    MessageOptions,
    ProducerOptions,
    ReceiverOptions,
    RequestOptions,
    SubscriberOptions,
    with_options,
)
from raybroker.client.pickled import PicklableConnection, Unpicklable
from raybroker.client.session import opening
from raybroker.client.session.request import Requests, answering, options_of_request, request_timed_out, weakly
from raybroker.client.session.session import Ack, SessionCore, session_mode
from raybroker.client.session.transaction import SessionTransactions
from raybroker.client.session.xa import Xa, XaTransactions
from raybroker.model.errors import BrokerError, ConnectionLostError, IllegalStateError, NoXaError

if TYPE_CHECKING:
    from types import TracebackType

    from raybroker.client.admin.admin import Admin
    from raybroker.client.destinations import Destination
    from raybroker.client.producer.bodies.body_encoding import Serializer

__all__ = ["Browser", "Connection", "Consumer", "Producer", "Session", "XaConnection"]


class Connection(PicklableConnection):
    """A connection to a cluster (or to the loopback). Delivers nothing until started.

    ``with`` starts and closes it.
    """

    _transactions: ClassVar[type[SessionTransactions]] = SessionTransactions
    """Of its transacted sessions."""

    def __init__(self, core: ConnectionCore) -> None:
        self._core = core
        settle(self._core.io)
        self._sessions: list[Session] = []

    def session(
        self,
        ack: Ack = "auto",
        *,
        transacted: bool = False,
        redelivery_delay_ms: int | None = None,
        ack_window: int = 1,
    ) -> Session:
        """A session: one thread's producers and consumers with one acknowledgement mode.

        ack                  "auto" | "client" | "dups_ok" | "none"; raises ConfigError for another
        transacted           what is sent and received belongs to transactions; ``ack`` means nothing then
        redelivery_delay_ms  pause before what it recovers or rolls back comes again; None: defaultRedeliveryDelay
        ack_window           for "auto": 1 confirms each message before the next is handed out, so that after a crash at
                             most one comes again. N, up to 10,000: messages are acknowledged at once and confirmed
                             later, and the next is handed out while fewer than N are unconfirmed; after a crash of
                             this program, the broker or the connection at most N come again (or as many as one
                             ``receive_many`` took), flagged as redelivered. An acknowledgement that fails otherwise
                             is raised by the next receive, or by close(), which waits for all of them. ConfigError
                             with another ``ack``, or for another number
        """
        return self._new_session(ack, transacted, redelivery_delay_ms, ack_window)

    def _new_session(
        self, ack: str = "auto", transacted: bool = False, redelivery_delay_ms: int | None = None, ack_window: int = 1
    ) -> Session:
        self._core.require_open()
        session = Session(self, session_mode(ack, transacted, ack_window), redelivery_delay_ms, ack_window)
        self._sessions.append(session)
        return session

    def start(self) -> None:
        """Let messages in."""
        run(self._core.io, self._core.start())

    def stop(self) -> None:
        """Hand out nothing until start(); sending goes on."""
        require_may_end("stop()", self._core)
        run(self._core.io, self._core.stop())

    def admin(self) -> Admin:
        """Administration: one method a verb of the command line."""
        from raybroker.client.admin.admin import Admin

        return Admin(lambda verb, args: run(self._core.io, self._core.admin(verb, args)))

    def on_exception(self, handler: Callable[[BrokerError], object]) -> None:
        """``handler`` is called with the error that ended a handle, in a thread of the connection's own.

        Its destination was destroyed or is damaged, or it could not be brought back after a lost connection. All
        handlers of a connection are called there one after another, and may make any call.
        """
        check_arguments(handler=handler)
        self._core.events.on_exception(called_back(self._core, handler))

    def on_event(self, handler: Callable[[ConnectionEvent], object] | None) -> None:
        """``handler`` is called, as that of on_exception, for each event of the connection's links; None: nobody is."""
        check_arguments(handler=handler)
        self._core.events.on_event(called_back(self._core, handler))

    def on_consumer_event(
        self, destination: Destination | str, handler: Callable[[ConsumerEvent], object] | None
    ) -> None:
        """``handler`` is called, as that of on_exception, with whether a destination has consumers: now, and each time
        that the first one comes or the last one goes. None ends that.

        A destination that does not exist has none, and is looked for again each imqReconnectInterval.
        """
        check_arguments(handler=handler)
        work = self._core.watch_consumers(destination_of(destination), called_back(self._core, handler))
        run(self._core.io, work)

    @property
    def client_id(self) -> str | None:
        """The client's identity over restarts; set it before the connection is used, else IllegalStateError."""
        return self._core.client_id if self._is_made else None

    @client_id.setter
    def client_id(self, client_id: str) -> None:
        self._core.set_client_id(client_id)

    def close(self) -> None:
        """Close sessions, then the connection. Consumed messages of "auto" sessions are acknowledged first; not
        so when an exception leaves the ``with`` of the connection or the session: then they come again.

        Everything is closed; then the first error is raised, as :meth:`Producer.close` does when what it was given
        could not be sent.
        """
        self._core.io.require_usable()
        if self._core.closed:
            return
        require_may_end("close()", self._core)
        faults: list[BrokerError] = []
        if any(session._listening is not None for session in self._sessions):
            self._core.handles.wait_no_longer(
                IllegalStateError("the connection is being closed; the message was not sent")
            )
        deadline = opening.closing_deadline(self._core)
        for session in list(self._sessions):
            with collected(faults):
                session._close(deadline)
        with collected(faults):
            run(self._core.io, self._core.close())
        raise_first(faults)

    def __repr__(self) -> str:
        if not self._is_made:
            return f"<{type(self).__name__}, not connected yet>"
        core = self._core
        name = f" {core.client_id}" if core.client_id is not None else ""
        state = "closed" if core.closed else "started" if core.started else "not started"
        return f"<{type(self).__name__}{name}, {state}, {len(self._sessions)} sessions>"

    def __enter__(self) -> Connection:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for session in self._sessions:
                session._core.leave_in_hand()
        with noted_on(error):
            self.close()


class XaConnection(Connection):
    """A connection whose sessions work in branches of distributed transactions."""

    _transactions = XaTransactions

    def session(
        self,
        ack: Ack = "auto",
        *,
        transacted: bool = True,
        redelivery_delay_ms: int | None = None,
        ack_window: int = 1,
    ) -> Session:
        """A session with ``xa``; it is always transacted."""
        return super().session(ack, transacted=True, redelivery_delay_ms=redelivery_delay_ms, ack_window=ack_window)


class Session(Unpicklable):
    """Made by :meth:`Connection.session`."""

    def __init__(self, connection: Connection, mode: str, redelivery_delay_ms: int | None, ack_window: int = 1) -> None:
        self._window = AcknowledgementWindow(ack_window) if ack_window > 1 else None
        core = SessionCore(
            connection._core,
            mode,
            partial(confirmed, connection._core.io),
            redelivery_delay_ms=redelivery_delay_ms,
            transactions=connection._transactions,
            reply=weakly(self._reply),
            tells_in_hand=mode == "dups_ok",
        )
        self.connection = connection
        self._core: SessionCore = core
        self._producers: Handles[Producer] = Handles(core.connection.io, lambda: core.connection.closed)
        self._consumers: ConsumerHandles[Consumer] = ConsumerHandles()
        self._browsers: list[Browser] = []
        self._received: dict[Destination, Consumer] = {}
        """The consumers of :meth:`receive`, the one that was used last at the end."""
        self._requests: Requests | None = None
        self._listening: Listening | None = None
        self.closed = False
        self._replier: Producer | None = None
        core.connection.begin_session()

    # ---- destinations ----------------------------------------------------------------------------------------------

    def queue(self, name: str) -> Queue:
        """The queue of that name; raises InvalidDestinationError for a bad name."""
        return Queue.checked(name)

    def topic(self, name: str) -> Topic:
        """The topic of that name, or with ``*``, ``**`` and ``>`` all that match."""
        return Topic.checked(name)

    def temporary_queue(self) -> TemporaryQueue:
        """A new queue, for answers; it ends with ``delete()`` or with the connection."""
        self._require_open()
        found: TemporaryQueue = self._run(opening.temporary_queue(self._core, self._delete))
        return found

    def temporary_topic(self) -> TemporaryTopic:
        """A new topic that ends with ``delete()`` or with the connection."""
        self._require_open()
        found: TemporaryTopic = self._run(opening.temporary_topic(self._core, self._delete))
        return found

    # ---- producers and consumers -----------------------------------------------------------------------------------

    @with_options(ProducerOptions)
    def producer(
        self,
        destination: Destination | str | None = None,
        **options: Unpack[ProducerOptions],
    ) -> Producer:
        """A producer; the destination is created when missing and allowed. A pattern: every match gets a copy.

        Without a destination each send names one: ``send(body, destination=…)``. A producer that nothing
        refers to any more is closed by itself, after what it has sent is settled.

        ``options``: see :class:`raybroker.ProducerOptions`. What is None is the connection factory's default:
        persistent, priority 4, no end of life, no delay, and nothing compressed.
        """
        self._require_open()
        work = opening.producer(self._core, destination, options)
        core = opened(self._core.connection.io, work, opening.let_go)
        producer = Producer(self, core, (destination, options))
        self._producers.add(producer, partial(opening.let_go, core))
        return producer

    def consumer(
        self,
        destination: Destination | str,
        selector: str | None = None,
        prefetch: int | None = None,
        threshold: int | None = None,
        no_local: bool = False,
        *,
        serializer: Serializer | None = None,
        ack_timeout_ms: int | None = None,
    ) -> Consumer:
        """A consumer of a queue, or a subscriber of a topic or of all topics that match a pattern.

        selector   only messages that it matches; raises InvalidSelectorError
        prefetch   None: consumerFlowLimit of the destination and the connection.
                   N with ``threshold`` (percent): that limit in the same way.
                   N alone: at most N unacknowledged messages, topped up at half; 1 is one at a time; 0 polls;
                   -1 is without limit.
        no_local   leave out what this connection publishes (topics)
        ack_timeout_ms  a message that is received and not acknowledged for so long comes again, here or elsewhere
        """
        options: ReceiverOptions = {
            "selector": selector,
            "prefetch": prefetch,
            "threshold": threshold,
            "no_local": no_local,
            "serializer": serializer,
            "ack_timeout_ms": ack_timeout_ms,
        }
        return self._consumer(destination, options)

    def receive(self, destination: Destination | str, timeout: float | None = None) -> Message | None:
        """The next message of a queue or topic, from one consumer that the session keeps for it; None when ``timeout``
        seconds are over, and without a limit for None.

        For programs that ask now and then: that consumer buffers as any other. The session keeps RECEIVED_MAX of them,
        and lets go of the one that was not used for the longest time. Raises as :meth:`consumer` and
        :meth:`Consumer.receive` do.
        """
        self._require_open()
        self._require_no_listener()
        found = destination_of(destination)
        consumer = self._received.get(found)
        if consumer is None or consumer._core.closed:
            consumer = self.consumer(found)
        self._received.pop(found, None)
        self._received[found] = consumer
        self._core.bound_receivers(self._received)
        try:
            return consumer.receive(timeout)
        except BrokerError:
            if consumer._core.failed:  # Its destination is gone, or cannot be reached: the next call looks again.
                self._received.pop(found, None)
                consumer.close()
            raise

    def receive_many(
        self,
        destination: Destination | str,
        max: int = 100,
        timeout: float | None = None,
    ) -> list[Message]:
        """Up to ``max`` messages of a queue or topic, and no more than these: waits for the first as ``receive`` does,
        then takes what follows within BATCH_LINGER_S seconds of one another.

        For programs that hold what they got for a while: nothing else waits in a buffer of the session meanwhile, and
        other consumers get it. Raises as :meth:`consumer` and :meth:`Consumer.receive_many` do.
        """
        check_arguments(max=max, timeout=timeout)
        self._require_open()
        self._require_no_listener()
        consumer = self.consumer(destination, prefetch=max)
        try:
            found = consumer.receive_many(max, timeout)
            while found and len(found) < max:
                more = consumer._follow(max - len(found), opening.BATCH_LINGER_S)
                if not more:
                    break
                found += more
            return found
        finally:
            self._run(opening.let_consumer_go(consumer._core))
            self._consumers.discard(consumer)

    @with_options(SubscriberOptions)
    def durable_consumer(
        self,
        topic: Destination | str,
        name: str,
        selector: str | None = None,
        no_local: bool = False,
        **options: Unpack[SubscriberOptions],
    ) -> Consumer:
        """The one consumer of a subscription that is kept while nobody listens; needs a client id.

        With another topic, selector or no_local than before, what waits in it is dropped. Raises IllegalStateError
        while it is in use. ``options`` as for :meth:`consumer`.
        """
        return self._subscriber(topic, name, selector, no_local, options, durable=True, shared=False)

    @with_options(SubscriberOptions)
    def shared_consumer(
        self,
        topic: Destination | str,
        name: str,
        selector: str | None = None,
        **options: Unpack[SubscriberOptions],
    ) -> Consumer:
        """One of the consumers that share a subscription; it ends with the last of them."""
        return self._subscriber(topic, name, selector, False, options, durable=False, shared=True)

    @with_options(SubscriberOptions)
    def shared_durable_consumer(
        self,
        topic: Destination | str,
        name: str,
        selector: str | None = None,
        **options: Unpack[SubscriberOptions],
    ) -> Consumer:
        """One of the consumers that share a subscription, which is kept while nobody listens."""
        return self._subscriber(topic, name, selector, False, options, durable=True, shared=True)

    def unsubscribe(self, name: str) -> None:
        """End a durable subscription of this client and what waits in it."""
        check_arguments(name=name)
        self._require_open()
        self._run(unsubscribe(self._core, name))

    def browser(
        self, queue: Destination | str, selector: str | None = None, *, serializer: Serializer | None = None
    ) -> Browser:
        """Iterable over what waits in a queue; takes nothing. Raises InvalidDestinationError for a topic."""
        self._require_open()
        make = partial(opening.browser, self._core, queue, selector, serializer)
        browser = Browser(self, make, destination_of(queue).text)
        browser._fresh = browser._open()
        self._browsers.append(browser)
        return browser

    @with_options(RequestOptions)
    def request(
        self,
        destination: Destination | str,
        body: Any,
        timeout: float | None = None,
        *,
        properties: Mapping[str, Any] | None = None,
        **options: Unpack[RequestOptions],
    ) -> Message:
        """Send a message and wait for the answer to it; ``properties`` and ``options`` as for :meth:`Producer.send`.

        Whoever receives it answers with ``message.reply(body)``, or sends to ``message.reply_to`` with a correlation_id
        that is ``message.correlation_id`` or ``message.id``, or with none. The connection must be started. Raises
        RequestTimeoutError after ``timeout`` seconds; an answer that comes later is dropped.
        """
        check_arguments(timeout=timeout)
        self._require_open()
        target = destination_of(destination)
        encode = options_of_request(self._core, target, properties, options)
        core = self._core
        finish = partial(confirmed, core.connection.io)
        requests = self._requests = self._requests or Requests(core.connection, finish, core.reply)
        answer: Future[Message] = Future()
        before = requests.strangers
        try:
            sending = requests.send(target, body, encode, answer)
            return answered(self._core.connection.io, sending, answer, timeout)
        except TimeoutError:
            raise request_timed_out(target, timeout, requests.strangers - before) from None

    # ---- acknowledgement and transactions --------------------------------------------------------------------------

    def recover(self) -> None:
        """Stop, take every unacknowledged message back, and start with the oldest of them, flagged."""
        self._run(self._core.recover())

    def commit(self) -> None:
        """Everything sent and received since the last time happens now; the next transaction is open.

        Raises TransactionRolledBackError, or why a message was refused: nothing of it happened. Raises
        ConnectionLostError when that cannot be known.
        """
        self._run(self._core.require_transactions().commit(cancellable=CANCELLABLE))

    def rollback(self) -> None:
        """Drop what was sent since the last time; what was received comes again, flagged."""
        self._run(self._core.require_transactions().rollback())

    @property
    def transacted(self) -> bool:
        return self._core.transactions is not None

    @property
    def xa(self) -> Xa:
        """Branches of distributed transactions; raises NoXaError, which is an IllegalStateError, unless connected by
        ``connect_xa``."""
        transactions = self._core.transactions
        if not isinstance(transactions, XaTransactions):
            raise NoXaError("xa is for sessions of rb.connect_xa(); this connection is none")
        return Xa(transactions, self._run)

    @property
    def redelivery_delay_ms(self) -> int:
        """Pause before what is recovered or rolled back comes again; the destination's own wins."""
        return self._core.redelivery_delay_ms

    @redelivery_delay_ms.setter
    def redelivery_delay_ms(self, value: int) -> None:
        self._core.redelivery_delay_ms = value

    def close(self) -> None:
        """Close producers (after what they sent is settled) and consumers; roll an open transaction back.

        Everything is closed; then the first error is raised, such as that of :meth:`Producer.close`.
        """
        self._core.connection.io.require_usable()
        self._close(opening.closing_deadline(self._core.connection))

    def _close(self, deadline: Deadline) -> None:
        if self.closed:
            return
        require_may_end("close()", self._core.connection, self._core)
        self.closed = True
        if self._listening is not None:
            ending = IllegalStateError("the session is being closed; the message was not sent")
            for producer in self._producers:
                producer._core.wait_no_longer(ending)
            self._listening.stop()
        faults: list[BrokerError] = []
        if self._window is None:
            with contextlib.suppress(ConnectionLostError, IllegalStateError):
                self._come_back()
        else:
            with collected(faults):
                self._come_back(0)
        self._core.closed = True
        if self._core.transactions is not None:
            with contextlib.suppress(BrokerError):
                self._run(self._core.transactions.close())
        if self._requests is not None:
            with contextlib.suppress(BrokerError):
                self._run(self._requests.close())
        for browser in list(self._browsers):
            with collected(faults):
                browser.close()
        for producer in list(self._producers):
            with contextlib.suppress(ConnectionLostError), collected(faults):
                producer._close(deadline)
        all_done(self._core.connection.io, self._producers.closing())
        if self._core.mode == "dups_ok":
            self._core.connection.io.post(self._core.flush_lazily)
        for consumer in list(self._consumers):
            with collected(faults):
                consumer.close()
        with contextlib.suppress(ConnectionLostError), collected(faults):
            self._run(self._core.close_the_rest())
        self.connection._sessions.remove(self)
        raise_first(faults)

    def __repr__(self) -> str:
        kind = "transacted" if self.transacted else f"ack={self._core.mode!r}"
        made = f"{len(self._producers)} producers, {len(list(self._consumers))} consumers"
        return f"<{type(self).__name__} {kind}, {'closed' if self.closed else made}>"

    def __enter__(self) -> Session:
        """Itself; leaving the ``with`` closes it. Uncommitted work is rolled back, and when an exception ends the
        ``with``, the message in hand of an "auto" session is not acknowledged: it comes again."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._core.leave_in_hand()
        with noted_on(error):
            self.close()

    # ---- used by producers and consumers ---------------------------------------------------------------------------

    def _consumer(self, destination: Destination | str, options: ReceiverOptions, **more: Any) -> Consumer:
        self._require_open()
        work = opening.consumer(self._core, destination, options, **more)
        consumer = Consumer(self, opened(self._core.connection.io, work, opening.let_consumer_go))
        self._consumers.add(consumer)
        return consumer

    def _subscriber(
        self,
        topic: Destination | str,
        name: str,
        selector: str | None,
        no_local: bool,
        options: SubscriberOptions,
        **kind: bool,
    ) -> Consumer:
        check_names(options, SUBSCRIBER, "consumer")
        wanted: ReceiverOptions = {**options, "selector": selector, "no_local": no_local}
        return self._consumer(opening.topic_of(topic), wanted, name=name, **kind)

    def _reply(self, message: Message, body: Any, properties: Mapping[str, Any] | None, options: MessageOptions) -> str:
        target, options = answering(message, options)
        if self._replier is None:
            self._replier = self.producer()
        return self._replier.send(body, properties, destination=target, **options)

    def _delete(self, destination: Destination) -> None:
        """End a temporary destination, and the consumers on it that :meth:`receive` keeps."""
        for session in list(self.connection._sessions):
            session._let_receiver_go(destination)
        self._run(delete_temporary(self._core.connection, destination))

    def _let_receiver_go(self, destination: Destination) -> None:
        """Close the consumer that :meth:`receive` keeps for a destination, unless somebody waits there."""
        kept = self._received.get(destination)
        if kept is not None and not kept._core._notifier.has_waiters:
            del self._received[destination]
            kept.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return run(self._core.connection.io, work)

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
            for kept in self._received.values():  # They are not received from any more, and have a share in what comes.
                self._core.connection.io.post(kept._core.let_go)
            self._received.clear()
        self._listening.work()

    def _come_back(self, wanted: int = 1, *, in_hand: bool = True) -> None:
        """The application asks for more: what "auto" handed out before is acknowledged, and confirmed.

        With an acknowledgement window it waits until ``wanted`` more messages have room in it, 0: until all is
        confirmed. ``in_hand`` False: the application is not done with what it was given last. Raises what became of
        acknowledgements before.
        """
        core = self._core
        window = self._window
        if window is not None:
            if core.comes_back and in_hand:
                core.acknowledge_in_window(window)
            room = window.room(wanted)
            if room is not None:
                result(core.connection.io, room)
            window.check()
        elif core.mode == "dups_ok":
            if in_hand:
                core.waits()
        elif core.comes_back and core.handed.unsettled:
            about_to_wait(core.connection.io)
            for confirmation in core.before_more() if in_hand else core.settle_done():
                with contextlib.suppress(ConnectionLostError):  # What is not acknowledged comes again, flagged.
                    result(core.connection.io, confirmation)
