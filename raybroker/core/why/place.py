"""Places of single messages in a delivery queue: found by what holds it, without going through what waits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from raybroker.core.delivery.consumers import Consumer, Delivery
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.delivery.run import Run
from raybroker.core.staged_transaction import StagedTransaction
from raybroker.core.unit_of_order.unit import Unit
from raybroker.core.unit_of_order.unit_pending import UnitPending


class Place(NamedTuple):
    """``state``: sent (in a transaction), absent, dying, acknowledged (in a transaction), delivered, delayed, hidden,
    incomplete (its unit of work) or waiting.

    run    the message alone, as it is there
    txn    the transaction that holds it
    tag    its delivery to ``consumer``
    due_ms when it becomes available, measured
    """

    state: str
    run: Run
    txn: int = 0
    consumer: Consumer | None = None
    tag: int = 0
    due_ms: int = 0


def place_of(queue: DeliveryQueue, staged: Mapping[int, StagedTransaction], ordinal: int, bit: int) -> Place:
    """The place of message ``bit`` of a held block."""
    alone = Run(0, ordinal, bit, 0, 0, _priority(queue, ordinal, bit))
    for txn, part in staged.items():
        if any(block.ordinal == ordinal and block.mask & bit for block in part.blocks):
            return Place("sent", alone, txn)
    if not queue.owed(ordinal) & bit:
        return Place("absent", alone)
    if queue.dead_letters.masks.get(ordinal, 0) & bit:
        return Place("dying", alone)
    acked = _acknowledged(queue, staged, ordinal, bit)
    if acked is not None:
        return acked
    for consumer in queue.consumers.by_attachment.values():
        delivery = _delivery(consumer, ordinal, bit)
        if delivery is not None:
            tag = delivery.tag + (delivery.run.mask & (bit - 1)).bit_count()
            return Place("delivered", delivery.run._replace(mask=bit), consumer=consumer, tag=tag)
    found = queue.delayed.find(ordinal, bit)
    if found is not None:
        return Place("delayed", found[1]._replace(mask=bit), due_ms=found[0])
    for run, _ in queue.hidden:
        if run.ordinal == ordinal and run.mask & bit:
            return Place("hidden", run._replace(mask=bit))
    if queue.parts is not None and queue.held[ordinal].parts & bit:
        return Place("incomplete", alone)
    return Place("waiting", _waiting(queue, ordinal, bit) or alone)


def unit_of(queue: DeliveryQueue, ordinal: int, bit: int) -> tuple[str | None, Unit | None]:
    """The name of a message's unit of order, and the unit where the delivery queue knows it already."""
    names = queue.held[ordinal].columns.units
    name = names[bit.bit_length() - 1] if names is not None else None
    return name, queue.units.get(name) if name is not None else None


def _priority(queue: DeliveryQueue, ordinal: int, bit: int) -> int:
    columns = queue.held[ordinal].columns
    return columns.priority if columns.priorities is None else columns.priorities[bit.bit_length() - 1]


def _acknowledged(
    queue: DeliveryQueue, staged: Mapping[int, StagedTransaction], ordinal: int, bit: int
) -> Place | None:
    for txn, part in staged.items():
        for number, delivery in part.acks:
            if number == queue.number and delivery.run.ordinal == ordinal and delivery.run.mask & bit:
                return Place("acknowledged", delivery.run._replace(mask=bit), txn)
    return None


def _delivery(consumer: Consumer, ordinal: int, bit: int) -> Delivery | None:
    """What a consumer has of it; by halves where it has its messages in the order of their blocks."""
    unsettled = consumer.unsettled
    at = bisect_left(unsettled, ordinal, key=lambda item: item.run.ordinal) if consumer.in_order else 0
    for item in islice(unsettled, at, None):
        if item.run.ordinal == ordinal and item.run.mask & bit:
            return item
        if consumer.in_order and item.run.ordinal > ordinal:
            break
    return None


def _waiting(queue: DeliveryQueue, ordinal: int, bit: int) -> Run | None:
    """How a message waits that was handed out before; None where nothing but its block says anything of it."""
    pending = queue.pending
    if isinstance(pending, UnitPending):
        _, unit = unit_of(queue, ordinal, bit)
        if ordinal > pending.state.unopened.opened:
            return _sorted(pending.state.unopened.queue, ordinal, bit)
        if unit is not None and unit.head != (ordinal, bit):
            return _sorted(unit.waiting(), ordinal, bit)
    for run in queue.plain.tried():
        if run.ordinal == ordinal and run.mask & bit:
            return run._replace(mask=bit)
    return None


def _sorted(runs: Sequence[Run], ordinal: int, bit: int) -> Run | None:
    """The run of a message among runs in the order of their blocks."""
    at = bisect_left(runs, ordinal, key=lambda run: run.ordinal)
    for run in islice(runs, at, None):
        if run.ordinal != ordinal:
            return None
        if run.mask & bit:
            return run._replace(mask=bit)
    return None
