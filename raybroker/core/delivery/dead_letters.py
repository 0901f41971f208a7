"""Messages of a delivery queue that are dead or put aside, once it is settled what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raybroker.core.delivery.backlog import Run
from raybroker.core.durable import records
from raybroker.core.outcome import Outcome
from raybroker.core.unit_of_order.revocation import overtaken

if TYPE_CHECKING:
    from raybroker.core.delivery.delivery_queue import DeliveryQueue


def unbury(queue: DeliveryQueue, ordinal: int, mask: int, out: Outcome) -> None:
    """They wait again, at their old place, or for their birth; what came after them in their units does too."""
    runs = _taken(queue, ordinal, mask)
    if queue.order is not None:
        for item in overtaken(queue.order, runs, out):
            queue.put_back(item.run)
    for run in reversed(runs):
        block = queue.home.block_index.held[ordinal]
        born, later = (run.mask, []) if run.attempts else block.by_birth(run.mask, queue.home.now_ms)
        for due_ms, unborn in later:
            queue.rest(due_ms, run._replace(mask=unborn))
        if born:
            queue.put_back(run._replace(mask=born))


def buried(queue: DeliveryQueue, ordinal: int, mask: int, out: Outcome) -> None:
    """It is settled what became of dead messages."""
    parts = [(run.ordinal, run.mask) for run in _taken(queue, ordinal, mask)]
    if not parts:
        return
    block = queue.home.block_index.held[ordinal]
    told = block.buried & mask
    if told and block.stored:  # Other subscriptions owe it still, and must not tell it again after a restart.
        queue.home.note_rows(out, records.BURIED, queue, [records.Row(ordinal, told)])
    queue.home.settle(queue, parts, out)


def _taken(queue: DeliveryQueue, ordinal: int, mask: int) -> list[Run]:
    """Those of the messages that are held for that, which are no longer; as they were."""
    mask &= queue.dying.get(ordinal, 0)
    if not mask:
        return []
    queue.dying[ordinal] &= ~mask
    if not queue.dying[ordinal]:
        del queue.dying[ordinal]
    queue.home.dying -= mask.bit_count()
    queue.home.dying_bytes -= queue.home.block_index.held[ordinal].bytes_of(mask)
    runs = queue.doomed.pop(ordinal)
    left = [run._replace(mask=run.mask & ~mask) for run in runs if run.mask & ~mask]
    if left:
        queue.doomed[ordinal] = left
    return [run._replace(mask=run.mask & mask) for run in runs if run.mask & mask]
