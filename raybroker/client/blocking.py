"""The blocking Connection and Session: a face over the cores. Producer and Consumer are ``handles.py``.

A session and what it makes belong to one thread at a time, as in JMS; a connection may be shared.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from raybroker.client.admin import Admin
from raybroker.client.connection import ConnectionCore
from raybroker.client.handles import Consumer, Producer
from raybroker.client.options import Queue, check_session_options, consumer_options, producer_shared
from raybroker.client.session import SessionCore
from raybroker.model.errors import BrokerError, ConnectionLostError, IllegalStateError

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
        """``handler`` is called, on the IO thread, with the error that ended a handle.

        Its destination was destroyed or is damaged, or it could not be brought back after a lost connection.
        """
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
