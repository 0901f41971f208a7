"""A leader hands its lead over to a copy that an operator names, without a time in which nobody leads."""

from __future__ import annotations

import pytest

from raybroker.replication import events as ev
from raybroker.replication.leading import HANDED_WAIT_MS, LEASE_WAIT_MS, PROMOTE_LAG, WINDOW_BATCHES
from raybroker.replication.messages import Append, AskPromise, Promised, PromiseRefused, TakeLead
from raybroker.replication.positions import Term
from raybroker.replication.replica import ReplicaRole
from raybroker.replication.replica_set import MemberChange, ReplicaSet
from tests.unit.replication.copies import Copies


def led(members: ReplicaSet | None = None) -> Copies:
    """Copies of which a leads, and gives out messages."""
    group = Copies() if members is None else Copies(members)
    group.lead("a")
    group.pass_ms(LEASE_WAIT_MS + 100)
    return group


def refusal(group: Copies, to: str, *, quiet: bool = False) -> str:
    """Why a does not hand over."""
    group.feed("a", ev.HandLeadOver(to, 5, quiet))
    (_, action) = group.told[-1]
    assert isinstance(action, ev.HandOverRefused)
    assert group.copies["a"].role is ReplicaRole.LEADER
    return action.reason


def test_the_named_copy_leads_in_the_next_term_and_no_time_passes() -> None:
    group = led()
    group.feed("a", ev.HandLeadOver("b", 5))
    assert group.copies["a"].role is ReplicaRole.FOLLOWER
    assert group.of(ev.LeaderEnded) == [("a", ev.LeaderEnded("it has handed its lead over to copy b"))]
    group.settle()
    assert group.copies["b"].role is ReplicaRole.LEADER
    assert group.of(ev.LeaderBegan)[-1] == ("b", ev.LeaderBegan(Term(2, 5), 2))
    assert {copy.leader for copy in group.copies.values()} == {"b"}


def test_it_gives_out_messages_soon_since_no_lease_is_left() -> None:
    group = led()
    group.feed("a", ev.HandLeadOver("c", 5))
    assert not group.copies["a"].may_dispatch(group.now_ms)
    group.settle()
    assert not group.copies["c"].may_dispatch(group.now_ms)
    assert group.copies["c"].may_dispatch(group.now_ms + HANDED_WAIT_MS)


def test_what_is_under_way_comes_before_the_lead() -> None:
    group = led()
    for number in range(WINDOW_BATCHES + 5):
        group.feed("a", ev.AppendBatch((b"%d" % number,)))
    assert refusal(group, "b", quiet=True) == "batches are under way"
    group.feed("a", ev.HandLeadOver("b", 5))
    group.settle()
    assert group.copies["b"].role is ReplicaRole.LEADER
    assert group.copies["b"].committed == 1 + WINDOW_BATCHES + 5 + 1, "nothing that was sent is lost"


def test_a_quiet_leader_hands_over_quietly() -> None:
    group = led()
    group.feed("a", ev.HandLeadOver("b", 5, quiet=True))
    group.settle()
    assert group.copies["b"].role is ReplicaRole.LEADER


def test_what_cannot_be_handed_over_is_refused_with_the_reason() -> None:
    group = led(ReplicaSet(("a", "b", "c"), ("d",)))
    for to in ("a", "d", "x"):
        assert refusal(group, to) == f"copy {to} is no other copy with a vote"
    group.away = {"c"}
    group.pass_ms(3000)
    assert "copy c is not up to date" in refusal(group, "c")
    group.away = set()
    group.pass_ms(2000)
    for _ in range(PROMOTE_LAG + WINDOW_BATCHES + 1):
        group.feed("a", ev.AppendBatch((b"x",)))
    assert f"entries behind: it can lead when it lacks {PROMOTE_LAG} at most" in refusal(group, "b")
    group.settle()
    group.feed("a", ev.ChangeSet(1, MemberChange.REMOVE, "d"))
    assert refusal(group, "b") == "a change of the replica set is under way"


def test_a_leader_that_has_just_begun_does_not_hand_over() -> None:
    group = Copies()
    group.lead("a")
    assert "the leader has just begun" in refusal(group, "b")


def test_who_does_not_lead_hands_nothing_over() -> None:
    group = led()
    group.feed("b", ev.HandLeadOver("c", 5))
    assert group.told[-1] == ("b", ev.HandOverRefused("this copy does not lead"))


def test_a_copy_that_hears_another_leader_since_does_not_help() -> None:
    group = led()
    last = group.copies["a"].last
    group.feed("c", ev.CopyMessageReceived("a", Append(Term(2, 1), last, (), 0, 0, 0, 0)))
    group.save()
    group.mail.clear()
    group.feed("c", ev.CopyMessageReceived("b", AskPromise(Term(3, 9), last, Term(1, 1))))
    (_, _, answer) = group.mail.pop()
    assert answer == PromiseRefused(Term(3, 9), Term(2, 1), "its leader is heard")


def test_a_promise_is_told_again_to_who_asks_again() -> None:
    group = led()
    ask = AskPromise(Term(2, 1), group.copies["b"].last, Term(1, 1))
    for _ in range(2):
        group.feed("c", ev.CopyMessageReceived("b", ask))
        group.save()
        assert group.mail.pop() == ("c", "b", Promised(Term(2, 1)))


@pytest.mark.parametrize(("sender", "term"), [("c", Term(1, 1)), ("a", Term(0, 7))], ids=["of another", "of before"])
def test_only_the_leader_itself_hands_over(sender: str, term: Term) -> None:
    group = led()
    group.feed("b", ev.CopyMessageReceived(sender, TakeLead(term, 5)))
    group.settle()
    assert group.copies["b"].role is ReplicaRole.FOLLOWER
    assert group.copies["b"].promised == Term(1, 1)
