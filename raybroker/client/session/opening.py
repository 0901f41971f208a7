"""Opening of producers, consumers and browsers for a session: each function returns work for the IO loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, Final

from raybroker.client.arguments import check_arguments, check_names
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.consumer.batch_consumer import BatchConsumerCore
from raybroker.client.consumer.browser import BrowserCore, check_browsable
from raybroker.client.consumer.consumer_options import consumer_options
from raybroker.client.consumer.multi_broker import AnyConsumer
from raybroker.client.consumer.multi_broker_batches import MultiBrokerBatches
from raybroker.client.consumer.subscriptions import (
    SHARING,
    make_temporary,
    open_consumer,
    shared_by_policy,
    subscription,
)
from raybroker.client.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic, destination_of
from raybroker.client.io.closing import AGAIN_S, Deadline
from raybroker.client.options import PRODUCER, ProducerOptions, ReceiverOptions
from raybroker.client.producer.bodies.body_encoding import Encode, check_serializer
from raybroker.client.producer.bodies.compression import body_encoder
from raybroker.client.producer.members.topic_pattern import PatternProducer
from raybroker.client.producer.members.unit_routing import RoutedProducer
from raybroker.client.producer.members.unnamed import AnyProducer, OwnProducer, UnnamedProducer
from raybroker.client.producer.open_producer import open_producer
from raybroker.client.producer.producer import ProducerCore
from raybroker.client.producer.producer_state import Shared
from raybroker.client.producer.send_options import producer_shared
from raybroker.client.session.session import SessionCore
from raybroker.model.errors import BrokerError, ConfigError, IllegalStateError, RequestTimeoutError
from raybroker.model.naming.names import is_temporary_name

BATCHED: Final = ("client", "auto")
"""Modes of sessions whose consumers may ask for batches."""
BATCH_LINGER_S: Final = 0.005
"""How long ``Session.receive_many`` waits for a message that follows another."""


def consumer(
    core: SessionCore,
    destination: object,
    options: ReceiverOptions,
    *,
    name: str | None = None,
    durable: bool = False,
    shared: bool = False,
    everyones: bool = False,
    recalls: bool = True,
    buffer_bytes: int | None = None,
) -> Coroutine[Any, Any, AnyConsumer]:
    """A consumer; with ``durable`` or ``shared`` of the subscription ``name``, which with ``everyones`` is shared over
    all client ids. ``recalls`` False: what comes goes on at
    once to somebody who cannot give it back. ``buffer_bytes``: instead of raybroker.client.buffer_bytes."""
    found = destination_of(destination)
    wanted = (
        subscription(found, name, durable=durable, shared=shared, everyones=everyones) if durable or shared else None
    )
    attributes, client_id = core.connection.attributes, core.connection.client_id
    selector, no_local = options.get("selector"), options.get("no_local", False)
    wanted = shared_by_policy(attributes[SHARING], client_id, found, wanted, selector, no_local=no_local)
    asked = consumer_options(attributes, options, wanted, recalls=recalls, buffer_bytes=buffer_bytes)
    if asked.batch is not None and core.mode not in BATCHED:
        raise ConfigError(
            f"batch= in a session of {core.mode!r}: a batch is leased as one, and settled message by message; use a"
            f" session with ack={' or ack='.join(map(repr, BATCHED))}, not transacted"
        )
    return open_consumer(core, found, asked)


def gateway_session(connection: ConnectionCore, mode: str) -> SessionCore:
    """A session of a gateway, which waits for confirmations by callbacks."""
    from raybroker.client.session.joint_transaction import JointTransactions  # Gateways alone have such.

    made = SessionCore(connection, mode, list, transactions=JointTransactions)
    connection.begin_session()
    return made


def sent_by_default(core: SessionCore) -> Shared:
    """What messages have that say nothing of themselves."""
    return producer_shared(core.connection.attributes, {}, core.owner)[0]


def topic_of(topic: Destination | str) -> Destination:
    """Read a destination where only a topic can stand: a name alone is a topic's."""
    if isinstance(topic, str) and ":" not in topic:
        return Topic.checked(topic)
    return destination_of(topic)


def producer(core: SessionCore, destination: object, options: ProducerOptions) -> Coroutine[Any, Any, OwnProducer]:
    """A producer; without a destination one whose sends name theirs. Raises TypeError for an unknown option."""
    check_names(options, PRODUCER, "producer")
    nameless, timeless = options.get("disable_message_id", False), options.get("disable_message_timestamp", False)
    check_arguments(disable_message_id=nameless, disable_message_timestamp=timeless)
    threshold = options.get("compression_threshold")
    check_arguments(compression_threshold=threshold)
    check_arguments(reference_threshold=options.get("reference_threshold"))
    shared, pickles = producer_shared(core.connection.attributes, options, core.owner)
    shared = shared._replace(named=not nameless, stamped=not timeless)
    encode = body_encoder(core.connection, pickles=pickles, threshold_bytes=threshold)
    if destination is None:
        return _unnamed(core, shared, encode=encode)
    return _open_producer(core, destination_of(destination), shared, encode=encode)


async def _unnamed(core: SessionCore, shared: Shared, *, encode: Encode) -> UnnamedProducer:
    def opener(destination: Destination, common: Shared) -> Coroutine[Any, Any, AnyProducer]:
        return _open_producer(core, destination, common, encode=encode)

    return UnnamedProducer(core.connection, shared, opener, let_go, transacted=core.transactions is not None)


async def _open_producer(core: SessionCore, found: Destination, shared: Shared, *, encode: Encode) -> AnyProducer:
    connection, transactions = core.connection, core.current
    if found.is_pattern:
        pattern = PatternProducer(connection, found, shared, encode=encode, transactions=transactions)
        await pattern.open()
        return pattern
    create = found not in connection.kept.temporaries
    opened: ProducerCore | RoutedProducer
    if connection.brokers.alone or is_temporary_name(found.name):
        opened = await open_producer(connection, found, shared, encode=encode, transactions=transactions, create=create)
    else:
        opened = RoutedProducer(connection, found, shared, encode=encode, transactions=transactions)
        await opened.open(create=create)
    if transactions is not None and transactions.transaction is None:
        opened.refuse_sends(transactions.nothing_open())
    return opened


def own_or_named(own: OwnProducer, destination: Destination | str | None) -> AnyProducer | Destination:
    """Return where a send goes: the producer itself, or for an unnamed one the destination that the send names.

    Raises IllegalStateError when there are two destinations, or none.
    """
    if destination is None:
        if isinstance(own, UnnamedProducer):
            raise IllegalStateError("this producer has no destination of its own: send(body, destination=…) names one")
        return own
    if not isinstance(own, UnnamedProducer):
        raise IllegalStateError(
            f"this producer sends to {own.name}; destination= is for one that session.producer() made without"
        )
    found = destination_of(destination)
    return own.known(found) or found


def check_window(core: AnyProducer) -> None:
    """A message with a deduplication id is about to be sent: log, once, when the destination does not look at it."""
    home = core.home if isinstance(core, RoutedProducer) else core
    if isinstance(home, ProducerCore):
        home.check_window()


async def let_go(core: OwnProducer) -> None:
    """Close a producer that nobody has a reference to, once what it sent is settled; on the IO loop.

    What a destination that stays full has not taken by then is lost, as when closing a handle.
    """
    if core.closed:
        return
    deadline = closing_deadline(core._connection)
    with contextlib.suppress(BrokerError):
        for settled in core.settled_futures():
            waiting = asyncio.wrap_future(settled)
            while not waiting.done():
                await asyncio.wait([waiting], timeout=deadline.left_s)
                if waiting.done() or core.throttled or core._connection.tasks.closed:
                    break
                await asyncio.wait([waiting], timeout=AGAIN_S)
        await core.close()


def browser(core: SessionCore, destination: object, selector: str | None, serializer: str | None) -> BrowserCore:
    """A browser that is not open yet; raises InvalidDestinationError for a topic."""
    found = destination_of(destination)
    check_browsable(found)
    looking = SessionCore(core.connection, "none", core.finish)
    check_arguments(selector=selector)
    return BrowserCore(core.connection, looking, found, selector or None, unpickles=check_serializer(serializer))


async def temporary_queue(core: SessionCore, delete: Callable[[Any], Any]) -> TemporaryQueue:
    """``delete(destination)`` is how the face ends it."""
    return TemporaryQueue(await make_temporary(core, Queue), core.connection, delete)


async def temporary_topic(core: SessionCore, delete: Callable[[Any], Any]) -> TemporaryTopic:
    return TemporaryTopic(await make_temporary(core, Topic), core.connection, delete)


async def let_consumer_go(core: AnyConsumer) -> None:
    """Nothing more is received from it: what waits in it goes back, what was received may still be settled."""
    core.let_go()


def require_batches(core: AnyConsumer) -> BatchConsumerCore | MultiBrokerBatches:
    """A consumer of batches; raises IllegalStateError for another one."""
    if not isinstance(core, BatchConsumerCore | MultiBrokerBatches):
        raise IllegalStateError(
            f"the consumer of {core.name} takes messages; open it with batch=rb.Batch(…) for batches"
        )
    return core


def require_messages(core: AnyConsumer) -> None:
    """Raises IllegalStateError for a consumer of batches."""
    if isinstance(core, BatchConsumerCore | MultiBrokerBatches):
        core.require_messages()


def closed_consumer(core: AnyConsumer) -> IllegalStateError:
    """What a receive of a closed consumer raises."""
    core._connection.io.require_usable()
    return IllegalStateError(f"the consumer of {core.name} is closed")


def closing_s(connection: ConnectionCore) -> float:
    """How long closing waits for destinations that are full, seconds."""
    return float(connection.attributes["raybroker.reconnect.timeout_ms"] / 1000)


def closing_deadline(connection: ConnectionCore) -> Deadline:
    """Return the deadline of what is closed from now on."""
    return Deadline(connection.clock.monotonic_ns, closing_s(connection))


def closed_while_full(core: OwnProducer) -> IllegalStateError:
    return IllegalStateError(
        f"the producer was closed while {core.name} was full for {closing_s(core._connection):g} s"
        " (raybroker.reconnect.timeout_ms); what it had not taken by then is lost, and those futures say so"
    )


def unconfirmed(core: AnyProducer, waiter: Future[str], timeout_s: float | None) -> RequestTimeoutError:
    """What a send raises when its time is over; a message that has not left never will."""
    text = f"no acknowledgement from {core.name} within imqAckTimeout={timeout_s or 0:g} s"
    full, low = core.throttled, core.low
    if core.take_back(waiter):
        text += "; the message was not sent" + (f": {low or core.name + ' is full'}" if full else "")
    return RequestTimeoutError(text)


def partly_sent(
    core: AnyProducer, blocks: Sequence[tuple[int, Future[str]]], timeout_s: float | None
) -> RequestTimeoutError:
    """What a send of many messages raises when its time is over; blocks that have not left never will."""
    full, low = core.throttled, core.low
    unsent = sum(count for count, future in reversed(blocks) if not future.done() and core.take_back(future))
    taken = sum(count for count, future in blocks if future.done() and future.exception() is None)
    refused = sum(count for count, future in blocks if future.done() and future.exception() is not None)
    doubtful = sum(count for count, _ in blocks) - unsent - taken - refused
    why = f": {low or core.name + ' is full'}" if full else ""
    more = f", {refused} were refused" if refused else ""
    more += f", whether {doubtful} were is not known" if doubtful else ""
    return RequestTimeoutError(
        f"no acknowledgement from {core.name} within imqAckTimeout={timeout_s or 0:g} s{why}; {taken} messages were"
        f" taken{more}, and all others were not sent"
    )
