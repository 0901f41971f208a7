"""Request and reply: a message, a temporary queue for the answer, and who waits for it.

An answer goes to the ``reply_to`` of the request and carries the request's correlation id, or its message id, which is
the usual pattern of JMS; ``message.reply(body)`` does that.  One without a correlation id is taken too, since a request
has a temporary queue to itself: queues are used again by later requests of the session, but not after a request gave
up, so that a late answer to it is never taken for the answer to another one.  More than ANSWER_QUEUES_MAX requests
under way in one session share these queues, and then answers need a correlation id.

Requests are sent outside of the session's transactions: an answer could not come before the commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, cast

from raybroker.client.arguments import check_names
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.consumer.acknowledging.acknowledgement_answers import Confirmations
from raybroker.client.consumer.consumer import ConsumerCore, MemberOwner
from raybroker.client.consumer.consumer_options import ConsumerOptions
from raybroker.client.consumer.message import Message, Reply
from raybroker.client.consumer.subscriptions import delete_temporary, make_temporary
from raybroker.client.destinations import Destination, Queue, destination_of
from raybroker.client.io.io_thread import fulfil, refuse
from raybroker.client.options import MESSAGE, REQUEST, MessageOptions, RequestOptions
from raybroker.client.producer.bodies.compression import body_encoder
from raybroker.client.producer.header_overrides import HeaderOverrides
from raybroker.client.producer.open_producer import open_producer
from raybroker.client.producer.producer import ProducerCore
from raybroker.client.producer.producer_state import Shared
from raybroker.client.producer.send_options import producer_shared, send_options
from raybroker.client.session.session import SessionCore
from raybroker.model.errors import BrokerError, ConnectionLostError, IllegalStateError, RequestTimeoutError
from raybroker.system.entropy import token

ANSWER_QUEUES_MAX: Final = 8
"""Temporary queues of one session that requests under way have to themselves; more requests share them."""
SPENT_QUEUES_MAX: Final = 8
"""Queues of requests that gave up which are kept, so that a late answer can be sent and is dropped; the oldest goes."""
PRODUCERS_MAX: Final = 32
"""Destinations of requests whose producers stay open; one more closes the one that is open for the longest time."""
Encode = Callable[[Destination, str], tuple[bytes, Shared]]
"""(where to answer, correlation id) → (headers, shared attributes) of a request."""


def options_of_request(
    session: SessionCore,
    destination: Destination,
    properties: Mapping[str, Any] | None,
    options: RequestOptions,
) -> Encode:
    """How a request with these options is encoded; raises TypeError and MessageFormatError at once."""
    check_names(options, REQUEST, "request")
    common, _ = producer_shared(session.connection.attributes, {})
    overrides = HeaderOverrides.from_attributes(session.connection.attributes)
    if overrides is not None and not overrides.hold_for(destination):
        overrides = None

    def encode(back: Destination, correlation_id: str) -> tuple[bytes, Shared]:
        own = cast("MessageOptions", options)
        found = {**own, "correlation_id": correlation_id, "reply_to": back}
        header, shared = send_options(common, properties, cast("MessageOptions", found))
        return header, shared if overrides is None else overrides.put_on(shared)

    encode(Queue("answers"), "")
    return encode


class AnswerQueue(MemberOwner):
    """A temporary queue, its consumer, and the requests whose answers it waits for: each by correlation and message
    id."""

    def __init__(self, session: SessionCore, destination: Destination, queues: list[AnswerQueue]) -> None:
        """``queues``: those of the session, which it leaves when it is lost."""
        self.destination = destination
        self.consumer = ConsumerCore(session, destination, ConsumerOptions(), owner=self)
        self.waiting: dict[str, Future[Message]] = {}
        self.spent = False
        """A request gave up: what comes may be the answer to that one."""
        self._queues = queues

    def member_failed(self, member: ConsumerCore) -> None:
        """The queue is gone: those who wait get no answer."""
        if self in self._queues:
            self._queues.remove(self)
        self.consumer.listener = None
        error = ConnectionLostError("the connection was lost, and with it the queue for the answer")
        for waiting in self.requests():
            refuse(waiting, error)

    def requests(self) -> list[Future[Message]]:
        return list({id(future): future for future in self.waiting.values()}.values())

    def request_of(self, message: Message) -> Future[Message] | None:
        """The request that a message answers; None for none."""
        if message.correlation_id:
            return self.waiting.get(message.correlation_id)
        requests = self.requests()
        return requests[0] if len(requests) == 1 and not self.spent else None

    def forget_answer(self, answer: Future[Message]) -> None:
        self.waiting = {key: future for key, future in self.waiting.items() if future is not answer}
        if answer.cancelled():
            self.spent = True


class Requests:
    """The requests of one session; lives on the IO loop. ``reply``: how the session replies to a message."""

    def __init__(self, connection: ConnectionCore, finish: Callable[[Confirmations], Any], reply: Reply) -> None:
        self._connection = connection
        self._session = SessionCore(connection, "none", finish, reply=reply)
        self._session.hear(self._wake)
        self._opening = asyncio.Lock()
        self._queues: list[AnswerQueue] = []
        self._producers: dict[Destination, ProducerCore] = {}
        self._sent = 0
        self._prefix = token(8).hex()
        self.strangers = 0
        """Messages that came and answered no request that waits."""

    async def send(self, destination: Destination, body: Any, encode: Encode, answer: Future[Message]) -> None:
        """Send a request; ``answer`` gets what comes back."""
        async with self._opening:
            producer = await self._producer(destination)
            queue = await self._answer_queue()
            self._sent += 1
            correlation_id = f"{self._prefix}-{self._sent}"
            queue.waiting[correlation_id] = answer
        answer.add_done_callback(lambda done: self._connection.io.post(self._over, queue, done))
        header, shared = encode(queue.destination, correlation_id)
        sent: Future[str] = Future()
        while (id_ := producer.put(body, header, shared, sent, urgent=True, block=False)) is None:
            await asyncio.wrap_future(producer.room_future())
        if not answer.done():
            queue.waiting[id_] = answer
        if shared.persistent:
            try:
                await asyncio.wrap_future(sent)
            except BrokerError as error:
                refuse(answer, error)

    async def _producer(self, destination: Destination) -> ProducerCore:
        producer = self._producers.get(destination)
        if producer is None or producer.failure is not None:
            if producer is None and len(self._producers) >= PRODUCERS_MAX:
                await self._close_producer(next(iter(self._producers)))
            encode = body_encoder(self._connection)
            producer = await open_producer(self._connection, destination, Shared(True, 4), encode=encode)
            self._producers[destination] = producer
        return producer

    async def _close_producer(self, destination: Destination) -> None:
        producer = self._producers.pop(destination)
        await asyncio.wrap_future(producer.settled_future())
        await producer.close()

    async def _answer_queue(self) -> AnswerQueue:
        """A queue that no request waits at; a shared one when there are as many as may be."""
        usable = [queue for queue in self._queues if not queue.spent]
        idle = [queue for queue in usable if not queue.waiting]
        if idle:
            return idle[0]
        if len(usable) >= ANSWER_QUEUES_MAX:
            return min(usable, key=lambda queue: len(queue.waiting))
        made = Queue(await make_temporary(self._session, Queue))
        queue = AnswerQueue(self._session, made, self._queues)
        await queue.consumer.open(create=False)
        queue.consumer.listener = lambda message: None
        self._queues.append(queue)
        return queue

    def _over(self, queue: AnswerQueue, answer: Future[Message]) -> None:
        """A request has its answer, or gave up."""
        queue.forget_answer(answer)
        spent = [queue for queue in self._queues if queue.spent and not queue.waiting]
        for old in spent[: max(len(spent) - SPENT_QUEUES_MAX, 0)]:
            self._queues.remove(old)
            if not self._connection.closed:
                self._connection.tasks.spawn(self._close(old))

    def _wake(self) -> None:
        """Something came; called with the buffer's lock held."""
        self._connection.io.post(self._hand_out)

    def _hand_out(self) -> None:
        for queue in list(self._queues):
            while not queue.consumer.closed:
                try:
                    message = queue.consumer.take_one()
                except BrokerError:
                    break
                if message is None:
                    break
                waiting = queue.request_of(message)
                if waiting is None:
                    self.strangers += 1
                else:
                    queue.forget_answer(waiting)
                    fulfil(waiting, message)

    async def _close(self, queue: AnswerQueue) -> None:
        queue.consumer.shut()
        with contextlib.suppress(BrokerError):
            await queue.consumer.close()
            await delete_temporary(self._connection, queue.destination)

    async def close(self) -> None:
        for queue in list(self._queues):
            for waiting in queue.requests():
                refuse(waiting, ConnectionLostError("the session was closed before an answer came"))
            await self._close(queue)
        for producer in self._producers.values():
            await producer.close()


def weakly(reply: Reply) -> Reply:
    """A method of a session's handle, for its core, which must not keep the handle alive."""
    found = weakref.WeakMethod(reply)

    def call(message: Message, body: Any, properties: Mapping[str, Any] | None, options: MessageOptions) -> Any:
        method = found()
        if method is None:
            raise IllegalStateError("the session that received the message is gone")
        return method(message, body, properties, options)

    return call


def request_timed_out(destination: Destination, timeout_s: float | None, strangers: int = 0) -> RequestTimeoutError:
    """``strangers``: messages that came meanwhile and answered nothing."""
    text = f"no answer from {destination.text} within {timeout_s} s"
    if strangers:
        text += (
            f"; {strangers} messages came that answer no request: the correlation_id of an answer is that of the"
            " request, or its message id, as message.reply(body) has it"
        )
    return RequestTimeoutError(text)


def answering(message: Message, options: MessageOptions) -> tuple[Destination, MessageOptions]:
    """Return where a reply to a message goes, and the options of ``send`` for it.

    Raises IllegalStateError when the message asks for none.
    """
    if not message.reply_to:
        raise IllegalStateError(f"message {message.id} has no reply_to: its sender expects no reply")
    check_names(options, MESSAGE, "reply")
    return destination_of(message.reply_to), {"correlation_id": message.correlation_id or message.id or None, **options}
