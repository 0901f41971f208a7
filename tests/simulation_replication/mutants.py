"""``python -m tests.simulation_replication.mutants [MUTANT …]``: seeds until one rule that is switched off is noticed.

A simulation that notices nothing proves nothing.  Every mutant has to be caught within ``SEEDS_MAX`` seeds; the search
stops at the first catch, and the same seed has to be clean without the mutant.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

from raybroker.model.errors import ConfigError
from raybroker.replication import events as ev
from raybroker.replication import replica as replica_module
from raybroker.replication.copy_state import CopyState, SavedCopy
from raybroker.replication.leading import Leading
from raybroker.replication.messages import Append, Appended, AskPromise, Behind, LogSnapshot
from raybroker.replication.positions import LogPosition, Term
from raybroker.replication.replica import Candidacy, Replica
from raybroker.replication.replica_log import ReplicaLog
from raybroker.replication.replica_set import ReplicaSet
from tests import seeds
from tests.seeds import Catch
from tests.simulation_replication.disk import SimDisk
from tests.simulation_replication.node import Process
from tests.simulation_replication.world import World

SEEDS_MAX = 400

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


# ---- what is on disk


@mutant
def answered_before_it_is_on_disk(patch: Patch) -> None:
    def answer(copy: Replica, sender: str, message: Append | LogSnapshot, index: int) -> None:
        copy._state.send(sender, Appended(message.term, index, message.stamp_ms, message.round))

    patch(Replica, "_answer", answer)


@mutant
def promised_before_it_is_on_disk(patch: Patch) -> None:
    old = CopyState.promise

    def promise(state: CopyState, term: Term, then: Callable[[], None] | None = None) -> None:
        old(state, term)
        if then is not None:
            then()

    patch(CopyState, "promise", promise)


@mutant
def the_leader_counts_itself_before_its_disk(patch: Patch) -> None:
    old = Leading._append

    def append(leading: Leading, kind: Any, body: Any) -> int:
        index = old(leading, kind, body)
        leading._own = index
        return index

    patch(Leading, "_append", append)


@mutant
def a_term_is_forgotten_at_a_restart(patch: Patch) -> None:
    old = SimDisk.load

    def load(disk: SimDisk) -> SavedCopy:
        found = old(disk)
        return SavedCopy(Term(0, 0), found.base, found.members, found.entries, found.committed)

    patch(SimDisk, "load", load)


# ---- who votes for whom


@mutant
def a_vote_does_not_look_at_the_log(patch: Patch) -> None:
    patch(LogPosition, "as_recent_as", lambda mine, other: True)


@mutant
def a_vote_looks_at_the_length_alone(patch: Patch) -> None:
    patch(LogPosition, "as_recent_as", lambda mine, other: mine.index >= other.index)


@mutant
def promises_of_learners_count(patch: Patch) -> None:
    old = Replica._count

    def count(copy: Replica, candidacy: Candidacy) -> None:
        learners = candidacy.promised.intersection(copy.members.learners)
        missing = [voter for voter in copy.members.voters if voter not in candidacy.promised]
        candidacy.promised.update(missing[: len(learners)])
        old(copy, candidacy)

    def ask(copy: Replica, candidacy: Candidacy) -> None:
        for one in copy.members.copies:
            copy._state.send(one, AskPromise(candidacy.term, copy.last))

    patch(Replica, "_count", count)
    patch(Replica, "_ask_voters", ask)


@mutant
def a_third_of_the_promises_is_enough(patch: Patch) -> None:
    patch(ReplicaSet, "majority", property(lambda members: max(1, len(members.voters) // 2)))


@mutant
def a_damaged_copy_votes_as_any_other(patch: Patch) -> None:
    patch(CopyState, "end", lambda state: state.log.last)


@mutant
def a_damaged_copy_votes_by_what_it_lost_alone(patch: Patch) -> None:
    patch(CopyState, "end", lambda state: state._lost if state.damage else state.log.last)


@mutant
def damage_is_taken_for_the_end(patch: Patch) -> None:
    old = SimDisk.load

    def load(disk: SimDisk) -> SavedCopy:
        found = old(disk)
        disk.damage = 0
        return SavedCopy(found.promised, found.base, found.members, found.entries, found.committed)

    patch(SimDisk, "load", load)


@mutant
def a_copy_is_healed_by_a_leader_that_does_not_know(patch: Patch) -> None:
    old = Replica._append

    def append(copy: Replica, sender: str, message: Append) -> None:
        damage = copy._state.damage
        old(copy, sender, replace(message, mends=damage))

    patch(Replica, "_append", append)


@mutant
def a_copy_is_healed_by_whatever_it_gets(patch: Patch) -> None:
    patch(Replica, "_whole", lambda copy, message, reaches: True)


@mutant
def a_wiped_disk_has_its_old_name(patch: Patch) -> None:
    old = World.new_disk

    def new_disk(world: World, node: int) -> None:
        before = world.disks.get(node)
        old(world, node)
        if before is not None and before.node == node:
            world.disks[node] = SimDisk(before.copy, node, world.members)

    patch(World, "new_disk", new_disk)


@mutant
def a_cloned_folder_is_the_same_copy(patch: Patch) -> None:
    old = World.clone_disk

    def clone_disk(world: World, disk: SimDisk, node: int) -> None:
        old(world, disk, node)
        world.disks[node].node = node

    patch(World, "clone_disk", clone_disk)


# ---- what a leader may say


@mutant
def a_promise_does_not_bind(patch: Patch) -> None:
    def accepts(copy: Replica, sender: str, term: Term) -> bool:
        if copy.leading is not None and copy.leading.term >= term:
            return False
        copy._follow(f"copy {sender} leads")
        copy.leader = sender
        return True

    patch(Replica, "_accepts", accepts)


@mutant
def what_contradicts_the_leader_is_kept(patch: Patch) -> None:
    old = Replica._new

    def new(copy: Replica, entries: Any) -> Any:
        known = [entry for entry in entries if copy._state.log.position_at(entry.at.index) is None]
        return old(copy, tuple(known)) if len(known) < len(entries) else old(copy, entries)

    patch(Replica, "_new", new)
    patch(replica_module, "intact", lambda before, entry: True)


@mutant
def what_comes_before_is_not_compared(patch: Patch) -> None:
    old = Replica._append

    def append(copy: Replica, sender: str, message: Append) -> None:
        here = copy._state.log.position_at(message.previous.index)
        if here is not None:
            message = replace(message, previous=here)
        old(copy, sender, message)

    patch(Replica, "_append", append)
    patch(replica_module, "intact", lambda before, entry: True)


@mutant
def damage_on_the_way_is_not_seen(patch: Patch) -> None:
    patch(replica_module, "intact", lambda before, entry: True)


@mutant
def a_snapshot_replaces_what_is_here_already(patch: Patch) -> None:
    def snapshot(copy: Replica, sender: str, message: LogSnapshot) -> None:
        copy._state.install(message.at, message.members, message.content)
        copy._answer(sender, message, message.at.index)

    patch(Replica, "_snapshot", snapshot)


# ---- when an entry is committed


@mutant
def an_entry_of_an_old_term_is_committed_by_count(patch: Patch) -> None:
    old = Leading._advance

    def advance(leading: Leading) -> None:
        began, leading.began = leading.began, 0
        old(leading)
        leading.began = began

    patch(Leading, "_advance", advance)


@mutant
def a_learner_counts_as_a_voter(patch: Patch) -> None:
    def advance(leading: Leading) -> None:
        members = leading._state.log.members
        index = sorted(map(leading._matched, members.copies), reverse=True)[members.majority - 1]
        if index >= max(leading.began, leading.released + 1):
            leading._state.commit(index)
            leading.released = index
            leading._state.out.append(ev.EntriesReleased(index))

    patch(Leading, "_advance", advance)


@mutant
def min_in_sync_is_ignored(patch: Patch) -> None:
    patch(ReplicaSet, "quorum", property(lambda members: members.majority))


@mutant
def what_a_damaged_copy_had_still_counts(patch: Patch) -> None:
    old = Leading.behind

    def behind(leading: Leading, sender: str, message: Behind) -> None:
        copy = leading.copies.get(sender)
        matched = copy.matched if copy is not None else 0
        old(leading, sender, message)
        if copy is not None:
            copy.matched = max(copy.matched, matched)

    patch(Leading, "behind", behind)


# ---- leases


@mutant
def a_lease_counts_from_the_answer(patch: Patch) -> None:
    old = Leading._answered

    def answered(leading: Leading, sender: str, stamp_ms: int) -> Any:
        return old(leading, sender, leading._state.now_ms)

    patch(Leading, "_answered", answered)


@mutant
def a_new_leader_does_not_wait_for_the_old_lease(patch: Patch) -> None:
    old = Leading.__init__

    def init(leading: Leading, state: CopyState, term: Term) -> None:
        old(leading, state, term)
        leading.dispatch_from_ms = state.now_ms

    patch(Leading, "__init__", init)


@mutant
def who_has_handed_over_leads_on(patch: Patch) -> None:
    old = Replica._hand_over

    def hand_over(copy: Replica, event: ev.HandLeadOver) -> None:
        role, leader, leading, ended = copy.role, copy.leader, copy.leading, len(copy._state.out)
        old(copy, event)
        if leading is not None and copy.leading is None:
            copy.role, copy.leader, copy.leading = role, leader, leading
            copy._state.out[ended:] = [one for one in copy._state.out[ended:] if not isinstance(one, ev.LeaderEnded)]

    patch(Replica, "_hand_over", hand_over)


@mutant
def the_lease_from_before_is_not_waited_for_by_who_hands_over(patch: Patch) -> None:
    old = Leading.send_rest

    def send_rest(leading: Leading, to: str, *, quiet: bool) -> str:
        leading.dispatch_from_ms, before = 0, leading.dispatch_from_ms
        refusal = old(leading, to, quiet=quiet)
        leading.dispatch_from_ms = before
        return refusal

    patch(Leading, "send_rest", send_rest)


@mutant
def a_lease_needs_nobody(patch: Patch) -> None:
    patch(Leading, "lease_until_ms", lambda leading: leading._state.now_ms + 2000)


@mutant
def a_lease_is_looked_at_before_a_pause(patch: Patch) -> None:
    def may_dispatch(process: Process) -> bool:
        return process.works and process.replica.may_dispatch(process.replica._state.now_ms)

    patch(Process, "may_dispatch", may_dispatch)


# ---- changes of the set


@mutant
def two_changes_at_a_time(patch: Patch) -> None:
    old = Leading._refusal

    def refusal(leading: Leading, event: ev.ChangeSet | ev.RequireInSync) -> str:
        if isinstance(event, ev.RequireInSync):
            return old(leading, event)
        try:
            leading._state.log.members.changed(event.change, event.copy)
        except ConfigError as error:
            return str(error)
        return "this copy leads" if event.copy == leading._state.me else ""

    patch(Leading, "_refusal", refusal)


@mutant
def how_many_must_have_an_entry_is_not_in_the_log(patch: Patch) -> None:
    old = ReplicaSet.packed
    patch(ReplicaSet, "packed", lambda members: old(members._replace(min_in_sync=0)))


@mutant
def more_copies_are_promised_before_that_is_committed(patch: Patch) -> None:
    old = Leading.change

    def change(leading: Leading, event: ev.ChangeSet | ev.RequireInSync) -> None:
        old(leading, event)
        index = next((index for index, request in leading._asked.items() if request == event.request), 0)
        if isinstance(event, ev.RequireInSync) and index:
            del leading._asked[index]
            leading._state.out.append(ev.SetChanged(event.request))

    patch(Leading, "change", change)


@mutant
def a_set_that_was_cut_still_counts(patch: Patch) -> None:
    old = ReplicaLog.cut

    def cut(log: ReplicaLog, index: int) -> None:
        kept = deepcopy(log._sets)
        old(log, index)
        log._sets = kept

    patch(ReplicaLog, "cut", cut)


# ---- the hunt


def hunt(name: str, seeds_max: int = SEEDS_MAX, seconds: float | None = None) -> Catch:
    """See tests.seeds."""
    return seeds.hunt(name, lambda: applied(name), World, seeds_max, seconds)


def hunt_all(names: list[str], jobs: int, seeds_max: int = SEEDS_MAX, seconds: float | None = None) -> Iterator[Catch]:
    """These mutants, in order."""
    return seeds.hunt_all(hunt, names, jobs, seeds_max, seconds)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation_replication.mutants", description=__doc__)
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
