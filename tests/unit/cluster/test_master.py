"""The master: what it appends, what it answers brokers that lag, and when it hands over."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.cluster.change_record import ChangeRecord
from raybroker.cluster.events import (
    BAD_REQUEST,
    NOT_ALLOWED,
    OK,
    PRECONDITION_FAILED,
    UNAVAILABLE,
    Answer,
    ChangeMaster,
    Note,
    Persist,
    Propose,
)
from raybroker.cluster.master import REMEMBERED, Master
from raybroker.cluster.member_messages import (
    Ask,
    ChangeDecided,
    ChangeProposal,
    Disagree,
    Entries,
    MasterTaken,
    Position,
    RecordOffer,
    Whole,
)
from raybroker.cluster.member_state import MemberEvent, MemberState
from raybroker.cluster.saved_record import SavedOffer, claim_frame
from raybroker.cluster.term import Leadership
from raybroker.model.errors import MasterUnavailableError
from tests.unit.cluster.parts import NOW, Parts, queue

REQUEST = 77
NEXT = Leadership(2, "b2", "r")


class Reigning(Parts):
    """Broker b1 is the master and operates; b2 is up, and nobody hears of b3."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"dynamic_change_master": True, "request_ms": 1_000, "heartbeat_ms": 100} | settings)
        self.beats = 0
        self.master = Master(self.life, self.applier, self._beat)
        self.life.is_master = True
        self.life.happens(MemberEvent.CATCH_UP)
        self.life.happens(MemberEvent.EXCHANGE)
        self.greeted("b2")

    def _beat(self) -> None:
        self.beats += 1

    def ask(self, number: int, digest: str, record: str = "r") -> object:
        self.master.send_missing("b2", Ask(Position(record, number, digest)))
        ((_, message),) = self.said()
        return message

    def change(self, target: str = "b2") -> list[str]:
        self.master.change(ChangeMaster(REQUEST, target))
        return [answer.result for answer in self.took(Answer)]

    def taken(self, claim: Leadership = NEXT, *, sender: str = "b2", number: int | None = None) -> None:
        record = self.life.record
        position = Position(record.id, record.number if number is None else number, record.digest)
        self.master.taken(sender, MasterTaken(claim, position))


def test_a_new_record_has_the_state_of_before_and_its_master_reigns_once_it_is_on_disk() -> None:
    parts = Reigning()
    parts.life.is_master = False
    parts.life.record.propose(queue("q1"))
    claim = Leadership(2, "b1", "new")
    parts.master.begin_record(claim)
    assert (parts.life.is_master, parts.life.claim, parts.life.durable.record) == (False, claim, "r")
    parts.write()
    assert (parts.life.is_master, parts.beats, parts.life.durable.record) == (True, 1, "new")
    assert list(parts.life.agreed.destinations) == [("queue", "q1")]


def test_a_later_term_that_is_heard_of_while_the_record_is_written_keeps_it_from_reigning() -> None:
    parts = Reigning()
    parts.life.is_master = False
    parts.master.begin_record(Leadership(2, "b1", "new"))
    parts.life.claim = Leadership(3, "b2", "new")
    parts.write()
    assert (parts.life.is_master, parts.beats) == (False, 0)


def test_only_what_was_offered_for_this_very_claim_is_taken_over() -> None:
    parts = Reigning()
    parts.life.is_master = False
    claim = Leadership(2, "b1", "r")
    assert not parts.master.take_over(claim)
    record = ChangeRecord("r", "c", 1)
    record.propose(queue("q1"))
    parts.life.offer = SavedOffer(Leadership(3, "b1", "r"), record)
    assert not parts.master.take_over(claim)
    parts.life.offer = SavedOffer(claim, record)
    assert parts.master.take_over(claim)
    parts.write()
    assert (parts.life.is_master, parts.life.record, record.term, parts.life.offer) == (True, record, 2, None)
    assert parts.life.durable.number == 1


def test_a_change_is_told_and_answered_once_it_is_on_disk_and_carried_out() -> None:
    parts = Reigning()
    parts.master.propose(Propose(REQUEST, queue("q1")))
    assert parts.said() == []
    parts.write()
    (entry,) = parts.life.record.entries
    assert parts.said() == [("b2", Entries(parts.life.claim, (entry,), 1))]
    assert parts.took(Answer) == []
    parts.carry_out()
    assert parts.took(Answer) == [Answer(REQUEST, None, 1)]


def test_a_change_that_cannot_be_made_is_refused_and_not_written() -> None:
    parts = Reigning()
    for _ in range(2):
        parts.master.propose(Propose(REQUEST, queue("q1")))
        parts.write()
    (answer,) = parts.took(Answer)
    assert (type(answer.error).__name__, parts.life.record.number) == ("InvalidDestinationError", 1)


def test_the_same_proposal_is_made_once_and_its_decision_told_again() -> None:
    parts = Reigning()
    for _ in range(2):
        parts.master.proposed("b2", 5, ChangeProposal(1, queue("q1")))
    assert parts.said() == []
    parts.write()
    decision = ("b2", ChangeDecided(1, "r", 1))
    assert parts.said()[1:] == [decision]
    parts.master.proposed("b2", 5, ChangeProposal(1, queue("q1")))
    assert (parts.said(), parts.life.record.number) == ([decision], 1)
    parts.master.proposed("b2", 6, ChangeProposal(1, queue("q2")))
    assert parts.life.record.number == 2, "another instance counts anew"


def test_what_is_refused_is_decided_too_and_what_is_forgotten_is_ignored() -> None:
    parts = Reigning()
    for number in range(1, REMEMBERED + 2):
        parts.master.proposed("b2", 5, ChangeProposal(number, queue("q1")))
    codes = {message.code for _, message in parts.said() if isinstance(message, ChangeDecided)}
    assert len(codes) == 1
    assert codes != {""}
    for number, again in ((1, 0), (2, 1), (REMEMBERED + 1, 1)):
        parts.master.proposed("b2", 5, ChangeProposal(number, queue("q2")))
        assert len(parts.said()) == again


def test_one_that_lags_gets_what_is_on_disk_after_its_position_or_the_whole() -> None:
    parts = Reigning()
    for name in ("q1", "q2"):
        parts.master.propose(Propose(REQUEST, queue(name)))
    parts.write()
    parts.said()
    parts.master.propose(Propose(REQUEST, queue("q3")))
    one, two, _ = parts.life.record.entries
    assert parts.ask(0, "") == Entries(parts.life.claim, (one, two), 2)
    assert parts.ask(1, one.digest) == Entries(parts.life.claim, (two,), 2)
    assert isinstance(parts.ask(1, "x", "other"), Whole)
    assert parts.took(Note) == []
    assert isinstance(parts.ask(3, "x"), Disagree)
    assert isinstance(parts.ask(1, "x"), Disagree)
    assert [note.warning for note in parts.took(Note)] == [True, True]


@pytest.mark.parametrize(
    ("settings", "target", "result"),
    [
        ({"master": ""}, "b2", PRECONDITION_FAILED),
        ({"dynamic_change_master": False}, "b2", NOT_ALLOWED),
        ({}, "b1", BAD_REQUEST),
        ({}, "b9", BAD_REQUEST),
        ({}, "b3", UNAVAILABLE),
    ],
)
def test_a_change_of_master_that_cannot_be_is_refused(settings: dict[str, Any], target: str, result: str) -> None:
    parts = Reigning(**settings)
    assert (parts.change(target), parts.master.frozen) == ([result], False)


def test_only_the_master_that_operates_and_is_not_changed_already_is_changed() -> None:
    parts = Reigning()
    parts.life.is_master = False
    assert parts.change() == [NOT_ALLOWED]
    parts.life.is_master = True
    assert (parts.change(), parts.change()) == ([], [PRECONDITION_FAILED])
    parts = Reigning()
    parts.life.state = MemberState.EXCHANGING
    assert parts.change() == [PRECONDITION_FAILED]


def test_the_record_is_offered_with_all_that_was_being_written_and_nothing_is_taken_meanwhile() -> None:
    parts = Reigning()
    parts.master.propose(Propose(1, queue("q1")))
    assert (parts.change(), parts.said()) == ([], [])
    parts.write()
    (offer,) = [message for _, message in parts.said() if isinstance(message, RecordOffer)]
    assert offer.claim == NEXT
    parts.master.propose(Propose(2, queue("q2")))
    assert [type(answer.error) for answer in parts.took(Answer)] == [MasterUnavailableError]


def test_the_master_hands_over_once_its_decision_is_on_disk() -> None:
    parts = Reigning()
    parts.change()
    for _ in range(2):
        parts.taken()
    assert (parts.life.is_master, parts.life.claim.term) == (True, 1)
    assert parts.write() == [claim_frame(NEXT, "b1")]
    assert (parts.life.is_master, parts.life.claim, parts.beats, parts.master.frozen) == (False, NEXT, 1, False)
    assert [answer.result for answer in parts.took(Answer)] == [OK]


def test_nobody_else_and_nothing_else_is_taken_for_the_successors_answer() -> None:
    parts = Reigning()
    parts.taken()
    parts.change()
    parts.taken(sender="b3")
    parts.taken(Leadership(3, "b2", "r"))
    parts.taken(number=7)
    assert parts.took(Persist) == []


def test_an_offer_is_said_again_and_given_up_in_time_with_nothing_changed() -> None:
    parts = Reigning()
    parts.change()
    parts.said()
    for later_ms, offers in ((99, 0), (100, 1), (999, 1), (1_000, 0)):
        parts.life.now_ms = NOW + later_ms
        parts.master.tick()
        assert len(parts.said()) == offers
    assert [answer.result for answer in parts.took(Answer)] == [UNAVAILABLE]
    assert (parts.master.frozen, parts.life.is_master) == (False, True)


def test_one_that_resigns_says_what_is_unknown_and_decides_nothing_any_more() -> None:
    parts = Reigning()
    parts.master.propose(Propose(1, queue("q1")))
    parts.change()
    parts.master.resign("b2 reigns")
    first, second = parts.took(Answer)
    assert "whether the change 'create destination queue q1' was made is unknown" in str(first.error)
    assert (second.request, second.result, parts.life.is_master) == (REQUEST, UNAVAILABLE, False)
    parts.write()
    assert (parts.said(), parts.master.frozen) == ([], False)
