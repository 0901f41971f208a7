"""Changing the master, losing its disk, and two who think they are it (K-14, K-15, K-16, A-21)."""

from __future__ import annotations

from raybroker.cluster import events as ev
from raybroker.cluster import member_messages as m
from raybroker.cluster.change_record import Change
from raybroker.cluster.events import BAD_REQUEST, NOT_ALLOWED, OK, PRECONDITION_FAILED, UNAVAILABLE
from raybroker.cluster.member import backed_up, restored
from raybroker.model.errors import MasterUnavailableError, RequestTimeoutError
from tests.unit.cluster.cluster import Cluster, queue, running


def result(answer: ev.Answer | None) -> str:
    assert answer is not None
    return answer.result


def test_a_change_of_master_hands_over_the_whole_record() -> None:
    cluster = running()
    cluster.propose("b1", queue("q1"))
    assert result(cluster.change_master("b1", "b3")) == OK
    assert [name for name, member in cluster.members.items() if member.is_master] == ["b3"]
    assert {member.claim.master for member in cluster.members.values()} == {"b3"}
    assert {member.claim.term for member in cluster.members.values()} == {2}
    for name in cluster.names:
        assert cluster.propose(name, queue(f"of-{name}")).error is None  # type: ignore[union-attr]
    cluster.run(1000)
    assert {member.record.digest for member in cluster.members.values()} == {cluster.members["b1"].record.digest}
    assert cluster.members["b1"].record.number == 4


def test_the_successor_stays_the_master_over_restarts_with_the_old_configuration() -> None:
    cluster = running()
    cluster.change_master("b1", "b3")
    for name in cluster.names:
        cluster.stop(name)
    cluster.start("b1")
    cluster.run(7000)
    assert cluster.states() == {"b1": "WAITING_FOR_MASTER"}
    cluster.start("b2", "b3")
    cluster.run(7000)
    assert [name for name, member in cluster.members.items() if member.is_master] == ["b3"]
    assert set(cluster.states().values()) == {"OPERATING"}


def test_the_five_answers_and_when_they_are_given() -> None:  # K-15
    cluster = running()
    assert result(cluster.change_master("b2", "b3")) == NOT_ALLOWED
    assert result(cluster.change_master("b1", "b1")) == BAD_REQUEST
    assert result(cluster.change_master("b1", "b9")) == BAD_REQUEST
    cluster.stop("b3")
    cluster.run(2500)
    assert result(cluster.change_master("b1", "b3")) == UNAVAILABLE
    assert cluster.members["b1"].is_master
    fixed = Cluster()
    fixed.dynamic = False
    fixed.start()
    fixed.run(3000)
    assert result(fixed.change_master("b1", "b2")) == NOT_ALLOWED
    free = running(master="")
    assert result(free.change_master("b1", "b2")) == PRECONDITION_FAILED


def test_while_the_master_changes_no_change_is_taken_and_when_it_does_not_come_off_all_is_as_before() -> None:
    cluster = running()
    cluster.cut.add("b3")
    assert cluster.change_master("b1", "b3") is None
    answer = cluster.propose("b2", queue("q"))
    assert answer is not None
    assert isinstance(answer.error, MasterUnavailableError)
    assert result(cluster.change_master("b1", "b2")) == PRECONDITION_FAILED
    cluster.run(11_000)
    assert UNAVAILABLE in [answer.result for answer in cluster.answers.values()]
    assert cluster.members["b1"].is_master
    assert cluster.propose("b2", queue("q")).error is None  # type: ignore[union-attr]
    cluster.cut.clear()
    cluster.run(7000)
    assert not cluster.members["b3"].is_master
    assert cluster.members["b3"].durable == cluster.members["b1"].durable


def test_the_decision_is_on_the_old_masters_disk_before_anybody_hears_of_it() -> None:
    cluster = running()
    original = cluster._do
    held: list[int] = []

    def hold(name: str, action: ev.Action) -> None:
        if isinstance(action, ev.Persist) and name == "b1" and action.frames[0].startswith(b'["claim",2,'):
            held.append(action.token)
            return
        original(name, action)

    cluster._do = hold  # type: ignore[method-assign]
    assert cluster.change_master("b1", "b3") is None
    cluster.run(2000)
    assert len(held) == 1
    assert not [message for _, message in cluster.sent if isinstance(message, m.Beat) and message.claim.term == 2]
    assert not cluster.members["b3"].is_master
    assert cluster.members["b1"].is_master
    cluster.tell("b1", ev.Persisted(held[0]))
    cluster.settle()
    assert result(cluster.answers[1]) == OK
    assert cluster.members["b3"].is_master


def test_a_successor_that_was_down_when_it_was_decided_learns_of_it_from_anybody() -> None:
    cluster = running()
    original = cluster._do

    def lose_the_news(name: str, action: ev.Action) -> None:
        original(name, action)
        if isinstance(action, ev.Persist) and name == "b1" and action.frames[0].startswith(b'["claim",2,'):
            cluster.cut.add("b3")

    cluster._do = lose_the_news  # type: ignore[method-assign]
    cluster.change_master("b1", "b3")
    cluster.stop("b3")
    cluster.run(3000)
    assert cluster.members["b2"].claim.master == "b3"
    cluster.stop("b1")
    cluster.cut.clear()
    cluster.start("b3")
    cluster.run(7000)
    assert cluster.members["b3"].is_master
    assert cluster.states() == {"b2": "OPERATING", "b3": "OPERATING"}


def test_an_older_offer_does_not_replace_a_newer_one() -> None:
    cluster = running()
    cluster.propose("b1", queue("q1"))
    offers: list[m.Envelope] = []
    original = cluster._do

    def keep(name: str, action: ev.Action) -> None:
        if isinstance(action, ev.SendEnvelope) and isinstance(action.envelope.message, m.RecordOffer):
            offers.append(action.envelope)
            return
        original(name, action)

    cluster._do = keep  # type: ignore[method-assign]
    cluster.change_master("b1", "b3")
    cluster.run(11_000)
    cluster._do = original  # type: ignore[method-assign]
    cluster.propose("b1", queue("q2"))
    original_do = cluster._do

    def late(name: str, action: ev.Action) -> None:
        if isinstance(action, ev.SendEnvelope) and isinstance(action.envelope.message, m.MasterTaken):
            cluster.tell("b3", ev.EnvelopeReceived(offers[0]))
        original_do(name, action)

    cluster._do = late  # type: ignore[method-assign]
    cluster.change_master("b1", "b3")
    cluster.settle()
    assert cluster.members["b3"].is_master
    assert len(cluster.members["b3"].agreed.destinations) == 2


def test_a_master_that_lost_its_disk_does_not_empty_the_cluster() -> None:
    cluster = running()
    cluster.propose("b2", queue("precious"))
    cluster.stop("b1")
    cluster.frames["b1"] = []
    cluster.run(3000)
    cluster.start("b1")
    cluster.run(12_000)
    assert list(cluster.members["b2"].agreed.destinations) == [("queue", "precious")]
    assert cluster.states()["b2"] == "MASTER_LOST"
    assert any("disagree on the master in term 1" in note and "restore a backup" in note for note in cluster.notes)


def test_a_copy_that_has_more_than_the_masters_record_is_not_thrown_away() -> None:
    cluster = running()
    saved = list(cluster.frames["b1"])
    cluster.propose("b2", queue("precious"))
    for name in cluster.names:
        cluster.stop(name)
    cluster.frames["b1"] = saved
    cluster.start()
    cluster.run(7000)
    assert cluster.states()["b2"] == "WAITING_FOR_MASTER"
    assert "the master lost some" in cluster.members["b2"].refusal
    assert list(cluster.members["b2"].record.state.destinations) == [("queue", "precious")]


def test_two_configured_masters_refuse_each_other_naming_both() -> None:
    cluster = Cluster()
    cluster.start("b1")
    cluster.master = "b2"
    cluster.start("b2")
    cluster.run(6000)
    text = next(note for note in cluster.notes if "disagree" in note)
    assert "b1 (record" in text
    assert "b2 (record" in text
    assert cluster.members["b1"].is_master
    assert cluster.members["b2"].is_master
    assert cluster.members["b1"].membership.live() == ("b1",)


def test_a_master_whose_configuration_names_another_waits_for_that_one() -> None:  # K-15
    cluster = running()
    cluster.propose("b1", queue("q"))
    for name in cluster.names:
        cluster.stop(name)
    cluster.master = "b2"
    cluster.start("b1")
    cluster.run(7000)
    assert cluster.states() == {"b1": "WAITING_FOR_MASTER"}
    assert "it waits for b2" in cluster.members["b1"].refusal
    cluster.start("b2", "b3")
    cluster.run(7000)
    assert cluster.members["b1"].is_master, "nothing was restored on b2, so the record stays where it is"
    assert set(cluster.states().values()) == {"OPERATING"}


def test_a_master_that_hears_of_a_later_term_reigns_no_longer() -> None:  # K-15: restored while the old one runs
    cluster = running()
    cluster.propose("b1", queue("early"))
    backup = backed_up(cluster.frames["b1"])
    cluster.propose("b1", queue("late"))
    cluster.stop("b2")
    cluster.frames["b2"] = list(restored(cluster.frames["b2"], backup, name="b2", master="b2", new_id="restored"))
    cluster.hold_writes = True
    assert cluster.propose("b1", queue("under-way")) is None
    cluster.hold_writes = False
    cluster.master = "b2"
    cluster.start("b2")
    cluster.run(8000)
    assert [name for name, member in cluster.members.items() if member.is_master] == ["b2"]
    (error,) = [answer.error for answer in cluster.answers.values() if answer.error is not None]
    assert isinstance(error, RequestTimeoutError)
    assert set(cluster.states().values()) == {"OPERATING"}
    for member in cluster.members.values():
        assert [key[1] for key in member.agreed.destinations] == ["early"]


# ---- without a master


def test_without_a_master_brokers_start_in_any_order_and_tell_each_other() -> None:  # K-16
    cluster = Cluster(master="")
    cluster.start("b3")
    cluster.run(3000)
    assert cluster.states() == {"b3": "OPERATING"}
    cluster.start("b1", "b2")
    cluster.run(3000)
    answer = cluster.propose("b1", queue("q"))
    assert answer is not None
    assert (answer.error, answer.number) == (None, 0)
    for member in cluster.members.values():
        assert list(member.agreed.destinations) == [("queue", "q")]


def test_without_a_master_who_was_down_misses_the_change_for_good() -> None:  # K-16
    cluster = running(master="")
    cluster.stop("b3")
    cluster.run(3000)
    cluster.propose("b1", queue("q"))
    cluster.start("b3")
    cluster.run(8000)
    assert not cluster.members["b3"].agreed.destinations
    assert cluster.states()["b3"] == "OPERATING"


def test_without_a_master_a_change_that_comes_second_is_left_out_with_a_warning() -> None:
    cluster = running(master="")
    cluster.cut.add("b2")
    cluster.propose("b2", queue("q", maxNumMsgs=2))
    cluster.propose("b1", queue("q", maxNumMsgs=1))
    cluster.cut.clear()
    cluster.run(1000)
    assert any("is not made here: create destination queue q" in note for note in cluster.notes)
    assert cluster.members["b2"].agreed.destinations == {("queue", "q"): {"maxNumMsgs": 2}}
    assert cluster.members["b1"].agreed.destinations == {("queue", "q"): {"maxNumMsgs": 1}}


def test_brokers_with_and_without_a_master_refuse_each_other() -> None:
    cluster = Cluster()
    cluster.start("b1")
    cluster.master = ""
    cluster.start("b2")
    cluster.run(6000)
    assert cluster.members["b1"].membership.live() == ("b1",)
    assert any("imq.cluster.nomasterbroker" in note for note in cluster.notes)


def test_adding_a_master_again_restores_the_strict_rules() -> None:  # K-16
    cluster = running()
    cluster.propose("b1", queue("first"))
    for master in ("", "b1"):
        for name in list(cluster.members):
            cluster.stop(name)
        cluster.master = master
        cluster.start()
        cluster.run(7000)
        assert set(cluster.states().values()) == {"OPERATING"}, cluster.notes[-5:]
        if not master:
            cluster.propose("b2", queue("second"))
    assert {member.claim for member in cluster.members.values()} == {cluster.members["b1"].claim}
    assert cluster.members["b1"].claim.term == 1000
    for member in cluster.members.values():
        assert [key[1] for key in member.agreed.destinations] == ["first", "second"]
    assert cluster.propose("b2", Change("destroy_destination", ("queue", "first"))).error is None  # type: ignore[union-attr]
