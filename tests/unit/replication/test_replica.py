"""Who leads, and what a copy takes from whom."""

from __future__ import annotations

import pytest

from raybroker.replication import events as ev
from raybroker.replication.copy_state import SavedCopy
from raybroker.replication.messages import Append, AskPromise, Promised, PromiseRefused
from raybroker.replication.positions import BEGINNING, EntryKind, Term, following
from raybroker.replication.replica import ELECTION_MS, HEARD_MS, UNLINKED_MS, ReplicaRole
from raybroker.replication.replica_set import MemberChange, ReplicaSet
from raybroker.replication.reports import best_copy
from tests.unit.replication.copies import THREE, Copies, log_of


def test_one_copy_leads_when_a_majority_has_promised() -> None:
    group = Copies()
    group.feed("a", ev.Lead(7))
    assert not group.mail, "its own promise is saved before it asks"
    group.save()
    group.away = {"c"}
    group.settle()
    assert group.copies["a"].role is ReplicaRole.LEADER
    assert [action for _, action in group.of(ev.LeaderBegan)] == [ev.LeaderBegan(Term(1, 7), 1)]
    assert group.of(ev.EntriesReleased) == [("a", ev.EntriesReleased(1))]
    assert group.copies["b"].leader == "a"


def test_nobody_leads_without_a_majority() -> None:
    group = Copies()
    group.away = {"b", "c"}
    group.lead("a")
    group.pass_ms(2000)
    assert group.copies["a"].role is ReplicaRole.FOLLOWER
    assert "1 have promised in time" in str(group.of(ev.NotElected)[-1])


def test_a_promise_is_told_when_it_is_on_disk() -> None:
    group = Copies()
    ask = AskPromise(Term(3, 1), BEGINNING)
    group.feed("b", ev.CopyMessageReceived("a", ask))
    assert not group.mail
    group.save()
    assert list(group.mail) == [("b", "a", Promised(Term(3, 1)))]
    group.mail.clear()
    group.feed("b", ev.CopyMessageReceived("c", AskPromise(Term(2, 1), BEGINNING)))
    (_, _, answer) = group.mail.pop()
    assert answer == PromiseRefused(Term(2, 1), Term(3, 1), "another term is promised")


def test_a_copy_that_lacks_something_is_not_elected() -> None:
    group = Copies(a=log_of(1, 1), b=log_of(1, 2), c=log_of(1, 2))
    group.lead("a")
    assert group.copies["a"].role is ReplicaRole.FOLLOWER
    assert "this log went to entry 2, and the candidate's to 2" in str(group.of(ev.NotElected))
    assert best_copy(copy.report() for copy in group.copies.values()) == "c"


def test_while_a_leader_is_heard_no_other_one_is_promised() -> None:
    group = Copies()
    group.lead("a")
    group.feed("b", ev.Lead(9))
    assert "copy a leads" in str(group.of(ev.NotElected))
    group.away = {"a"}
    group.pass_ms(HEARD_MS)
    assert group.lead("b", 9).role is ReplicaRole.LEADER
    group.away = set()
    group.pass_ms(1000)
    assert group.copies["a"].role is ReplicaRole.FOLLOWER
    assert group.of(ev.LeaderEnded)


def test_a_leader_whose_connection_has_ended_is_lost_sooner() -> None:
    group = Copies()
    group.lead("a")
    group.away = {"a"}
    group.feed("b", ev.LinkLost("c"))
    group.pass_ms(UNLINKED_MS)
    assert group.copies["b"].hears_leader(group.now_ms), "that was another one's"
    group.feed("b", ev.LinkLost("a"))
    group.pass_ms(UNLINKED_MS - 100)
    assert group.copies["b"].hears_leader(group.now_ms)
    group.pass_ms(100)
    assert not group.copies["b"].hears_leader(group.now_ms)
    assert group.copies["c"].hears_leader(group.now_ms)


def test_whoever_hears_of_a_leader_later_had_no_part_in_its_election() -> None:
    group = Copies()
    group.away = {"c"}
    group.lead("a")
    group.pass_ms(500)
    group.away = set()
    group.pass_ms(1000)
    assert group.copies["c"].promised == group.copies["a"].promised
    assert [copy.voted_ms_ago(group.now_ms) for copy in group.copies.values()] == [1500, 1500, -1]


def test_a_leader_that_lives_is_heard_again_at_once() -> None:
    group = Copies()
    group.lead("a")
    group.feed("b", ev.LinkLost("a"))
    group.feed("a", ev.LinkLost("b"))
    group.settle()
    group.pass_ms(UNLINKED_MS)
    assert group.copies["b"].hears_leader(group.now_ms)


def test_whoever_has_just_promised_does_not_depose_the_one_who_is_about_to_lead() -> None:
    group = Copies()
    group.feed("a", ev.Lead(7))
    group.save()
    group.deliver()
    group.save()
    assert group.copies["a"].awaits_leader(group.now_ms)
    assert group.copies["b"].awaits_leader(group.now_ms)
    group.feed("b", ev.Lead(8))
    assert "another copy was promised to within" in str(group.of(ev.NotElected)[-1])
    group.settle()
    assert group.copies["a"].role is ReplicaRole.LEADER
    assert not any(copy.awaits_leader(group.now_ms) for copy in group.copies.values())


def test_a_candidate_that_is_lost_as_well_is_waited_for_no_longer_than_an_election() -> None:
    group = Copies()
    group.feed("a", ev.Lead(7))
    group.save()
    group.deliver()
    group.save()
    group.away = {"a"}
    group.pass_ms(ELECTION_MS)
    assert group.lead("b", 8).role is ReplicaRole.LEADER


def test_what_contradicts_the_leader_goes() -> None:
    group = Copies(a=log_of(1, 2), b=log_of(1, 2), c=log_of(1, 1, 1))
    group.lead("a")
    ends = {copy.last for copy in group.copies.values()}
    assert len(ends) == 1
    assert ends.pop().index == 3


def test_what_is_committed_is_never_contradicted() -> None:
    one = log_of(1, 1)
    group = Copies(b=SavedCopy(one.promised, members=THREE, entries=one.entries, committed=2))
    other = following(one.entries[0].at, Term(2, 0), EntryKind.BATCH, (b"x",))
    group.feed("b", ev.CopyMessageReceived("a", Append(Term(2, 0), one.entries[0].at, (other,), 2, 0, 0, 0)))
    assert group.copies["b"].role is ReplicaRole.STOPPED
    assert "entry 2 is committed here, and another one by copy a" in str(group.told[-1])
    group.feed("b", ev.ReplicaTick())


def test_damage_on_the_way_is_not_taken() -> None:
    group = Copies()
    entry = following(BEGINNING, Term(1, 1), EntryKind.BATCH, (b"x",))
    group.feed(
        "b", ev.CopyMessageReceived("a", Append(Term(1, 1), BEGINNING, (entry._replace(body=(b"y",)),), 0, 0, 0, 0))
    )
    group.settle()
    assert group.copies["b"].last == BEGINNING
    group.feed("b", ev.CopyMessageReceived("a", Append(Term(1, 1), BEGINNING, (entry,), 0, 0, 0, 0)))
    assert group.copies["b"].last == entry.at


@pytest.mark.parametrize(("lost", "elected"), [(None, False), (1, True), (3, False)])
def test_a_damaged_copy_votes_for_those_that_have_what_it_had(lost: int | None, elected: bool) -> None:
    had = log_of(1, 1, 1)
    group = Copies(
        a=log_of(1, 1),
        b=SavedCopy(
            had.promised,
            members=THREE,
            entries=had.entries[:1],
            damage=1,
            lost=None if lost is None else had.entries[lost - 1].at,
        ),
    )
    group.away = {"c"}
    assert (group.lead("a").role is ReplicaRole.LEADER) is elected
    if elected:
        group.feed("a", ev.AppendBatch((b"x",)))
        group.pass_ms(1000)
        assert not group.copies["b"].damaged
        assert group.copies["b"].last == group.copies["a"].last


def test_a_damaged_copy_is_healed_by_a_leader_that_knows_of_it_alone() -> None:
    had = log_of(1, 1, 1)
    group = Copies(b=SavedCopy(had.promised, members=THREE, entries=had.entries[:1], damage=4))
    for mends in (0, 3, 4):
        assert group.copies["b"].damaged
        message = Append(Term(1, 0), had.entries[0].at, tuple(had.entries[1:2]), 2, 0, 0, mends)
        group.feed("b", ev.CopyMessageReceived("a", message))
        group.settle()
    assert not group.copies["b"].damaged


def test_a_new_disk_has_no_vote_and_learns() -> None:
    group = Copies(n=SavedCopy())
    group.lead("a")
    group.lead("n")
    assert "this copy has no vote" in str(group.of(ev.NotElected)[-1])
    group.feed("a", ev.ChangeSet(1, MemberChange.ADD, "n"))
    group.settle()
    assert group.copies["n"].last == group.copies["a"].last
    assert group.copies["n"].members == ReplicaSet(("a", "b", "c"), ("n",))
    group.feed("a", ev.ChangeSet(2, MemberChange.PROMOTE, "n"))
    group.settle()
    assert group.copies["n"].members.voters == ("a", "b", "c", "n")
    assert [action for _, action in group.of(ev.SetChanged)] == [ev.SetChanged(1), ev.SetChanged(2)]
