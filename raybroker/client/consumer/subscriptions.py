"""Consumers of topics: subscriptions that outlive them, shared ones, and wildcards.

A durable or shared subscription is known by its scope and its name, over all topics; the broker keeps that unique and
is asked before a consumer is opened.  The scope is the client id of the connection, or for a shared subscription that
is everyone's, nothing.  A consumer on a pattern, or in a cluster of brokers, is one handle over
several attachments (``multi_broker``).
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any, Final

from raybroker.client.cluster.directory import KnownSubscription
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.consumer.batch_consumer import BatchConsumerCore
from raybroker.client.consumer.consumer import ConsumerCore
from raybroker.client.consumer.consumer_options import ConsumerOptions
from raybroker.client.consumer.multi_broker import MultiBrokerConsumer
from raybroker.client.consumer.multi_broker_batches import MultiBrokerBatches
from raybroker.client.destinations import Destination, Queue, Topic
from raybroker.client.session.session import SessionCore
from raybroker.model.errors import BrokerError, ConfigError, IllegalStateError, InvalidDestinationError
from raybroker.model.naming.names import is_temporary_name

NAME_CHARS_MAX: Final = 255
SHARING: Final = "SubscriptionSharingPolicy"
SHARED_NAME: Final = "(sharable)"
"""The name of a subscription that plain consumers share by policy; with a selector, a hash of that follows."""
SELECTOR_CHARS: Final = 16


def subscription(
    destination: Destination, name: object, *, durable: bool, shared: bool, everyones: bool = False
) -> dict[str, Any]:
    """What a consumer of a named subscription asks for; raises InvalidDestinationError for what has none.

    ``everyones``: a shared one is known by its name alone, and not by the client id of the connection as well.
    """
    if destination.kind != "topic":
        raise InvalidDestinationError(f"{destination.text} has no subscriptions; they are for topics")
    if destination.is_pattern:
        raise InvalidDestinationError(f"a subscription with a name is to one topic, not to the pattern {destination}")
    if durable and is_temporary_name(destination.name):
        raise InvalidDestinationError(
            f"{destination.text} is temporary and ends with its connection: it has no durable subscriptions"
        )
    if not isinstance(name, str) or not name or len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise InvalidDestinationError(
            f"subscription name {name!r} is not allowed: it is 1 to {NAME_CHARS_MAX} printable characters"
        )
    wanted = {"name": name, "durable": durable, "shared": shared}
    return {**wanted, "everyones": True} if everyones and shared else wanted


def shared_by_policy(
    policy: str,
    client_id: str | None,
    destination: Destination,
    wanted: dict[str, Any] | None,
    selector: str | None,
    *,
    no_local: bool,
) -> dict[str, Any] | None:
    """What a consumer asks for where SubscriptionSharingPolicy is Sharable: its subscription is that of all connections
    with the client id, a plain one by topic and selector. Raises ConfigError for no_local, which is one consumer's."""
    if policy != "Sharable" or client_id is None or destination.kind != "topic":
        return wanted
    if wanted is None and (destination.is_pattern or is_temporary_name(destination.name)):
        return None
    if wanted is not None and wanted["shared"]:
        return wanted
    if no_local:
        raise ConfigError(f"no_local=True leaves out what one connection sends; with {SHARING}=Sharable several share")
    if wanted is not None:
        return {**wanted, "shared": True}
    chosen = f" {hashlib.sha256(selector.encode()).hexdigest()[:SELECTOR_CHARS]}" if selector else ""
    return {"name": f"{SHARED_NAME}{chosen}", "durable": False, "shared": True}


async def open_consumer(
    session: SessionCore, destination: Destination, options: ConsumerOptions
) -> ConsumerCore | MultiBrokerConsumer:
    """A consumer of any kind; on the IO loop.

    Raises IllegalStateError for a durable subscription without a client id or in use, InvalidDestinationError for a
    temporary destination of another connection, and what the broker answers.
    """
    connection = session.connection
    if is_temporary_name(destination.name) and destination not in connection.kept.temporaries:
        raise InvalidDestinationError(
            f"{destination.text} is temporary: only the connection that made it may receive from it"
        )
    several = destination.is_pattern or not (connection.brokers.alone or is_temporary_name(destination.name))
    if destination.is_pattern and options.batch is not None:
        raise ConfigError(
            f"batch= of a pattern of topics, {destination.text}: a batch is formed for one destination; without batch="
            " receive_many() takes what is there"
        )
    wanted = options.subscription
    if wanted is not None and wanted["durable"]:
        if not wanted["shared"] and connection.client_id is None:
            raise IllegalStateError(
                f"the durable subscription {wanted['name']!r} needs a client id, which it is known by together with its"
                " name: connect with client_id=…, or set imqConfiguredClientID"
            )
        announced = KnownSubscription(
            destination.name,
            None if wanted.get("everyones") else connection.client_id,
            wanted["name"],
            durable=True,
            shared=wanted["shared"],
            selector=options.selector,
            no_local=options.no_local,
        )
        await connection.tasks.with_retry(destination.name, lambda: connection.directory.subscribe(announced))
    if several:
        handle = MultiBrokerConsumer if options.batch is None else MultiBrokerBatches
        consumer = handle(session, destination, options)
        await consumer.open()
        return consumer
    create = destination not in connection.kept.temporaries
    made = ConsumerCore if options.batch is None else BatchConsumerCore
    return await made(session, destination, options).open(create=create)


async def unsubscribe(session: SessionCore, name: str, *, everyones: bool = False) -> None:
    """End a durable subscription and what waits in it; raises IllegalStateError while a consumer is open on it, and
    InvalidDestinationError when there is none. ``everyones``: see :func:`subscription`."""
    connection = session.connection
    scope = None if everyones else connection.client_id
    await connection.tasks.with_retry(f"subscription {name}", lambda: connection.directory.unsubscribe(scope, name))


async def make_temporary(session: SessionCore, kind: type[Queue] | type[Topic]) -> str:
    """A new temporary destination of this connection; returns its name."""
    connection = session.connection
    name: str = await connection.tasks.with_retry(
        "the broker", lambda: connection.directory.create_temporary(kind.kind, connection.identity)
    )
    if not connection.kept.temporaries_end:
        connection.kept.temporaries_end = True
        connection.kept.at_close.append(lambda: _delete_all(connection))
    connection.kept.temporaries.add(kind(name))
    return name


async def delete_temporary(connection: ConnectionCore, destination: Destination) -> None:
    """End a temporary destination of this connection; raises IllegalStateError while a consumer is open on it.

    Consumers that nobody refers to, and that are there for what they gave out, end with it.
    """
    if destination not in connection.kept.temporaries:
        return
    there = [one for one in connection.handles.consumers if one.destination == destination]
    if not all(consumer.has_ended() for consumer in there):
        raise IllegalStateError(f"{destination.text} is in use: close its consumers first")
    for consumer in there:
        consumer.shut()
        await consumer.close()
    await connection.directory.destroy_temporary(destination.kind, destination.name, connection.identity)
    connection.kept.temporaries.discard(destination)


async def _delete_all(connection: ConnectionCore) -> None:
    """The connection ends, and its temporary destinations with it."""
    for destination in list(connection.kept.temporaries):
        with contextlib.suppress(BrokerError):
            await connection.directory.destroy_temporary(destination.kind, destination.name, connection.identity)
    connection.kept.temporaries.clear()
