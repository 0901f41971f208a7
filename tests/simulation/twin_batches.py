"""What a twin says about batches: which one goes next is worked out anew from all that waits, without anything kept."""

from __future__ import annotations

from typing import Any

from raybroker.core.outcome import Deliver, Drained, Outcome
from raybroker.model.batch import Batch
from tests.simulation.messages import colour_of, num_of
from tests.simulation.ondisk import INDEX_BITS
from tests.simulation.twin_state import Holder, Item, TwinDeliveryQueue, TwinView

NEVER = 1 << 62


class TwinBatch:
    """Room for as many as its next batch has, once it is asked for; ``single``: for one message at a time."""

    def __init__(self) -> None:
        self.asked = self.single = False
        self.size = 0

    def room(self) -> int:
        return (1 if self.single else self.size) if self.asked else 0

    def sent(self, count: int) -> None:
        if self.single:
            self.asked = False
        else:
            self.size -= count

    def granted(self, count: int) -> None:
        self.asked = True

    def settled(self, count: int) -> None: ...

    def restart(self, credit: int) -> None:
        self.asked = credit != 0

    def left(self) -> int:
        return 0


def _alone(item: Item) -> bool:
    """It has failed, and not by a preemption alone."""
    return (item.failures & ~(0xFF << 32 + 16)) > 0


def _is_full(keys: list[int], queue: TwinDeliveryQueue, rule: Batch, most: int) -> bool:
    costs = [_cost(queue.items[key], rule) for key in keys]
    return len(keys) >= most or (rule.max_cost is not None and sum(costs) >= rule.max_cost)


def _cost(item: Item, rule: Batch) -> int:
    return num_of(item.message.made) if rule.max_cost is not None else 1


def next_batch(twin: TwinView, queue: TwinDeliveryQueue, holder: Holder) -> list[int] | None:
    """Keys of the batch that a holder has to get now; None: it has to wait."""
    rule = holder.batch
    assert rule is not None
    most = rule.max_messages if holder.most < 0 else min(rule.max_messages, holder.most - len(holder.unsettled))
    waiting = [
        key
        for _, _, key in queue.waiting
        if holder.wants(queue.items[key]) and not 0 < queue.items[key].message.expires <= twin.wall
    ]
    groups: dict[Any, list[tuple[int, int]]] = {}
    for at, key in enumerate(waiting):
        item = queue.items[key]
        colour = colour_of(item.message.made) if rule.key is not None else ""
        groups.setdefault(key if _alone(item) else colour, []).append((at, key))
    found: list[tuple[int, list[int]]] = []
    for rows in groups.values():
        keys: list[int] = []
        ready_at = None
        for at, key in rows:
            cost = sum(_cost(queue.items[one], rule) for one in (*keys, key))
            if keys and rule.max_cost is not None and cost > rule.max_cost:
                ready_at = at if ready_at is None else ready_at
                break
            keys.append(key)
            is_due = queue.items[key].since_ms + rule.deadline_ms <= twin.now
            full = _is_full(keys, queue, rule, most) or _alone(queue.items[key])
            if ready_at is None and (is_due or full):
                ready_at = at
            if full:
                break
        if ready_at is not None:
            found.append((ready_at, keys))
    return min(found)[1] if found else None


def divide(twin: Any, todo: dict[int, list[Deliver]]) -> dict[int, list[Deliver]]:
    """Take out what was handed out as batches; with units of order every message is one, and goes as any other."""
    found = {}
    for attachment in list(todo):
        queue = twin.queue_of[attachment]
        holder = queue.holders[attachment]
        if holder.batch is not None and not holder.window.single:
            found[attachment] = todo.pop(attachment)
        elif holder.batch is not None:
            count = sum(effect.mask.bit_count() for effect in todo[attachment])
            holder.ended.append(Drained(attachment, 0, holder.next_tag + count - 1))
    return found


def hand(twin: Any, todo: dict[int, list[Deliver]]) -> None:
    """Batches that left in a step: each is the next one, to somebody who has asked."""
    batches = list(todo)
    while batches:
        wrong = ""
        for attachment in batches:
            queue = twin.queue_of[attachment]
            holder = queue.holders[attachment]
            effects = sorted(todo[attachment], key=lambda effect: effect.tag)
            got = [e.ordinal << INDEX_BITS | i for e in effects for i in range(e.mask.bit_length()) if e.mask >> i & 1]
            assert holder.window.asked, f"consumer {attachment:#x} gets a batch that it has not asked for"
            due = next_batch(twin, queue, holder)
            if twin.damaged or got == due:  # Messages whose headers cannot be read are alike.
                break
            if holder.selector and twin.unsorted(queue):  # It is of those that were compared with the selector by then.
                break
            wrong = f"consumer {attachment:#x} gets {got}, its batch is {due}"
        else:
            raise AssertionError(wrong)
        holder.window.size = len(got)
        for effect in effects:
            twin._hand(queue, effect)
        holder.window.asked = False
        holder.ended.append(Drained(attachment, 0, holder.next_tag - 1))
        del todo[attachment]
        batches.remove(attachment)


def check_nobody_waits(twin: Any, out: Outcome) -> None:
    """Who has asked for a batch, and could have it, does not wait for one that can go, nor longer than it wants."""
    for queue in twin.queues.values():
        if queue.number not in twin.destination.current.touched:
            continue
        for attachment, holder in queue.holders.items():
            if (
                holder.batch is None
                or holder.window.single
                or not holder.window.asked
                or not holder.listening()
                or "consumption" in twin.paused
            ):
                continue
            if twin.damaged or (holder.selector and twin.unsorted(queue)):
                continue
            due = next_batch(twin, queue, holder)
            assert due is None, f"consumer {attachment:#x} waits for a batch, and {due} could go"
            came = [queue.items[row[2]].since_ms for row in queue.waiting if holder.wants(queue.items[row[2]])]
            until = min(came, default=NEVER) + holder.batch.deadline_ms
            late = until < NEVER and (out.wake_at is None or out.wake_at > max(until, twin.now))
            assert not late, (
                f"consumer {attachment:#x} has waited for long enough at {until}, and {out.wake_at} is next"
            )


def prepare(twin: Any) -> None:
    """The real delivery queue goes by units of order, or does not any more."""
    for queue in twin.queues.values():
        for holder in queue.holders.values():
            if holder.batch is not None and queue.number in twin.destination.current.touched:
                holder.window.single = twin.reserves(queue)


def ended(twin: TwinView) -> list[Drained]:
    """What consumers of batches are told in this step: that all of a batch has come."""
    told = []
    for queue in twin.queues.values():
        for holder in queue.holders.values():
            told += holder.ended
            holder.ended = []
    return told


def came(queue: TwinDeliveryQueue, now: int, affinity: str = "") -> int:
    """Since when a message waits that comes now; 0 where nobody wants to know."""
    return now if affinity or any(holder.batch is not None for holder in queue.holders.values()) else 0


def left(queue: TwinDeliveryQueue, affinity: str) -> None:
    """The last consumer of batches has gone: whoever comes next finds messages that have waited."""
    if not affinity and all(holder.batch is None for holder in queue.holders.values()):
        for item in queue.items.values():
            item.since_ms = 0
