"""What administrators see of a host: plain values, taken in one moment."""

from __future__ import annotations

from typing import Any

from raybroker.core.consumers import Consumer
from raybroker.core.queue import Queue
from raybroker.core.window import CreditWindow
from raybroker.engine.host import Host
from raybroker.model.errors import InvalidDestinationError


def describe(host: Host, name: str) -> dict[str, Any]:
    """Attributes, state and counts of one queue (api: ``query_destination``); sizes in bytes."""
    queue = host.named(name)
    definition = host.definitions[queue.number]
    ledger, counters = queue.ledger, queue.counters
    unsettled = sum(_unsettled(c) for c in queue.consumers.by_attachment.values())
    return {
        "name": name,
        "type": "queue",
        "state": "HALTED" if queue.number in host.halted else "RUNNING",
        "auto_created": definition.auto_created,
        "attributes": definition.attributes.as_dict(),
        "messages": ledger.messages,
        "bytes": ledger.bytes_held,
        "peak_messages": ledger.peak_messages,
        "peak_bytes": ledger.peak_bytes,
        "waiting": queue.backlog.count,
        "unacknowledged": unsettled,
        "delayed": 0,
        "producers": len(queue.producers.attached),
        "active_consumers": queue.consumers.active_count,
        "backup_consumers": queue.consumers.backup_count,
        "messages_in": counters.messages_in,
        "messages_out": counters.messages_out,
        "bytes_in": counters.bytes_in,
        "bytes_out": counters.bytes_out,
        "redelivered": counters.redelivered,
        "refused": counters.refused,
    }


def consumers(host: Host, name: str | None = None) -> list[dict[str, Any]]:
    """The consumers of one queue, or of all (api: ``list_consumers``)."""
    queues = [host.queue(name)] if name is not None else list(host.queues.values())
    return [_consumer(queue, c) for queue in queues for c in queue.consumers.by_attachment.values()]


def consumer(host: Host, number: int) -> dict[str, Any]:
    """One consumer by its id; raises InvalidDestinationError when there is none."""
    for row in consumers(host):
        if row["id"] == number:
            return row
    raise InvalidDestinationError(f"there is no consumer {number}; list_consumers shows those there are")


def host_state(host: Host) -> dict[str, Any]:
    """The host's store and memory."""
    stats = host.store.stats()
    return {
        "incarnation": host.incarnation,
        "failure": str(host.failure) if host.failure else None,
        "destinations": len(host.queues),
        "connections": len(host.sessions),
        "messages": sum(q.ledger.messages for q in host.queues.values()),
        "bytes": sum(q.ledger.bytes_held for q in host.queues.values()),
        "cached_bytes": host.payloads.kept_bytes,
        "read_back": host.payloads.read_back,
        "store": {name: getattr(stats, name) for name in stats.__slots__},
    }


def _unsettled(consumer: Consumer) -> int:
    return sum(item.end - item.start for item in consumer.unsettled)


def _consumer(queue: Queue, consumer: Consumer) -> dict[str, Any]:
    window = consumer.window
    room = window.room()
    granted = -1 if room >= 1 << 40 else room
    return {
        "id": consumer.attachment,
        "destination": queue.name,
        "active": consumer.active,
        "held": consumer.held,
        "flow": "credit" if isinstance(window, CreditWindow) else "prefetch",
        "limit": consumer.limit,
        "granted": granted,
        "unacknowledged": _unsettled(consumer),
        "sent": consumer.sent,
    }
