"""Ports of a producer: what it needs of its connection and of its session."""

from __future__ import annotations

from typing import Any, Protocol

from raybroker.client.cluster.addresses import AttributesWithOrigin
from raybroker.client.connection.attachments import EndpointAttachments
from raybroker.client.connection.connection import OpenProducer
from raybroker.client.connection.events import Events
from raybroker.client.io.io_thread import IoThread
from raybroker.client.io.tasks import Tasks
from raybroker.client.producer.pacing.flow_rate import FlowRates
from raybroker.client.session.transaction import SessionTransactions
from raybroker.system.clock import SystemClock


class ProducerConnection(Protocol):
    """What a producer needs of its connection."""

    io: IoThread
    clock: SystemClock
    attributes: AttributesWithOrigin
    tasks: Tasks
    attachments: EndpointAttachments
    events: Events
    message_bytes_max: int
    flow_rates: FlowRates | None
    producers: list[OpenProducer]

    def forget_producer(self, producer: object, /) -> None: ...


class ProducerSession(Protocol):
    """What a producer needs of its session. ``producers``: it puts itself there."""

    transactions: SessionTransactions | None
    producers: list[Any]
