"""One broker's life: joining, following, losing the master, being replaced (K-07 … K-13, K-18)."""

from __future__ import annotations

import pytest

from raybroker.cluster import events as ev
from raybroker.cluster import member_messages as m
from raybroker.cluster.change_record import Change
from raybroker.cluster.member import _EVENTS, _MESSAGES, Member, MemberSettings, MemberState
from raybroker.cluster.member_state import MEMBER, MemberEvent
from raybroker.model.errors import (
    IllegalStateError,
    InvalidDestinationError,
    MasterUnavailableError,
    RequestTimeoutError,
    StoreDamagedError,
)
from tests.unit.cluster.cluster import Cluster, queue, running


def test_every_event_and_message_has_its_handler() -> None:
    assert set(_EVENTS) == set(ev.Event.__subclasses__())
    at_the_door = {m.Greet, m.Refuse}  # Also of a broker that has not greeted yet.
    assert set(_MESSAGES) | at_the_door == set(m.MemberMessage.__subclasses__())


def test_a_broker_waits_for_the_master_takes_no_clients_and_goes_on_by_itself() -> None:  # K-12
    cluster = Cluster()
    cluster.start("b2")
    cluster.run(20_000)
    assert cluster.states() == {"b2": "WAITING_FOR_MASTER"}
    assert cluster.opened == []
    assert "waits for the master broker b1" in cluster.members["b2"].refusal
    cluster.start("b1")
    cluster.run(3000)
    assert cluster.states() == {"b1": "OPERATING", "b2": "OPERATING"}
    assert sorted(cluster.opened) == ["b1", "b2"]
    assert cluster.members["b2"].refusal == ""


def test_a_master_that_is_not_heard_is_greeted_every_five_seconds() -> None:  # K-12
    cluster = Cluster()
    cluster.start("b2")
    began = len([1 for to, message in cluster.sent if to == "b1"])
    cluster.run(20_000)
    assert len([1 for to, message in cluster.sent if to == "b1" and isinstance(message, m.Greet)]) == began + 4


def test_a_single_broker_opens_without_waiting_for_anybody() -> None:
    cluster = Cluster(["b1"])
    cluster.start()
    assert cluster.opened == ["b1"]


def test_a_change_at_any_broker_reaches_all_and_is_answered_when_it_is_carried_out_there() -> None:  # K-07
    cluster = running()
    for number, name in enumerate(cluster.names, start=1):
        answer = cluster.propose(name, queue(f"q{number}", maxNumMsgs=number))
        assert answer is not None
        assert (answer.error, answer.number) == (None, number)
        assert cluster.members[name].applied == number
    for name, member in cluster.members.items():
        assert [key[1] for key in member.agreed.destinations] == ["q1", "q2", "q3"]
        assert [str(change) for apply in cluster.applied[name] for change in apply.changes] == [
            "create destination queue q1",
            "create destination queue q2",
            "create destination queue q3",
        ]


def test_nothing_is_answered_or_sent_before_it_is_on_the_masters_disk() -> None:
    cluster = running()
    cluster.hold_writes = True
    before = len(cluster.sent)
    assert cluster.propose("b1", queue("q")) is None
    assert not [message for _, message in cluster.sent[before:] if isinstance(message, m.Entries)]
    cluster.tell("b1", ev.Persisted(10**6))
    assert [message for _, message in cluster.sent[before:] if isinstance(message, m.Entries)]


def test_a_change_that_cannot_be_made_raises_what_the_record_says() -> None:
    cluster = running()
    cluster.propose("b1", queue("q"))
    for name in ("b1", "b2"):
        answer = cluster.propose(name, queue("q"))
        assert answer is not None
        assert isinstance(answer.error, InvalidDestinationError)
        assert "exists already" in str(answer.error)


def test_without_the_master_changes_raise_and_everything_else_goes_on() -> None:  # K-13
    cluster = running()
    cluster.stop("b1")
    cluster.run(2100)
    assert cluster.states() == {"b2": "MASTER_LOST", "b3": "MASTER_LOST"}
    assert all(member.opened and not member.refusal for member in cluster.members.values())
    answer = cluster.propose("b2", queue("q"))
    assert answer is not None
    assert isinstance(answer.error, MasterUnavailableError)
    with pytest.raises(MasterUnavailableError, match="the master broker b1 cannot be reached"):
        cluster.members["b2"].check_change()
    cluster.start("b1")
    cluster.run(1000)
    assert cluster.states()["b2"] == "OPERATING"
    assert cluster.propose("b2", queue("q")).error is None  # type: ignore[union-attr]


def test_a_lost_master_is_noticed_within_two_seconds() -> None:  # K-19
    cluster = running()
    cluster.stop("b1")
    lost = cluster.now_ms
    while cluster.members["b2"].state is not MemberState.MASTER_LOST:
        cluster.run(50)
        assert cluster.now_ms - lost <= 2000


def test_a_change_under_way_when_the_master_dies_is_unknown() -> None:
    cluster = running()
    cluster.cut.add("b1")
    assert cluster.propose("b2", queue("q")) is None
    cluster.run(2500)
    (answer,) = cluster.answers.values()
    assert isinstance(answer.error, RequestTimeoutError)
    assert not answer.error.definite


def test_a_change_is_not_asked_of_another_instance_of_the_master() -> None:
    cluster = running()
    cluster.cut.add("b1")
    cluster.propose("b2", queue("q"))
    cluster.stop("b1")
    cluster.cut.clear()
    cluster.start("b1")
    cluster.run(600)
    (answer,) = cluster.answers.values()
    assert isinstance(answer.error, RequestTimeoutError)
    assert "restarted" in str(answer.error)
    assert cluster.members["b1"].record.number == 0


def test_a_broker_that_was_away_takes_what_it_missed_and_only_that() -> None:  # K-11
    cluster = running()
    cluster.propose("b1", queue("q1"))
    cluster.stop("b3")
    cluster.run(3000)
    cluster.propose("b1", queue("q2"))
    cluster.propose("b1", Change("destroy_destination", ("queue", "q1")))
    before = len(cluster.sent)
    cluster.start("b3")
    cluster.run(3000)
    entries = [message for to, message in cluster.sent[before:] if to == "b3" and isinstance(message, m.Entries)]
    assert [entry.number for message in entries for entry in message.entries] == [2, 3]
    assert list(cluster.members["b3"].agreed.destinations) == [("queue", "q2")]
    whole = cluster.applied["b3"][-1].whole
    assert whole is not None
    assert list(whole.destinations) == [("queue", "q2")]


def test_a_broker_that_missed_what_was_compressed_away_takes_the_whole_record() -> None:
    cluster = running()
    cluster.stop("b3")
    cluster.propose("b1", queue("q1"))
    cluster.tell("b1", ev.Compress())
    cluster.settle()
    cluster.start("b3")
    cluster.run(3000)
    assert cluster.members["b3"].durable == cluster.members["b1"].durable
    assert list(cluster.members["b3"].agreed.destinations) == [("queue", "q1")]


def test_what_is_not_on_the_masters_disk_is_not_compressed() -> None:
    cluster = running()
    cluster.propose("b1", queue("q1"))
    cluster.hold_writes = True
    cluster.propose("b1", queue("q2"))
    cluster.tell("b1", ev.Compress())
    record = cluster.members["b1"].record
    assert (record.base_number, [entry.number for entry in record.entries]) == (1, [2])


def test_a_change_that_fails_here_is_carried_out_again_until_it_succeeds() -> None:
    cluster = running()
    cluster.failure = "no host answers"
    answer = cluster.propose("b2", queue("q"))
    assert answer is not None
    assert isinstance(answer.error, RequestTimeoutError)
    assert "is recorded (entry 1)" in str(answer.error)
    cluster.failure = ""
    cluster.run(6000)
    for name in cluster.names:
        assert cluster.members[name].applied == 1
        assert cluster.applied[name][-1].whole is not None


def test_when_a_host_is_back_the_whole_record_is_carried_out_again_while_clients_are_served() -> None:
    cluster = running()
    cluster.propose("b2", queue("q"))
    before = len(cluster.applied["b2"])
    cluster.tell("b2", ev.HostBack())
    assert cluster.members["b2"].opened
    cluster.settle()
    (again,) = cluster.applied["b2"][before:]
    assert again.whole is not None
    assert list(again.whole.destinations) == [("queue", "q")]
    assert cluster.members["b2"].applied == 1


def test_brokers_with_other_properties_refuse_each_other_by_name() -> None:  # K-18
    cluster = Cluster()
    cluster.start("b1", properties={"imq.autocreate.queue": True})
    cluster.start("b2", properties={"imq.autocreate.queue": False})
    cluster.run(6000)
    assert cluster.states() == {"b1": "OPERATING", "b2": "WAITING_FOR_MASTER"}
    assert "imq.autocreate.queue is True on b1 and False on b2" in cluster.members["b2"].refusal
    assert cluster.members["b1"].membership.live() == ("b1",)


def test_brokers_of_two_clusters_refuse_each_other() -> None:
    cluster = Cluster()
    cluster.start("b1")
    cluster.cluster = "other"
    cluster.start("b2")
    cluster.run(6000)
    assert cluster.states()["b2"] == "WAITING_FOR_MASTER"
    assert "imq.cluster.clusterid" in cluster.members["b2"].refusal


def test_without_a_configured_id_the_masters_is_taken_and_kept() -> None:
    cluster = Cluster()
    cluster.cluster = ""
    cluster.start()
    cluster.run(3000)
    assert {member.cluster for member in cluster.members.values()} == {"id-b1-10000"}
    cluster.stop("b2")
    cluster.start("b2")
    assert cluster.members["b2"].cluster == "id-b1-10000"


def test_a_new_instance_replaces_the_old_one_which_halts_when_it_hears_of_it() -> None:
    cluster = running()
    old = cluster.members["b3"]
    cluster.run(100)
    cluster.start("b3")
    cluster.run(1000)
    new = cluster.members["b3"]
    assert new.incarnation > old.incarnation
    stale = old.step(ev.Propose(99, queue("q")), cluster.now_ms)
    (envelope,) = [action.envelope for action in stale if isinstance(action, ev.SendEnvelope)]
    actions = cluster.tell("b1", ev.EnvelopeReceived(envelope))
    assert cluster.members["b1"].record.number == 0
    (refusal,) = [action.envelope for action in actions if isinstance(action, ev.SendEnvelope)]
    assert isinstance(refusal.message, m.Refuse)
    (halt,) = old.step(ev.EnvelopeReceived(refusal), cluster.now_ms)
    assert isinstance(halt, ev.Halt)
    assert old.state is MemberState.STOPPED
    assert old.step(ev.MemberTick(), cluster.now_ms) == []
    assert not [
        action for action in new.step(ev.EnvelopeReceived(refusal), cluster.now_ms) if isinstance(action, ev.Halt)
    ]
    assert new.state is MemberState.OPERATING, "the refusal was meant for the old instance"


def test_who_was_greeted_as_an_instance_of_the_master_is_remembered_over_a_restart() -> None:
    cluster = running()
    old = cluster.members["b1"]
    cluster.run(10)
    cluster.start("b1")
    cluster.run(1000)
    cluster.cut |= {"b1"}
    cluster.start("b3")
    greeting = m.Greet({}, old.claim, old.membership.joined, True)
    actions = cluster.tell("b3", ev.EnvelopeReceived(m.Envelope("b1", old.incarnation, 0, greeting)))
    assert [type(a.envelope.message) for a in actions if isinstance(a, ev.SendEnvelope)] == [m.Refuse]
    assert cluster.members["b3"].state is MemberState.WAITING_FOR_MASTER


def test_incarnations_grow_also_when_the_clock_goes_back_and_when_the_disk_is_lost() -> None:
    cluster = running()
    first = cluster.members["b2"].incarnation
    settings = MemberSettings(brokers=cluster.names, master="b1")
    back = Member("b2", settings, cluster.frames["b2"], now_ms=5, new_id="x")
    empty = Member("b2", settings, [], now_ms=cluster.now_ms, new_id="x")
    assert back.incarnation == first + 1
    assert empty.incarnation > first


def test_consumers_are_exchanged_with_every_live_instance_once_before_clients_are_taken() -> None:  # K-08, K-11
    cluster = running()
    cluster.stop("b3")
    cluster.run(3000)
    seen: list[ev.Action] = []
    original = cluster._do
    cluster._do = lambda name, action: (seen.append(action) if name == "b3" else None, original(name, action))[1]  # type: ignore[method-assign]
    cluster.start("b3")
    cluster.run(8000)
    order = [type(action).__name__ for action in seen if isinstance(action, ev.ExchangeConsumers | ev.OpenForClients)]
    assert order == ["ExchangeConsumers", "ExchangeConsumers", "OpenForClients"]


def test_a_peer_that_does_not_exchange_holds_a_broker_up_for_a_bounded_time() -> None:
    cluster = running()
    cluster.stop("b3")
    cluster.run(3000)
    original = cluster._do
    cluster._do = lambda name, action: None if isinstance(action, ev.ExchangeConsumers) else original(name, action)  # type: ignore[method-assign]
    cluster.start("b3")
    cluster.run(4000)
    assert cluster.states()["b3"] == "EXCHANGING"
    cluster.run(1500)
    assert cluster.states()["b3"] == "OPERATING"


def test_all_brokers_see_the_same_coordinator_which_moves_when_it_dies() -> None:
    cluster = running()
    (coordinator,) = {member.membership.coordinator() for member in cluster.members.values()}
    cluster.stop(coordinator)
    cluster.run(2500)
    (second,) = {member.membership.coordinator() for member in cluster.members.values()}
    assert second != coordinator
    cluster.start(coordinator)
    cluster.run(7000)
    assert {member.membership.coordinator() for member in cluster.members.values()} == {second}


def test_brokers_that_were_cut_off_find_each_other_again_soon() -> None:
    cluster = running()
    cluster.cut.add("b3")
    cluster.run(10_000)
    assert cluster.members["b3"].membership.live() == ("b3",)
    assert cluster.states() == {"b1": "OPERATING", "b2": "OPERATING", "b3": "MASTER_LOST"}
    cluster.cut.clear()
    cluster.run(2100)
    assert all(len(member.membership.live()) == 3 for member in cluster.members.values())
    assert set(cluster.states().values()) == {"OPERATING"}


def test_who_leaves_says_so() -> None:
    cluster = running()
    cluster.tell("b3", ev.Leave())
    cluster.settle()
    assert cluster.halted == ["the broker has left"]
    assert cluster.members["b1"].membership.state("b3") == "LEFT"


def test_brokers_that_are_found_later_are_greeted_at_once() -> None:  # K-17
    cluster = Cluster(["b1"])
    cluster.start()
    cluster.frames["b4"], cluster.applied["b4"] = [], []
    cluster.names = ("b1", "b4")
    cluster.start("b4")
    cluster.tell("b1", ev.BrokersConfigured(("b1", "b4")))
    cluster.run(3000)
    assert cluster.states() == {"b1": "OPERATING", "b4": "OPERATING"}


def test_a_long_record_is_compressed_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raybroker.cluster.member_state.COMPRESS_MIN", 10)
    cluster = running()
    for number in range(30):
        kind = "create_destination" if number % 2 == 0 else "destroy_destination"
        cluster.propose("b2", Change(kind, ("queue", "q")))
    cluster.run(1000)
    for member in cluster.members.values():
        assert member.record.number == 30
        assert len(member.record.entries) < 15


def test_damaged_frames_are_refused_with_their_number() -> None:
    cluster = running()
    cluster.propose("b1", queue("q"))
    frames = list(cluster.frames["b1"])
    frames[-1] = frames[-1].replace(b'"q"', b'"x"')
    with pytest.raises(StoreDamagedError, match=f"frame {len(frames) - 1}"):
        Member("b1", MemberSettings(master="b1"), frames, now_ms=1, new_id="x")


def test_every_state_has_a_way_out_and_only_declared_ways_are_gone() -> None:
    assert {state for state, _ in MEMBER.table} == set(MemberState) - {MemberState.STOPPED}
    member = running().members["b1"]
    with pytest.raises(IllegalStateError, match="the member is OPERATING; it cannot be caught up"):
        member._life.happens(MemberEvent.CATCH_UP)
