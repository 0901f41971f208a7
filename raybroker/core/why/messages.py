"""Reasons for which one message is where it is, and is not delivered."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final, NamedTuple

from raybroker.core.blocks import message_mask as pk
from raybroker.core.delivery.consumers import Consumer
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.delivery.redelivery import failures_apart, own_failures
from raybroker.core.delivery.run import Run
from raybroker.core.durable.records import REJECTED
from raybroker.core.selector.content import Content
from raybroker.core.staged_transaction import StagedTransaction
from raybroker.core.staleness.version_pending import VersionPending
from raybroker.core.unit_of_order.unit import Unit, UnitOwner
from raybroker.core.unit_of_order.unit_pending import UnitPending
from raybroker.core.why.consumers import for_later, obstacles, unselected
from raybroker.core.why.pauses import consumption_paused, insertion_paused
from raybroker.core.why.place import Place, place_of, unit_of
from raybroker.core.why.reason import Reason

CONSUMERS_MAX: Final = 100
"""Consumers whose reasons are said of one message; a queue may have thousands."""


class Explained(NamedTuple):
    """``place``: where the message is; ``reasons``: all that have to go before it is delivered; of those with a
    ``consumer`` the reasons of one of the consumers are enough. ``history``: what has happened to it before."""

    place: Place
    reasons: list[Reason]
    history: list[Reason]

    @property
    def state(self) -> str:
        return self.place.state


def explained(
    queue: DeliveryQueue,
    staged: Mapping[int, StagedTransaction],
    ordinal: int,
    index: int,
    content: Content | None,
) -> Explained:
    """The message ``index`` of a held block; ``content``: its headers, None when they cannot be read."""
    place = place_of(queue, staged, ordinal, 1 << index)
    reasons = _WHERE[place.state](queue, place, content) if place.state in _WHERE else _waiting(queue, place, content)
    return Explained(place, reasons, history(queue, place.run, now=place.state == "delivered"))


def history(queue: DeliveryQueue, run: Run, *, now: bool = False) -> list[Reason]:
    """Why a message was or will be delivered again; ``now``: its last delivery is with a consumer."""
    if run.attempts <= now and not run.failures:
        return []
    failures, limit = own_failures(run.failures), queue.policy.failures_max
    apart, limits = failures_apart(run.failures), queue.policy.cause_limits
    back = max(run.attempts - failures - sum(apart.values()) - now, 0)
    facts: dict[str, object] = {"deliveries": run.attempts, "failures": failures, "failures_max": limit}
    if apart:
        facts |= {"causes": apart, "causes_max": {cause: limits[cause] for cause in apart}}
    parts = [f"was handed out {_times(run.attempts)}"]
    parts += [
        f"{_times(count)} it failed by the cause {cause}"
        f" ({'any number is' if limits[cause] < 0 else f'{limits[cause]} are'} allowed)"
        for cause, count in apart.items()
    ]
    if failures == REJECTED:
        parts.append("a consumer has rejected it")
    elif failures:
        left = "any number is allowed" if limit < 0 else f"{limit} are allowed before it is dead"
        parts.append(f"{_times(failures)} it failed: rolled back, failed or lost while it was worked on ({left})")
    if back:
        parts.append(
            f"{_times(back)} it came back uncounted: it was released, or its consumer or connection was closed,"
            " or its time to be acknowledged was over"
        )
    return [Reason("redelivered", "; ".join(parts), facts)]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


# ---- what does not wait ----------------------------------------------------------------------------------------------


def _sent(queue: DeliveryQueue, place: Place, content: Content | None) -> list[Reason]:
    text = f"transaction {place.txn}, which has sent it, is not committed"
    return [Reason("sent_in_transaction", text, {"transaction": place.txn})]


def _acknowledged(queue: DeliveryQueue, place: Place, content: Content | None) -> list[Reason]:
    text = f"transaction {place.txn} has consumed it and has not ended; it comes again if that is rolled back"
    return [Reason("acknowledged_in_transaction", text, {"transaction": place.txn})]


def _absent(queue: DeliveryQueue, place: Place, content: Content | None) -> list[Reason]:
    own = queue.subscription
    if own is not None and own.selector is not None and content is not None:
        from raybroker.core.selector import compile_selector
        from raybroker.core.why.selectors import mismatch

        index = place.run.mask.bit_length() - 1
        if not compile_selector(own.selector).matches(content, index, 0):
            because, values = mismatch(own.selector, content, index, 0)
            text = f"the subscription's selector {own.selector!r} does not match: {because}"
            return [Reason("not_selected", text, {"selector": own.selector, "because": because, "values": values})]
    no_local = "; or its own connection has sent it (noLocal)" if own is not None and own.no_local else ""
    text = f"the subscription has settled it already, or began after it was sent{no_local}"
    return [Reason("not_owed", text)]


def _dying(queue: DeliveryQueue, place: Place, content: Content | None) -> list[Reason]:
    return [Reason("dying", "it is dead, or set aside, and is on its way to where that is decided")]


def _delivered(queue: DeliveryQueue, place: Place, content: Content | None) -> list[Reason]:
    consumer = place.consumer
    assert consumer is not None
    begun = place.tag <= max(consumer.begun, consumer.kept)
    where = "its application has it" if begun else "it may lie in the consumer's buffer"
    facts = {"consumer": consumer.attachment, "tag": place.tag, "session": str(consumer.owner), "begun": begun}
    text = f"consumer {consumer.attachment} has it and has not acknowledged it; {where}"
    if consumer.asked.lease_ms:
        until_ms = next(iter(consumer.tagged([(place.tag, place.tag)]))).until_ms + queue.step.ahead_ms
        facts |= {"since_ms": until_ms - consumer.asked.lease_ms, "until_ms": until_ms}
    return [Reason("delivered", text, facts)]


def _delayed(queue: DeliveryQueue, place: Place, content: Content | None) -> list[Reason]:
    facts = {"until_ms": place.due_ms + queue.step.ahead_ms}
    if place.run.attempts:
        return [Reason("resting", "it has failed, and rests until it is delivered again", facts)]
    return [Reason("delayed", "it is not to be delivered before its delivery time", facts)]


def _hidden(queue: DeliveryQueue, place: Place, content: Content | None) -> list[Reason]:
    return insertion_paused(queue.policy)


def _incomplete(queue: DeliveryQueue, place: Place, content: Content | None) -> list[Reason]:
    works, parts = queue.held[place.run.ordinal].columns.works, queue.parts
    key = works.keys[place.run.mask.bit_length() - 1] if works is not None else None
    assert key is not None
    assert parts is not None
    unit = parts.units.get(key.unit)
    here, end = (unit.here, unit.end) if unit is not None else (0, 0)
    whole = f"of {end}" if end else "and its last one has not come"
    text = f"unit of work {key.unit!r} is not complete: {here} messages are there, {whole}"
    return [Reason("incomplete_unit_of_work", text, {"unit_of_work": key.unit, "messages": here, "end": end})]


_WHERE: Final = {
    "sent": _sent,
    "acknowledged": _acknowledged,
    "absent": _absent,
    "dying": _dying,
    "delivered": _delivered,
    "delayed": _delayed,
    "hidden": _hidden,
    "incomplete": _incomplete,
}


# ---- what waits ------------------------------------------------------------------------------------------------------


def _waiting(queue: DeliveryQueue, place: Place, content: Content | None) -> list[Reason]:
    run, step = place.run, queue.step
    if queue.held[run.ordinal].expired(run.mask, step.wall_ms):
        return [Reason("expired", "its time is over; it is removed when it would be handed out, or by the next scan")]
    found = consumption_paused(queue.policy)
    consumers = list(queue.consumers.by_attachment.values())
    if isinstance(queue.pending, UnitPending):
        consumers, reasons = _in_unit(queue, queue.pending, run, consumers)
        found += reasons
    if not consumers:
        if not any(reason.code in ("unit_owned", "unit_in_transaction") for reason in found):
            found.append(Reason("no_consumer", "nobody is there to take it"))
        return found
    found += _stale(queue, run)
    unsorted = queue.plain.backlog.has_unsorted(run.priority)
    if unsorted:
        found.append(Reason("sorting", "messages are being compared with the selectors of the consumers"))
    ready = [consumer for consumer in consumers if not _against(queue, consumer, run, content, found)]
    if not found and ready:
        found += _order(queue, ready, run)
    return found


def _stale(queue: DeliveryQueue, run: Run) -> list[Reason]:
    """Why a message that waits goes behind all others."""
    plain = queue.plain
    if not isinstance(plain, VersionPending) or run.priority >= 0:
        return []
    versions = plain.versions
    text = (
        f"its {versions.key} is more than maxStaleness={versions.bound} behind the published {versions.published}:"
        " everything else goes first"
    )
    return [Reason("stale", text, {"version": versions.published, "max_staleness": versions.bound})]


def _against(
    queue: DeliveryQueue, consumer: Consumer, run: Run, content: Content | None, found: list[Reason]
) -> list[Reason]:
    """What keeps a consumer from a message, which is put to ``found`` as well, of so many consumers."""
    selector = unselected(queue, consumer, queue.held[run.ordinal], run, content)
    reasons = (
        [selector] if selector is not None else obstacles(queue, consumer) or for_later(queue, consumer, run, content)
    )
    if sum("consumer" in reason.facts for reason in found) < CONSUMERS_MAX:
        found += reasons
    return reasons


def _order(queue: DeliveryQueue, ready: list[Consumer], run: Run) -> list[Reason]:
    """Why a message waits although somebody could have it: others go first, or it is not time yet."""
    wait, step = queue.batch_wait, queue.step
    until_ms = wait.until_ms(step.now_ms, queue.policy.batch_wait_ms) if wait.since_ms is not None else None
    if until_ms is not None:
        text = "a batch is gathered, as messagingPerformancePreference says"
        since_ms = wait.since_ms + step.ahead_ms if wait.since_ms is not None else 0
        return [Reason("batch_wait", text, {"since_ms": since_ms, "until_ms": until_ms + step.ahead_ms})]
    if isinstance(queue.pending, UnitPending) and run.ordinal > queue.pending.state.unopened.opened:
        return [Reason("behind", "blocks before it are looked at first")]
    for consumer in ready:
        first = queue.plain.backlog.first(consumer.selector)
        if first is not None and (first.ordinal, first.mask & -first.mask) != (run.ordinal, run.mask):
            return [Reason("behind", "other messages go first")]
    return [Reason("ready", "nothing keeps it: it goes with the next step")]


def _in_unit(
    queue: DeliveryQueue, pending: UnitPending, run: Run, consumers: list[Consumer]
) -> tuple[list[Consumer], list[Reason]]:
    """The consumers that may have a message for its unit of order, and what in the unit keeps it."""
    name, unit = unit_of(queue, run.ordinal, run.mask)
    if name is None or unit is None:
        return consumers, []
    here, found = (run.ordinal, run.mask), list[Reason]()
    facts = {"unit": name}
    if unit.blocked and (unit.blocked[0][0], 1 << unit.blocked[0][1]) < here:
        found.append(_blocked(unit, facts))
    elif (earlier := _earlier(unit)) is not None and earlier < here:
        text = f"earlier messages of its unit of order {name!r} wait before it"
        place = f"{earlier[0]}.{earlier[1].bit_length() - 1}"
        found.append(Reason("unit_earlier", text, {**facts, "earlier": place}))
    if unit.owner is None or not unit.held:
        return consumers, found
    if unit.staged:
        text = f"transaction {unit.txn} has consumed messages of its unit of order {name!r} and has not ended"
        found.append(Reason("unit_in_transaction", text, {**facts, "transaction": unit.txn}))
    if unit.held > unit.staged:
        found.append(_owned(queue, unit, unit.owner, facts))
    return [c for c in consumers if (c.owner or c.attachment) == unit.owner.name], found


def _earlier(unit: Unit) -> tuple[int, int] | None:
    """The message of a unit that goes first of those that wait."""
    if unit.head is not None:
        return unit.head
    first = unit.next()
    return (first.ordinal, first.mask & -first.mask) if first is not None else None


def _blocked(unit: Unit, facts: dict[str, str]) -> Reason:
    text = f"an earlier message of its unit of order {unit.name!r} is delayed, hidden, or in a transaction that is open"
    ordinal, index = unit.blocked[0]
    return Reason("unit_blocked", text, {**facts, "earlier": f"{ordinal}.{index}"})


def _owned(queue: DeliveryQueue, unit: Unit, owner: UnitOwner, facts: dict[str, str]) -> Reason:
    """Its unit is with a session: which of its consumers has the first message, and since when it is there."""
    since_ms = unit.since_ms + queue.step.ahead_ms
    more: dict[str, object] = {
        **facts,
        "session": str(owner.name),
        "messages": unit.held - unit.staged,
        "since_ms": since_ms,
    }
    text = f"its unit of order {unit.name!r} is with session {owner.name}"
    for consumer in queue.consumers.by_attachment.values():
        if (consumer.owner or consumer.attachment) != owner.name:
            continue
        for item in islice(consumer.unsettled, LOOKED_AT_MAX):
            names = queue.held[item.run.ordinal].columns.units
            held = [i for i in pk.indexes(item.run.mask) if names is not None and names[i] == unit.name]
            if held:
                more |= {
                    "consumer_of_head": consumer.attachment,
                    "tag": item.tag + (item.run.mask & ((1 << held[0]) - 1)).bit_count(),
                }
                text += f"; consumer {consumer.attachment} has its first message"
                return Reason("unit_owned", text, more)
    return Reason("unit_owned", text, more)


LOOKED_AT_MAX: Final = 1_000
"""Deliveries of a consumer that are looked at for the first message of a unit."""
