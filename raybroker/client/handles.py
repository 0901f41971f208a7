"""The blocking producer and consumer; what makes them is ``blocking.py``.

Every wait of a user's thread for a message or for its acknowledgement is here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any

from raybroker.client.consumer import ConsumerCore
from raybroker.client.message import Message
from raybroker.client.options import send_options
from raybroker.client.producer import ProducerCore
from raybroker.client.producing import Shared
from raybroker.model.errors import BrokerError, ConnectionLostError, RequestTimeoutError

if TYPE_CHECKING:
    from raybroker.client.blocking import Session


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
        before = self._core._state.next_seq
        futures = list(self._core.put_many(bodies, shared))
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
            core.wait(0)
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
