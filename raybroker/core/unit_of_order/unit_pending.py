"""The messages of a delivery queue that has units of order, as the queue sees them.

They are where :class:`~raybroker.core.unit_of_order.state.UnitState` says; :mod:`raybroker.core.unit_of_order.dispatch`
hands them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import merge

from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_entry import BlockEntry
from raybroker.core.delivery.consumers import Consumer, Delivery
from raybroker.core.delivery.pending import Dies, HandOut
from raybroker.core.delivery.plain import PlainPending
from raybroker.core.delivery.run import Run, position
from raybroker.core.selector.content import Content
from raybroker.core.step import Step
from raybroker.core.unit_of_order import dispatch
from raybroker.core.unit_of_order.revocation import First, first_overtaken, first_returned, revoke
from raybroker.core.unit_of_order.state import UnitState
from raybroker.core.unit_of_order.unit import UnitOwner, by_unit


class UnitPending:
    """See the module; it serves a delivery queue as long as that has any unit."""

    __slots__ = ("state",)

    def __init__(self, number: int, plain: PlainPending, step: Step, held: dict[int, BlockEntry], opened: int) -> None:
        self.state = UnitState(number, plain, step, held, opened)

    @property
    def count(self) -> int:
        return self.state.count

    @property
    def idle(self) -> bool:
        return not self.state.units and not self.state.unopened

    # ---- coming in -------------------------------------------------------------------------------------------------

    def append(self, run: Run, content: Content | None = None) -> None:
        self.put_back(run)

    def put_back(self, run: Run) -> None:
        """Add messages that can be delivered: new ones, returned ones, or ones that were blocked."""
        state = self.state
        ordered = run.mask & state.held[run.ordinal].ordered
        state.show(run.ordinal, ordered)
        if run.ordinal > state.unopened.opened:
            if not state.count:
                state.unopened.begin_anew()
            state.unopened.add(run)
        else:
            state.unopened.meet(run.priority)
            if ordered:
                state.put_behind(run._replace(mask=ordered))
            if run.mask != ordered:
                state.to_bucket(run._replace(mask=run.mask & ~ordered))
        state.step.touch(state.number)

    def reserve(self, run: Run) -> None:
        """Reserve the places of messages that an open transaction has sent; they are not visible."""
        state = self.state
        state.hold_place(run)
        ordered = run.mask & state.held[run.ordinal].ordered
        if ordered:
            state.reserved[run.ordinal] = state.reserved.get(run.ordinal, 0) | ordered

    def unreserve(self, ordinal: int, mask: int) -> None:
        state = self.state
        self.drop_blocked(ordinal, mask)
        state.reserved.pop(ordinal, None)

    def drop_blocked(self, ordinal: int, mask: int) -> None:
        """Drop blocked messages of a block that is still held."""
        state = self.state
        block = state.held[ordinal]
        ordered, names = mask & block.ordered, block.columns.units
        if not ordered or names is None:
            return
        state.show(ordinal, ordered)
        if ordinal > state.unopened.opened:
            state.unopened.drop_blocked(ordinal, ordered)
            state.step.touch(state.number)
            return
        for name, some in by_unit(names, ordered).items():
            unit = state.units.get(name)
            if unit is not None and sum(unit.unblock(ordinal, index) for index in pk.indexes(some)):
                state.changed(unit)

    def hold_place(self, run: Run) -> None:
        self.state.hold_place(run)

    # ---- going out -------------------------------------------------------------------------------------------------

    def find_next(self) -> None:
        """Find which message of each unit is next, after a change; nothing is left of units without messages."""
        dispatch.settle(self.state)

    def dispatch(self, hand_out: HandOut, dies: Dies) -> None:
        dispatch.dispatch(self.state, hand_out, dies)

    def has_for(self, consumer: Consumer) -> bool:
        return dispatch.has_for(self.state, consumer)

    def sort_some(self) -> bool:
        return dispatch.sort_some(self.state)

    def settled(self, runs: Iterable[Run]) -> None:
        """These messages are settled and block their units no longer."""
        state = self.state
        units, dirty = state.units, state.dirty
        for run in runs:
            block = state.held[run.ordinal]
            names = block.columns.units or ()
            for name in pk.chosen(names, run.mask & block.ordered) if names else ():
                unit = units[name]  # type: ignore[index]  # a name was found above
                unit.held -= 1
                if not unit.held:
                    dirty[unit] = None
        if dirty:
            state.step.touch(state.number)

    def returned(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Later messages of their units come with them."""
        state = self.state
        return self._revoke(first_returned(state.units, state.held, deliveries))

    def overtaken(self, runs: Iterable[Run]) -> list[Delivery]:
        """Later messages of their units come with them."""
        state = self.state
        return self._revoke(first_overtaken(state.units, state.held, runs))

    def _revoke(self, first: First) -> list[Delivery]:
        state = self.state
        for unit in first:
            state.changed(unit)
        return revoke(state.units, state.held, state.plain.consumers, first, state.step.out)

    # ---- transactions ----------------------------------------------------------------------------------------------

    def staged_elsewhere(self, deliveries: Iterable[Delivery], txn: int) -> str | None:
        state = self.state
        for item in deliveries:
            for name in state.names(item.run):
                unit = state.units[name]
                if unit.staged and unit.txn != txn:
                    return name
        return None

    def stage(self, deliveries: Iterable[Delivery], txn: int, sign: int = 1) -> None:
        state = self.state
        for item in deliveries:
            for name in state.names(item.run):
                unit = state.units[name]
                state.unpack_owner(unit)
                unit.staged += sign
                unit.txn = txn
                state.changed(unit)

    def restage(self, run: Run, txn: int) -> None:
        """A restart found messages acknowledged in a prepared transaction."""
        state = self.state
        names = state.held[run.ordinal].columns.units
        owner = state.owners.setdefault(-txn, UnitOwner(-txn))
        for name, mask in by_unit(names, run.mask).items():
            unit = state.unit_named(name)
            if unit.owner is None or unit.owner is owner:
                state.hold(unit, owner, mask.bit_count())
            else:
                unit.held += mask.bit_count()
            unit.staged += mask.bit_count()
            unit.txn = txn
            state.changed(unit)

    # ---- leaving ---------------------------------------------------------------------------------------------------

    def remove(self, chosen: Mapping[int, int]) -> list[Run]:
        state = self.state
        heads = state.plain.backlog.remove(chosen)
        self._heads_gone(heads)
        removed: list[Run] = []
        state.unpack_owners(chosen)
        for ordinal, mask in chosen.items():
            block = state.held.get(ordinal)
            if block is None or block.columns.units is None or ordinal > state.unopened.opened:
                continue
            for name, some in by_unit(block.columns.units, mask & block.ordered).items():
                unit = state.units.get(name)
                found = unit.remove(ordinal, some) if unit is not None else []
                if unit is not None and found:
                    removed += found
                    state.changed(unit)
        state.behind -= sum(run.count for run in removed)
        return heads + removed + state.unopened.remove(chosen)

    def next_to_remove(self, *, lowest_priority: bool) -> Run | None:
        runs = self._oldest(lowest_priority)
        return runs[0] if runs else None

    def take_to_remove(self, room: int, *, lowest_priority: bool) -> list[Run]:
        mask, runs = 0, self._oldest(lowest_priority)
        for run in runs:
            mask |= run.mask
        return self.remove({runs[0].ordinal: pk.lowest(mask, room)}) if runs else []

    def _oldest(self, lowest_priority: bool) -> list[Run]:
        """What waits of the oldest block, or of the oldest one of the lowest priority."""
        state = self.state
        runs = [*state.plain.backlog.runs(), *state.own_runs()]
        if lowest_priority and runs:
            lowest = min(run.priority for run in runs)
            runs = [run for run in runs if run.priority == lowest]
        oldest = min((run.ordinal for run in runs), default=0)
        return sorted((run for run in runs if run.ordinal == oldest), key=lambda run: run.mask & -run.mask)

    def _heads_gone(self, runs: Iterable[Run]) -> None:
        """Messages were removed from the buckets for good."""
        state = self.state
        for run in runs:
            for name in state.names(run):
                unit = state.units[name]
                unit.head = None
                state.changed(unit)

    def clear(self) -> list[Run]:
        """Places of open transactions stay."""
        state = self.state
        runs = [*state.plain.backlog.clear(), *state.own_runs()]
        state.unopened.keep_only(state.reserved)
        for owner in state.owners.values():
            owner.owner_batches.clear()
        for unit in state.units.values():
            unit.clear(state.reserved)
            state.changed(unit)
        state.behind = 0
        return runs

    def runs(self) -> Iterator[Run]:
        state = self.state
        own = sorted(state.own_runs(), key=lambda run: (-run.priority, *position(run)))
        return merge(state.plain.backlog.runs(), own, key=lambda run: (-run.priority, *position(run)))

    def tried(self) -> Iterator[Run]:
        state = self.state
        yield from state.plain.backlog.tried()
        for run in state.own_runs():
            if run.attempts or run.failures:
                yield run

    def consumer_left(self) -> None:
        """Forget sessions that have nothing and nobody."""
        state = self.state
        there = {c.owner or c.attachment for c in state.plain.consumers.by_attachment.values()}
        for name in [n for n, owner in state.owners.items() if not owner.units and n not in there]:
            del state.owners[name]

    def selectors_changed(self) -> None:
        """Determine anew what is next for each owner."""
        state = self.state
        state.plain.selectors_changed()
        state.unpack_owners()
        for unit in state.units.values():
            if unit.listed is not None:
                unit.listed = None
                state.changed(unit)
