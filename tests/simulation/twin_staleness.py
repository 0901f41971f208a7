"""What a twin says about bounded staleness: which messages are stale, worked out from their numbers each time."""

from __future__ import annotations

from bisect import insort
from typing import Any

from raybroker.core import command as cmd
from raybroker.core.outcome import Outcome
from tests.simulation.messages import num_of
from tests.simulation.twin_state import Item, TwinDeliveryQueue


def versioned(twin: Any) -> bool:
    """Whether the destination has versions; of messages whose headers say none, none is stale."""
    return bool(twin.destination.attributes.versionKey)


def is_stale(twin: Any, item: Item) -> bool:
    attributes = twin.destination.attributes
    if not attributes.versionKey or twin.version is None:
        return False
    return num_of(item.message.made) < twin.version - attributes.maxStaleness


def last(twin: Any) -> bool:
    """Whether stale messages go behind all others."""
    return bool(twin.destination.attributes.stalenessPolicy == "Last")


def looks(twin: Any, queue: TwinDeliveryQueue) -> bool:
    """Whether the real delivery queue is still looking at the versions of what waits."""
    return versioned(twin) and twin.unsorted(queue)


def publish(twin: Any, command: cmd.PublishVersion, out: Outcome) -> dict[type, list[Any]]:
    if command.version != twin.version:
        twin.version = command.version
        twin.delta.add("version", command.version)
        for queue in twin.queues.values():
            rank(twin, queue)
    return {}


def rank(twin: Any, queue: TwinDeliveryQueue) -> None:
    """Put what waits in its order, after anything that may have changed it."""
    waiting = [row[2] for row in queue.waiting]
    queue.waiting.clear()
    for key in waiting:
        item = queue.items[key]
        item.behind = last(twin) and is_stale(twin, item)
        insort(queue.waiting, queue.row(key))


def check(twin: Any) -> None:
    """Nothing that is stale waits where it should be gone, at the end of a step."""
    if not versioned(twin) or last(twin):
        return
    for number in twin.destination.current.touched:
        queue = twin.queues[number]
        if looks(twin, queue) or twin.destination.queues[number].plain.unfinished:
            continue
        late = [row[2] for row in queue.waiting if is_stale(twin, queue.items[row[2]])]
        assert not late, f"{len(late)} messages are stale and wait"
