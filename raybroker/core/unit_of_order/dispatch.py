"""Handing out the messages of a delivery queue that has units of order.

A consumer gets what anybody may have and what only its session may have, whatever comes first; when nothing of that is
left, the next unopened block is opened for it.  In the usual case, without selectors and with one priority, a block
is dealt out while it is opened, message by message and to several sessions at a time: units that nobody has in equal
parts to the consumers with room, the others to the sessions that have them, at once or as an owner batch for later.
"""

from __future__ import annotations

from typing import Final

from raybroker.core.blocks import message_mask as pk
from raybroker.core.delivery.consumers import Consumer
from raybroker.core.delivery.dead_letters import Dead
from raybroker.core.delivery.pending import Dies, HandOut
from raybroker.core.delivery.run import Run
from raybroker.core.delivery.sorted_backlog import Position, SortedBacklog
from raybroker.core.unit_of_order.state import UnitState
from raybroker.core.unit_of_order.unit import Unit, UnitOwner
from raybroker.model.blocks.block import BLOCK_MESSAGES_MAX

OPEN_MESSAGES_MAX: Final = 8_192
"""Messages of unopened blocks that are opened in one step for nobody; the rest has to wait for the next."""
PART_MIN: Final = 64
"""Free units of a block are dealt out in parts of so many at least: many small deliveries would cost more, and blocks
that are smaller go to one consumer after the other."""
_BIT: Final = tuple(1 << index for index in range(BLOCK_MESSAGES_MAX))
Handed = list[tuple[Consumer, Run]]


def dispatch(order: UnitState, hand_out: HandOut, dies: Dies) -> None:
    consumers, unopened = order.plain.consumers, order.unopened
    without: list[Consumer] = []
    budget, news = OPEN_MESSAGES_MAX, order.news
    while True:
        turn = consumers.next_with_room()
        if turn is None:
            if not without or news == order.news:
                break
            news = order.news  # What others took has made something ready for those that found nothing before.
            consumers.turn.extend(without)
            without.clear()
            continue
        consumer, room = turn
        run = take(order, consumer, room) if not order.plain.by_keys else take_by_keys(order, consumer, room)
        if run is not None:
            handed = [(consumer, run)]
        elif unopened and budget > 0:
            budget -= unopened.queue[0].mask.bit_count()
            handed = open_block(order, consumer, dies)
            budget += sum(part.mask.bit_count() for _, part in handed)
        else:
            order.plain.unfinished = order.plain.unfinished or bool(unopened)
            without.append(consumers.turn.popleft())
            continue
        for one, part in handed:
            hand_out(one, part)
        order.refresh()
    if without:
        consumers.turn.extend(without)
        consumers.turn.rotate(-1)


def has_for(order: UnitState, consumer: Consumer) -> bool:
    """Return whether it has a message for the consumer; when too much is unopened to know, the work is
    unfinished."""
    budget = OPEN_MESSAGES_MAX
    while True:
        owner = order.owners.get(consumer.owner or consumer.attachment)
        if order.plain.backlog.has_for(consumer.selector):
            return True
        if owner is not None and (owner.owner_batches or owner.first(consumer.selector)):
            return True
        if not order.unopened:
            return False
        if budget <= 0:
            order.plain.unfinished = True
            return False
        budget -= order.unopened.queue[0].mask.bit_count()
        _open_slowly(order)
        order.refresh()


def sort_some(order: UnitState) -> bool:
    """Sort some of the backlog, and go on opening blocks although nobody asks, if what is next may be in any of
    them."""
    budget = OPEN_MESSAGES_MAX if order.hasty else 0
    while order.unopened and budget > 0:
        budget -= order.unopened.queue[0].mask.bit_count()
        _open_slowly(order)
    if order.hasty:
        order.refresh()
    opening = order.hasty and bool(order.unopened)
    return order.plain.sort_some(order.classify) or opening


def settle(order: UnitState) -> None:
    """Find which message of each unit is next, after a change; nothing is left of units without messages."""
    order.unpack_if_hasty()
    order.refresh()
    if order.unopened and order.hasty and not order.plain.unfinished:
        order.plain.unfinished = sort_some(order)


# ---- what is opened --------------------------------------------------------------------------------------------------


def take(order: UnitState, consumer: Consumer, room: int) -> Run | None:
    """The next messages of opened blocks for a consumer with room: of one block and alike; they are held from now on.

    Those that its session may have and those that anybody may have are in one order.
    """
    owner, backlog, selector = order.owner_of(consumer), order.plain.backlog, consumer.selector
    if not (owner.owner_batches or owner.ready or backlog.count):
        return None
    entry, head = owner.first(selector), backlog.first(selector)
    batch = owner.owner_batches[0] if owner.owner_batches else None
    front = entry[4].front() if entry is not None else None
    ready = order.stretch(front)[0] if front is not None else None
    first = min((run for run in (ready, head, batch) if run is not None), key=_rank, default=None)
    if first is None or (order.unopened and first.priority < order.unopened.priority):
        return None
    if first is batch and not any(run is not None and run.arrival == first.arrival for run in (ready, head)):
        mask = pk.lowest(first.mask, room)
        order.take_batch(owner, mask)
        return first._replace(mask=mask)
    mask, parts, heads, packed = _together(order, owner, first, head, batch, room, selector)
    _take_heads(order, owner, first, heads, mask)
    for unit, more in parts:
        _take_part(order, owner, unit, more & mask)
    if packed & mask:
        order.take_batch(owner, packed & mask)
    return first._replace(mask=mask)


def take_by_keys(order: UnitState, consumer: Consumer, room: int) -> Run | None:
    """Do what :func:`take` does, of a sorted destination: what its session has next of any unit, or what anybody may
    have.

    Blocks are opened as soon as possible there, so that nothing waits in owner batches.
    """
    owner, backlog, selector = order.owner_of(consumer), order.plain.backlog, consumer.selector
    assert isinstance(backlog, SortedBacklog)
    if order.unopened:
        return None
    head = backlog.first(selector)
    if head is None and not backlog.keyed:
        return None
    best: tuple[Position, Unit, Run] | None = None
    for unit in owner.listed(selector):
        front = unit.front()
        assert front is not None, f"unit {unit.name} has nothing that is ready"
        run = front._replace(mask=front.mask & -front.mask)
        found = backlog.position(run), unit, run
        if best is None or found[0] < best[0]:
            best = found
    if best is not None and (head is None or best[0] < backlog.position_of_next(selector)):
        _, unit, run = best
        unit.listed = None
        _take_part(order, owner, unit, run.mask)
        return run
    taken = backlog.take_run(room, selector)
    if taken is not None:
        _take_heads(order, owner, taken, taken.mask, taken.mask)
    return taken


def _rank(run: Run) -> tuple[int, int, int]:
    """What runs are served by: priority, then arrival, then the first message."""
    return -run.priority, run.arrival, run.mask & -run.mask


def _together(
    order: UnitState, owner: UnitOwner, first: Run, head: Run | None, batch: Run | None, room: int, selector: int
) -> tuple[int, list[tuple[Unit, int]], int, int]:
    """What a session gets of the block of ``first``, alike, up to where others come between.

    All of it; by unit what is behind, which may be more; what is off the buckets, which may be more; what its owner
    batch has of it.
    """
    heads, stops = 0, []
    if head is not None and head[:2] == first[:2] and head.priority == first.priority:
        if head[3:] == first[3:]:
            heads = order.plain.backlog.take_run(room, selector).mask  # type: ignore[union-attr]  # the head is of its plain backlog
        else:
            stops.append(head.mask & -head.mask)
    packed = 0
    if batch is not None and batch.arrival == first.arrival:
        if batch[3:] == first[3:]:
            packed = batch.mask
        else:
            stops.append(batch.mask & -batch.mask)
    parts, mask, barrier = _gather(order, owner, first, room, selector)
    followers, after = _followers(order, first, heads)
    stops += [barrier, after]
    mask |= heads | packed
    for _, more in followers:
        mask |= more
    stop = min((bit for bit in stops if bit), default=0)
    if stop:
        mask &= stop - 1
    return pk.lowest(mask, room), parts + followers, heads, packed


def _gather(
    order: UnitState, owner: UnitOwner, first: Run, room: int, selector: int
) -> tuple[list[tuple[Unit, int]], int, int]:
    """What is ready for a session of one block, alike ``first``: by unit, all together, and where others come between.

    The units are off the session's list; they get there again when they are looked at next.
    """
    parts: list[tuple[Unit, int]] = []
    mask = count = 0
    while count < room and (entry := owner.first(selector)) is not None:
        if entry[0] != first.arrival or entry[3][0] != first.priority:
            break
        part = entry[4].front()
        assert part is not None, f"unit {entry[4].name} has nothing that is ready"
        if order.plain.selector_index:
            part, _ = order.stretch(part)
        if part[3:] != first[3:]:
            return parts, mask, part.mask & -part.mask
        owner.pop(entry)
        parts.append((entry[4], part.mask))
        mask |= part.mask
        count += part.mask.bit_count()
    return parts, mask, 0


def _take_part(order: UnitState, owner: UnitOwner, unit: Unit, mask: int) -> None:
    """Messages that are behind go to the session that has the unit."""
    if mask:
        unit.remove_first(mask)
        count = mask.bit_count()
        order.behind -= count
        order.hold(unit, owner, count)
    if unit.owner is not None:
        order.list_again(unit)


def _followers(order: UnitState, run: Run, heads: int) -> tuple[list[tuple[Unit, int]], int]:
    """What comes after these first messages of units in the same block, alike; and where to stop.

    With selectors that is after a message with followers: they may be for others, and are looked at when they are next.
    """
    block = order.held[run.ordinal]
    names = block.columns.units
    found: list[tuple[Unit, int]] = []
    for index in pk.indexes(heads & block.ordered) if names is not None else ():
        unit = order.units[(names or ())[index] or ""]
        front = unit.front()
        if front is not None and front.ordinal == run.ordinal and front[3:] == run[3:]:
            if order.plain.selector_index:
                return [], 2 << index
            found.append((unit, front.mask))
    return found, 0


def _take_heads(order: UnitState, owner: UnitOwner, run: Run, heads: int, mask: int) -> None:
    """First messages of units go to a session, and others without a unit; those not among ``mask`` go back."""
    if heads & ~mask:
        order.to_bucket(run._replace(mask=heads & ~mask))
    block = order.held[run.ordinal]
    names = block.columns.units
    for index in pk.indexes(heads & mask & block.ordered) if names is not None else ():
        unit = order.units[(names or ())[index] or ""]
        unit.head = None
        order.hold(unit, owner, 1)
        if unit.runs:
            order.list_again(unit)


# ---- opening ---------------------------------------------------------------------------------------------------------


def open_block(order: UnitState, consumer: Consumer, dies: Dies) -> Handed:
    """Open the first unopened block, for a consumer that has room and nothing else to get; deal it out if simple."""
    unopened = order.unopened
    run = unopened.queue[0]
    block = order.held[run.ordinal]
    simple = not order.hasty and not run.attempts and not run.failures
    split = len(unopened.queue) > 1 and unopened.queue[1].ordinal == run.ordinal
    if not simple or split or run.ordinal in unopened.blocked:
        _open_slowly(order)
        return []
    unopened.open()
    dead = block.expired(run.mask, order.step.wall_ms)
    if dead:
        dies(Dead(run._replace(mask=dead), "EXPIRED"))
        run = run._replace(mask=run.mask & ~dead)
    names = block.columns.units
    if names is None or not run.mask:
        if run.mask:
            order.to_bucket(run)
        return []
    return _deal(order, consumer, run, names)


def _open_slowly(order: UnitState) -> None:
    """Everything of a block gets behind, or to the buckets when it has no unit; what is blocked stays blocked."""
    runs, blocked = order.unopened.open()
    for run in runs:
        block = order.held[run.ordinal]
        if run.mask & blocked:
            order.hold_place(run._replace(mask=run.mask & blocked))
        ordered = run.mask & block.ordered & ~blocked
        if ordered:
            order.put_behind(run._replace(mask=ordered))
        loose = run.mask & ~block.ordered
        if loose:
            order.to_bucket(run._replace(mask=loose))


class _Share:
    """What one session gets of a block: through ``consumer``, up to ``room`` messages; ``later``: its owner batch."""

    __slots__ = ("consumer", "later", "mask", "owner", "room")

    def __init__(self, owner: UnitOwner, consumer: Consumer | None) -> None:
        self.owner = owner
        self.consumer = consumer
        self.room = consumer.room() if consumer is not None else 0
        self.mask = 0
        self.later = 0


def _deal(order: UnitState, consumer: Consumer, run: Run, names: tuple[str | None, ...]) -> Handed:
    """Deal a block out: free units in parts to those with room, others to the sessions that have them, the rest behind.

    What has no unit is for this consumer.
    """
    units = order.units
    own = _Share(order.owner_of(consumer), consumer)
    shares: dict[UnitOwner, _Share] = {own.owner: own}
    takers = _takers(order, own, shares)
    each = max(-(-run.mask.bit_count() // len(takers)), PART_MIN)
    taker, left = takers.pop(), each
    behind: dict[Unit, int] = {}
    bucketed = 0
    for name, bit in zip(pk.chosen(names, run.mask), pk.chosen(_BIT, run.mask), strict=True):
        if name is None:
            if own.room:
                own.room -= 1
                own.mask |= bit
            else:
                bucketed |= bit
            continue
        unit = units.get(name)
        if unit is None:
            unit = units[name] = Unit(name)
            while takers and not (left and taker.room):
                taker, left = takers.pop(), each
            if taker.room:
                left -= 1
                taker.room -= 1
                taker.mask |= bit
                order.hold(unit, taker.owner, 1)
            else:
                unit.head = run.ordinal, bit
                bucketed |= bit
            continue
        owner = unit.owner
        if owner is None or unit.blocked or unit.staged:
            behind[unit] = behind.get(unit, 0) | bit
            continue
        share = shares.get(owner) or _share_of(order, owner, shares)
        if share.room and not unit.runs and not unit.batched:
            share.room -= 1
            share.mask |= bit
            unit.held += 1
        else:
            share.later |= bit
            unit.batched += 1
    _put_off(order, run, behind, bucketed)
    for share in shares.values():
        if share.later:
            order.pack(share.owner, run._replace(mask=share.later))
    return [
        (share.consumer, run._replace(mask=share.mask))
        for share in shares.values()
        if share.mask and share.consumer is not None
    ]


def _takers(order: UnitState, own: _Share, shares: dict[UnitOwner, _Share]) -> list[_Share]:
    """Who gets free units, one part each: the consumers with room, the last first."""
    found = [own]
    for consumer in order.plain.consumers.turn:
        owner = order.owner_of(consumer)
        if owner not in shares and consumer.room() > 0 and not owner.owner_batches:
            share = shares[owner] = _Share(owner, consumer)
            found.append(share)
    return found[::-1]


def _put_off(order: UnitState, run: Run, behind: dict[Unit, int], bucketed: int) -> None:
    """What of a block nobody gets now and no owner batch has."""
    arrival, ordinal, _, attempts, failures, priority = run
    for unit, mask in behind.items():
        first = not unit.runs
        unit.insert(Run(arrival, ordinal, mask, attempts, failures, priority))
        order.behind += mask.bit_count()
        if first and unit.owner is not None:
            order.list_again(unit)
    if bucketed:
        order.to_bucket(run._replace(mask=bucketed))


def _share_of(order: UnitState, owner: UnitOwner, shares: dict[UnitOwner, _Share]) -> _Share:
    """The share of another session; without room when none of its consumers has any, or there is more before it."""
    there = order.plain.consumers.by_attachment.values() if not owner.owner_batches else ()
    found = (c for c in there if (c.owner or c.attachment) == owner.name and c.room() > 0)
    share = shares[owner] = _Share(owner, next(found, None))
    return share
