"""Greeting other brokers, and agreeing with them on the master, before anything else is said."""

from __future__ import annotations

import pytest

from raybroker.cluster import compatibility
from raybroker.cluster.events import Note
from raybroker.cluster.handshake import Peers
from raybroker.cluster.member_messages import Beat, Greet, Position, Refuse
from raybroker.cluster.membership import BrokerState
from raybroker.cluster.saved_record import life_frame, master_frame
from raybroker.cluster.term import Leadership
from tests.unit.cluster.parts import NOW, Parts, collector

CLAIM = Leadership(1, "b1", "r")


class Greeting(Parts):
    """Broker b1 begins to greet; the claims of others that beat its own are written down and adopted."""

    def __init__(self, **settings: object) -> None:
        super().__init__(retry_ms=100, heartbeat_ms=1_000, suspect_ms=5_000, down_ms=10_000, **settings)
        self.adopted: list[Leadership] = []
        self.peers = Peers(self.life, self.adopted.append)

    def tick(self, later_ms: int) -> list[tuple[str, str]]:
        self.life.now_ms = NOW + later_ms
        self.peers.tick()
        return [(to, type(message).__name__) for to, message in self.said()]

    def beat(self, claim: Leadership) -> Beat:
        return Beat(claim, Position("r", 3, "x"), 1, True)


def test_whoever_is_not_heard_is_greeted_again_after_a_while() -> None:
    parts = Greeting()
    both = [("b2", "Greet"), ("b3", "Greet")]
    assert [parts.tick(later_ms) for later_ms in (0, 99, 100)] == [both, [], both]
    parts.greeted("b2")
    assert parts.tick(200) == [("b3", "Greet")]


def test_only_those_that_were_greeted_hear_that_we_live_once_a_beat() -> None:
    parts = Greeting()
    parts.tick(0)
    for name in ("b2", "b3"):
        parts.greeted(name)
    assert [parts.tick(later_ms) for later_ms in (999, 1_000, 1_001)] == [[], [("b2", "Beat"), ("b3", "Beat")], []]
    assert parts.peers.next_ms() == NOW + 2_000


def test_a_broker_that_stood_still_says_so_and_takes_nobody_for_lost() -> None:
    parts = Greeting()
    parts.tick(0)
    parts.greeted("b2")
    parts.tick(1_000)
    parts.life.now_ms = NOW + 61_000  # It should have looked after another second.
    parts.peers.tick()
    notes = [action.text for action in parts.life.out if isinstance(action, Note)]
    assert notes == ["broker b1 stood still for 59000 ms; the silence of others is not counted for that time"]
    assert parts.life.membership.state("b2") is BrokerState.UP
    for later_ms in (62_000, 63_000, 64_000):
        parts.tick(later_ms)
    assert parts.life.membership.state("b2") is BrokerState.SUSPECT, "silent for five seconds besides"


def test_a_greeting_says_what_has_to_be_equal_and_that_there_is_a_table_but_not_which() -> None:
    parts = Greeting(properties={"imq.autocreate.queue": True})
    assert parts.peers.properties() == {
        "imq.autocreate.queue": True,
        compatibility.CLUSTER: "c",
        compatibility.MODE: False,
    }
    parts = Greeting(master="", table="t")
    found = parts.peers.properties()
    assert (found[compatibility.TABLE], found[compatibility.MODE]) == ("set", True)


def test_who_is_equal_is_greeted_back_if_it_asks_and_told_how_far_we_are() -> None:
    for answer, said in ((True, [Greet, Beat]), (False, [Beat])):
        parts = Greeting()
        parts.peers.refused["b2"] = "before"
        parts.peers.greeted("b2", 5, Greet(parts.peers.properties(), CLAIM, 4, answer))
        assert [type(message) for _, message in parts.said()] == said
        assert (parts.life.matched, parts.peers.refused) == ({"b2": 5}, {})
        assert parts.life.membership.broker_row("b2").joined == 4


def test_who_differs_is_refused_each_time_and_noted_once() -> None:
    parts = Greeting()
    parts.greeted("b2")
    other = parts.peers.properties() | {compatibility.CLUSTER: "d"}
    for _ in range(2):
        parts.peers.greeted("b2", 5, Greet(other, CLAIM, 0, True))
    assert [type(message) for _, message in parts.said()] == [Refuse, Refuse]
    assert (parts.life.matched, len(parts.took(Note))) == ({}, 1)


def test_the_instance_of_the_master_and_the_cluster_are_written_down_when_they_are_new() -> None:
    parts = Greeting(master="b2")
    parts.life.cluster = ""
    greet = Greet(parts.peers.properties() | {compatibility.CLUSTER: "c"}, Leadership(1, "b2", "r"), 0, False)
    for _ in range(2):
        parts.peers.greeted("b2", 5, greet)
    assert parts.write() == [life_frame(parts.life.incarnation, "c"), master_frame("b2", 5)]
    parts.peers.greeted("b3", 5, greet)
    assert parts.write() == []


def test_whoever_this_broker_waited_for_lets_it_go_on_once() -> None:
    parts = Greeting()
    found, then = collector()
    parts.life.held = "b2", lambda: then("on")
    for name in ("b3", "b2", "b2"):
        parts.peers.greeted(name, 5, Greet(parts.peers.properties(), CLAIM, 0, False))
    assert (found, parts.life.held) == (["on"], None)


@pytest.mark.parametrize(
    ("claim", "fault", "adopted"),
    [
        (CLAIM, False, False),
        (Leadership(1, "b2", "r"), True, False),
        (Leadership(1, "b1", "x"), True, False),
        (Leadership(2, "b2", "r"), False, True),
        (Leadership(0, "b3", ""), False, False),
    ],
)
def test_a_claim_that_beats_ours_is_adopted_and_one_that_contradicts_it_ends_the_talk(
    claim: Leadership, fault: bool, adopted: bool
) -> None:
    parts = Greeting()
    parts.greeted("b2")
    assert parts.peers.beaten("b2", 5, parts.beat(claim)) is not fault
    assert parts.adopted == ([claim] if adopted else [])
    assert ("b2" in parts.life.matched, "b2" in parts.peers.refused) == (not fault, fault)
    assert [type(message) for _, message in parts.said()] == [Refuse] * fault
    assert [note.warning for note in parts.took(Note)] == [True] * fault


def test_two_tables_are_told_by_their_records_and_without_a_master_nobody_contradicts() -> None:
    parts = Greeting(master="", table="t")
    parts.life.claim = Leadership(1, "", "r")
    assert "different tables" in parts.peers.learn(Leadership(1, "", "x"), "b2")
    assert parts.peers.learn(Leadership(1, "", ""), "b2") == ""
    parts = Greeting(master="")
    assert parts.peers.learn(Leadership(1, "b9", "x"), "b2") == ""
    assert parts.adopted == []


def test_a_stranger_is_greeted_at_once_and_not_more_often_than_we_beat() -> None:
    parts = Greeting()
    for later_ms, greeted in ((0, 1), (999, 0), (1_000, 1)):
        parts.life.now_ms = NOW + later_ms
        parts.peers.strange("b2")
        assert [type(message) for _, message in parts.said()] == [Greet] * greeted


def test_a_refusal_is_noted_once_and_ends_the_talk() -> None:
    parts = Greeting()
    parts.greeted("b2")
    for _ in range(2):
        parts.peers.refuse("b2", Refuse("no"))
    assert (parts.peers.refused, parts.life.matched) == ({"b2": "no"}, {})
    assert [note.text for note in parts.took(Note)] == ["refused by broker b2: no"]
