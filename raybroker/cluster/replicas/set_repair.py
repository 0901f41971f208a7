"""Repair of a replica set: the next change on the way to the copies that its brokers have now, one at a time."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def next_change(
    voters: Sequence[str], learners: Sequence[str], wanted: Sequence[str], caught_up: Collection[str], quorum: int
) -> tuple[str, str] | None:
    """Return a change of the set and the copy that it is about; None when nothing is to be done now.

    wanted     the copies that there should be
    caught_up  learners that lack nothing
    quorum     how many voters must have an entry

    A copy that is gone goes first, where enough voters are left: it would count among those that a majority is of.
    Else another one gets its vote before.
    """
    gone = [copy for copy in learners if copy not in wanted]
    if len(voters) > quorum:
        gone += [copy for copy in voters if copy not in wanted]
    if gone:
        return "remove", gone[0]
    for copy in wanted:
        if copy not in voters and copy not in learners:
            return "add", copy
        if copy in learners and copy in caught_up:
            return "promote", copy
    return None
