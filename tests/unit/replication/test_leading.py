"""When an entry is committed and released, for how long a lease holds, and how a copy is brought up to date."""

from __future__ import annotations

import pytest

from raybroker.replication import events as ev
from raybroker.replication.copy_state import SavedCopy
from raybroker.replication.leading import LEASE_MS, LEASE_WAIT_MS, WINDOW_BATCHES, CopyPace
from raybroker.replication.messages import Append, LogSnapshot
from raybroker.replication.replica import Replica, ReplicaRole
from raybroker.replication.replica_set import MemberChange, ReplicaSet
from tests.unit.replication.copies import THREE, Copies, log_of


def led(members: ReplicaSet = THREE, **saved: SavedCopy) -> tuple[Copies, Replica]:
    group = Copies(members, **saved)
    return group, group.lead("a")


def test_an_entry_is_released_when_a_majority_has_it_on_disk() -> None:
    group, leader = led()
    group.told.clear()
    group.feed("a", ev.AppendBatch((b"x",)))
    group.deliver()
    assert not group.told
    group.save()
    assert not group.told, "one disk is no majority"
    group.deliver()
    assert group.told == [("a", ev.EntriesReleased(2))]
    assert leader.committed == 2


def test_min_in_sync_holds_back_the_release_but_not_the_log() -> None:
    group, leader = led(ReplicaSet(("a", "b", "c"), (), 3))
    group.told.clear()
    group.away = {"c"}
    group.feed("a", ev.AppendBatch((b"x",)))
    group.settle()
    assert (group.told, leader.committed) == ([], 2)
    group.away = set()
    group.pass_ms(1500)
    assert group.told == [("a", ev.EntriesReleased(2))]


def test_an_entry_of_an_old_term_is_not_committed_by_its_count() -> None:
    group = Copies(a=log_of(1, 2), b=log_of(1), c=log_of(1))
    group.away = {"c"}
    group.feed("a", ev.Lead(1))
    while group.copies["a"].role is not ReplicaRole.LEADER:
        group.save()
        group.deliver()
    group.save()
    leader = group.copies["a"]
    while group.copies["b"].last.index < 3:
        assert leader.committed == 0
        group.deliver()
    group.settle()
    assert leader.committed == 3


def test_a_learner_does_not_count() -> None:
    group, leader = led(ReplicaSet(("a", "b", "c"), ("l",)))
    group.away = {"b", "c"}
    group.feed("a", ev.AppendBatch((b"x",)))
    group.settle()
    assert group.copies["l"].last.index == 2
    assert leader.committed == 1


def test_a_lease_counts_from_when_the_request_was_sent() -> None:
    group, leader = led()
    group.pass_ms(LEASE_WAIT_MS - 100)
    assert not leader.may_dispatch(group.now_ms), "another leader may have a lease yet"
    group.pass_ms(100)
    assert leader.may_dispatch(group.now_ms)
    group.now_ms += 600
    group.feed("a", ev.ReplicaTick())
    sent_ms = group.now_ms
    group.now_ms += 1500  # the answer takes its time
    group.settle()
    assert leader.may_dispatch(sent_ms + LEASE_MS - 1)
    assert not leader.may_dispatch(sent_ms + LEASE_MS)


def test_a_leader_alone_gives_nothing_out() -> None:
    group, leader = led()
    group.pass_ms(3000)
    assert leader.may_dispatch(group.now_ms)
    group.away = {"b", "c"}
    group.pass_ms(LEASE_MS)
    assert not leader.may_dispatch(group.now_ms)
    group.away = {"b"}
    group.pass_ms(1500)
    assert leader.may_dispatch(group.now_ms)


def test_what_is_under_way_to_a_copy_is_bounded() -> None:
    group, leader = led()
    assert leader.leading is not None
    for _ in range(3 * WINDOW_BATCHES):
        group.feed("a", ev.AppendBatch((b"x",)))
    assert all(len(copy.in_flight) == WINDOW_BATCHES for copy in leader.leading.copies.values())
    group.settle()
    assert leader.committed == 3 * WINDOW_BATCHES + 1


def test_a_copy_that_was_away_gets_what_it_missed() -> None:
    group, leader = led()
    group.away = {"c"}
    for _ in range(200):
        group.feed("a", ev.AppendBatch((b"x",)))
        group.settle()
    group.away = set()
    group.pass_ms(1500)
    assert group.copies["c"].last == leader.last
    assert not group.of(ev.MakeSnapshot)


def test_a_copy_that_missed_more_than_is_kept_gets_a_snapshot() -> None:
    group, leader = led()
    leader._state.log.kept_bytes = 2_000
    group.away = {"c"}
    for _ in range(50):
        group.feed("a", ev.AppendBatch((b"x" * 100,)))
        group.settle()
    group.away = set()
    group.pass_ms(1500)
    assert group.of(ev.MakeSnapshot) == [("a", ev.MakeSnapshot("c"))]
    group.feed("a", ev.SnapshotMade("c", leader.committed, (b"all",)))
    group.feed("a", ev.AppendBatch((b"later",)))
    assert any(isinstance(message, LogSnapshot) for _, _, message in group.mail)
    group.settle()
    assert group.copies["c"].last == leader.last
    assert leader.leading is not None
    assert leader.leading.copies["c"].pace is CopyPace.STREAMING


def test_a_lost_message_is_sent_again() -> None:
    group, leader = led()
    group.feed("a", ev.AppendBatch((b"x",)))
    group.mail.clear()
    group.settle()
    group.pass_ms(2000)
    assert {copy.last for copy in group.copies.values()} == {leader.last}


def test_a_silent_copy_costs_no_snapshot() -> None:
    group, leader = led()
    leader._state.log.kept_bytes = 2_000
    group.away = {"c"}
    for _ in range(50):
        group.feed("a", ev.AppendBatch((b"x" * 100,)))
        group.settle()
    group.pass_ms(20_000)
    assert not group.of(ev.MakeSnapshot)


@pytest.mark.parametrize(
    ("change", "copy", "why"),
    [
        (MemberChange.REMOVE, "a", "copy a leads: have another copy lead first"),
        (MemberChange.PROMOTE, "l", "copy l has not answered for 2000 ms"),
        (MemberChange.ADD, "b", "in the replica set already"),
    ],
)
def test_a_change_that_would_harm_is_refused(change: MemberChange, copy: str, why: str) -> None:
    group, _ = led(ReplicaSet(("a", "b", "c"), ("l",)))
    group.away = {"l"}
    group.pass_ms(3000)
    group.feed("a", ev.ChangeSet(5, change, copy))
    (_, answer) = group.of(ev.SetChanged)[-1]
    assert isinstance(answer, ev.SetChanged)
    assert why in answer.reason


def test_the_set_changes_once_at_a_time() -> None:
    group, _ = led()
    group.feed("a", ev.ChangeSet(1, MemberChange.ADD, "x"))
    group.feed("a", ev.ChangeSet(2, MemberChange.ADD, "y"))
    assert "another change of the replica set is under way" in str(group.told[-1])
    group.settle()
    assert group.of(ev.SetChanged)[-1] == ("a", ev.SetChanged(1))


def test_how_many_must_have_an_entry_changes_with_an_entry() -> None:
    """It holds from that entry on, and for whoever leads later."""
    group, leader = led()
    group.feed("a", ev.RequireInSync(1, 3))
    group.settle()
    assert group.of(ev.SetChanged)[-1] == ("a", ev.SetChanged(1))
    group.told.clear()
    group.away = {"c"}
    group.feed("a", ev.AppendBatch((b"x",)))
    group.settle()
    assert group.told == []
    assert leader.members.quorum == 3
    group.feed("a", ev.RequireInSync(2, 0))
    group.settle()
    assert ("a", ev.EntriesReleased(leader.last.index)) in group.told
    assert group.copies["b"].members == THREE


def test_more_than_there_are_voters_is_refused() -> None:
    group, leader = led()
    group.feed("a", ev.RequireInSync(1, 4))
    assert "minInSync = 4 is more than there are voters: 3" in str(group.told[-1])
    assert leader.set_is_final


def test_a_change_that_ends_with_its_leader_is_answered() -> None:
    group, _ = led()
    group.away = {"b", "c"}
    group.feed("a", ev.ChangeSet(1, MemberChange.ADD, "x"))
    group.pass_ms(2000)
    group.away = {"a"}
    group.lead("b", 9)
    group.away = set()
    group.pass_ms(1000)
    assert any("the leader ended before the change was final" in str(action) for _, action in group.told)
    assert group.copies["a"].members == THREE


def test_a_body_arrives_as_it_was() -> None:
    group, _ = led()
    group.feed("a", ev.AppendBatch((b"a", memoryview(b"b"))))
    messages = [message for _, to, message in group.mail if to == "b" and isinstance(message, Append)]
    assert b"".join(messages[-1].entries[-1].body) == b"ab"
