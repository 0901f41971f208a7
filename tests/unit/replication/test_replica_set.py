"""Replica sets: how many decide, and which changes make sense."""

from __future__ import annotations

import pytest

from raybroker.model.errors import ConfigError
from raybroker.replication.replica_set import VOTERS_MAX, MemberChange, ReplicaSet, unpacked_set

THREE = ReplicaSet(("a", "b", "c"), ("d",), 2)


@pytest.mark.parametrize(
    ("voters", "min_in_sync", "majority", "quorum"),
    [(1, 0, 1, 1), (3, 0, 2, 2), (3, 1, 2, 2), (3, 3, 2, 3), (4, 2, 3, 3), (5, 4, 3, 4), (3, 5, 2, 3)],
)
def test_a_majority_decides_and_no_setting_makes_it_less(
    voters: int, min_in_sync: int, majority: int, quorum: int
) -> None:
    members = ReplicaSet(tuple("abcdefg"[:voters]), (), min_in_sync)
    assert (members.majority, members.quorum) == (majority, quorum)


def test_a_copy_learns_before_it_votes() -> None:
    added = THREE.changed(MemberChange.ADD, "e")
    assert added.learners == ("d", "e")
    assert added.changed(MemberChange.PROMOTE, "d") == ReplicaSet(("a", "b", "c", "d"), ("e",), 2)
    assert added.changed(MemberChange.REMOVE, "b") == ReplicaSet(("a", "c"), ("d", "e"), 2)


@pytest.mark.parametrize(
    ("change", "copy", "why"),
    [
        (MemberChange.ADD, "a", "copy a is in the replica set already"),
        (MemberChange.PROMOTE, "a", "copy a does not learn"),
        (MemberChange.PROMOTE, "x", "copy x does not learn"),
        (MemberChange.REMOVE, "x", "copy x is not in the replica set"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(change: MemberChange, copy: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        THREE.changed(change, copy)


def test_a_set_stays_as_large_as_it_must_be() -> None:
    with pytest.raises(ConfigError, match="minInSync is 2"):
        ReplicaSet(("a", "b"), (), 2).changed(MemberChange.REMOVE, "a")
    with pytest.raises(ConfigError, match="1 voters are left"):
        ReplicaSet(("a",)).changed(MemberChange.REMOVE, "a")
    full = ReplicaSet(tuple(f"c{number}" for number in range(VOTERS_MAX)), ("d",))
    with pytest.raises(ConfigError, match=f"{VOTERS_MAX} voters"):
        full.changed(MemberChange.PROMOTE, "d")


@pytest.mark.parametrize("members", [THREE, ReplicaSet(()), ReplicaSet(("a",), (), 1)])
def test_a_set_is_what_it_was_packed_as(members: ReplicaSet) -> None:
    assert unpacked_set(members.packed()) == members
