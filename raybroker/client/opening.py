"""What both faces ask the cores for, with the arguments that users give: each function returns work for the IO loop."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from raybroker.client.arguments import check_arguments, check_names
from raybroker.client.bodies import check_serializer
from raybroker.client.browser import BrowserCore, check_browsable
from raybroker.client.consumer import ConsumerCore
from raybroker.client.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic, destination_of
from raybroker.client.options import consumer_options, producer_shared
from raybroker.client.pattern import PatternProducer
from raybroker.client.producer import ProducerCore
from raybroker.client.routing import RoutedProducer
from raybroker.client.session import SessionCore
from raybroker.client.spread import SpreadConsumer
from raybroker.client.subscribing import delete_temporary, make_temporary, open_consumer, subscription
from raybroker.model.errors import IllegalStateError
from raybroker.model.names import is_temporary_name

AnyConsumer = ConsumerCore | SpreadConsumer
AnyProducer = ProducerCore | PatternProducer | RoutedProducer


def consumer(
    core: SessionCore,
    destination: object,
    selector: str | None,
    prefetch: int | None,
    threshold: int | None,
    no_local: bool,
    serializer: str | None,
    ack_timeout_ms: int | None,
    *,
    name: str | None = None,
    durable: bool = False,
    shared: bool = False,
) -> Coroutine[Any, Any, AnyConsumer]:
    """A consumer; with ``durable`` or ``shared`` of the subscription ``name``."""
    found = destination_of(destination)
    wanted = subscription(found, name, durable=durable, shared=shared) if durable or shared else None
    options = consumer_options(
        core.connection.attributes, selector, prefetch, threshold, no_local, serializer, ack_timeout_ms, wanted
    )
    return open_consumer(core, found, options)


def topic_of(topic: Destination | str) -> Destination:
    """Where only a topic can stand, a name alone is a topic's."""
    if isinstance(topic, str) and ":" not in topic:
        return Topic.checked(topic)
    return destination_of(topic)


def subscriber_options(options: dict[str, Any]) -> list[Any]:
    """prefetch, threshold, serializer and ack_timeout_ms of a subscriber; raises TypeError for another name."""
    names = ("prefetch", "threshold", "serializer", "ack_timeout_ms")
    check_names(options, names, "consumer")
    return [options.get(name) for name in names]


def producer(
    core: SessionCore,
    destination: object,
    persistent: bool | None,
    priority: int | None,
    ttl_ms: int | None,
    delivery_delay_ms: int | None,
    unit_of_order: str | None,
    serializer: str | None,
) -> Coroutine[Any, Any, AnyProducer]:
    found = destination_of(destination)
    connection = core.connection
    shared, pickles = producer_shared(
        connection.attributes, persistent, priority, ttl_ms, delivery_delay_ms, unit_of_order, serializer, core
    )

    async def opening() -> AnyProducer:
        if found.is_pattern:
            pattern = PatternProducer(connection, found, shared, pickles=pickles, session=core)
            await pattern.open()
            return pattern
        create = found not in connection.temporaries
        opened: ProducerCore | RoutedProducer
        if connection.brokers.alone or is_temporary_name(found.name):
            opened = await connection.open_producer(found, shared, pickles=pickles, session=core, create=create)
        else:
            opened = RoutedProducer(connection, found, shared, pickles=pickles, session=core)
            await opened.open(create=create)
        if core.work is not None and core.work.current is None:
            opened.refuse_sends(core.work.nothing_open())
        return opened

    return opening()


def browser(core: SessionCore, destination: object, selector: str | None, serializer: str | None) -> BrowserCore:
    """A browser that is not open yet; raises InvalidDestinationError for a topic (R-12)."""
    found = destination_of(destination)
    check_browsable(found)
    looking = SessionCore(core.connection, "none", core.finish)
    check_arguments(selector=selector)
    return BrowserCore(looking, found, selector or None, unpickles=check_serializer(serializer))


async def temporary_queue(core: SessionCore, run: Any) -> TemporaryQueue:
    """``run(work)`` is how the face waits for work on the IO loop."""
    name = await make_temporary(core, Queue)
    return TemporaryQueue(name, core.connection, lambda it: run(delete_temporary(core.connection, it)))


async def temporary_topic(core: SessionCore, run: Any) -> TemporaryTopic:
    name = await make_temporary(core, Topic)
    return TemporaryTopic(name, core.connection, lambda it: run(delete_temporary(core.connection, it)))


def closed_consumer(core: AnyConsumer) -> IllegalStateError:
    """What a receive of a closed consumer raises."""
    core._connection.io.require_usable()
    return IllegalStateError(f"the consumer of {core.name} is closed")


def closing_s(core: AnyProducer) -> float:
    """How long closing a producer waits for a destination that is full, seconds."""
    return float(core._connection.attributes["raybroker.reconnect.timeout_ms"] / 1000)


def closed_while_full(core: AnyProducer) -> IllegalStateError:
    return IllegalStateError(
        f"the producer was closed while {core.name} was full for {closing_s(core):g} s"
        " (raybroker.reconnect.timeout_ms); what it had not taken by then is lost, and those futures say so"
    )
