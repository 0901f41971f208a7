"""Figures of the units of order of a destination: how many it has, and which of them have messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_entry import BlockEntry
from raybroker.core.delivery.backlog import ANY
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.destination import Destination


def unit_figures(destination: Destination) -> dict[str, int]:
    """Units whose messages were looked at so far, those with a message for anybody, and those that wait for time.

    ``units_blocked``: a delay or an open transaction holds their first message back, or no consumer's selector
    matches it.  The others are with a session.  More consumers than ready units have nothing to do.
    """
    units = ready = blocked = 0
    for queue in destination.queues.values():
        units += len(queue.units)
        free = [unit for unit in queue.units.values() if not unit.held]
        unmatched = _unmatched(queue, destination.block_index.held) if queue.units else 0
        blocked += sum(unit.head is None for unit in free) + unmatched
        ready += sum(unit.head is not None for unit in free) - unmatched
    return {"units": units, "units_ready": ready, "units_blocked": blocked}


def _unmatched(queue: DeliveryQueue, held: Mapping[int, BlockEntry]) -> int:
    """First messages of units that no consumer wants."""
    wanted = {consumer.selector for consumer in queue.consumers.by_attachment.values() if consumer.active}
    if ANY in wanted or not wanted:
        return 0
    return sum(
        (run.mask & held[run.ordinal].ordered).bit_count()
        for signature, runs in queue.plain.backlog.by_signature()
        if not any(signature >> number & 1 for number in wanted)
        for run in runs
    )


def live_units(destination: Destination, names: Iterable[str]) -> list[str]:
    """Return those of the units that have messages here, visible or not; every block that is held is looked at."""
    missing = set(names)
    found: list[str] = []
    for block in destination.block_index.held.values():
        if not missing:
            break
        units = block.columns.units
        here = missing.intersection(pk.chosen(units, block.ordered & ~block.done)) if units is not None else ()
        found += here
        missing.difference_update(here)
    return sorted(found)
