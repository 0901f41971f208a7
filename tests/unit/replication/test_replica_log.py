"""The end of a log: what it keeps, what it lets go, and which set counts."""

from __future__ import annotations

import pytest

from raybroker.model.errors import StoreDamagedError
from raybroker.replication.positions import BEGINNING, EntryKind, Term, following
from raybroker.replication.replica_log import ENTRY_BYTES, ReplicaLog
from raybroker.replication.replica_set import MemberChange, ReplicaSet

ONE = ReplicaSet(("a",))
TERM = Term(1, 1)


def grown(count: int, kept_bytes: int = 1 << 20) -> ReplicaLog:
    log = ReplicaLog(BEGINNING, ONE, kept_bytes=kept_bytes)
    for number in range(count):
        log.append(following(log.last, TERM, EntryKind.BATCH, (b"%d" % number,)))
    return log


def test_positions_are_known_from_the_base_to_the_end() -> None:
    log = grown(3)
    assert [at.index if (at := log.position_at(index)) else None for index in range(-1, 5)] == [None, 0, 1, 2, 3, None]
    assert [entry.at.index for entry in log.after(1, 10, 1 << 20)] == [2, 3]
    assert [entry.at.index for entry in log.after(0, 2, 1 << 20)] == [1, 2]
    assert [entry.at.index for entry in log.after(0, 10, 1)] == [1]


def test_only_what_is_committed_is_let_go() -> None:
    log = grown(20, kept_bytes=4 * ENTRY_BYTES)
    log.forget(0)
    assert log.base.index == 0
    log.forget(5)
    assert log.base.index == 5
    log.forget(20)
    assert log.base.index > 15
    assert log.nbytes <= 4 * ENTRY_BYTES
    assert log.last.index == 20


def test_a_set_goes_with_the_entry_that_made_it() -> None:
    log = grown(2)
    two = ONE.changed(MemberChange.ADD, "b")
    log.append(following(log.last, TERM, EntryKind.MEMBERS, (two.packed(),)))
    assert (log.members, log.members_index) == (two, 3)
    assert log.members_at(2) == ONE
    log.cut(2)
    assert (log.members, log.members_index) == (ONE, 0)
    assert log.last.index == 2


def test_a_set_outlives_the_entry_that_is_let_go() -> None:
    log = ReplicaLog(BEGINNING, ONE, kept_bytes=ENTRY_BYTES)
    two = ONE.changed(MemberChange.ADD, "b")
    log.append(following(log.last, TERM, EntryKind.MEMBERS, (two.packed(),)))
    for _ in range(5):
        log.append(following(log.last, TERM, EntryKind.BATCH, ()))
    log.forget(6)
    assert log.base.index == 6
    assert log.members == log.members_at(6) == two


def test_entries_that_do_not_follow_each_other_are_damage() -> None:
    one = following(BEGINNING, TERM, EntryKind.BATCH, (b"a",))
    with pytest.raises(StoreDamagedError, match="entry 1 does not follow entry 1"):
        ReplicaLog(BEGINNING, ONE, (one, one))
