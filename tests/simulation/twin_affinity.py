"""What a twin says about affinity: who may have a message, worked out from its label and from when it came."""

from __future__ import annotations

from typing import Any

from tests.simulation.messages import colour_of
from tests.simulation.twin_state import Holder, Item, TwinDeliveryQueue

UNKNOWN = -1
"""A restart found it: it waits since the host has first looked at its delivery queue."""


def counts(twin: Any, queue: TwinDeliveryQueue) -> bool:
    """Whether labels say who gets what."""
    return bool(twin.destination.attributes.affinityKey) and not queue.units and not twin.reserves(queue)


def may_have(twin: Any, queue: TwinDeliveryQueue, item: Item, holder: Holder) -> bool:
    """Whether a holder may have a message now."""
    if not counts(twin, queue):
        return True
    return due_ms(twin, queue, item, holder) <= twin.now


def due_ms(twin: Any, queue: TwinDeliveryQueue, item: Item, holder: Holder) -> int:
    """When a holder may have a message; 0: at any time."""
    label = colour_of(item.message.made)
    if label in holder.labels or not any(label in one.labels for one in queue.holders.values()):
        return 0
    return int(item.since_ms + twin.destination.attributes.affinityWait)


def look(twin: Any) -> None:
    """Delivery queues that something has happened to know the times of what they have."""
    for number in twin.destination.current.touched:
        queue = twin.queues.get(number)
        for item in queue.items.values() if queue is not None else ():
            if item.since_ms == UNKNOWN:
                item.since_ms = twin.now


def settled(twin: Any, queue: TwinDeliveryQueue) -> bool:
    """Whether the delivery queue has looked at what it has, at this time."""
    return not twin.destination.attributes.affinityKey or queue.number in twin.destination.current.touched


def check_order(rows: list[tuple[int, int, int]], made: dict[int, int]) -> None:
    """Messages of one label leave in order."""
    for label in {colour_of(value) for value in made.values()}:
        some = [row for row in rows if colour_of(made[row[2]]) == label]
        assert some == sorted(some), f"messages for {label} leave out of order: {some}"


def check_wakes(twin: Any, out: Any) -> None:
    """Who could have something later is looked at again by then."""
    for queue in twin.queues.values():
        if not counts(twin, queue) or not settled(twin, queue) or "consumption" in twin.paused or twin.unsorted(queue):
            continue
        for attachment, holder in queue.holders.items():
            if not holder.room() or holder.selector:
                continue
            later = [due_ms(twin, queue, queue.items[row[2]], holder) for row in queue.waiting]
            heads = min(later, default=0)
            late = heads > twin.now and (out.wake_at is None or out.wake_at > heads)
            assert not late, f"consumer {attachment:#x} may have something at {heads}, and {out.wake_at} is next"
