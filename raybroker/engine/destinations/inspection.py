"""Inspection of a host by administrators: plain values, taken in one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from raybroker.core.delivery.consumers import Consumer
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.delivery.window import CreditWindow
from raybroker.core.destination import Destination
from raybroker.core.queue import Queue
from raybroker.core.staleness.version_pending import VersionPending
from raybroker.core.topic import Topic
from raybroker.core.unit_of_work import PARTS
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.measuring.counter_baselines import CounterBaselines
from raybroker.engine.measuring.unit_figures import unit_figures
from raybroker.engine.schedules.schedules import Schedules
from raybroker.engine.sessions.attachments import Attachments
from raybroker.model.errors import InvalidDestinationError


class Inspection:
    """Rows of plain values, as the administrators' interface names them."""

    def __init__(
        self,
        registry: DestinationRegistry,
        attachments: Attachments,
        schedules: Schedules,
        baselines: CounterBaselines,
        *,
        broker: str,
        now_ms: Callable[[], int],
        bytes_elsewhere: Callable[[int], Mapping[str, int]] = lambda destination: {},
    ) -> None:
        self._registry = registry
        self._attachments = attachments
        self._schedules = schedules
        self._baselines = baselines
        self._broker = broker
        self._now_ms = now_ms
        self._bytes_elsewhere = bytes_elsewhere

    def describe(self, kind: str, name: str) -> dict[str, Any]:
        """Attributes, state and counts of one destination (api: ``query_destination``); sizes in bytes."""
        destination = self._registry.named(kind, name)
        definition = self._registry.definition(destination)
        block_index = destination.block_index
        queues = list(destination.queues.values())
        consumers = [c for queue in queues for c in queue.consumers.by_attachment.values()]
        return {
            "name": name,
            "type": kind,
            "state": self._registry.state_of(destination),
            "paused": dict(destination.paused),
            "auto_created": definition.auto_created,
            "temporary": definition.owner is not None,
            "attributes": definition.attributes.as_dict(destination.kind),
            "messages": block_index.messages,
            "bytes": block_index.bytes_held,
            **self._bytes_elsewhere(destination.number),
            "waiting": sum(queue.pending.count + _hidden(queue) for queue in queues),
            "unacknowledged": sum(_unsettled(c) for c in consumers),
            "delayed": sum(queue.delayed.count for queue in queues),
            "incomplete": destination.works.count,
            "in_transaction": sum(staged.messages for staged in destination.staged.values()),
            **_current(destination, consumers),
            "dying": destination.block_index.dead,
            "producers": len(destination.producers.attached),
            "active_consumers": sum(c.active for c in consumers),
            "backup_consumers": sum(not c.active for c in consumers),
            "subscriptions": sum(queue.subscription != PARTS for queue in queues)
            if isinstance(destination, Topic)
            else 0,
            **self._baselines.counter_row(destination),
            "throttled": destination.admission.slow,
            **unit_figures(destination),
            "gathering": any(queue.consumers.by_attachment and not queue.dispatch_gate.dispatching for queue in queues),
            "schedules": self._schedules.count(destination),
            **_versions(destination, self._now_ms()),
        }

    def consumers(self, kind: str | None = None, name: str | None = None) -> list[dict[str, Any]]:
        """The consumers of one destination, or of all (api: ``list_consumers``)."""
        return [
            {
                **_consumer(destination, queue, consumer),
                "consumer": attachment.consumer,
                "broker": attachment.broker or self._broker,
            }
            for destination in self._registry.matching(kind, name)
            for queue in destination.queues.values()
            for consumer in queue.consumers.by_attachment.values()
            for attachment in (self._attachments.by_number[consumer.attachment],)
        ]

    def consumer(self, number: int) -> dict[str, Any]:
        """One consumer by its id; raises InvalidDestinationError when there is none."""
        for row in self.consumers():
            if row["id"] == number:
                return row
        raise InvalidDestinationError(f"there is no consumer {number}; list_consumers shows those there are")

    def subscriptions(self, topic: str | None = None) -> list[dict[str, Any]]:
        """Named subscriptions of one topic, or of all."""
        return list(self._subscriptions(topic))

    def _subscriptions(self, topic: str | None) -> Iterator[dict[str, Any]]:
        for destination in self._registry.matching("topic", topic):
            for queue in destination.queues.values():
                own = queue.subscription
                if own is None or not own.name or own == PARTS:
                    continue
                assert queue.owes is not None
                yield {
                    "topic": destination.name,
                    "client_id": own.client_id,
                    "name": own.name,
                    "durable": own.durable,
                    "shared": own.shared,
                    "selector": own.selector,
                    "no_local": own.no_local,
                    "active": bool(queue.consumers.by_attachment),
                    "messages": sum(mask.bit_count() for mask in queue.owes.values()),
                    "consumers": len(queue.consumers.by_attachment),
                }


def _current(destination: Destination, consumers: list[Consumer]) -> dict[str, int]:
    """``pending``: sent in transactions that have not ended, or, in a queue, with consumers that have not acknowledged
    them, not to be delivered yet, or hidden; ``current``: the other messages that are held, which a consumer may get.
    """
    pending = sum(staged.messages for staged in destination.staged.values())
    if destination.kind == "queue":
        pending += sum(_unsettled(c) for c in consumers) + destination.works.count
        pending += sum(queue.delayed.count + _hidden(queue) for queue in destination.queues.values())
        pending += sum(staged.acknowledged for staged in destination.staged.values())
    return {"current": max(destination.block_index.messages - pending, 0), "pending": pending}


def _versions(destination: Destination, now_ms: int) -> dict[str, int | None]:
    """What there is to say of a queue with bounded staleness; nothing of others."""
    for queue in destination.queues.values():
        if isinstance(queue.plain, VersionPending):
            starved_ms = queue.plain.starvation.waited_ms(now_ms)
            return {"version": queue.plain.versions.published, "stale": queue.plain.stale, "starved_ms": starved_ms}
    return {}


def _hidden(queue: DeliveryQueue) -> int:
    return sum(run.count for run, _ in queue.hidden)


def _unsettled(consumer: Consumer) -> int:
    return sum(item.count for item in consumer.unsettled)


def _consumer(destination: Destination, queue: DeliveryQueue, consumer: Consumer) -> dict[str, Any]:
    window = consumer.window
    room = window.room()
    granted = -1 if room >= 1 << 40 else room
    own = queue.subscription
    selector = queue.plain.selector_index.selectors.get(consumer.selector) if isinstance(destination, Queue) else None
    return {
        "id": consumer.attachment,
        "destination": destination.name,
        "type": destination.kind,
        "subscription": own.name if own is not None else None,
        "selector": selector.text if selector is not None else own.selector if own is not None else None,
        "active": consumer.active,
        "held": consumer.held,
        "leaving": consumer.leaving,
        "labels": list(consumer.asked.labels),
        "flow": "credit" if isinstance(window, CreditWindow) else "prefetch",
        "limit": consumer.limit,
        "tuned": consumer.asked.tunes,
        "granted": granted,
        "unacknowledged": _unsettled(consumer),
        "sent": consumer.sent,
        "drains": consumer.attachment in queue.consumers.draining,
        "remote": consumer.asked.remote,
        "owner": consumer.owner,
    }
