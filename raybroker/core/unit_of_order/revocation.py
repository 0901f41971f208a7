"""Revocation: messages of a unit of order that come back, and those that come back with them.

When a session gives a message back, or fails it, or keeps it for too long, everything later of its unit that the
session has is *revoked*: it goes back too, and the session is told that its deliveries are void.  Else it would be
done before the one that comes again.  What is taken from a consumer because it kept it for too long is void as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_entry import BlockEntry
from raybroker.core.delivery.consumers import Consumer, Consumers, Delivery
from raybroker.core.delivery.run import Run
from raybroker.core.outcome import Outcome, Withdrawn
from raybroker.core.unit_of_order.unit import Unit

Units = dict[str, Unit]
Held = dict[int, BlockEntry]
First = dict[Unit, tuple[int, int]]
"""Unit → (block, index) of the first message of it that comes back."""


def first_returned(units: Units, held: Held, deliveries: Iterable[Delivery]) -> First:
    """The units of deliveries that come back: these messages of them are with nobody any more."""
    first: First = {}
    for item in deliveries:
        for at, name in _places(held, item.run):
            unit = units[name]
            unit.held -= 1
            first[unit] = min(first.get(unit, at), at)
    return first


def first_overtaken(units: Units, held: Held, runs: Iterable[Run]) -> First:
    """The units of messages that come back and that nobody had, as far as somebody has others of them."""
    first: First = {}
    for run in runs:
        for at, name in _places(held, run):
            unit = units.get(name)
            if unit is not None and unit.held > unit.staged:
                first[unit] = min(first.get(unit, at), at)
    return first


def _places(held: Held, run: Run) -> Iterator[tuple[tuple[int, int], str]]:
    """((block, index), unit) of the messages of a run that have one."""
    block = held[run.ordinal]
    names = block.columns.units
    for index in pk.indexes(run.mask & block.ordered) if names is not None else ():
        name = names[index] if names is not None else None
        if name is not None:
            yield (run.ordinal, index), name


def revoke(units: Units, held: Held, consumers: Consumers, first: First, out: Outcome) -> list[Delivery]:
    """Take from its owner whatever it has of a unit after a message; returns that."""
    found: list[Delivery] = []
    first = {unit: at for unit, at in first.items() if unit.held > unit.staged}
    owners = {unit.owner.name for unit in first if unit.owner is not None}
    for consumer in consumers.by_attachment.values() if owners else ():
        if (consumer.owner or consumer.attachment) not in owners:
            continue
        tags: list[int] = []
        for item in consumer.unsettled:
            known = dict(_places(held, item.run))
            for tag, index in enumerate(pk.indexes(item.run.mask), item.tag) if known else ():
                at = item.run.ordinal, index
                unit = units.get(known.get(at, ""))
                if unit is not None and unit in first and at > first[unit]:
                    tags.append(tag)
                    unit.held -= 1
        if tags:
            ranges = _ranges(tags)
            for low, high in ranges:
                found.extend(consumer.settle_tags(low, high))
            consumer.window.settled(len(tags))
            consumers.offer(consumer)
            out.after_durable.append(Withdrawn(consumer.attachment, tuple(ranges)))
    return found


def void(consumer: Consumer, items: Iterable[Delivery], out: Outcome) -> None:
    """Deliveries were taken from a consumer that has kept them for too long; it gets nothing before it is heard of."""
    tags = [tag for item in items for tag in range(item.tag, item.tag + item.count)]
    consumer.window.settled(len(tags))
    consumer.stalled = True
    out.after_durable.append(Withdrawn(consumer.attachment, tuple(_ranges(sorted(tags)))))


def _ranges(tags: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for tag in tags:
        if found and found[-1][1] == tag - 1:
            found[-1] = found[-1][0], tag
        else:
            found.append((tag, tag))
    return found
