"""Opening a producer: made, attached to its host, and known to its connection and its transactions."""

from __future__ import annotations

from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.destinations import Destination
from raybroker.client.producer.bodies.body_encoding import Encode
from raybroker.client.producer.producer import ProducerCore
from raybroker.client.producer.producer_state import Shared
from raybroker.client.session.current_transaction import CurrentTransaction
from raybroker.model.naming.names import require_no_metrics_topic
from raybroker.system.entropy import token


async def open_producer(
    connection: ConnectionCore,
    destination: Destination,
    shared: Shared,
    *,
    encode: Encode,
    transactions: CurrentTransaction[ProducerCore] | None = None,
    create: bool = True,
    broker: str | None = None,
    bound: bool = False,
) -> ProducerCore:
    """A producer, attached; raises what the broker answers, or the last retryable error.

    encode        makes bytes of its bodies
    transactions  those that its messages belong to; None: of a session that is not transacted
    broker        whose member of the destination; None: that of the home broker
    bound         its messages can go to that broker and to no other
    """
    require_no_metrics_topic(destination.kind, destination.name)
    identity = int.from_bytes(token(8), "little")
    producer = ProducerCore(connection, destination, identity, shared, encode=encode, transactions=transactions)
    producer.broker, producer.bound = broker, bound
    await connection.attachments.attach(producer, create=create)
    connection.handles.producers.append(producer)
    if transactions is not None:
        transactions.producers.append(producer)
    return producer
