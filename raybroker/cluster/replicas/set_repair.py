"""Repair of a replica set: the next change on the way to the copies that there should be, one at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any


def next_change(
    voters: Sequence[str],
    learners: Sequence[str],
    wanted: Sequence[str],
    caught_up: Collection[str],
    quorum: int,
    there: Collection[str] = (),
    leader: str = "",
) -> tuple[str, str] | None:
    """Return a change of the set and the copy that it is about; None when nothing is to be done now.

    wanted     the copies that there should be, "" for one whose broker has not said yet which it has
    caught_up  learners that lack nothing
    quorum     how many voters must have an entry
    there      copies that answer

    A copy that is not wanted and is gone goes first, where enough voters are left: it would count among those that a
    majority is of.  One that answers goes last, when every copy that is wanted has its vote: until then it holds what
    is confirmed.  The leader's own is the very last: another one has to lead before.
    """
    complete = all(copy in voters for copy in wanted)
    # While a broker has not said which copy it has, a learner may be the one.
    going = [copy for copy in learners if copy not in wanted and all(wanted)]
    going += [
        copy
        for copy in sorted(voters, key=lambda copy: copy == leader)
        if copy not in wanted and (complete or (copy not in there and len(voters) > quorum))
    ]
    if going:
        return "remove", going[0]
    for copy in filter(None, wanted):
        if copy not in voters and copy not in learners:
            return "add", copy
        if copy in learners and copy in caught_up:
            return "promote", copy
    return None


def next_requirement(required: int, wanted: int, *, settled: bool) -> int | None:
    """Return how many voters should have to have an entry from now on, 0 for a majority; None: it stays as it is.

    Less is asked for at once, so that copies can go; more when the set is ``settled``: until then there may be fewer
    copies than that, and every send would wait.
    """
    return wanted if wanted < required or (settled and wanted != required) else None


def pending(brokers: Mapping[str, str], leaving: Collection[str], copies: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what a set still waits for until it is as wanted, for people; nothing when it is.

    brokers  broker that keeps a copy → the copy, "" where it has not said yet which
    leaving  those of them whose copy is to go
    copies   of the set, as their leader knows them: see raybroker.copies.copy_status
    """
    known = {str(one["copy"]): one for one in copies}
    found: list[str] = []
    for number, (broker, copy) in enumerate(brokers.items(), 1):
        one = known.get(copy)
        if broker in leaving:
            if one is not None:
                until = "another one leads" if one["pace"] == "leader" else "the others have everything"
                found.append(f"the copy at broker {broker} goes when {until}")
        elif one is None:
            found.append(f"waits for copy {number}, at broker {broker}: it is not in the set yet")
        elif not one["voter"]:
            found.append(f"waits for copy {number}, at broker {broker}: it lacks {one['behind']:,} entries")
    return found
