"""What a twin says about units of order: who may have which message next, and what comes back with another (U1 … U10).

It knows a unit as the sorted keys of its messages and looks at all of them every time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from raybroker.core.outcome import Outcome, Withdrawn
from tests.simulation.ondisk import Message
from tests.simulation.twin_affinity import may_have
from tests.simulation.twin_state import Holder, TwinDeliveryQueue, TwinView, owed


def live(queue: TwinDeliveryQueue, unit: str) -> Iterator[int]:
    """Keys of a unit that are not dead, ascending."""
    return (key for key in queue.units.get(unit, ()) if key not in queue.dying)


def invisible(twin: TwinView, queue: TwinDeliveryQueue, unit: str) -> Iterator[int]:
    """Keys of a unit that open transactions have sent: they have their places (W-86)."""
    for staged in twin.staged.values():
        for key, message in staged.blocks.items():
            if message.unit != unit:
                continue
            if staged.prepared and queue.durable:
                queues = staged.claims.get(key, ())
            else:
                queues = owed(twin, message, staged.origins.get(key, ("", "")))
            if queue.number in queues:
                yield key


def owner_of(queue: TwinDeliveryQueue, unit: str) -> dict[int, str | int]:
    """Key → session, of what of a unit is with consumers."""
    found: dict[int, str | int] = {}
    for holder in queue.holders.values():
        for key in holder.unsettled.values():
            if queue.items[key].message.unit == unit:
                found[key] = holder.owner
    return found


def deliverable(twin: TwinView, queue: TwinDeliveryQueue, key: int, holder: Holder, before: Iterable[int] = ()) -> bool:
    """Every earlier message of its unit is with the same session, and nobody else has any (U2, U4, U5, U10).

    ``before``: what is handed to the same session just before it.
    """
    unit = queue.items[key].message.unit
    if unit is None:
        return True
    acks = (row for staged in twin.staged.values() for row in staged.acks)
    if any(number == queue.number and queue.items[acked].message.unit == unit for number, acked in acks):
        return False
    held = owner_of(queue, unit) | dict.fromkeys(before, holder.owner)
    if any(owner != holder.owner for owner in held.values()):
        return False
    if any(earlier < key for earlier in invisible(twin, queue, unit)):
        return False
    return all(earlier in held for earlier in live(queue, unit) if earlier < key)


def for_him(twin: TwinView, queue: TwinDeliveryQueue, holder: Holder) -> Any:
    """The first waiting row that a consumer with room should have, or None."""
    for row in queue.waiting:
        item = queue.items[row[2]]
        if holder.wants(item) and may_have(twin, queue, item, holder) and deliverable(twin, queue, row[2], holder):
            return row
    return None


def can_go(twin: TwinView, queue: TwinDeliveryQueue, keys: list[int], holder: Holder) -> bool:
    """Whether a holder may get these one after the other."""
    if not queue.units:
        return True
    return all(
        key not in queue.items or deliverable(twin, queue, key, holder, keys[:at]) for at, key in enumerate(keys)
    )


def came_back(twin: TwinView, queue: TwinDeliveryQueue, key: int) -> None:
    """A message of a unit is no longer with the consumer, or transaction, that had it, and is not settled."""
    unit = queue.items[key].message.unit
    if unit is not None:
        at = queue.number, unit
        twin.returned[at] = min(twin.returned.get(at, key), key)


def check_withdrawn(twin: TwinView, out: Outcome) -> None:
    """Later messages of a unit come back with an earlier one, wherever its session has them (U3, U6)."""
    wanted, twin.overdue = twin.overdue, set[tuple[int, int]]()
    for (number, unit), first in twin.returned.items():
        queue = twin.queues.get(number)
        if queue is None:
            continue
        for attachment, holder in queue.holders.items():
            rows = [(tag, key) for tag, key in holder.unsettled.items() if key > first]
            late = [tag for tag, key in rows if queue.items[key].message.unit == unit]
            for tag in late:
                wanted.add((attachment, tag))
                twin.give_back(queue, holder.unsettled.pop(tag))
                holder.until.pop(tag, None)
            holder.window.settled(len(late))
    twin.returned.clear()
    effects = [effect for effect in out.after_durable if isinstance(effect, Withdrawn)]
    told = {(e.attachment, tag) for e in effects for first, last in e.ranges for tag in range(first, last + 1)}
    assert not any(isinstance(effect, Withdrawn) for effect in out.immediate)
    assert told == wanted, f"{sorted(told)} are void, expected {sorted(wanted)}"


def add(queue: TwinDeliveryQueue, key: int, message: Message) -> None:
    if message.unit is not None:
        keys = queue.units.setdefault(message.unit, [])
        keys.append(key)
        keys.sort()


def remove(queue: TwinDeliveryQueue, key: int, message: Message) -> None:
    if message.unit is not None:
        queue.units[message.unit].remove(key)
        if not queue.units[message.unit]:
            del queue.units[message.unit]
