"""What the parts of a member share: who is spoken to, what waits for the disk, and the record as far as it is there."""

from __future__ import annotations

import pytest

from raybroker.cluster import member_state
from raybroker.cluster.change_record import Change, ChangeRecord
from raybroker.cluster.events import Persist, SendEnvelope
from raybroker.cluster.member_messages import Bye, Greet, Position
from raybroker.cluster.member_state import MemberContext, MemberEvent, MemberSettings, MemberState
from raybroker.cluster.membership import DOWN_MS
from raybroker.cluster.saved_record import Saved, claim_frame
from raybroker.cluster.term import Leadership
from raybroker.model.errors import IllegalStateError
from tests.unit.cluster.parts import NOW, Parts, collector, queue


@pytest.mark.parametrize(("before", "incarnation"), [(0, NOW), (NOW - 1, NOW), (NOW, NOW + 1), (NOW + 7, NOW + 8)])
def test_each_instance_has_a_greater_number_whatever_the_clock_says(before: int, incarnation: int) -> None:
    assert MemberContext("b1", MemberSettings(), Saved(before), NOW).incarnation == incarnation


@pytest.mark.parametrize(("configured", "saved", "cluster"), [("", "c", "c"), ("d", "c", "d"), ("", "", "")])
def test_the_configured_cluster_holds(configured: str, saved: str, cluster: str) -> None:
    life = MemberContext("b1", MemberSettings(configured), Saved(cluster=saved), NOW)
    assert (life.cluster, life.record.cluster) == (cluster, cluster)


def test_a_greeting_is_for_whoever_has_the_name_and_all_else_for_the_instance_that_was_greeted() -> None:
    parts = Parts()
    parts.greeted("b2", 5)
    parts.life.membership.heard("b3", 6, NOW, joined=0)
    parts.life.send("b2", Greet({}, parts.life.claim, 0, True))
    parts.life.send_all(Bye())
    found = [(action.to, action.envelope.to, type(action.envelope.message)) for action in parts.took(SendEnvelope)]
    assert found == [("b2", 0, Greet), ("b2", 5, Bye)], "b3 is heard and was not greeted"
    parts.life.now_ms += DOWN_MS
    parts.life.membership.find_silent(parts.life.now_ms)
    assert parts.life.peers() == []


def test_what_waits_for_the_disk_is_done_in_order_once_it_is_there() -> None:
    parts = Parts()
    found, then = collector()
    parts.life.when_durable(lambda: then("at once"))
    parts.life.persist([b"1"], lambda: then("first"))
    parts.life.when_durable(lambda: then("after the first"))
    parts.life.persist([b"2"])
    parts.life.persist([b"3"], lambda: then("third"))
    assert found == ["at once"]
    tokens = [action.token for action in parts.took(Persist)]
    parts.life.persisted(tokens[0])
    assert found == ["at once", "first", "after the first"]
    parts.life.persisted(tokens[2])
    assert found[3:] == ["third"], "one sync may do for several"


def test_what_cannot_happen_in_a_state_is_refused() -> None:
    parts = Parts()
    with pytest.raises(IllegalStateError, match="the member is REPLAYING; it cannot be integrated"):
        parts.life.happens(MemberEvent.EXCHANGE)
    assert parts.life.state is MemberState.REPLAYING


@pytest.mark.parametrize(
    ("settings", "is_master", "follows", "keeper"),
    [
        ({"master": "b2"}, False, True, "the master broker b2"),
        ({"master": "b1"}, True, False, "the master broker b1"),
        ({"master": ""}, False, False, "the master broker "),
        ({"master": "", "table": "t"}, False, True, "the table t"),
    ],
)
def test_it_follows_whoever_else_has_the_record(
    settings: dict[str, str], is_master: bool, follows: bool, keeper: str
) -> None:
    parts = Parts(**settings)
    parts.life.is_master = is_master
    assert (parts.life.follows, parts.life.keeper) == (follows, keeper)


def test_a_master_is_heard_that_lives_was_greeted_and_has_a_record() -> None:
    parts = Parts(master="b2")
    assert not parts.life.master_heard
    parts.greeted("b2")
    assert (parts.life.master_heard, parts.life.keeper_heard) == (True, True)
    parts.life.claim = Leadership(1, "b2", "")
    assert not parts.life.master_heard
    parts.life.claim = Leadership(1, "b2", "r")
    del parts.life.matched["b2"]
    assert not parts.life.master_heard
    parts = Parts(master="", table="t")
    assert not parts.life.keeper_heard
    parts.life.table_heard = True
    assert parts.life.keeper_heard


def test_only_entries_on_disk_are_agreed_and_wait_to_be_carried_out() -> None:
    parts = Parts()
    one, two = (parts.life.record.propose(queue(name)) for name in ("q1", "q2"))
    parts.life.entries_durable([one])
    assert (list(parts.life.agreed.destinations), list(parts.life.queue)) == ([("queue", "q1")], [one])
    assert parts.life.durable == Position("r", 1, one.digest)
    parts.life.entries_durable([two])
    assert parts.life.durable == Position("r", 2, two.digest)


def test_only_history_that_is_on_disk_is_shortened() -> None:
    parts = Parts()
    one, _ = (parts.life.record.propose(queue(name)) for name in ("q1", "q2"))
    parts.life.compress()
    assert parts.took(Persist) == []
    parts.life.entries_durable([one])
    parts.life.compress()
    (action,) = parts.took(Persist)
    assert (action.replace, parts.life.record.base_number, parts.life.record.number) == (True, 1, 2)
    parts.life.compress()
    parts.life.durable = Position("other", 2, "")
    parts.life.compress()
    assert parts.took(Persist) == []


@pytest.mark.parametrize(("entries", "rows", "shortened"), [(4, 0, False), (5, 1, False), (6, 0, True), (7, 1, True)])
def test_a_long_history_is_shortened_by_itself_and_a_large_state_may_have_a_longer_one(
    entries: int, rows: int, shortened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_state, "COMPRESS_MIN", 4)
    parts = Parts()
    changes = (queue("q"), Change("destroy_destination", ("queue", "q")))
    parts.life.entries_durable([parts.life.record.propose(changes[number % 2]) for number in range(entries)])
    parts.life.compress_when_long()
    assert (parts.life.record_rows, len(parts.took(Persist))) == (rows, shortened)


def test_a_claim_is_kept_with_what_was_configured() -> None:
    parts = Parts()
    claim = Leadership(2, "b2", "r")
    parts.life.keep_claim(claim)
    assert (parts.life.claim, parts.write()) == (claim, [claim_frame(claim, "b1")])


def test_what_is_saved_has_no_claim_of_a_master_that_was_only_configured() -> None:
    parts = Parts()
    parts.life.claim = Leadership(0, "b1", "")
    parts.life.record = ChangeRecord("", "c", 0)
    saved = parts.life.saved()
    assert (saved.claim, saved.record, saved.cluster) == (None, None, "c")
    assert Parts(master="").life.saved().claim == Leadership(1, "", "r")
