"""The blocking handles: Connection, Session, Producer, Consumer. A face over the cores; every wait is here.

A session and what it makes belong to one thread at a time, as in JMS; a connection may be shared.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any

from raybroker.admin.operations import Admin
from raybroker.client.connection import ConnectionCore
from raybroker.client.consumer import ConsumerCore
from raybroker.client.message import Message
from raybroker.client.options import Queue, check_session_options, consumer_options, producer_shared, send_options
from raybroker.client.producer import ProducerCore
from raybroker.client.producing import Shared
from raybroker.client.session import SessionCore
from raybroker.model.errors import BrokerError, ConnectionLostError, IllegalStateError, RequestTimeoutError

if TYPE_CHECKING:
    from types import TracebackType


def _confirmed(confirmations: list[Future[int]]) -> None:
    for confirmation in confirmations:
        confirmation.result()


class Connection:
    """A connection to a cluster (or to the loopback). Delivers nothing until started; ``with`` starts and closes it."""

    def __init__(self, core: ConnectionCore) -> None:
        self._core = core
        self._sessions: list[Session] = []

    def session(self, ack: str = "auto", *, transacted: bool = False) -> Session:
        """A session: one thread's producers and consumers with one acknowledgement mode (R-07 … R-10).

        ack  "auto" | "client" | "dups_ok" | "none"; raises ConfigError for another
        """
        check_session_options(ack, transacted)
        session = Session(self, SessionCore(self._core, ack, _confirmed))
        self._sessions.append(session)
        return session

    def start(self) -> None:
        """Let messages in (C-12)."""
        self._core.io.run(self._core.start())

    def stop(self) -> None:
        """Hand out nothing until start(); sending goes on (C-12)."""
        self._core.io.run(self._core.stop())

    def admin(self) -> Admin:
        """Administration: one method a verb of the command line."""
        return Admin(lambda verb, args: self._core.io.run(self._core.directory.admin(verb, args)))

    def on_exception(self, handler: Callable[[BrokerError], object]) -> None:
        """``handler`` is called, on the IO thread, when a handle of this connection could not be brought back."""
        self._core.on_exception = handler

    @property
    def client_id(self) -> str | None:
        return self._core.client_id

    def close(self) -> None:
        """Close sessions, then the connection. Consumed messages of "auto" sessions are acknowledged first (C-12)."""
        if self._core.closed:
            return
        for session in list(self._sessions):
            session.close()
        self._core.io.run(self._core.close())

    def __enter__(self) -> Connection:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Session:
    """Made by :meth:`Connection.session`."""

    def __init__(self, connection: Connection, core: SessionCore) -> None:
        self.connection = connection
        self._core = core
        self._producers: list[Producer] = []
        self._consumers: list[Consumer] = []
        self._listening: threading.Thread | None = None
        self._work = threading.Event()
        self.closed = False
        core.wake_listeners = self._wake
        core.connection.sessions.append(core)

    def queue(self, name: str) -> Queue:
        """The queue of that name; raises InvalidDestinationError for a bad name (D-04)."""
        return Queue.checked(name)

    def producer(
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
        """A producer; the destination is created when missing and allowed (D-21)."""
        self._require_open()
        shared, pickles = producer_shared(
            persistent, priority, ttl_ms, delivery_delay_ms, unit_of_order, serializer
        )  # fmt: skip
        name = Queue.checked(destination).name
        core = self._core.connection
        producer = Producer(self, core.io.run(core.open_producer(name, shared, pickles=pickles)))
        self._producers.append(producer)
        return producer

    def consumer(
        self,
        destination: Queue | str,
        selector: str | None = None,
        prefetch: int | None = None,
        threshold: int | None = None,
        no_local: bool = False,
        *,
        serializer: str | None = None,
    ) -> Consumer:
        """A consumer.

        prefetch   None: consumerFlowLimit of the destination and the connection (F-05 … F-12).
                   N with ``threshold`` (percent): that limit in the same way.
                   N alone: at most N unacknowledged messages, topped up at half; 1 is one at a time; 0 polls
                   (F-17 … F-20); -1 is without limit.
        """
        self._require_open()
        core = self._core.connection
        options = consumer_options(core.attributes, selector, prefetch, threshold, no_local, serializer)
        name = Queue.checked(destination).name
        opened = core.io.run(core.open_consumer(self._core, name, **options))
        consumer = Consumer(self, opened)
        self._consumers.append(consumer)
        return consumer

    def recover(self) -> None:
        """Stop, take every unacknowledged message back, and start with the oldest of them, flagged (R-11)."""
        self._core.connection.io.run(self._core.recover())

    def close(self) -> None:
        """Close producers (after what they sent is settled) and consumers."""
        if self.closed:
            return
        self.closed = True
        self._work.set()
        if self._listening is not None and self._listening is not threading.current_thread():
            self._listening.join()
        self._come_back()
        for producer in list(self._producers):
            with contextlib.suppress(ConnectionLostError):
                producer.close()
        if self._core.mode == "dups_ok":
            self._core.connection.io.post(self._core.flush_lazily)
        for consumer in list(self._consumers):
            consumer.close()
        self._core.connection.sessions.remove(self._core)
        self.connection._sessions.remove(self)

    # ---- used by producers and consumers ---------------------------------------------------------------------------

    def _require_open(self) -> None:
        if self.closed:
            raise IllegalStateError("the session is closed")

    def _come_back(self) -> None:
        """The application asks for more: what "auto" handed out before is acknowledged, and confirmed (R-07)."""
        core = self._core
        if core.unsettled and core.mode == "auto":
            with contextlib.suppress(ConnectionLostError):
                _confirmed(core.settle())

    def _require_no_listener(self) -> None:
        if self._listening is not None:
            raise IllegalStateError("a session with a message listener cannot receive as well (R-06)")

    # ---- listeners (R-06) ------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._work.set()

    def _listen(self) -> None:
        if self._listening is None:
            self._listening = threading.Thread(target=self._serve, name="raybroker-session", daemon=True)
            self._listening.start()
        self._work.set()

    def _serve(self) -> None:
        """Call listeners serially, one message at a time, for all consumers of the session."""
        while not self.closed:
            self._work.wait()
            self._work.clear()
            busy = True
            while busy and not self.closed:
                busy = False
                for consumer in list(self._consumers):
                    busy = consumer._serve_one() or busy


class Producer:
    """Made by :meth:`Session.producer`. Sends of one producer arrive in order."""

    def __init__(self, session: Session, core: ProducerCore) -> None:
        self.session = session
        self._core = core
        self._timeout_s = (core._connection.attributes["imqAckTimeout"] / 1000) or None

    def send(
        self,
        body: Any,
        properties: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: Any = None,
        type: str | None = None,  # noqa: A002 - the field's name for it is JMSType
        priority: int | None = None,
        ttl_ms: int | None = None,
        delivery_delay_ms: int | None = None,
        unit_of_order: str | None = None,
        persistent: bool | None = None,
    ) -> str:
        """Send one message; returns its id.

        A persistent message: returns when the broker has stored it (R-01, B-04); raises RequestTimeoutError after
        imqAckTimeout, QuotaExceededError or MessageTooLargeError when it is refused. Another: returns when it is handed
        over (R-02).
        """
        header, shared = send_options(
            self._core.shared, properties, correlation_id, reply_to, type, priority, ttl_ms, delivery_delay_ms,
            unit_of_order, persistent,
        )  # fmt: skip
        if not shared.persistent:
            sent = self._core.put(body, header, shared, None, urgent=False)
            assert sent is not None
            return sent
        waiter: Future[str] = Future()
        self._core.put(body, header, shared, waiter, urgent=True)
        try:
            return waiter.result(self._timeout_s)
        except FutureTimeoutError:
            raise RequestTimeoutError(
                f"no acknowledgement from {self._core.name} within imqAckTimeout={self._timeout_s:g} s"
            ) from None

    def send_async(
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
    ) -> Future[str]:
        """Send without waiting: a future of the message id. Waits only while the handle's buffer is full."""
        header, shared = send_options(
            self._core.shared, properties, correlation_id, reply_to, type, priority, ttl_ms, delivery_delay_ms,
            unit_of_order, persistent,
        )  # fmt: skip
        waiter: Future[str] = Future()
        self._core.put(body, header, shared, waiter, urgent=False)
        return waiter

    def send_many(self, bodies: Iterable[Any], *, persistent: bool | None = None) -> int:
        """Send all bodies in full blocks; returns their number once all are stored, or handed over.

        The first refusal is raised, after the others have been settled.
        """
        shared = self._core.shared
        if persistent is not None and persistent != shared.persistent:
            shared = Shared(persistent, shared.priority)
        futures, before = [], self._core._state.next_seq
        for future in self._core.put_many(bodies, shared):
            futures.append(future)
        for future in futures:
            future.exception()
        for future in futures:
            future.result()
        return self._core._state.next_seq - before

    def close(self) -> None:
        """Wait until everything sent is settled, then close."""
        if self._core.closed:
            return
        self._core.settled_future().result()
        self._core._connection.io.run(self._core.close())
        if self._core in self._core._connection.producers:
            self._core._connection.producers.remove(self._core)
        if self in self.session._producers:
            self.session._producers.remove(self)

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Consumer:
    """Made by :meth:`Session.consumer`; iterate over it, or call receive."""

    def __init__(self, session: Session, core: ConsumerCore) -> None:
        self.session = session
        self._core = core

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None when ``timeout`` seconds are over, or the consumer was closed (R-05)."""
        if self.session._listening is not None:
            self.session._require_no_listener()
        if self.session._core.unsettled:
            self.session._come_back()
        message = self._core.take_one() if not self._core.closed else None
        while message is None:
            if self._core.closed or not self._core.wait(timeout):
                return None
            message = self._core.take_one() if not self._core.closed else None
            if message is None and timeout is not None:
                return None
        return message

    def receive_nowait(self) -> Message | None:
        """The next message if one is in the buffer (R-05)."""
        self.session._require_no_listener()
        self.session._come_back()
        if self._core.closed:
            return None
        message = self._core.take_one()
        if message is None:
            self._core.wait(0)
        return message

    def receive_many(self, max: int = 100, timeout: float | None = None) -> list[Message]:  # noqa: A002 - public name
        """Up to ``max`` messages: waits for the first as ``receive`` does, then takes what is in the buffer."""
        self.session._require_no_listener()
        self.session._come_back()
        while not self._core.closed:
            found = self._core.take(max)
            if found or not self._core.wait(timeout):
                return found
            if timeout is not None:
                return [] if self._core.closed else self._core.take(max)
        return []

    def on_message(self, listener: Callable[[Message], object]) -> Consumer:
        """Call ``listener`` for each message, in the session's thread, one after the other (R-06).

        In an "auto" session a message is acknowledged when the listener returns; when it raises, the session recovers
        and the message comes again, flagged.
        """
        self._core.listener = listener
        self.session._listen()
        return self

    def _serve_one(self) -> bool:
        """Hand one message to the listener; False when there is none."""
        listener, core = self._core.listener, self._core
        if listener is None or core.closed:
            return False
        try:
            message = core.take_one()
        except BrokerError:
            return False
        if message is None:
            return False
        try:
            listener(message)
        except Exception:  # noqa: BLE001 - a listener's failure is its message's failure
            with contextlib.suppress(BrokerError):
                self.session.recover()
        else:
            self.session._come_back()
        return True

    @property
    def active(self) -> bool:
        """False for a backup consumer that was not promoted yet (D-15, D-16)."""
        return self._core.active

    def info(self) -> dict[str, Any]:
        """Destination, limit, messages buffered, and consumed but not acknowledged."""
        return self._core.info()

    def close(self) -> None:
        """Detach: what is not acknowledged goes back to the destination (F-25)."""
        if self._core.closed:
            return
        self.session._come_back()
        self._core.shut()
        with contextlib.suppress(ConnectionLostError):
            self._core._connection.io.run(self._core.close())
        if self in self.session._consumers:
            self.session._consumers.remove(self)

    def __iter__(self) -> Iterator[Message]:
        """Messages as they come, until the consumer is closed."""
        while not self._core.closed:
            message = self.receive()
            if message is not None:
                yield message

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
