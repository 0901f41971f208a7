"""Owner batches: messages of one block that wait for the session that owns their units, kept as one set.

Most messages of a busy delivery queue arrive while a session has earlier ones of their unit and no room for more. The
messages of a block for that session then wait and leave as one set: kept unit by unit, each of them would cost as much
as a whole owner batch.

A unit of which the session has settled everything is taken out of its owner batches, since other sessions may have it.
When an earlier message comes back, or selectors or priorities decide what is next, they are *unpacked*: each message
waits in its unit again, and is not packed another time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_entry import BlockEntry
from raybroker.core.delivery.run import Run
from raybroker.core.unit_of_order.unit import Unit, UnitOwner, by_unit

Units = dict[str, Unit]
Held = dict[int, BlockEntry]
LOOKED_AT_MAX: Final = 64
"""Messages of owner batches that are looked at for each unit that is taken out of them; where there are more, unpacking
everything costs less in the end."""


def take_first(units: Units, held: Held, owner: UnitOwner, mask: int) -> None:
    """Hand these messages of its first owner batch to the session."""
    run = owner.owner_batches[0]
    if mask == run.mask:
        owner.owner_batches.popleft()
    else:
        owner.owner_batches[0] = run._replace(mask=run.mask & ~mask)
    for name in pk.chosen(held[run.ordinal].columns.units or (), mask):
        unit = units[name or ""]
        unit.batched -= 1
        unit.held += 1


def unpack(units: Units, held: Held, owner: UnitOwner) -> Iterable[Unit]:
    """Everything that waits for a session as owner batches waits in its units again; returns those units."""
    owner_batches = list(owner.owner_batches)
    owner.owner_batches.clear()
    found: dict[Unit, None] = {}
    for arrival, ordinal, every, attempts, failures, priority in owner_batches:
        for name, mask in by_unit(held[ordinal].columns.units, every).items():
            unit = units[name]
            unit.batched = 0
            unit.insert(Run(arrival, ordinal, mask, attempts, failures, priority))
            found[unit] = None
    return found


def unpack_all(
    units: Units, held: Held, owners: Iterable[UnitOwner], ordinals: Iterable[int] | None = None
) -> list[Unit]:
    """Unpack the owner batches of these sessions, or of those that have some of these blocks; returns the units."""
    chosen = None if ordinals is None else set(ordinals)
    found: list[Unit] = []
    for owner in owners:
        if owner.owner_batches and (chosen is None or any(run.ordinal in chosen for run in owner.owner_batches)):
            found += unpack(units, held, owner)
    return found


def take_out(units: Units, held: Held, freed: Iterable[Unit]) -> list[Unit]:
    """Take units that no session has any more out of the owner batches: their messages wait in the units.

    Returns all units whose messages were unpacked with them.
    """
    found: list[Unit] = []
    by_owner: dict[UnitOwner, dict[str, Unit]] = {}
    for unit in freed:
        assert unit.owner is not None
        by_owner.setdefault(unit.owner, {})[unit.name] = unit
    for owner, own in by_owner.items():
        if sum(run.mask.bit_count() for run in owner.owner_batches) > LOOKED_AT_MAX * len(own):
            found += unpack(units, held, owner)
        else:
            _take_out(held, owner, own)
    return found


def _take_out(held: Held, owner: UnitOwner, units: Units) -> None:
    kept: deque[Run] = deque()
    for run in owner.owner_batches:
        arrival, ordinal, every, attempts, failures, priority = run
        names = held[ordinal].columns.units
        assert names is not None
        if not units.keys().isdisjoint(pk.chosen(names, every)):
            for name, mask in by_unit(names, every).items():
                if name in units:
                    units[name].insert(Run(arrival, ordinal, mask, attempts, failures, priority))
                    every &= ~mask
        if every:
            kept.append(run._replace(mask=every))
    owner.owner_batches = kept
    for unit in units.values():
        unit.batched = 0
