"""Recall: taking back what a consumer holds and its application has not begun.

Messages are handed out ahead of the application, up to the limit of its consumer.  Three things can make that wrong
later: the oldest messages are to make room for new ones while they lie with a consumer (``admission.removal``), a
consumer is idle while another one holds many, or the node of the consumer is drained (here).  Then the holder is asked,
by the tags of deliveries, and gives back what of them its application has not got; that is as it was before it was
handed out, neither counted nor redelivered, and waits at its old place.  What the application has got stays with it.

Bounds: a consumer has one question to answer at a time and gets nothing until it has; one that holds less than
``Consumer.lends`` messages is not asked for others; the idle one has been so, and the holder has held that many, for
``SHARED_AFTER_MS``, so that consumers in full work do not take from one another.  The newest half of what the holder
has goes, at most what the idle one has room for, and the idle one is served first.

Of a consumer that leaves everything is asked back, also parts of units of order: what its application has begun of one
keeps the rest of it waiting until that is settled, so that its order is as it was.

The attribute ``prefetchRecall`` says who lends.  Default: a consumer whose limit nobody has set; one whose user has set
it gets full batches, as it wants, and messages with a unit of order stay with their session.  Always: every consumer
that can give back, and also units of order of which its session holds nothing that may have been begun: all that it
has of such a unit goes, so that the unit is free for whoever is idle and its order is as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from raybroker.core.blocks import message_mask as pk
from raybroker.core.delivery.backlog import ANY
from raybroker.core.delivery.consumers import Consumer, Consumers, Delivery, Recalling
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.outcome import Recall
from raybroker.model.definitions import pauses

SHARED_AFTER_MS: Final = 20
"""So long a consumer is idle, and another one holds many messages, before some of them are taken back for it."""
LOOK_MS: Final = 10
"""Least time between two looks at who is idle. Each may need a wake-up, so that consumers in full work, which are idle
again and again, have one only when something can be due."""

Ranges = Sequence[tuple[int, int]]


def known_begun(consumer: Consumer) -> int:
    """Deliveries up to this tag have reached its application, as far as is known."""
    return max(consumer.kept, consumer.begun)


def recallable(consumer: Consumer) -> list[Delivery]:
    """What its application may not have begun, as far as is known, in order of tags."""
    if not consumer.recalls:
        return []
    known = known_begun(consumer)
    found: list[Delivery] = []
    for item in reversed(consumer.unsettled):
        if item.tag <= known:
            found += consumer.tagged([(known + 1, item.tag + item.count - 1)]) if item.tag + item.count > known else ()
            break
        found.append(item)
    return found[::-1]


def may_give(queue: DeliveryQueue) -> bool:
    """Whether there is something that a new consumer may get: it waits, or is shared by those that hold many."""
    if pauses.CONSUMPTION in queue.policy.paused:
        return False
    others = queue.consumers.by_attachment.values()
    return queue.pending.count > 0 or any(0 < one.lends <= one.have for one in others)


def ask(
    queue: DeliveryQueue,
    consumer: Consumer,
    ranges: Ranges,
    asker: Consumer | None = None,
    *,
    bytes_count: bool = False,
) -> None:
    """Ask a consumer to give back these deliveries, which :func:`recallable` has; it is not asked for any yet.

    ``bytes_count``: the destination has a limit on bytes.
    """
    assert consumer.recall is None
    recall = consumer.recall = queue.consumers.recalling[consumer] = Recalling(tuple(ranges), asker)
    recall.messages = consumer.have - consumer.count_of([(1, known_begun(consumer))])
    for item in recallable(consumer) if bytes_count else ():
        recall.nbytes += queue.held[item.run.ordinal].bytes_of(item.run.mask)
    queue.step.out.after_durable.append(Recall(consumer.attachment, recall.ranges))


def answered(queue: DeliveryQueue, consumer: Consumer, *, given: bool) -> None:
    """A consumer has said all that it gives back: what it was asked for and has still, its application has begun."""
    recall, consumer.recall = consumer.recall, None
    queue.consumers.recalling.pop(consumer, None)
    if recall is None:
        return
    for item in consumer.tagged(recall.ranges):
        consumer.kept = max(consumer.kept, item.tag + item.count - 1)
    if recall.asker is not None:
        queue.consumers.put_last(consumer, recall.asker, queue.step.now_ms)
        if recall.asker.attachment in queue.consumers.by_attachment:
            queue.consumers.idle.setdefault(recall.asker, queue.step.now_ms)
        if given:
            queue.consumers.rich[consumer] = queue.step.now_ms + SHARED_AFTER_MS
        else:
            queue.consumers.rich.pop(consumer, None)
    if consumer.leaving:
        evacuate(queue, consumer)


def evacuate(queue: DeliveryQueue, consumer: Consumer) -> None:
    """Ask a consumer that leaves for all that its application has not begun, unless it has a question to answer: then
    it is asked when it has."""
    items = recallable(consumer)
    if items and consumer.recall is None:
        bytes_count = queue.policy.attributes.maxTotalMsgBytes >= 0
        ranges = joined((item.tag, item.tag + item.count - 1) for item in items)
        ask(queue, consumer, ranges, bytes_count=bytes_count)


def share(queue: DeliveryQueue) -> None:
    """Ask those that hold many messages to give some back for those that have been idle meanwhile."""
    consumers, now_ms = queue.consumers, queue.step.now_ms
    if now_ms < consumers.look_ms:
        _note_time(consumers, now_ms)
        if consumers.idle:
            queue.step.wake(consumers.look_ms)
        return
    consumers.look_ms = now_ms + SHARED_AFTER_MS
    for idle in list(consumers.idle):
        if idle.have or not _wants(idle) or idle.attachment not in consumers.by_attachment:
            del consumers.idle[idle]
            continue
        if consumers.idle[idle] < 0:
            consumers.idle[idle] = now_ms
        holder, due_ms = _holder(queue, idle)
        if holder is None and not due_ms:
            continue
        due_ms = max(consumers.idle[idle] + SHARED_AFTER_MS, due_ms)
        if holder is None or now_ms < due_ms:
            _look_again(queue, due_ms)
            break  # Whoever is idle for less time has to wait as well.
        if queue.pending.has_for(idle):
            break
        ranges = _newest(queue, holder, _part(holder, idle))
        if ranges:
            del consumers.idle[idle]
            ask(queue, holder, ranges, idle, bytes_count=queue.policy.attributes.maxTotalMsgBytes >= 0)
        else:
            del consumers.rich[holder]
            _look_again(queue, now_ms)


def _note_time(consumers: Consumers, now_ms: int) -> None:
    """Who is idle, or holds many, since this step is so from now on; the latest are the last."""
    for known, at_ms in ((consumers.idle, now_ms), (consumers.rich, now_ms + SHARED_AFTER_MS)):
        for consumer in reversed(known):
            if known[consumer] >= 0:
                break
            known[consumer] = at_ms


def _look_again(queue: DeliveryQueue, due_ms: int) -> None:
    """Nothing else can be taken back before ``due_ms``."""
    consumers = queue.consumers
    consumers.look_ms = min(consumers.look_ms, max(due_ms, queue.step.now_ms + LOOK_MS))
    queue.step.wake(consumers.look_ms)


def _wants(consumer: Consumer) -> bool:
    """Whether it would take messages now, or ask for them once it hears of some."""
    return consumer.room() > 0 or (consumer.armed and consumer.listening())


def _holder(queue: DeliveryQueue, idle: Consumer) -> tuple[Consumer | None, int]:
    """Who has the most that the idle one may have as well, and can be asked now; else when somebody can, 0: never."""
    consumers, now_ms = queue.consumers, queue.step.now_ms
    found: Consumer | None = None
    soonest = 0
    for consumer in list(consumers.rich):
        if not 0 < consumer.lends <= consumer.have:
            del consumers.rich[consumer]
            continue
        if consumer is idle or consumer.recall is not None or idle.selector not in (ANY, consumer.selector):
            continue
        if consumers.rich[consumer] < 0:
            consumers.rich[consumer] = now_ms + SHARED_AFTER_MS
        due_ms = consumers.rich[consumer]
        if now_ms < due_ms:
            soonest = min(soonest or due_ms, due_ms)
        elif found is None or found.have < consumer.have:
            found = consumer
    return found, soonest if found is None else 0


def _part(holder: Consumer, idle: Consumer) -> int:
    """How many messages the idle one gets at most."""
    half = holder.have // 2
    return half if idle.armed else min(half, idle.room())


def _newest(queue: DeliveryQueue, holder: Consumer, most: int) -> Ranges:
    """The last deliveries that it holds and may not have begun; of a unit of order all of them or none."""
    items = recallable(holder)
    whole = _whole_units(queue, items) if queue.policy.attributes.prefetchRecall == "Always" else {}
    found: list[tuple[int, int]] = []
    for item in reversed(items):
        if most <= 0:
            break
        block = queue.held[item.run.ordinal]
        if not item.run.mask & block.ordered:
            count = min(item.count, most)
            found.append((item.tag + item.count - count, item.tag + item.count - 1))
            most -= count
        elif whole:
            names = block.columns.units or ()
            for name in reversed(list(pk.chosen(names, item.run.mask & block.ordered))):
                tags = whole.get(name or "", [])
                if name is not None and tags and len(tags) <= most:
                    del whole[name]
                    found += [(tag, tag) for tag in tags]
                    most -= len(tags)
    return joined(found)


def _whole_units(queue: DeliveryQueue, items: Iterable[Delivery]) -> dict[str, list[int]]:
    """Unit of order → its tags, of the units of which these deliveries are all that any session holds."""
    tags: dict[str, list[int]] = {}
    for item in items:
        block = queue.held[item.run.ordinal]
        names = block.columns.units
        if names is not None and item.run.mask & block.ordered:
            for tag, index in enumerate(pk.indexes(item.run.mask), item.tag):
                name = names[index]
                if name is not None:
                    tags.setdefault(name, []).append(tag)
    units = queue.units
    return {name: some for name, some in tags.items() if name in units and units[name].held == len(some)}


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Ranges in order, those that follow one another as one."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and found[-1][1] + 1 == first:
            found[-1] = found[-1][0], last
        else:
            found.append((first, last))
    return found
