# Generated from raybroker/client/aio/handles.py: change that file, then run `python -m tests.tidy.blocking_face`.
"""The blocking handles: a connection makes sessions, and a session producers, consumers and browsers.

A session and what it makes belong to one thread at a time, as in JMS; a connection may be shared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Unpack, overload

from raybroker.client.blocking.listening import Listening
from raybroker.client.blocking.waiting import (
    CANCELLABLE,
    ProducerBase,
    about_to_wait,
    all_done,
    answered,
    arrival,
    called_back,
    confirmed,
    done_within,
    opened,
    put,
    result,
    room_for_callbacks,
    run,
    settle,
    stored,
    with_room,
)
from raybroker.client.arguments import check_arguments, check_names, check_timeout
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.connection.events import ConnectionEvent, ConsumerEvent
from raybroker.client.consumer.acknowledging.acknowledgement_window import AcknowledgementWindow
from raybroker.client.consumer.browser import BrowserCore, require_open
from raybroker.client.consumer.lost_consumers import ConsumerHandles, let_go
from raybroker.client.consumer.message import Message
from raybroker.client.consumer.multi_broker import AnyConsumer
from raybroker.client.consumer.subscriptions import delete_temporary, unsubscribe
from raybroker.client.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic, destination_of
from raybroker.client.io.callbacks import Callbacks
from raybroker.client.io.closing import AGAIN_S, Deadline, collected, noted_on, raise_first
from raybroker.client.io.unreferenced import Handles
from raybroker.client.listener.handler import Backoff, Handler, Retries, Types
from raybroker.client.listener.in_call import require_may_end
from raybroker.client.options import (
    SUBSCRIBER,
    MessageOptions,
    ProducerOptions,
    ReceiverOptions,
    RequestOptions,
    SendOptions,
    SubscriberOptions,
    with_options,
)
from raybroker.client.pickled import Made, PicklableConnection, Unpicklable
from raybroker.client.producer.bodies.body_reference import BodyReference, given_by_reference, reference_bytes
from raybroker.client.producer.bodies.header_hints import HeaderHints
from raybroker.client.producer.header_overrides import OverriddenOptions, common_options
from raybroker.client.producer.members.unnamed import AnyProducer, OwnProducer, UnnamedProducer
from raybroker.client.producer.schedule import OF_SCHEDULES, scheduled, take_plan
from raybroker.client.producer.send_future import SendFuture
from raybroker.client.producer.send_many import many_options
from raybroker.client.session import opening
from raybroker.client.session.opening import (
    check_window,
    closed_consumer,
    closed_while_full,
    closing_deadline,
    let_consumer_go,
    own_or_named,
    partly_sent,
    require_batches,
    require_messages,
)
from raybroker.client.session.request import Requests, answering, options_of_request, request_timed_out, weakly
from raybroker.client.session.session import Ack, SessionCore, session_mode
from raybroker.client.session.transaction import SessionTransactions
from raybroker.client.session.xa import Xa, XaTransactions
from raybroker.content.scattered import bytes_in
from raybroker.model.batch import Batch
from raybroker.model.errors import BrokerError, ConnectionLostError, IllegalStateError, NoXaError, RequestTimeoutError

if TYPE_CHECKING:
    from types import TracebackType

    from raybroker.client.admin.admin import Admin
    from raybroker.client.producer.bodies.body_encoding import Serializer
RECEIVED_MAX: Final = 100
"""Destinations for which ``session.receive`` keeps a consumer."""


class Connection(PicklableConnection):
    """A connection to a cluster (or to the loopback). Delivers nothing until started.

    ``with`` starts and closes it.
    """

    _transactions: ClassVar[type[SessionTransactions]] = SessionTransactions
    """Of its transacted sessions."""

    def __init__(self, core: ConnectionCore) -> None:
        self._core = core
        settle(self._core.io, self._core)
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
        self._replier: Producer | None = None
        core.connection.begin_session()

    @property
    def closed(self) -> bool:
        return self._core.ending

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
        prefetch: int | str | None = None,
        threshold: int | None = None,
        no_local: bool = False,
        *,
        serializer: Serializer | None = None,
        ack_timeout_ms: int | None = None,
        fenced: bool = False,
        prefetch_bytes: int | None = None,
        prefetch_cost: int | None = None,
        batch: Batch | None = None,
        labels: Sequence[str] = (),
    ) -> Consumer:
        """A consumer of a queue, or a subscriber of a topic or of all topics that match a pattern.

        selector   only messages that it matches; raises InvalidSelectorError
        prefetch   None: consumerFlowLimit of the destination and the connection.
                   N with ``threshold`` (percent): that limit in the same way.
                   N alone: at most N unacknowledged messages, topped up at half; 1 is one at a time; 0 polls;
                   -1 is without limit.
                   "auto" or "auto:MIN-MAX": chosen, and chosen anew, by how long the application takes for a message
                   and how long others take to come; from 1 or MIN messages to MAX or consumerFlowLimit.
        no_local   leave out what this connection publishes (topics)
        ack_timeout_ms  a message that is received and not acknowledged for so long comes again, here or elsewhere
        fenced     each delivery has a fencing number, ``Message.fence``
        prefetch_bytes, prefetch_cost   besides ``prefetch``, one of them: what comes ahead of the application from one
                   broker has at most so many bytes, or costs so much, by the property ``cost`` of messages or 1 each
        labels     what is at hand here, such as a model: messages of a destination with affinityKey that ask for it
                   are for this consumer at first; in Ray its node is one. Use a small ``prefetch`` with it
        batch      the broker forms batches of messages, see :class:`raybroker.Batch`; ``receive_batch`` gets them. For
                   sessions with ack="client" or "auto", without ``prefetch``, of one broker
        """
        options: ReceiverOptions = {
            "selector": selector,
            "prefetch": prefetch,
            "threshold": threshold,
            "no_local": no_local,
            "serializer": serializer,
            "ack_timeout_ms": ack_timeout_ms,
            "fenced": fenced,
            "prefetch_bytes": prefetch_bytes,
            "prefetch_cost": prefetch_cost,
            "batch": batch,
            "labels": labels,
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
        while len(self._received) > RECEIVED_MAX:
            left = self._received.pop(next(iter(self._received)))
            self._core.connection.io.post(left._core.let_go)
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
        self._core.ending = True
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
            self._listening = Listening(self._core, self._consumers, self._come_back, self.commit)
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


class Producer(ProducerBase, HeaderHints):
    """Made by :meth:`Session.producer`. Sends of one producer arrive in order."""

    def __init__(self, session: Session, core: OwnProducer, made: Made) -> None:
        self.session = session
        self._core = core
        self._own = None if isinstance(core, UnnamedProducer) else core
        """That of the destination that it was made for."""
        self._io = core._connection.io
        self._common = common_options(core._connection.attributes, core.destination)
        self._callbacks = Callbacks(f"callbacks of {core.name}")
        self._timeout_s = (core._connection.attributes["imqAckTimeout"] / 1000) or None
        self._made = made
        self._reference_bytes = reference_bytes(made[1], core._connection.attributes)

    @with_options(SendOptions)
    def send(
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
        if type(body) is BodyReference or 0 <= self._reference_bytes < bytes_in(body):
            objects = self._core._connection.channels.objects if plan is None else None
            body, properties = given_by_reference(body, properties, objects)
        header, shared = self._common.find(self._core.shared, properties, options, destination)
        target = self._own if destination is None else None
        if target is None:
            target = self._target(destination)
        if options and options.get("dedup_id") is not None:
            check_window(target)
        if plan is not None:
            work = scheduled(target, body, header, shared, plan, self._timeout_s)
            made: str = self.session._run(work)
            return made
        if (not shared.persistent or self.session._core.transactions is not None) and (
            target.one_way is None or not target.one_way.is_two_way(shared.unit, header)
        ):
            sent = target.put(body, header, shared, None, urgent=False, block=False)
            return sent or put(target, body, header, shared, None, self._timeout_s, urgent=False)
        return stored(target, body, header, shared, self._timeout_s)

    @overload
    def send_async(
        self,
        body: Any,
        properties: Mapping[str, Any] | None = None,
        *,
        destination: Destination | str | None = None,
        fire_and_forget: Literal[True],
        **options: Unpack[MessageOptions],
    ) -> None: ...

    @overload
    def send_async(
        self,
        body: Any,
        properties: Mapping[str, Any] | None = None,
        *,
        destination: Destination | str | None = None,
        fire_and_forget: Literal[False] = False,
        **options: Unpack[MessageOptions],
    ) -> Future[str]: ...

    @with_options(MessageOptions)
    def send_async(
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
        if type(body) is BodyReference or 0 <= self._reference_bytes < bytes_in(body):
            body, properties = given_by_reference(body, properties, self._core._connection.channels.objects)
        header, shared = self._common.find(self._core.shared, properties, options, destination)
        target = self._own if destination is None else None
        if target is None:
            target = self._target(destination)
        if options and options.get("dedup_id") is not None:
            check_window(target)
        if fire_and_forget is False:
            if self._callbacks.full:
                room_for_callbacks(self._callbacks)
            waiter = SendFuture(self._callbacks, self._io)
            if target.put(body, header, shared, waiter, urgent=False, block=False) is None:
                put(target, body, header, shared, waiter, self._timeout_s, urgent=False)
            return waiter
        check_arguments(fire_and_forget=fire_and_forget)
        if target.put(body, header, shared, None, urgent=False, block=False) is None:
            put(target, body, header, shared, None, self._timeout_s, urgent=False)
        return None

    def send_many(
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
        target = self._target(destination)
        sent, blocks = 0, list[tuple[int, Future[str]]]()
        try:
            for count, future in with_room(target, target.put_many(bodies, shared, each), self._timeout_s):
                sent += count
                blocks.append((count, future))
        except RequestTimeoutError as error:
            raise partly_sent(target, blocks, self._timeout_s) from error
        if self.session._core.transactions is None:
            for _, future in blocks:
                if not done_within(self._core._connection.io, future, self._timeout_s):
                    raise partly_sent(target, blocks, self._timeout_s)
            for _, future in blocks:
                future.result()
        return sent

    def _target(self, destination: Destination | str | None) -> AnyProducer:
        if destination is None and self._own is not None:
            return self._own
        own = self._core
        found = own_or_named(own, destination)
        if not isinstance(found, Destination):
            return found
        opened: AnyProducer = self.session._run(own.find(found))  # type: ignore[union-attr]  # one without a destination has its own way to find one
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

    def close(self) -> None:
        """Wait until everything sent is settled, then close.

        Raises IllegalStateError when its destination was full for raybroker.reconnect.timeout_ms: what was left is
        lost, and its futures say so.
        """
        self._core._connection.io.require_usable()
        self._close(closing_deadline(self._core._connection))

    def _close(self, deadline: Deadline) -> None:
        core = self._core
        if core.closed:
            return
        given_up = False
        for settled in core.settled_futures():
            while not (given_up or settled.done()):
                in_time = done_within(core._connection.io, settled, deadline.left_s)
                given_up = not in_time and core.throttled
                if not (in_time or given_up):
                    done_within(core._connection.io, settled, AGAIN_S)
        self.session._run(core.close())
        self.session._producers.remove(self)
        if given_up:
            raise closed_while_full(core)

    def __repr__(self) -> str:
        if not self._is_made:
            return f"<{type(self).__name__}, not opened yet>"
        core = self._core
        where = core.destination.text if core.destination is not None else core.name
        return f"<{type(self).__name__} for {where}{', closed' if core.closed else ''}>"

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with noted_on(error):
            self.close()


class Consumer(Unpicklable):
    """Made by :meth:`Session.consumer`; iterate over it, or call receive."""

    def __init__(self, session: Session, core: AnyConsumer) -> None:
        self.session = session
        self._core = core

    def receive(self, timeout: float | None = None) -> Message | None:
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
            session._come_back()
        message = core.take_one()
        if message is None:  # "take_one" is looked up on every pass: joining a broker replaces it.
            session._core.waits()
            message = arrival(core, lambda: core.take_one(), timeout)  # noqa: PLW0108
        return message

    def receive_nowait(self) -> Message | None:
        """The next message if one is in the buffer."""
        self.session._require_no_listener()
        if self._core.closed:
            raise closed_consumer(self._core)
        self.session._come_back()
        message = self._core.take_one()
        if message is None:
            self._core.wait(0)
        return message

    def receive_many(self, max: int = 100, timeout: float | None = None) -> list[Message]:
        """Up to ``max`` messages: waits for the first as ``receive`` does, then takes what is in the buffer."""
        check_arguments(max=max, timeout=timeout)
        self.session._require_no_listener()
        core = self._core
        if core.closed:
            raise closed_consumer(core)
        self.session._come_back(max)
        return self._follow(max, timeout)

    def receive_batch(self, timeout: float | None = None) -> list[Message]:
        """The next batch, as the broker has formed it: its messages are leased together, and settled one by one or
        together. Empty when ``timeout`` seconds are over, or the consumer is closed meanwhile; what comes after that
        waits for the next call.

        Raises IllegalStateError unless the consumer was opened with ``batch``, and as :meth:`receive` does.
        """
        check_arguments(timeout=timeout)
        self.session._require_no_listener()
        core = require_batches(self._core)
        if core.closed:
            raise closed_consumer(core)
        self.session._come_back()
        return core.take_batch() or arrival(core, core.take_batch, timeout) or []

    def _follow(self, most: int, timeout: float | None) -> list[Message]:
        """Up to ``most`` messages, together with those that the application is about to get."""
        core, handed = self._core, self.session._core.handed
        handed.in_batch = True
        try:
            return core.take_messages(most) or arrival(core, lambda: core.take_messages(most), timeout) or []
        finally:
            handed.in_batch = False

    def on_message(
        self,
        listener: Callable[[Message], object],
        *,
        retry_on: Types | type[BaseException] = (),
        reject_on: Types | type[BaseException] = (),
        backoff: Backoff = None,
    ) -> Consumer:
        """Call ``listener`` for each message, in the session's thread, one after the other.

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
        require_messages(core)
        handler = Handler(listener, Retries.checked(retry_on, reject_on, backoff))
        core._connection.warn_unless_started()
        core.listener = handler
        self.session._consumers.keep(self, self._core)
        self.session._listen()
        return self

    @property
    def active(self) -> bool:
        """False for a backup consumer that was not promoted yet."""
        return self._core.active

    def info(self) -> dict[str, Any]:
        """Destination, limit, messages buffered, and consumed but not acknowledged."""
        return self._core.info()

    def close(self) -> None:
        """Detach: what is not acknowledged goes back to the destination. In "auto" and "dups_ok" sessions what was
        received is acknowledged first; not so when an exception leaves the ``with`` of the consumer.

        Waits for a call of its listener that runs; closed by that call, it ends once the call has returned.
        With an ``ack_window`` it waits until all is confirmed, closes, and raises the first failure.
        """
        self._close(in_hand=True)

    def _close(self, *, in_hand: bool) -> None:
        """Close it; ``in_hand``: the application is done with what it was given last."""
        core, session = self._core, self.session
        core._connection.io.require_usable()
        if core.closed:
            return
        if session._listening is not None:
            core.listener = None
            if session._listening.calls(core):
                session._consumers.discard(self)
                session._run(let_consumer_go(core))
                return
            session._listening.call_of(core)
            in_hand = False  # What was called is settled, and another consumer's call may run.
        faults: list[BrokerError] = []
        if session._core.mode in ("auto", "dups_ok"):
            with collected(faults):
                session._come_back(0, in_hand=in_hand)
            if session._core.mode == "dups_ok":
                core._connection.io.post(session._core.flush_lazily)
        core.shut()
        with contextlib.suppress(ConnectionLostError):
            session._run(core.close())
        session._consumers.discard(self)
        raise_first(faults)

    def _closed(self) -> bool:
        return self._core.closed

    def __del__(self) -> None:
        if self.__dict__.get("_core") is not None:
            let_go(self._core)

    def __iter__(self) -> Iterator[Message]:
        """Messages as they come, until the consumer is closed."""
        self._core._connection.io.require_usable()
        while not self._closed():
            try:
                message = self.receive()
            except IllegalStateError:
                if self._closed():
                    return  # Another thread has closed it at this moment.
                raise
            if message is not None:
                yield message

    def __repr__(self) -> str:
        core = self._core
        state = "closed" if core.closed else f"{core.info()['buffered']} buffered"
        return f"<{type(self).__name__} of {core.destination.text}, {state}>"

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with noted_on(error):
            self._close(in_hand=error is None)


class Browser(Unpicklable):
    """Made by :meth:`Session.browser`: iterate over it, as often as you like; every pass sees the queue anew."""

    def __init__(self, session: Session, make: Callable[[], BrowserCore], text: str) -> None:
        """``text``: what it looks at."""
        self.session = session
        self._text = text
        self.closed = False
        self._make = make
        self._passes: list[BrowserCore] = []
        self._fresh: BrowserCore | None = None

    def _open(self) -> BrowserCore:
        core = self._make()
        self.session._run(core.open())
        self._passes.append(core)
        return core

    def __iter__(self) -> Iterator[Message]:
        """The messages that wait, in order; raises RequestTimeoutError after imqQueueBrowserRetrieveTimeout."""
        require_open(self.closed)
        return self._iterate()

    def _iterate(self) -> Iterator[Message]:
        core, self._fresh = self._fresh, None
        if core is None:
            core = self._open()
        try:
            while chunk := self.session._run(core.fetch()):
                for message in chunk:
                    yield message
        finally:
            self._end_pass(core)

    def _end_pass(self, core: BrowserCore) -> None:
        if core in self._passes:
            self._passes.remove(core)
        with contextlib.suppress(ConnectionLostError):
            self.session._run(core.close())

    def close(self) -> None:
        """End it, and every pass that is under way."""
        self.session._core.connection.io.require_usable()
        if self.closed:
            return
        self.closed = True
        for core in list(self._passes):
            self._end_pass(core)
        if self in self.session._browsers:
            self.session._browsers.remove(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._text}{', closed' if self.closed else ''}>"

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with noted_on(error):
            self.close()
