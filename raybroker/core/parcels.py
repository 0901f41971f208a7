"""Messages behind, put together for the session that has their units: a *parcel* is a part of one block (W-81, W-89).

Most messages of a busy lane come while a session has earlier ones of their unit and no room for more.  All of a block
that will be for that session then waits as one set, and leaves as one; kept unit by unit, each of them would cost as
much as a whole parcel.

A parcel is for its session only as long as that is certain.  What the parcels have of a unit of which the session has
settled everything is taken out of them.  When something earlier comes back, or what is next depends on selectors and
priorities, they are *unpacked*: each message waits in its unit again, and is not packed another time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from raybroker.core import picks as pk
from raybroker.core.backlog import Run
from raybroker.core.unit import Owner, Unit, by_unit

if TYPE_CHECKING:
    from raybroker.core.order import Order

LOOKED_AT_MAX: Final = 64
"""Messages of parcels that are looked at for each unit that is taken out of them; where there are more, unpacking
everything costs less in the end."""


def pack(order: Order, owner: Owner, run: Run) -> None:
    """Messages of the block that was opened last wait for a session; their units count them already."""
    owner.parcels.append(run)
    order.behind += run.picks.bit_count()
    order.news += 1


def take_parcel(order: Order, owner: Owner, picks: int) -> None:
    """The session gets these messages of its first parcel."""
    run = owner.parcels[0]
    if picks == run.picks:
        owner.parcels.popleft()
    else:
        owner.parcels[0] = run._replace(picks=run.picks & ~picks)
    order.behind -= picks.bit_count()
    units = order.units
    for name in _names(order, run.ordinal, picks):
        unit = units[name]
        unit.parcelled -= 1
        unit.held += 1


def unpack(order: Order, owner: Owner) -> None:
    """Everything that waits for a session as parcels waits in its units again."""
    parcels = list(owner.parcels)
    owner.parcels.clear()
    found: dict[Unit, None] = {}
    for place, ordinal, every, attempts, failures, priority in parcels:
        names = order.block(ordinal).columns.units
        for name, picks in by_unit(names, every).items() if names is not None else ():
            unit = order.units[name]
            unit.parcelled = 0
            unit.insert(Run(place, ordinal, picks, attempts, failures, priority))
            found[unit] = None
    for unit in found:
        order.list_again(unit)


def take_out(order: Order, freed: Iterable[Unit]) -> None:
    """Of these units nobody has anything any more: what parcels have of them waits in the units."""
    by_owner: dict[Owner, list[Unit]] = {}
    for unit in freed:
        assert unit.owner is not None
        by_owner.setdefault(unit.owner, []).append(unit)
    for owner, units in by_owner.items():
        if sum(run.picks.bit_count() for run in owner.parcels) > LOOKED_AT_MAX * len(units):
            unpack(order, owner)
        else:
            _take_out(order, owner, {unit.name: unit for unit in units})


def _take_out(order: Order, owner: Owner, units: dict[str, Unit]) -> None:
    kept: deque[Run] = deque()
    for run in owner.parcels:
        place, ordinal, every, attempts, failures, priority = run
        names = order.block(ordinal).columns.units
        assert names is not None
        if not units.keys().isdisjoint(pk.chosen(names, every)):
            for name, picks in by_unit(names, every).items():
                if name in units:
                    units[name].insert(Run(place, ordinal, picks, attempts, failures, priority))
                    every &= ~picks
        if every:
            kept.append(run._replace(picks=every))
    owner.parcels = kept
    for unit in units.values():
        unit.parcelled = 0


def unpack_all(order: Order, ordinals: Iterable[int] | None = None) -> None:
    """Unpack the parcels of all sessions, or of those that have some of these blocks."""
    chosen = None if ordinals is None else set(ordinals)
    for owner in order.owners.values():
        if owner.parcels and (chosen is None or any(run.ordinal in chosen for run in owner.parcels)):
            unpack(order, owner)


def parcels(order: Order) -> Iterator[Run]:
    """Everything that waits as parcels."""
    for owner in order.owners.values():
        yield from owner.parcels


def _names(order: Order, ordinal: int, picks: int) -> Iterator[str]:
    names = order.block(ordinal).columns.units
    assert names is not None
    return pk.chosen(names, picks)  # type: ignore[arg-type]
