"""Reasons for which a consumer gets nothing: the parts of :meth:`Consumer.room`, by name."""

from __future__ import annotations

from raybroker.core.affinity.affinity_pending import AffinityPending
from raybroker.core.blocks.block_entry import BlockEntry
from raybroker.core.delivery.backlog import ANY
from raybroker.core.delivery.consumers import Consumer
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.delivery.run import Run
from raybroker.core.delivery.selector_index import RunContent
from raybroker.core.delivery.window import BatchWindow, CreditWindow, DrainWindow, PrefetchWindow
from raybroker.core.selector.content import Content
from raybroker.core.staleness.version_pending import VersionPending
from raybroker.core.unit_of_order.unit_pending import UnitPending
from raybroker.core.why.pauses import consumption_paused
from raybroker.core.why.reason import Reason
from raybroker.core.why.selectors import mismatch


def obstacles(queue: DeliveryQueue, consumer: Consumer) -> list[Reason]:
    """Why a consumer has no room, whatever waits; none when it has."""
    if consumer.room():
        return []
    found = [*_not_serving(queue, consumer)] if not consumer.serving else []
    found += _itself(consumer)
    if not consumer.window.room() and not _wants_batch(consumer):
        found.append(_window(consumer))
    return found


def _wants_batch(consumer: Consumer) -> bool:
    """Whether it has asked for a batch and has not got one."""
    return isinstance(consumer.window, BatchWindow) and consumer.window.asked


def batch_forming(queue: DeliveryQueue, consumer: Consumer) -> Reason | None:
    """Why a consumer that has asked for a batch has none yet, whatever waits; None: it has not asked."""
    window = consumer.window
    if not isinstance(window, BatchWindow) or not window.asked:
        return None
    rule = window.rule
    facts: dict[str, object] = {"messages_max": rule.max_messages}
    text = f"waits for a batch of {rule.max_messages} messages"
    if rule.max_cost is not None:
        facts["cost_max"] = rule.max_cost
        text += f", or of {rule.cost} {rule.max_cost:g}"
    if rule.key is not None:
        facts["key"] = rule.key
        text += f", with one {rule.key}"
    former = queue.plain.former
    due_ms = former.due_ms if former is not None else None
    if due_ms is not None:
        facts["until_ms"] = due_ms + queue.step.ahead_ms
    return _of(
        consumer, "batch_forming", f"{text}; what there is goes {rule.deadline_s:g} s after its oldest came", **facts
    )


def for_later(queue: DeliveryQueue, consumer: Consumer, run: Run, content: Content | None) -> list[Reason]:
    """Why a consumer with room does not get a message yet: others have what it needs, or a batch is being formed."""
    plain, now_ms = queue.plain, queue.step.now_ms
    if isinstance(plain, AffinityPending) and queue.pending is plain and consumer.room() and content is not None:
        kept_ms = plain.kept_until_ms(run, consumer.attachment, content)
        if kept_ms > now_ms:
            key = queue.policy.attributes.affinityKey
            facts = {"consumer": consumer.attachment, "key": key, "until_ms": kept_ms + queue.step.ahead_ms}
            text = f"it is for consumers with the label that its property {key} asks for, and for anybody later"
            return [Reason("affinity", text, facts)]
    forming = batch_forming(queue, consumer)
    return [] if forming is None else [forming]


def _of(consumer: Consumer, code: str, text: str, **facts: object) -> Reason:
    return Reason(code, f"consumer {consumer.attachment} {text}", {"consumer": consumer.attachment, **facts})


def _not_serving(queue: DeliveryQueue, consumer: Consumer) -> list[Reason]:
    """What :meth:`Consumers.rank` had against it."""
    attributes, gate = queue.policy.attributes, queue.dispatch_gate
    found: list[Reason] = []
    if not gate.dispatching:
        there, wanted = len(queue.consumers.by_attachment), attributes.consumersBeforeDispatch
        until_ms = gate.until_ms(attributes)
        wall_ms = until_ms + queue.step.ahead_ms if until_ms is not None else 0
        text = f"waits with the others until there are consumersBeforeDispatch={wanted}; there are {there}"
        since_ms = gate.since_ms + queue.step.ahead_ms if gate.since_ms is not None else 0
        found.append(_of(consumer, "too_few_consumers", text, since_ms=since_ms, until_ms=wall_ms))
    if not consumer.active:
        active = queue.consumers.active_count
        text = f"is a backup: maxNumActiveConsumers={attributes.maxNumActiveConsumers}, and {active} are active"
        found.append(_of(consumer, "backup", text))
    elif not found:
        found.append(
            _of(consumer, "not_local", "is of another broker, and localDeliveryPreferred has local ones first")
        )
    return found


def _itself(consumer: Consumer) -> list[Reason]:
    found: list[Reason] = []
    if consumer.held:
        found.append(_of(consumer, "stopped", "is stopped: its connection is not started"))
    if consumer.leaving:
        found.append(_of(consumer, "drained", "is on a node that is drained, and gets nothing more"))
    if consumer.stalled:
        found.append(_of(consumer, "overdue", "has let messages lie beyond their time and was not heard of since"))
    if consumer.recall is not None:
        found.append(_of(consumer, "recalled", "was asked to give messages back and has not answered"))
    if consumer.bytes is not None and consumer.bytes.full:
        unit = consumer.bytes.unit
        text = (
            f"has {consumer.bytes.nbytes} of {consumer.bytes.most} {unit} in its buffer, too much for the next message"
        )
        counts = {unit: consumer.bytes.nbytes, f"{unit}_max": consumer.bytes.most}
        found.append(_of(consumer, "buffer_full", text, **counts))
    if 0 <= consumer.most <= consumer.have:
        text = f"holds {consumer.have} messages and cannot give them back; more would leave none to remove"
        found.append(_of(consumer, "half_held", text, unacknowledged=consumer.have, most=consumer.most))
    return found


def _window(consumer: Consumer) -> Reason:
    window, have = consumer.window, consumer.have
    if isinstance(window, PrefetchWindow) and window.limit:
        text = f"has {window.outstanding} of {window.limit} messages unacknowledged; more come at half of that"
        return _of(consumer, "not_acknowledged", text, unacknowledged=have, limit=window.limit)
    if isinstance(window, CreditWindow):
        text = (
            f"has no credit: it has taken its limit of {consumer.limit} and asked for no more ({have} unacknowledged)"
        )
        return _of(consumer, "no_credit", text, unacknowledged=have, limit=consumer.limit)
    if isinstance(window, BatchWindow):
        return _of(consumer, "not_asking", f"asks for each batch, and does not now ({have} unacknowledged)")
    assert isinstance(window, DrainWindow | PrefetchWindow)
    text = f"asks for messages when it wants some, and wants none now ({have} unacknowledged)"
    return _of(consumer, "not_asking", text)


def unselected(
    queue: DeliveryQueue, consumer: Consumer, block: BlockEntry, run: Run, content: Content | None
) -> Reason | None:
    """Why the selector of a consumer does not pick the one message of a run; None when it does, or there is none."""
    index = queue.plain.selector_index
    if consumer.selector == ANY:
        return None
    selector = index.selectors[consumer.selector]
    if any(
        signature >> consumer.selector & 1 for signature, _ in index.classify(run, content or RunContent(run.priority))
    ):
        return None
    because, values = mismatch(
        selector.text, content or RunContent(run.priority), run.mask.bit_length() - 1, run.attempts
    )
    text = f"has the selector {selector.text!r}, which does not match: {because}"
    return _of(consumer, "selector", text, selector=selector.text, because=because, values=values)


def starving(queue: DeliveryQueue) -> list[Reason]:
    """Say since when a consumer that has nothing waits, if that is longer than it may."""
    plain, step = queue.plain, queue.step
    if not isinstance(plain, VersionPending) or not plain.starvation.starving:
        return []
    waited_ms = plain.starvation.waited_ms(step.now_ms)
    text = (
        f"a consumer that has nothing has waited for {waited_ms / 1000:g} s; version {plain.versions.published} is"
        f" published, and {plain.stale} messages were found stale since the host started"
    )
    since_ms = step.wall_ms - waited_ms
    facts = {"since_ms": since_ms, "version": plain.versions.published, "messages_stale": plain.stale}
    return [Reason("starving", text, facts)]


def waiting_for(queue: DeliveryQueue, consumer: Consumer) -> list[Reason]:
    """Why a consumer gets nothing now: pauses, what it lacks itself, and what there is for it."""
    found = [*consumption_paused(queue.policy), *obstacles(queue, consumer), *_nothing_for(queue, consumer)]
    return found + starving(queue)


def obstacles_and_selector(queue: DeliveryQueue, consumer: Consumer) -> list[Reason]:
    """Why a consumer takes nothing of what waits."""
    return obstacles(queue, consumer) or _nothing_for(queue, consumer)


def _nothing_for(queue: DeliveryQueue, consumer: Consumer) -> list[Reason]:
    pending = queue.pending
    if not pending.count:
        text = "has nothing to get: no message waits"
        if queue.delayed.count or queue.hidden:
            text += f" ({queue.delayed.count} are delayed{', and some are hidden' if queue.hidden else ''})"
        return [_of(consumer, "nothing_waits", text)]
    if queue.plain.backlog.has_for(consumer.selector):
        forming = batch_forming(queue, consumer)
        return [] if forming is None else [forming]
    if not isinstance(pending, UnitPending):
        text = f"has a selector, and none of the {pending.count} messages that wait is known to match it"
        return [_of(consumer, "nothing_matches", text, messages=pending.count)]
    order = pending.state
    owner = order.owners.get(consumer.owner or consumer.attachment)
    if order.unopened or (owner is not None and (owner.owner_batches or owner.first(consumer.selector) is not None)):
        return []
    text = f"has nothing to get: {order.behind} messages wait for sessions that have their units of order"
    return [_of(consumer, "units_elsewhere", text, messages=order.behind)]
