"""The units of order of one delivery queue, as long as it has any.

New blocks are queued unopened and are opened one by one when a consumer has room for more, so that a deep backlog costs
no more than its blocks.  A message of an opened block is in one of these places:

    on a bucket      any consumer may take it: it has no unit, or is the first message of a unit that is not held
    with a consumer  or acknowledged in a transaction: its unit is *held*, by one session
    behind           it waits; while its unit is held, only the session that holds it may have it
    blocked          it has its place in its unit and is elsewhere in the delivery queue, or not visible yet

When a session has settled all it has of a unit, the next message goes to the buckets.  When one comes back, all
later ones of its unit come back with it, from wherever the session has them, or they would overtake it.  With selectors
or several priorities blocks are opened at once: the message to serve first may be anywhere.

A message that is dead, because it expired or a limit removed it, blocks its unit no longer, although its move to the
dead message queue becomes durable later. A host that dies in between has it again, and delivers it after messages of
its unit that were handled meanwhile: to hold those back while another host is away would be worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_entry import BlockEntry
from raybroker.core.delivery.consumers import Consumer
from raybroker.core.delivery.plain import PlainPending
from raybroker.core.delivery.run import Run
from raybroker.core.delivery.selector_index import Contents
from raybroker.core.step import Step
from raybroker.core.unit_of_order.owner_batches import take_first, take_out, unpack, unpack_all
from raybroker.core.unit_of_order.unit import Unit, UnitOwner, by_unit
from raybroker.core.unit_of_order.unopened_blocks import UnopenedBlocks


class UnitState:
    """``units`` by name, of opened blocks; ``behind``: how many messages are behind.

    reserved  block of an open transaction → messages of it that have a place here
    dirty     units of which something has changed
    news      grows whenever a message becomes the next one that somebody could have
    """

    __slots__ = (
        "behind",
        "contents",
        "dirty",
        "held",
        "news",
        "number",
        "owners",
        "plain",
        "reserved",
        "step",
        "units",
        "unopened",
    )

    def __init__(self, number: int, plain: PlainPending, step: Step, held: dict[int, BlockEntry], opened: int) -> None:
        self.number = number
        self.plain = plain
        self.step = step
        self.held = held
        self.unopened = UnopenedBlocks(opened)
        self.unopened.mixed = bool(plain.backlog.count)
        self.units: dict[str, Unit] = {}
        self.owners: dict[str | int, UnitOwner] = {}
        self.reserved: dict[int, int] = {}
        self.dirty: dict[Unit, None] = {}
        self.behind = 0
        self.news = 0
        self.contents = Contents(step.peek)

    @property
    def count(self) -> int:
        return self.plain.backlog.count + self.behind + self.unopened.count

    @property
    def hasty(self) -> bool:
        """Whether blocks have to be opened as soon as possible."""
        return self.unopened.mixed or self.plain.by_keys or bool(self.plain.selector_index)

    def names(self, run: Run) -> Iterator[str]:
        """The unit of each message of a run, of those that have one."""
        block = self.held[run.ordinal]
        names = block.columns.units
        if names is not None:
            for name in pk.chosen(names, run.mask & block.ordered):
                if name is not None:
                    yield name

    def to_bucket(self, run: Run) -> None:
        """Put a run on the buckets at its place, where any consumer may take it."""
        self.plain.put_back(run, self.classify)

    def changed(self, unit: Unit) -> None:
        self.dirty[unit] = None
        self.step.touch(self.number)

    # ---- coming in -------------------------------------------------------------------------------------------------

    def put_behind(self, run: Run) -> None:
        """Add messages of an opened block to their units."""
        names = self.held[run.ordinal].columns.units
        arrival, ordinal, _, attempts, failures, priority = run
        for name, mask in by_unit(names, run.mask).items():
            unit = self.unit_named(name)
            for index in pk.indexes(mask) if unit.blocked else ():
                unit.unblock(ordinal, index)
            self.unpack_owner(unit)
            unit.insert(Run(arrival, ordinal, mask, attempts, failures, priority))
            self.dirty[unit] = None
        self.behind += run.mask.bit_count()

    def unit_named(self, name: str) -> Unit:
        unit = self.units.get(name)
        if unit is None:
            unit = self.units[name] = Unit(name)
        return unit

    def unpack_owner(self, unit: Unit) -> None:
        """Unpack the owner's batches: the unit has to hold its waiting messages itself."""
        if unit.batched:
            assert unit.owner is not None
            self._list_all(unpack(self.units, self.held, unit.owner))

    def _list_all(self, units: Iterable[Unit]) -> None:
        for unit in units:
            self.list_again(unit)

    def unpack_owners(self, ordinals: Iterable[int] | None = None) -> None:
        self._list_all(unpack_all(self.units, self.held, self.owners.values(), ordinals))

    def hold_place(self, run: Run) -> None:
        """Messages that have their place from now on and cannot go: they are elsewhere in the delivery queue, or not
        visible."""
        block = self.held[run.ordinal]
        ordered, names = run.mask & block.ordered, block.columns.units
        if not ordered or names is None:
            return
        if run.ordinal > self.unopened.opened:
            self.unopened.hold_place(run._replace(mask=ordered))
            self.step.touch(self.number)
            return
        for name, mask in by_unit(names, ordered).items():
            unit = self.unit_named(name)
            self.unpack_owner(unit)
            for index in pk.indexes(mask):
                unit.hold_place(run.ordinal, index)
            self.changed(unit)

    def show(self, ordinal: int, mask: int) -> None:
        if ordinal in self.reserved:
            self.reserved[ordinal] &= ~mask
            if not self.reserved[ordinal]:
                del self.reserved[ordinal]

    # ---- going out -------------------------------------------------------------------------------------------------

    def owner_of(self, consumer: Consumer) -> UnitOwner:
        name = consumer.owner or consumer.attachment
        owner = self.owners.get(name)
        if owner is None:
            owner = self.owners[name] = UnitOwner(name)
        return owner

    def hold(self, unit: Unit, owner: UnitOwner, count: int) -> None:
        """A session gets messages of the unit."""
        if unit.owner is None:
            unit.owner, unit.since_ms = owner, self.step.now_ms
            owner.units += 1
        assert unit.owner is owner, f"unit {unit.name} is with {unit.owner.name!r} and goes to {owner.name!r}"
        unit.held += count

    def pack(self, owner: UnitOwner, run: Run) -> None:
        """Messages of the block that was opened last wait for a session; their units count them already."""
        owner.owner_batches.append(run)
        self.behind += run.mask.bit_count()
        self.news += 1

    def take_batch(self, owner: UnitOwner, mask: int) -> None:
        """The session gets these messages of its first owner batch."""
        take_first(self.units, self.held, owner, mask)
        self.behind -= mask.bit_count()

    # ---- transactions ----------------------------------------------------------------------------------------------

    # ---- leaving ---------------------------------------------------------------------------------------------------

    def own_runs(self) -> Iterator[Run]:
        """Everything that waits in unopened blocks and behind, and not on the buckets."""
        for unit in self.units.values():
            yield from unit.waiting()
        for owner in self.owners.values():
            yield from owner.owner_batches
        yield from self.unopened.runs()

    # ---- which is next ---------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Update which message of each unit can be delivered, and to which owner."""
        while self.dirty:
            dirty, self.dirty = self.dirty, {}
            heads: dict[tuple[int, ...], int] = {}
            freed = [unit for unit in dirty if unit.batched and not unit.held]
            if freed:
                self._list_all(take_out(self.units, self.held, freed))
            for unit in dirty:
                self._refresh(unit, heads)
            for (arrival, ordinal, *rest), mask in heads.items():
                self.news += 1
                self.to_bucket(Run(arrival, ordinal, mask, *rest))

    def _refresh(self, unit: Unit, heads: dict[tuple[int, ...], int]) -> None:
        if unit.head is not None:
            if not unit.overtaken():
                return
            self._retract(unit)
        if unit.held:
            self.list_again(unit)
            return
        run = unit.front()
        if unit.owner is not None:
            unit.owner.units -= 1
            unit.owner = unit.listed = None
        if run is not None:
            low = run.mask & -run.mask
            unit.remove_first(low)
            unit.head = run.ordinal, low
            self.behind -= 1
            key = run.arrival, run.ordinal, *run[3:]
            heads[key] = heads.get(key, 0) | low
        elif not unit.blocked and not unit.runs:
            del self.units[unit.name]

    def list_again(self, unit: Unit) -> None:
        """What a unit that somebody has can give its session next has changed."""
        run = unit.front() if unit.blocked else unit.next()
        assert unit.owner is not None
        if run is None or unit.staged:
            unit.listed = None
            return
        self.news += 1
        if self.plain.selector_index:
            unit.owner.add(unit, *self.stretch(run))
        else:
            unit.owner.add(unit, run, 0)

    def _retract(self, unit: Unit) -> None:
        """An earlier message has come: the head waits behind it again."""
        assert unit.head is not None
        (run,) = self.plain.backlog.remove(dict([unit.head]))
        unit.head = None
        unit.insert(run)
        self.behind += 1

    def stretch(self, run: Run) -> tuple[Run, int]:
        """The first messages of a run that match the same selectors, and which those are."""
        selector_index = self.plain.selector_index
        if not selector_index:
            return run, 0
        low, signature, stop = run.mask & -run.mask, 0, 0
        for own, mask in self.classify(run):
            if mask & low:
                signature = own
            elif not stop or mask & -mask < stop:
                stop = mask & -mask
        return (run._replace(mask=run.mask & (stop - 1)) if stop else run), signature

    def classify(self, run: Run) -> list[tuple[int, int]]:
        """A run as (signature, messages)."""
        return self.plain.selector_index.classify(run, self.contents.content_of(run.ordinal))

    def unpack_if_hasty(self) -> None:
        """Owner batches are for delivery queues where nothing comes before what came first."""
        if self.hasty:
            self.unpack_owners()
