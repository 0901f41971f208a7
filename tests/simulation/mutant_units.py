"""Mutants of units of order."""

from __future__ import annotations

from typing import Any

from raybroker.core import transaction
from raybroker.core.delivery.consumers import Consumer
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.delivery.run import Run
from raybroker.core.durable import recovery
from raybroker.core.outcome import Deliver, Outcome, Withdrawn
from raybroker.core.topic import Topic
from raybroker.core.unit_of_order import dispatch as ordered
from raybroker.core.unit_of_order import state as orders
from raybroker.core.unit_of_order import unit_pending as pending
from raybroker.core.unit_of_order.state import UnitState
from raybroker.core.unit_of_order.unit import Unit, UnitOwner
from raybroker.core.unit_of_order.unit_pending import UnitPending
from tests.simulation.mutation import Patch, at_once, mutant


@mutant("what comes after a returned message of its unit comes back with it")
def later_ones_stay(patch: Patch) -> None:
    patch.set(pending, "revoke", lambda units, held, consumers, first, out: [])


@mutant("a session is told which deliveries are void")
def void_not_told(patch: Patch) -> None:
    def revoke(units: Any, held: Any, consumers: Any, first: Any, out: Outcome) -> Any:
        found = old(units, held, consumers, first, out)
        out.after_durable[:] = [e for e in out.after_durable if not isinstance(e, Withdrawn)]
        return found

    old = pending.revoke
    patch.set(pending, "revoke", revoke)


@mutant("a unit is with one session at a time")
def one_owner_for_all(patch: Patch) -> None:
    def owner_of(self: UnitState, consumer: Consumer) -> UnitOwner:
        return self.owners.setdefault("", UnitOwner(""))

    patch.set(UnitState, "owner_of", owner_of)


@mutant("two consumers of one session share its units")
def consumers_are_sessions(patch: Patch) -> None:
    def owner_of(self: UnitState, consumer: Consumer) -> UnitOwner:
        return self.owners.setdefault(consumer.attachment, UnitOwner(consumer.attachment))

    patch.set(UnitState, "owner_of", owner_of)


@mutant("a unit is free only when nothing of it is left with its session")
def free_after_the_first(patch: Patch) -> None:
    def settled(self: UnitPending, runs: Any) -> None:
        runs, state = list(runs), self.state
        old(self, runs)
        for run in runs:
            for name in state.names(run):
                unit = state.units[name]
                unit.held = 0
                state.changed(unit)

    old = UnitPending.settled
    patch.set(UnitPending, "settled", settled)


@mutant("a unit of which a transaction has messages waits for its end")
def staged_ignored(patch: Patch) -> None:
    patch.set(UnitPending, "stage", lambda self, items, txn, sign=1: None)


@mutant("what an open transaction sends has its place at once")
def no_reservation(patch: Patch) -> None:
    patch.set(DeliveryQueue, "reserve", lambda self, ordinal, mask: None)


@mutant("a new subscription keeps places for what open transactions have sent")
def no_reservation_for_new_ones(patch: Patch) -> None:
    patch.set(Topic, "_reserve", lambda self, queue: None)


@mutant("a barred message blocks its unit")
def bars_ignored(patch: Patch) -> None:
    patch.set(Unit, "front", lambda self: self.next())


@mutant("what rests has its place")
def rest_without_place(patch: Patch) -> None:
    patch.set(DeliveryQueue, "rest", lambda self, due_ms, run: self.delayed.add(due_ms, run))


@mutant("what comes back goes to its old place in the unit")
def returned_goes_last(patch: Patch) -> None:
    patch.set(Unit, "insert", lambda self, run: setattr(self, "runs", [*self.runs, run]))


@mutant("a head that matches nobody blocks its unit")
def followers_skip_selectors(patch: Patch) -> None:
    def followers(order: UnitState, run: Run, heads: int) -> Any:
        plain = order.plain
        selector_index, plain.selector_index = plain.selector_index, type(plain.selector_index)(order.step.peek)
        try:
            return old(order, run, heads)
        finally:
            plain.selector_index = selector_index

    old = ordered._followers
    patch.set(ordered, "_followers", followers)


@mutant("what a session gets next has to match its consumer's selector")
def stretch_ignores_selectors(patch: Patch) -> None:
    def stretch(self: UnitState, run: Run) -> tuple[Run, int]:
        return run, old(self, run)[1]

    old = UnitState.stretch
    patch.set(UnitState, "stretch", stretch)


@mutant("messages of one unit are delivered in order although some are not persistent")
def units_do_not_wait_for_the_disk(patch: Patch) -> None:
    def hand_out(self: DeliveryQueue, consumer: Consumer, run: Run) -> None:
        out = self.step.out
        before = len(out.after_durable)
        old(self, consumer, run)
        if not self._index.held[run.ordinal].persistent:
            late = Outcome(after_durable=out.after_durable[before:])
            at_once(late, Deliver)
            out.after_durable[before:] = late.after_durable
            out.immediate.extend(late.immediate)

    old = DeliveryQueue.hand_out
    patch.set(DeliveryQueue, "hand_out", hand_out)


@mutant("units survive a restart")
def units_not_written(patch: Patch) -> None:
    old = recovery.records.decode_block_meta
    patch.set(recovery.records, "decode_block_meta", lambda meta: old(meta)._replace(units=None))


@mutant("what a prepared transaction has consumed blocks its units after a restart")
def restage_without_units(patch: Patch) -> None:
    patch.set(UnitPending, "restage", lambda self, run, txn: None)


@mutant("a removed message leaves its place")
def removed_head_remembered(patch: Patch) -> None:
    patch.set(UnitPending, "_heads_gone", lambda self, runs: None)


@mutant("a rolled back send leaves its places")
def places_kept(patch: Patch) -> None:
    patch.set(transaction, "_keep_places", lambda destination, waiting, claims: None)


@mutant("what is packed of a unit is for its session only while it has something of the unit")
def owner_batches_of_free_units(patch: Patch) -> None:
    patch.set(orders, "take_out", lambda units, held, freed: [])


@mutant("what is packed for a session is unpacked when something comes before it")
def owner_batches_stay_packed(patch: Patch) -> None:
    patch.set(UnitState, "unpack_owner", lambda self, unit: None)


@mutant("what is packed for a session leaves in the order of its blocks")
def owner_batches_out_of_order(patch: Patch) -> None:
    def pack(self: UnitState, owner: UnitOwner, run: Run) -> None:
        old(self, owner, run)
        owner.owner_batches.rotate(1)

    old = UnitState.pack
    patch.set(UnitState, "pack", pack)


@mutant("nobody has to ask for what others made ready")
def nobody_asked_again(patch: Patch) -> None:
    def dispatch(self: UnitPending, hand_out: Any, dies: Any) -> None:
        class Still:
            def __get__(self, instance: Any, owner: Any) -> int:
                return 0

            def __set__(self, instance: Any, value: Any) -> None: ...

        slot = UnitState.__dict__["news"]
        UnitState.news = Still()  # type: ignore[assignment]
        try:
            old(self, hand_out, dies)
        finally:
            UnitState.news = slot

    old = UnitPending.dispatch
    patch.set(UnitPending, "dispatch", dispatch)
