"""``python -m tests.simulation_control.mutants [MUTANT …]``: seeds until one rule that is switched off is noticed.

A simulation that notices nothing proves nothing.  Every mutant has to be caught within ``SEEDS_MAX`` seeds; the search
stops at the first catch, and the same seed has to be clean without the mutant.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from raybroker.cluster import start_up
from raybroker.cluster.broadcast import Heard
from raybroker.cluster.change_record import ChangeRecord
from raybroker.cluster.events import Event, HostBack, MemberTick
from raybroker.cluster.follower import Follower
from raybroker.cluster.master import AskedChange, Master
from raybroker.cluster.member import Member
from raybroker.cluster.member_state import MemberContext
from raybroker.cluster.membership import Membership
from raybroker.cluster.record_application import Applier
from raybroker.cluster.shared_table import Sharer
from raybroker.cluster.term import Leadership
from raybroker.store.record import RecordFile
from tests import seeds
from tests.seeds import Catch
from tests.simulation_control.disk import SimIO
from tests.simulation_control.world import World

SEEDS_MAX = 200

Patch = Callable[[Any, str, Any], None]
"""Replaces an attribute for as long as the mutant lives."""
TABLE: dict[str, Callable[[Patch], None]] = {}


def mutant(apply: Callable[[Patch], None]) -> Callable[[Patch], None]:
    TABLE[apply.__name__] = apply
    return apply


@contextmanager
def applied(name: str) -> Iterator[None]:
    undo: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, attribute: str, value: Any) -> None:
        undo.append((owner, attribute, owner.__dict__[attribute]))
        setattr(owner, attribute, value)

    TABLE[name](patch)
    try:
        yield
    finally:
        for item in reversed(undo):
            setattr(*item)


# ---- durability


@mutant
def acknowledged_before_it_is_on_disk(patch: Patch) -> None:
    old = MemberContext.persist

    def persist(life: MemberContext, frames: Any, then: Any = None, *, replace: bool = False) -> None:
        written = list(frames)
        early = then is not None and all(frame.startswith(b'["entry"') for frame in written) and life.is_master
        old(life, written, None if early else then, replace=replace)
        if early:
            then()

    patch(MemberContext, "persist", persist)


@mutant
def the_record_file_does_not_sync(patch: Patch) -> None:
    old = SimIO.fdatasync
    patch(SimIO, "fdatasync", lambda self, fd: old(self, fd) if self.size(fd) < 400 else None)


@mutant
def an_opened_file_is_believed_to_be_on_disk(patch: Patch) -> None:
    old = RecordFile._rewrite

    def rewrite(file: RecordFile, frames: Any) -> None:
        if file._fd < 0 and file._io.exists(file.path):
            file._fd = file._io.open(file.path)
            file._size = file._io.size(file._fd) - file.cut_bytes
        else:
            old(file, frames)

    patch(RecordFile, "_rewrite", rewrite)


# ---- the record


@mutant
def a_change_is_made_again_when_it_is_proposed_again(patch: Patch) -> None:
    old = Master.proposed

    def proposed(master: Master, sender: str, incarnation: int, message: Any) -> None:
        master._asked[sender] = AskedChange(incarnation)
        old(master, sender, incarnation, message)

    patch(Master, "proposed", proposed)


@mutant
def a_proposal_goes_to_whatever_instance_of_the_master(patch: Patch) -> None:
    old = Follower.tick

    def tick(follower: Follower) -> None:
        for pending in follower._pending.values():
            pending.instance = follower._life.matched.get(pending.master, pending.instance)
        old(follower)

    patch(Follower, "tick", tick)


@mutant
def an_overtaken_record_replaces_the_copy(patch: Patch) -> None:
    def whole(follower: Follower, message: Any) -> None:
        if message.claim == follower._life.claim:
            follower.target = 0
            follower.adopt_record(load(message.dump))

    from raybroker.cluster.backup import load

    patch(Follower, "whole", whole)


@mutant
def a_compressed_record_forgets_a_row(patch: Patch) -> None:
    old = ChangeRecord.compress

    def compress(record: ChangeRecord, number: int | None = None) -> ChangeRecord:
        short = old(record, number)
        if short.state.templates:
            short.base_state.templates.popitem()
            short.state.templates.popitem()
        return short

    patch(ChangeRecord, "compress", compress)


# ---- masters


@mutant
def changes_are_taken_during_a_change_of_master(patch: Patch) -> None:
    patch(Master, "frozen", False)


@mutant
def the_successor_may_have_less_than_all(patch: Patch) -> None:
    old = Master.taken

    def taken(master: Master, sender: str, message: Any) -> None:
        life = master._life
        end = type(message.position)(life.record.id, life.record.number, life.record.digest)
        old(master, sender, type(message)(message.claim, end))

    patch(Master, "taken", taken)
    patch(Master, "frozen", False)


@mutant
def a_change_of_master_is_told_before_it_is_on_disk(patch: Patch) -> None:
    old = MemberContext.persist

    def persist(life: MemberContext, frames: Any, then: Any = None, *, replace: bool = False) -> None:
        written = list(frames)
        early = then is not None and any(frame.startswith(b'["claim"') for frame in written) and not replace
        old(life, written, None if early else then, replace=replace)
        if early:
            then()

    patch(MemberContext, "persist", persist)


@mutant
def a_replaced_master_goes_on(patch: Patch) -> None:
    patch(Master, "resign", lambda self, why: None)


@mutant
def a_higher_term_does_not_win(patch: Patch) -> None:
    patch(Leadership, "beats", lambda self, other: self.term > other.term and not other.record)


@mutant
def a_restored_record_begins_no_new_term(patch: Patch) -> None:
    from raybroker.cluster import saved_record

    patch(saved_record, "restored_term", lambda *known: max(*known, 1))


@mutant
def a_reign_begins_whatever_was_heard_meanwhile(patch: Patch) -> None:
    def resume(life: MemberContext, claim: Leadership) -> None:
        life.is_master = True

    patch(start_up, "_resume", resume)
    patch(start_up, "_with_master", _reigns_always)


def _reigns_always(life: MemberContext, master: Master, found: Any, new_id: str) -> None:
    """A broker that is configured to be the master reigns, whoever has the record by now."""
    if life.settings.master == life.name and found.record is not None:
        term = found.claim.term if found.claim is not None else 1
        life.claim = Leadership(max(term, 1), life.name, found.record.id)
        life.when_durable(lambda: setattr(life, "reigning", True))
    else:
        _with_master(life, master, found, new_id)


_with_master = start_up._with_master


# ---- instances


@mutant
def old_instances_are_listened_to(patch: Patch) -> None:
    patch(Membership, "check", lambda self, name, incarnation: None)


@mutant
def an_incarnation_is_not_a_new_one(patch: Patch) -> None:
    old = MemberContext.__init__

    def init(life: MemberContext, name: str, settings: Any, found: Any, now_ms: int) -> None:
        old(life, name, settings, found, now_ms)
        life.incarnation = max(found.incarnation, 1)
        life.membership = Membership(name, life.incarnation, settings.brokers)

    patch(MemberContext, "__init__", init)


# ---- integration


@mutant
def clients_are_taken_before_the_record_is_carried_out(patch: Patch) -> None:
    patch(Applier, "settled", True)
    patch(Member, "_target", lambda self: -1)


@mutant
def consumers_are_not_exchanged(patch: Patch) -> None:
    patch(Member, "_exchange_new", lambda self: None)


@mutant
def what_failed_is_not_carried_out_again(patch: Patch) -> None:
    old = Applier.done
    patch(Applier, "done", lambda self, number, failure, *, partly=False: old(self, number, "", partly=partly))


@mutant
def what_waits_for_a_host_counts_as_carried_out(patch: Patch) -> None:
    old = Applier.done

    def done(applier: Applier, number: int, failure: str, *, partly: bool = False) -> None:
        old(applier, number, failure)

    patch(Applier, "done", done)


@mutant
def what_waited_for_a_host_is_forgotten(patch: Patch) -> None:
    old = Member.step

    def step(member: Member, event: Event, now_ms: int) -> Any:
        return old(member, MemberTick() if isinstance(event, HostBack) else event, now_ms)

    patch(Member, "step", step)


@mutant
def a_replaced_record_is_not_carried_out(patch: Patch) -> None:
    old = Applier.whole

    def whole(applier: Applier) -> None:
        if applier.applied < 0:
            old(applier)

    patch(Applier, "whole", whole)


@mutant
def what_was_destroyed_is_forgotten_with_the_history(patch: Patch) -> None:
    old = ChangeRecord.compress

    def compress(record: ChangeRecord, number: int | None = None) -> ChangeRecord:
        short = old(record, number)
        short.forget_past()
        return short

    patch(ChangeRecord, "compress", compress)


@mutant
def a_replaced_copy_forgets_what_it_had(patch: Patch) -> None:
    patch(ChangeRecord, "remember", lambda self, past: None)


# ---- a table that brokers share


@mutant
def an_append_whose_end_was_not_seen_counts_as_refused(patch: Patch) -> None:
    old = Sharer._append_done

    def done(sharer: Sharer, call: Any, batch: Any, event: Any) -> None:
        old(sharer, call, batch, replace(event, unknown=False))

    patch(Sharer, "_append_done", done)


@mutant
def a_change_in_doubt_is_tried_again_by_another_writer(patch: Patch) -> None:
    old = Sharer._append_done

    def done(sharer: Sharer, call: Any, batch: Any, event: Any) -> None:
        for proposal, _ in batch:
            proposal.writer += "+" if event.unknown else ""
        old(sharer, call, batch, event)

    patch(Sharer, "_append_done", done)


@mutant
def a_made_change_is_acknowledged_before_it_is_on_disk_here(patch: Patch) -> None:
    def decided(sharer: Sharer, proposal: Any, number: int) -> None:
        proposal.number = number
        sharer._applied(proposal, "")

    patch(Sharer, "_decided", decided)


@mutant
def numbers_of_a_replaced_record_count_in_the_new_one(patch: Patch) -> None:
    def anew(applier: Applier, why: str) -> None:
        waiting, applier._waiting = applier._waiting, []
        for _, then in waiting:
            then(why)

    patch(Applier, "anew", anew)


# ---- without a master


@mutant
def what_was_told_twice_is_made_twice(patch: Patch) -> None:
    patch(Heard, "add", lambda self, sequence: True)


@mutant
def nobody_is_told(patch: Patch) -> None:
    from raybroker.cluster.broadcast import Teller

    patch(Teller, "_instances", lambda self: {})


def hunt(name: str, seeds_max: int = SEEDS_MAX, seconds: float | None = None) -> Catch:
    """See tests.seeds."""
    return seeds.hunt(name, lambda: applied(name), World, seeds_max, seconds)


def hunt_all(names: list[str], jobs: int, seeds_max: int = SEEDS_MAX, seconds: float | None = None) -> Iterator[Catch]:
    """These mutants, in order."""
    return seeds.hunt_all(hunt, names, jobs, seeds_max, seconds)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation_control.mutants", description=__doc__)
    parser.add_argument("mutants", nargs="*", metavar="MUTANT", help="these alone; all without")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds-max", type=int, default=SEEDS_MAX)
    args = parser.parse_args()
    if unknown := set(args.mutants) - set(TABLE):
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    names = args.mutants or list(TABLE)
    missed = []
    for catch in hunt_all(names, args.jobs, args.seeds_max):
        print(f"{catch.name:56} {catch.seeds or '-':>5}  {catch.how}", flush=True)
        if not catch.seeds:
            missed.append(catch.name)
    print(f"{len(names) - len(missed)} of {len(names)} mutants caught" + (f"; missed: {missed}" if missed else ""))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
