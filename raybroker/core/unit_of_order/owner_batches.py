"""Messages behind, put together for the session that has their units: a *parcel* is a part of one block.

Most messages of a busy delivery queue come while a session has earlier ones of their unit and no room for more.  All
of a block that will be for that session then waits as one set, and leaves as one; kept unit by unit, each of them
would cost as much as a whole parcel.

A parcel is for its session only as long as that is certain.  What the owner batches have of a unit of which the
session has settled everything is taken out of them.  When something earlier comes back, or what is next depends on
selectors and priorities, they are *unpacked*: each message waits in its unit again, and is not packed another time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from raybroker.core.blocks import message_mask as pk
from raybroker.core.delivery.backlog import Run
from raybroker.core.unit_of_order.unit import Owner, Unit, by_unit

if TYPE_CHECKING:
    from raybroker.core.unit_of_order.state import Order

LOOKED_AT_MAX: Final = 64
"""Messages of owner batches that are looked at for each unit that is taken out of them; where there are more, unpacking
everything costs less in the end."""


def pack(order: Order, owner: Owner, run: Run) -> None:
    """Messages of the block that was opened last wait for a session; their units count them already."""
    owner.owner_batches.append(run)
    order.behind += run.mask.bit_count()
    order.news += 1


def take_parcel(order: Order, owner: Owner, mask: int) -> None:
    """The session gets these messages of its first parcel."""
    run = owner.owner_batches[0]
    if mask == run.mask:
        owner.owner_batches.popleft()
    else:
        owner.owner_batches[0] = run._replace(mask=run.mask & ~mask)
    order.behind -= mask.bit_count()
    units = order.units
    for name in _names(order, run.ordinal, mask):
        unit = units[name]
        unit.parcelled -= 1
        unit.held += 1


def unpack(order: Order, owner: Owner) -> None:
    """Everything that waits for a session as owner batches waits in its units again."""
    owner_batches = list(owner.owner_batches)
    owner.owner_batches.clear()
    found: dict[Unit, None] = {}
    for place, ordinal, every, attempts, failures, priority in owner_batches:
        names = order.block(ordinal).columns.units
        for name, mask in by_unit(names, every).items() if names is not None else ():
            unit = order.units[name]
            unit.parcelled = 0
            unit.insert(Run(place, ordinal, mask, attempts, failures, priority))
            found[unit] = None
    for unit in found:
        order.list_again(unit)


def take_out(order: Order, freed: Iterable[Unit]) -> None:
    """Of these units nobody has anything any more: what owner batches have of them waits in the units."""
    by_owner: dict[Owner, list[Unit]] = {}
    for unit in freed:
        assert unit.owner is not None
        by_owner.setdefault(unit.owner, []).append(unit)
    for owner, units in by_owner.items():
        if sum(run.mask.bit_count() for run in owner.owner_batches) > LOOKED_AT_MAX * len(units):
            unpack(order, owner)
        else:
            _take_out(order, owner, {unit.name: unit for unit in units})


def _take_out(order: Order, owner: Owner, units: dict[str, Unit]) -> None:
    kept: deque[Run] = deque()
    for run in owner.owner_batches:
        place, ordinal, every, attempts, failures, priority = run
        names = order.block(ordinal).columns.units
        assert names is not None
        if not units.keys().isdisjoint(pk.chosen(names, every)):
            for name, mask in by_unit(names, every).items():
                if name in units:
                    units[name].insert(Run(place, ordinal, mask, attempts, failures, priority))
                    every &= ~mask
        if every:
            kept.append(run._replace(mask=every))
    owner.owner_batches = kept
    for unit in units.values():
        unit.parcelled = 0


def unpack_all(order: Order, ordinals: Iterable[int] | None = None) -> None:
    """Unpack the owner batches of all sessions, or of those that have some of these blocks."""
    chosen = None if ordinals is None else set(ordinals)
    for owner in order.owners.values():
        if owner.owner_batches and (chosen is None or any(run.ordinal in chosen for run in owner.owner_batches)):
            unpack(order, owner)


def owner_batches(order: Order) -> Iterator[Run]:
    """Everything that waits as owner batches."""
    for owner in order.owners.values():
        yield from owner.owner_batches


def _names(order: Order, ordinal: int, mask: int) -> Iterator[str]:
    names = order.block(ordinal).columns.units
    assert names is not None
    return pk.chosen(names, mask)  # type: ignore[arg-type]
