"""The units of order of one delivery queue, as long as it has any.

New blocks stand in a *line* and are opened one by one when somebody has room for more, so that a deep backlog costs
nothing but its blocks.  A message of an opened block is in one of these places:

    on the delivery queue's buckets   it has no unit, or is the first message of a unit of which nobody has any: for
    anybody with a consumer         or acknowledged in a transaction: its unit is *held*, by one session
    behind                  for nobody yet, or, as long as its unit is held, for that session
    barred                  it has its place in its unit and is elsewhere in the delivery queue, or not visible yet

When a session has settled all it has of a unit, the next message goes to the buckets.  When one comes back, all
later ones of its unit come back with it, from wherever the session has them, or they would overtake it.  With selectors
or several priorities the line is opened at once: the message to serve first may be anywhere.

A message that is dead, because it expired or a limit removed it, is in nobody's way at once, though it takes a while
until what becomes of it is settled on disk.  A host that dies in between has it again, and it then comes after those of
its unit that were handled meanwhile: to hold those back for as long as another host may be away would be worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_index import BlockEntry
from raybroker.core.delivery.backlog import Run
from raybroker.core.delivery.consumers import Consumer, Delivery
from raybroker.core.delivery.selector_index import Contents
from raybroker.core.unit_of_order.owner_batches import owner_batches, take_out, unpack, unpack_all
from raybroker.core.unit_of_order.unit import Owner, Unit, by_unit
from raybroker.core.unit_of_order.unopened_blocks import Line

if TYPE_CHECKING:
    from raybroker.core.delivery.delivery_queue import DeliveryQueue

class Order:
    """``units`` by name, of opened blocks; ``behind``: how many messages are that.

    reserved  block of an open transaction → messages of it that have a place here
    dirty     units of which something has changed
    news      grows whenever a message becomes the next one that somebody could have
    """

    __slots__ = ("behind", "contents", "dirty", "line", "news", "owners", "queue", "reserved", "units")

    def __init__(self, queue: DeliveryQueue, opened: int) -> None:
        self.queue = queue
        self.line = Line(opened)
        self.line.mixed = bool(queue.backlog.count)
        self.units: dict[str, Unit] = {}
        self.owners: dict[str | int, Owner] = {}
        self.reserved: dict[int, int] = {}
        self.dirty: dict[Unit, None] = {}
        self.behind = 0
        self.news = 0
        self.contents = Contents(queue.home.peek)

    @property
    def idle(self) -> bool:
        return not self.units and not self.line

    @property
    def count(self) -> int:
        """Messages that wait here, and not on the delivery queue's buckets."""
        return self.behind + self.line.count

    @property
    def hasty(self) -> bool:
        """Blocks have to be opened as soon as possible."""
        return self.line.mixed or bool(self.queue.matching)

    def block(self, ordinal: int) -> BlockEntry:
        return self.queue.home.block_index.held[ordinal]

    def names(self, run: Run) -> Iterator[str]:
        """The unit of each message of a run, of those that have one."""
        block = self.block(run.ordinal)
        names = block.columns.units
        if names is not None:
            for name in pk.chosen(names, run.mask & block.ordered):
                if name is not None:
                    yield name

    def changed(self, unit: Unit) -> None:
        self.dirty[unit] = None
        self.queue.home.touch(self.queue)

    # ---- coming in -------------------------------------------------------------------------------------------------

    def enter(self, run: Run) -> None:
        """Messages that can go: new ones, ones that come back, or ones that were barred."""
        ordered = run.mask & self.block(run.ordinal).ordered
        self._visible(run.ordinal, ordered)
        if run.ordinal > self.line.opened:
            if not self.count and not self.queue.backlog.count:
                self.line.begin_anew()
            self.line.add(run)
        else:
            self.line.meet(run.priority)
            if ordered:
                self.put_behind(run._replace(mask=ordered))
            if run.mask != ordered:
                self.queue.shelve(run._replace(mask=run.mask & ~ordered))
        self.queue.home.touch(self.queue)

    def put_behind(self, run: Run) -> None:
        """Messages of an opened block get to their units."""
        names = self.block(run.ordinal).columns.units
        place, ordinal, _, attempts, failures, priority = run
        for name, mask in by_unit(names, run.mask).items() if names is not None else ():
            unit = self._unit(name)
            for index in pk.indexes(mask) if unit.bars else ():
                unit.unbar(ordinal, index)
            self._unpack(unit)
            unit.insert(Run(place, ordinal, mask, attempts, failures, priority))
            self.dirty[unit] = None
        self.behind += run.mask.bit_count()

    def _unit(self, name: str) -> Unit:
        unit = self.units.get(name)
        if unit is None:
            unit = self.units[name] = Unit(name)
        return unit

    def _unpack(self, unit: Unit) -> None:
        """It has to have what is behind itself."""
        if unit.parcelled:
            assert unit.owner is not None
            unpack(self, unit.owner)

    def bar(self, run: Run) -> None:
        """Messages that have their place from now on and cannot go: they are elsewhere in the delivery queue, or not
        visible."""
        block = self.block(run.ordinal)
        ordered, names = run.mask & block.ordered, block.columns.units
        if not ordered or names is None:
            return
        if run.ordinal > self.line.opened:
            self.line.bar(run._replace(mask=ordered))
            self.queue.home.touch(self.queue)
            return
        for name, mask in by_unit(names, ordered).items():
            unit = self._unit(name)
            self._unpack(unit)
            for index in pk.indexes(mask):
                unit.bar(run.ordinal, index)
            self.changed(unit)

    def reserve(self, run: Run) -> None:
        """An open transaction sends these: they have their place, and nobody sees them."""
        self.bar(run)
        ordered = run.mask & self.block(run.ordinal).ordered
        if ordered:
            self.reserved[run.ordinal] = self.reserved.get(run.ordinal, 0) | ordered

    def _visible(self, ordinal: int, mask: int) -> None:
        if ordinal in self.reserved:
            self.reserved[ordinal] &= ~mask
            if not self.reserved[ordinal]:
                del self.reserved[ordinal]

    def forget(self, ordinal: int, mask: int) -> None:
        """Barred messages of a block that is still held are gone."""
        block = self.block(ordinal)
        ordered, names = mask & block.ordered, block.columns.units
        if not ordered or names is None:
            return
        self._visible(ordinal, ordered)
        if ordinal > self.line.opened:
            self.line.forget(ordinal, ordered)
            self.queue.home.touch(self.queue)
            return
        for name, some in by_unit(names, ordered).items():
            unit = self.units.get(name)
            if unit is not None and sum(unit.unbar(ordinal, index) for index in pk.indexes(some)):
                self.changed(unit)

    # ---- going out -------------------------------------------------------------------------------------------------

    def owner_of(self, consumer: Consumer) -> Owner:
        name = consumer.owner or consumer.attachment
        owner = self.owners.get(name)
        if owner is None:
            owner = self.owners[name] = Owner(name)
        return owner

    def hold(self, unit: Unit, owner: Owner, count: int) -> None:
        """A session gets messages of the unit."""
        if unit.owner is None:
            unit.owner = owner
            owner.units += 1
        assert unit.owner is owner, f"unit {unit.name} is with {unit.owner.name!r} and goes to {owner.name!r}"
        unit.held += count

    def done(self, runs: Iterable[Run]) -> None:
        """Messages that were handed out are settled, or dead: they are in nobody's way any more."""
        units, dirty = self.units, self.dirty
        for run in runs:
            block = self.block(run.ordinal)
            names = block.columns.units or ()
            for name in pk.chosen(names, run.mask & block.ordered) if names else ():
                unit = units[name]  # type: ignore[index]
                unit.held -= 1
                if not unit.held:
                    dirty[unit] = None
        if dirty:
            self.queue.home.touch(self.queue)

    # ---- transactions ----------------------------------------------------------------------------------------------

    def staged_elsewhere(self, items: Iterable[Delivery], txn: int) -> str | None:
        """A unit of these messages of which another transaction has messages that it has not decided about."""
        for item in items:
            for name in self.names(item.run):
                unit = self.units[name]
                if unit.staged and unit.txn != txn:
                    return name
        return None

    def stage(self, items: Iterable[Delivery], txn: int, sign: int = 1) -> None:
        """Messages are acknowledged in a transaction, or (``sign`` -1) that is decided."""
        for item in items:
            for name in self.names(item.run):
                unit = self.units[name]
                self._unpack(unit)
                unit.staged += sign
                unit.txn = txn
                self.changed(unit)

    def restage(self, run: Run, txn: int) -> None:
        """A restart found messages acknowledged in a prepared transaction."""
        names = self.block(run.ordinal).columns.units
        owner = self.owners.setdefault(-txn, Owner(-txn))
        for name, mask in by_unit(names, run.mask).items() if names is not None else ():
            unit = self._unit(name)
            if unit.owner is None or unit.owner is owner:
                self.hold(unit, owner, mask.bit_count())
            else:
                unit.held += mask.bit_count()
            unit.staged += mask.bit_count()
            unit.txn = txn
            self.changed(unit)

    # ---- leaving ---------------------------------------------------------------------------------------------------

    def remove(self, chosen: Mapping[int, int]) -> list[Run]:
        """Take out waiting messages of the line and behind, given as block → picks; returns them."""
        removed: list[Run] = []
        unpack_all(self, chosen)
        for ordinal, mask in chosen.items():
            block = self.queue.home.block_index.held.get(ordinal)
            if block is None or block.columns.units is None or ordinal > self.line.opened:
                continue
            for name, some in by_unit(block.columns.units, mask & block.ordered).items():
                unit = self.units.get(name)
                found = unit.remove(ordinal, some) if unit is not None else []
                if unit is not None and found:
                    removed += found
                    self.changed(unit)
        self.behind -= sum(run.count for run in removed)
        return removed + self.line.remove(chosen)

    def first_to_remove(self, room: int, *, lowest_priority: bool) -> dict[int, int]:
        """Up to ``room`` waiting messages to discard first, of the oldest block that has any."""
        runs = [*self.queue.backlog.runs(), *self.runs()]
        if not runs:
            return {}
        if lowest_priority:
            lowest = min(run.priority for run in runs)
            runs = [run for run in runs if run.priority == lowest]
        oldest = min(run.ordinal for run in runs)
        mask = 0
        for run in runs:
            mask |= run.mask if run.ordinal == oldest else 0
        return {oldest: pk.lowest(mask, room)}

    def heads_gone(self, runs: Iterable[Run]) -> None:
        """Messages were taken off the delivery queue's buckets for good."""
        for run in runs:
            for name in self.names(run):
                unit = self.units[name]
                unit.head = None
                self.changed(unit)

    def clear(self) -> list[Run]:
        """Take out everything that waits, now that the buckets are empty; places of open transactions stay."""
        runs = list(self.runs())
        self.line.keep_only(self.reserved)
        for owner in self.owners.values():
            owner.owner_batches.clear()
        for unit in self.units.values():
            unit.clear(self.reserved)
            self.changed(unit)
        self.behind = 0
        return runs

    def runs(self) -> Iterator[Run]:
        """Everything that waits in the line and behind."""
        for unit in self.units.values():
            yield from unit.waiting()
        yield from owner_batches(self)
        yield from self.line.runs()

    def left(self) -> None:
        """A consumer is gone: forget sessions that have nothing and nobody."""
        there = {c.owner or c.attachment for c in self.queue.consumers.by_attachment.values()}
        for name in [n for n, owner in self.owners.items() if not owner.units and n not in there]:
            del self.owners[name]

    # ---- which is next ---------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring up to date which message of each unit can go, and to whom."""
        while self.dirty:
            dirty, self.dirty = self.dirty, {}
            heads: dict[tuple[int, ...], int] = {}
            freed = [unit for unit in dirty if unit.parcelled and not unit.held]
            if freed:
                take_out(self, freed)
            for unit in dirty:
                self._refresh(unit, heads)
            for (place, ordinal, *rest), mask in heads.items():
                self.news += 1
                self.queue.shelve(Run(place, ordinal, mask, *rest))

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
            unit.take(low)
            unit.head = run.ordinal, low
            self.behind -= 1
            key = run.place, run.ordinal, *run[3:]
            heads[key] = heads.get(key, 0) | low
        elif not unit.bars and not unit.runs:
            del self.units[unit.name]

    def list_again(self, unit: Unit) -> None:
        """What a unit that somebody has can give its session next has changed."""
        run = unit.front() if unit.bars else unit.next()
        assert unit.owner is not None
        if run is None or unit.staged:
            unit.listed = None
            return
        self.news += 1
        if self.queue.matching:
            unit.owner.add(unit, *self.stretch(run))
        else:
            unit.owner.add(unit, run, 0)

    def _retract(self, unit: Unit) -> None:
        """Something earlier has come: the head goes back behind."""
        assert unit.head is not None
        (run,) = self.queue.backlog.remove(dict([unit.head]))
        unit.head = None
        unit.insert(run)
        self.behind += 1

    def stretch(self, run: Run) -> tuple[Run, int]:
        """The first messages of a run that match the same selectors, and which those are."""
        matching = self.queue.matching
        if not matching:
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
        return self.queue.matching.classify(run, self.contents.of(run.ordinal))

    def unpack_if_hasty(self) -> None:
        """Parcels are for delivery queues where nothing comes before what came first."""
        if self.hasty:
            unpack_all(self)

    def selectors_changed(self) -> None:
        """What is next for whom has to be looked at again."""
        unpack_all(self)
        for unit in self.units.values():
            if unit.listed is not None:
                unit.listed = None
                self.changed(unit)
