"""Invariants of the units of order of a delivery queue between two steps.

Everything is looked at message by message and compared with what the delivery queue keeps; the cost is that of a scan.
"""

from __future__ import annotations

from collections.abc import Iterator

from raybroker.core.blocks import message_mask as pk
from raybroker.core.delivery.consumers import Consumer
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.destination import Destination
from raybroker.core.unit_of_order.state import UnitState
from raybroker.core.unit_of_order.unit_pending import UnitPending
from raybroker.model.definitions.pauses import CONSUMPTION

Place = tuple[int, int]
"""Block and index of a message."""


def check_units(destination: Destination, queue: DeliveryQueue) -> None:
    """Raises AssertionError that says which invariant does not hold."""
    rows = _rows(destination, queue)
    if not isinstance(queue.pending, UnitPending):
        assert not rows, f"messages of units {sorted(rows)[:3]} are in a delivery queue that knows of none"
        return
    order = queue.pending.state
    assert not order.dirty, "units have changed and were not looked at"
    behind = [run for unit in order.units.values() for run in unit.waiting()]
    packed = _packed(order)
    assert order.behind == sum(run.count for run in behind) + sum(map(len, packed.values()))
    assert order.unopened.count == sum(run.count for run in order.unopened.runs())
    for name, unit in order.units.items():
        assert unit.name == name
        assert name in rows, f"unit {name} is known and has no messages"
        assert unit.held or unit.runs or unit.blocked or unit.head, f"unit {name} is empty"
    for name, found in rows.items():
        _check_unit(destination, queue, order, name, found, packed.get(name, []))


def _packed(order: UnitState) -> dict[str, list[Place]]:
    """Unit → what is in owner batches of it, in order; they are with the unit's owner."""
    found: dict[str, list[Place]] = {}
    for owner in order.owners.values():
        arrivals = [run.arrival for run in owner.owner_batches]
        assert arrivals == sorted(set(arrivals)), f"the owner batches of {owner.name} are out of order"
        assert not owner.owner_batches or not order.hasty, "there are owner batches where what is next may be anywhere"
        for run in owner.owner_batches:
            names = order.held[run.ordinal].columns.units
            for index in pk.indexes(run.mask):
                name = names[index] if names is not None else None
                unit = order.units.get(name or "")
                assert unit is not None, f"{name} is in an owner batch and not known"
                assert unit.owner is owner, f"{name} is in an owner batch of {owner.name}"
                found.setdefault(unit.name, []).append((run.ordinal, index))
    return found


def _rows(destination: Destination, queue: DeliveryQueue) -> dict[str, dict[Place, tuple[str, str | int]]]:
    """Unit → its live messages in the delivery queue → (state, who has them)."""
    rows: dict[str, dict[Place, tuple[str, str | int]]] = {}

    def add(ordinal: int, mask: int, state: str, owner: str | int = "") -> None:
        block = destination.block_index.held.get(ordinal)
        assert block is not None, f"block {ordinal} is {state} for queue {queue.number} and not held"
        names = block.columns.units
        for index in pk.indexes(mask) if names is not None else ():
            name = names[index] if names is not None else None
            if name is not None:
                rows.setdefault(name, {})[ordinal, index] = state, owner

    for state, run in queue.contents():
        if state != "delivered":
            add(run.ordinal, run.mask, state)
    for consumer in queue.consumers.by_attachment.values():
        for item in consumer.unsettled:
            add(item.run.ordinal, item.run.mask, "held", consumer.owner or consumer.attachment)
    for txn, staged in destination.staged.items():
        for number, item in staged.acks:
            if number == queue.number:
                add(item.run.ordinal, item.run.mask, "staged", f"transaction {txn}")
    if isinstance(queue.pending, UnitPending):
        for ordinal, mask in queue.pending.state.reserved.items():
            add(ordinal, mask, "invisible")
    return rows


def _check_unit(
    destination: Destination,
    queue: DeliveryQueue,
    order: UnitState,
    name: str,
    found: dict[Place, tuple[str, str | int]],
    packed: list[Place],
) -> None:
    unit = order.units.get(name)
    held = [at for at, (state, _) in sorted(found.items()) if state in ("held", "staged")]
    rest = [at for at in sorted(found) if at not in held]
    opened = [at for at in rest if at[0] <= order.unopened.opened]
    assert (unit is not None) == bool(held or opened), f"unit {name} is known wrongly"
    if unit is None:
        return
    assert unit.held == len(held), f"{unit.held} messages of unit {name} are counted as held, {len(held)} are"
    staged = sum(state == "staged" for state, _ in found.values())
    assert unit.staged == staged, f"{unit.staged} messages of unit {name} are counted as staged, {staged} are"
    owners = {owner for state, owner in found.values() if state == "held"}
    assert len(owners) <= 1, f"unit {name} is with {owners}"
    if owners and unit.owner is not None and unit.txn >= 0:
        assert owners == {unit.owner.name}, f"unit {name} is with {owners}, known is {unit.owner.name}"
    if held and rest and not staged:
        assert held[-1] < rest[0], f"{held[-1]} of unit {name} is held, and {rest[0]} is not"
    waiting = [at for at in opened if found[at][0] == "waiting"]
    kept = sorted([(run.ordinal, i) for run in unit.waiting() for i in pk.indexes(run.mask)])
    assert unit.batched == len(packed), f"{len(packed)} messages of unit {name} are in owner batches"
    if packed:
        assert held, f"unit {name} has owner batches and is with nobody"
        assert not staged, f"unit {name} has owner batches, and a transaction has messages of it"
        assert not unit.blocked, f"unit {name} has owner batches and is blocked"
        assert not kept or kept[-1] < packed[0], f"{kept[-1]} of unit {name} is behind its owner batches"
        kept += packed
    head = [(unit.head[0], pk.first_of(unit.head[1]))] if unit.head is not None else []
    assert head + kept == waiting, f"unit {name} keeps {head} and {kept}, there wait {waiting}"
    assert [run.ordinal for run in unit.waiting()] == sorted(run.ordinal for run in unit.waiting())
    blocked = list(unit.blocked)
    expected = [at for at in opened if found[at][0] != "waiting"]
    assert sorted(blocked) == blocked == expected, f"unit {name} is blocked at {blocked}, it should be at {expected}"
    if head:
        assert not held, f"unit {name} is held, and for anybody to take"
        assert not blocked or head[0] < blocked[0], f"{head} of unit {name} is before {blocked[0]}"
    elif not held:
        assert not waiting or (blocked and blocked[0] < waiting[0]), f"unit {name} is free and nobody can have it"
    if waiting and not queue.plain.unfinished and CONSUMPTION not in destination.paused:
        _check_served(queue, order, name, rest[0], found, owners, staged)


def _check_served(
    queue: DeliveryQueue,
    order: UnitState,
    name: str,
    first: Place,
    found: dict[Place, tuple[str, str | int]],
    owners: set[str | int],
    staged: int,
) -> None:
    """Nobody has room who could have the first message."""
    if found[first][0] != "waiting" or staged or first[0] > order.unopened.opened:
        return
    for consumer in _eligible(queue, owners):
        if consumer.room() > 0:
            assert not _wants(queue, order, consumer, first), f"{first} of unit {name} waits, and a consumer has room"


def _eligible(queue: DeliveryQueue, owners: set[str | int]) -> Iterator[Consumer]:
    for consumer in queue.consumers.by_attachment.values():
        if not owners or (consumer.owner or consumer.attachment) in owners:
            yield consumer


def _wants(queue: DeliveryQueue, order: UnitState, consumer: Consumer, at: Place) -> bool:
    if consumer.selector < 0:
        return True
    for run in order.plain.backlog.runs():
        if run.ordinal == at[0] and run.mask >> at[1] & 1:
            break
    else:
        run = next(r for r in order.own_runs() if r.ordinal == at[0] and r.mask >> at[1] & 1)
    (signature,) = [s for s, mask in order.classify(run._replace(mask=1 << at[1])) if mask]
    return bool(signature >> consumer.selector & 1)
