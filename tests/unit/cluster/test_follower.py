"""A copy of the master's record: what it takes, what it asks for, and what becomes of changes that are wanted here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raybroker.cluster.backup import dump
from raybroker.cluster.change_record import ChangeRecord
from raybroker.cluster.events import Answer, Note, Persist, Propose
from raybroker.cluster.follower import Follower, recorded
from raybroker.cluster.member_messages import (
    Ask,
    Beat,
    ChangeDecided,
    ChangeProposal,
    Disagree,
    Entries,
    MasterTaken,
    Position,
    RecordOffer,
    Whole,
)
from raybroker.cluster.saved_record import entry_frame
from raybroker.cluster.term import Leadership
from raybroker.model.errors import InvalidDestinationError, RequestTimeoutError
from tests.unit.cluster.parts import NOW, Parts, queue

CLAIM = Leadership(1, "b2", "r")
REQUEST = 77


def record(*names: str, number: str = "r") -> ChangeRecord:
    found = ChangeRecord(number, "c", 1)
    for name in names:
        found.propose(queue(name))
    return found


def position(found: ChangeRecord) -> Position:
    return Position(found.id, found.number, found.digest)


class Copy(Parts):
    """Broker b1 follows b2, which it hears."""

    def __init__(self) -> None:
        super().__init__(master="b2", request_ms=1_000, heartbeat_ms=100)
        self.follower = Follower(self.life, self.applier)
        self.greeted("b2")

    def entries(self, found: ChangeRecord, *, after: int = 0, last: int | None = None) -> None:
        self.follower.entries(
            Entries(self.life.claim, tuple(found.entries[after:]), found.number if last is None else last)
        )

    def beat(self, found: ChangeRecord) -> None:
        self.follower.beaten(Beat(CLAIM, position(found), 1, True))

    def decided(self, code: str = "", *, number: int = 1, of: str = "r", sender: str = "b2") -> None:
        self.follower.decided(sender, ChangeDecided(1, of, number, code, "no" if code else ""))

    def tick(self, later_ms: int) -> None:
        self.life.now_ms = NOW + later_ms
        self.follower.tick()


def test_new_entries_are_written_and_agreed_once_they_are_on_disk_and_known_ones_are_not_again() -> None:
    copy, master = Copy(), record("q1", "q2")
    for _ in range(2):
        copy.entries(master)
    assert (copy.follower.target, copy.life.durable.number) == (2, 0)
    assert copy.write() == [entry_frame(entry) for entry in master.entries]
    assert (copy.life.durable, copy.said()) == (position(master), [])


def test_a_gap_is_not_taken_and_what_is_missing_is_asked_for_once_a_beat() -> None:
    copy, master = Copy(), record("q1", "q2")
    for _ in range(2):
        copy.entries(master, after=1)
    assert (copy.life.record.number, copy.said()) == (0, [("b2", Ask(position(record())))])
    copy.life.now_ms += 100
    copy.entries(master, after=1)
    assert len(copy.said()) == 1


def test_a_part_of_the_entries_is_taken_and_the_rest_asked_for() -> None:
    copy = Copy()
    copy.entries(record("q1"), last=3)
    assert (copy.follower.target, copy.said()) == (3, [("b2", Ask(position(record("q1"))))])


def test_entries_of_another_term_are_nothing_and_of_another_record_a_reason_to_ask() -> None:
    copy = Copy()
    copy.follower.entries(Entries(replace(CLAIM, term=2), tuple(record("q1").entries), 1))
    assert (copy.life.record.number, copy.said()) == (0, [])
    copy.life.claim = Leadership(1, "b2", "other")
    copy.entries(record("q1"))
    assert (copy.life.record.number, len(copy.said())) == (0, 1)


def test_another_history_is_never_taken_and_is_a_trouble_that_is_noted_once() -> None:
    copy = Copy()
    copy.entries(record("q1"))
    for _ in range(2):
        copy.entries(record("x1", "q2"))
    assert copy.life.trouble == "entry 1 of the master is another one than here"
    assert [note.warning for note in copy.took(Note)] == [True]
    assert copy.life.record.digest == record("q1").digest
    copy.entries(record("q1", "q2"), after=1)
    assert copy.life.trouble == ""


def test_a_beat_that_says_nothing_new_asks_for_nothing_once_the_target_is_known() -> None:
    copy, master = Copy(), record("q1")
    copy.entries(master)
    copy.beat(master)
    assert copy.said() == []
    copy.beat(record("q1", "q2"))
    assert len(copy.said()) == 1
    copy.life.now_ms += 100
    copy.follower.reset()
    copy.beat(master)
    assert len(copy.said()) == 1, "how far the new master is has to be known"
    copy.life.trouble = ""
    copy.follower.target = 1
    copy.follower.reset()
    copy.follower.beaten(Beat(replace(CLAIM, term=2), position(master), 1, True))
    assert copy.said() == []


def test_nobody_is_asked_who_is_not_heard() -> None:
    copy = Copy()
    del copy.life.matched["b2"]
    copy.follower.request_missing()
    assert copy.said() == []


def test_the_whole_record_takes_the_place_of_a_shorter_one_once_it_is_on_disk() -> None:
    copy, master = Copy(), record("q1", "q2")
    copy.follower.whole(Whole(CLAIM, dump(master.compress())))
    assert (copy.life.record.number, copy.follower.target, copy.life.durable.number) == (2, 2, 0)
    assert copy.took(Note) == []
    copy.write()
    assert (copy.life.durable, list(copy.life.agreed.destinations)) == (
        position(master),
        [("queue", "q1"), ("queue", "q2")],
    )


@pytest.mark.parametrize(
    ("there", "trouble"), [(("q1",), False), (("q1", "q2"), False), (("x1",), True), (("x1", "x2", "x3"), True)]
)
def test_a_whole_record_that_is_behind_is_ignored_and_one_with_another_history_refused(
    there: tuple[str, ...], trouble: bool
) -> None:
    copy = Copy()
    copy.entries(record("q1", "q2"))
    copy.write()
    copy.follower.whole(Whole(CLAIM, dump(record(*there))))
    assert ("history" in copy.life.trouble) is trouble
    assert (copy.life.record.digest, copy.took(Persist)) == (record("q1", "q2").digest, [])


def test_another_record_replaces_the_copy_with_a_note_of_what_is_lost() -> None:
    copy = Copy()
    copy.entries(record("q1"))
    copy.write()
    copy.life.claim = Leadership(1, "b2", "new")
    copy.follower.whole(Whole(copy.life.claim, dump(record("q2", number="new"))))
    (note,) = copy.took(Note)
    assert note.warning
    assert "2 changes" in note.text
    assert (copy.life.record.id, copy.follower.target) == ("new", 1)


def test_only_a_disagreement_about_what_is_here_now_is_a_trouble() -> None:
    copy = Copy()
    copy.follower.disagree(Disagree(Position("r", 7, "x"), "old"))
    assert copy.life.trouble == ""
    copy.follower.disagree(Disagree(position(record()), "lost"))
    assert copy.life.trouble == "lost"


@pytest.mark.parametrize(
    ("sender", "claim", "kept"),
    [
        ("b2", Leadership(2, "b1", "r"), True),
        ("b3", Leadership(2, "b1", "r"), False),
        ("b2", Leadership(3, "b1", "r"), False),
        ("b2", Leadership(2, "b3", "r"), False),
    ],
)
def test_an_offer_of_the_master_for_the_next_term_is_kept_and_confirmed_once_it_is_on_disk(
    sender: str, claim: Leadership, kept: bool
) -> None:
    copy = Copy()
    copy.follower.offered(sender, RecordOffer(claim, dump(record("q1"))))
    assert ((copy.life.offer is not None), copy.said()) == (kept, [])
    copy.write()
    assert copy.said() == ([("b2", MasterTaken(claim, position(record("q1"))))] if kept else [])


# ---- changes that are wanted here ------------------------------------------------------------------------------------


def proposing() -> Copy:
    copy = Copy()
    copy.follower.propose(Propose(REQUEST, queue("q1")))
    assert copy.said() == [("b2", ChangeProposal(1, queue("q1")))]
    return copy


def test_a_change_is_answered_once_its_entry_is_carried_out_here() -> None:
    copy = proposing()
    copy.decided()
    copy.decided()
    assert copy.took(Answer) == []
    copy.entries(record("q1"))
    copy.write()
    copy.carry_out()
    assert copy.took(Answer) == [Answer(REQUEST, None, 1)]


def test_a_refusal_is_answered_at_once_and_only_the_master_decides() -> None:
    copy = proposing()
    copy.decided("invalid_destination", sender="b3")
    assert copy.took(Answer) == []
    copy.decided(InvalidDestinationError.code)
    (answer,) = copy.took(Answer)
    assert (answer.request, type(answer.error), str(answer.error)) == (REQUEST, InvalidDestinationError, "no")


def test_an_entry_of_another_record_says_nothing_about_the_change() -> None:
    copy = proposing()
    copy.decided(of="other")
    (answer,) = copy.took(Answer)
    assert isinstance(answer.error, RequestTimeoutError)


def test_the_master_is_asked_again_until_the_request_is_over() -> None:
    copy = proposing()
    copy.follower.target = 0
    for later_ms, again in ((99, 0), (100, 1), (199, 0), (200, 1)):
        copy.tick(later_ms)
        assert len(copy.said()) == again
    copy.tick(999)
    assert copy.took(Answer) == []
    copy.tick(1_000)
    (answer,) = copy.took(Answer)
    assert "no answer from the master broker b2 in time; whether the change" in str(answer.error)


def test_another_instance_of_the_master_is_not_asked_the_same() -> None:
    copy = proposing()
    copy.greeted("b2", 6)
    copy.tick(1)
    (answer,) = copy.took(Answer)
    assert "was restarted meanwhile" in str(answer.error)


def test_what_a_lost_master_had_decided_is_still_waited_for() -> None:
    copy = proposing()
    copy.follower.propose(Propose(78, queue("q2")))
    copy.decided()
    copy.follower.abandon("lost")
    assert [answer.request for answer in copy.took(Answer)] == [78]


def test_what_is_recorded_and_not_carried_out_yet_is_told_so() -> None:
    assert recorded("", 4) is None
    assert "entry 4) and will be carried out here later: disk full" in str(recorded("disk full", 4))


def test_what_the_master_has_recorded_and_is_late_here_is_not_said_to_be_unanswered() -> None:
    copy = proposing()
    copy.decided()
    copy.tick(5_000)
    assert copy.took(Answer) == []
    copy.life.now_ms = NOW + copy.life.settings.carry_out_ms
    copy.applier.tell_late()
    (answer,) = copy.took(Answer)
    assert str(answer.error) == (
        "the change is recorded (entry 1) and will be carried out here later: broker b1 is still at it after 15 s"
    )
