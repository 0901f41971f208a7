"""Request and reply: a message, a temporary queue for the answer, and who waits for it (D-23).

One temporary queue serves all requests of a session; an answer finds its request by the correlation id, and one that
comes after its request gave up is dropped.  Requests are sent outside of the session's transactions: an answer could
not come before the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from raybroker.client.arguments import check_names
from raybroker.client.consumer import ConsumerCore, ConsumerOptions
from raybroker.client.destinations import Destination, Queue
from raybroker.client.io import fulfil, refuse
from raybroker.client.message import Message
from raybroker.client.options import producer_shared, send_options
from raybroker.client.producer import ProducerCore
from raybroker.client.producing import Shared
from raybroker.client.session import SessionCore
from raybroker.client.subscribing import make_temporary
from raybroker.model.errors import BrokerError, ConnectionLostError, RequestTimeoutError
from raybroker.system.entropy import token

if TYPE_CHECKING:
    from raybroker.client.connection import ConnectionCore

Encode = Callable[[Destination, str], tuple[bytes, Shared]]
"""(where to answer, correlation id) → (headers, shared attributes) of a request."""


def options_of_request(session: SessionCore, options: dict[str, Any]) -> Encode:
    """How a request with these options of ``send`` is encoded; raises TypeError and MessageFormatError at once."""
    names = ("properties", "type", "priority", "ttl_ms", "delivery_delay_ms", "persistent")
    check_names(options, names, "request")
    common, _ = producer_shared(session.connection.attributes, None, None, None, None, None, None)
    get = options.get

    def encode(back: Destination, correlation_id: str) -> tuple[bytes, Shared]:
        return send_options(
            common, get("properties"), correlation_id, back, get("type"), get("priority"), get("ttl_ms"),
            get("delivery_delay_ms"), None, get("persistent"),
        )  # fmt: skip

    encode(Queue("answers"), "")
    return encode


def request_timed_out(destination: Destination, timeout_s: float | None) -> RequestTimeoutError:
    return RequestTimeoutError(f"no answer from {destination.text} within {timeout_s} s")


class Requests:
    """The requests of one session; lives on the IO loop."""

    def __init__(self, connection: ConnectionCore, finish: Callable[[Any], Any]) -> None:
        self._connection = connection
        self._session = SessionCore(connection, "none", finish)
        self._session.wake_listeners = self._wake
        self._opening = asyncio.Lock()
        self._consumer: ConsumerCore | None = None
        self._answers: Destination | None = None
        self._producers: dict[Destination, ProducerCore] = {}
        self._waiting: dict[str, Future[Message]] = {}
        self._sent = 0
        self._prefix = token(8).hex()

    async def send(self, destination: Destination, body: Any, encode: Encode, answer: Future[Message]) -> str:
        """Send a request; ``answer`` gets what comes back. Returns the correlation id, for :meth:`forget`."""
        async with self._opening:
            producer = self._producers.get(destination)
            if producer is None or producer.failure is not None:
                shared = Shared(True, 4)
                producer = await self._connection.open_producer(destination, shared, pickles=False)
                self._producers[destination] = producer
            back = await self._answer_queue()
        self._sent += 1
        correlation_id = f"{self._prefix}-{self._sent}"
        header, shared = encode(back, correlation_id)
        self._waiting[correlation_id] = answer
        answer.add_done_callback(lambda _: self._waiting.pop(correlation_id, None))
        sent: Future[str] = Future()
        while producer.put(body, header, shared, sent, urgent=True, block=False) is None:
            await asyncio.wrap_future(producer.room_future())
        if shared.persistent:
            try:
                await asyncio.wrap_future(sent)
            except BrokerError as error:
                refuse(answer, error)
        return correlation_id

    async def _answer_queue(self) -> Destination:
        """The session's queue for answers; a new one when the old one went with a lost connection."""
        consumer, answers = self._consumer, self._answers
        if consumer is not None and answers is not None and consumer.listener is not None:
            return answers
        answers = Queue(await make_temporary(self._session, Queue))
        consumer = await self._connection.open_consumer(self._session, answers, ConsumerOptions(), create=False)
        consumer.left = self._lost
        consumer.listener = lambda message: None
        self._consumer, self._answers = consumer, answers
        return answers

    def _lost(self, consumer: ConsumerCore) -> None:
        """The queue for answers is gone: those who wait get none."""
        consumer.listener = None
        error = ConnectionLostError("the connection was lost, and with it the queue for the answer")
        for waiting in list(self._waiting.values()):
            refuse(waiting, error)

    def _wake(self) -> None:
        """Something came; called with the buffer's lock held."""
        self._connection.io.post(self._hand_out)

    def _hand_out(self) -> None:
        consumer = self._consumer
        while consumer is not None and not consumer.closed:
            try:
                message = consumer.take_one()
            except BrokerError:
                return
            if message is None:
                return
            waiting = self._waiting.get(message.correlation_id or "")
            if waiting is not None:
                fulfil(waiting, message)

    async def close(self) -> None:
        for waiting in list(self._waiting.values()):
            refuse(waiting, ConnectionLostError("the session was closed before an answer came"))
        if self._consumer is not None:
            self._consumer.shut()
            await self._consumer.close()
        for producer in self._producers.values():
            await producer.close()
            self._connection.forget_producer(producer)
