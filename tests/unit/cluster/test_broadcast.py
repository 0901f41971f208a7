"""Without a master: a change is made here, told to all that run, and answered when all have confirmed it."""

from __future__ import annotations

from raybroker.cluster.broadcast import Heard, Teller
from raybroker.cluster.events import Answer, Note, Persist, Propose
from raybroker.cluster.member_messages import Tell, Told
from raybroker.model.errors import RequestTimeoutError
from tests.unit.cluster.parts import NOW, Parts, queue

REQUEST = 77


class Telling(Parts):
    """Brokers b2 and b3 run."""

    def __init__(self) -> None:
        super().__init__(master="", request_ms=1_000, heartbeat_ms=100)
        self.teller = Teller(self.life, self.applier)
        for name in ("b2", "b3"):
            self.greeted(name)

    def propose(self, name: str = "q1") -> None:
        self.teller.propose(Propose(REQUEST, queue(name)))

    def told(self, *names: str) -> None:
        for name in names:
            self.teller.told(name, Told(1))

    def answers(self) -> list[tuple[int, str]]:
        return [(answer.request, type(answer.error).__name__ if answer.error else "") for answer in self.took(Answer)]

    def tick(self, later_ms: int) -> None:
        self.life.now_ms = NOW + later_ms
        self.teller.tick()


def test_a_change_is_told_once_it_is_on_disk_and_answered_once_all_have_it_and_it_is_carried_out() -> None:
    parts = Telling()
    parts.propose()
    assert parts.said() == [], "nothing is told that a crash here could lose"
    assert len(parts.write()) == 1
    assert parts.said() == [("b2", Tell(1, queue("q1"))), ("b3", Tell(1, queue("q1")))]
    parts.told("b2", "b3")
    assert parts.answers() == []
    parts.carry_out()
    assert parts.answers() == [(REQUEST, "")]
    parts.told("b2")
    assert parts.answers() == []


def test_all_confirmations_are_needed_whatever_comes_last() -> None:
    parts = Telling()
    parts.propose()
    parts.write()
    parts.carry_out()
    parts.told("b2", "b2")
    assert parts.answers() == []
    parts.told("b3")
    assert parts.answers() == [(REQUEST, "")]


def test_a_change_that_cannot_be_made_here_is_refused_and_told_to_nobody() -> None:
    parts = Telling()
    parts.propose()
    parts.write()
    parts.said()
    parts.propose()
    assert parts.answers() == [(REQUEST, "InvalidDestinationError")]
    assert (parts.took(Persist), parts.said()) == ([], [])


def test_what_cannot_be_carried_out_here_yet_is_answered_as_unknown() -> None:
    parts = Telling()
    parts.propose()
    parts.write()
    parts.carry_out("disk full")
    assert parts.answers() == [(REQUEST, RequestTimeoutError.__name__)]
    parts.told("b2", "b3")
    assert parts.answers() == []


def test_it_is_told_again_to_those_that_are_silent_until_the_request_is_over() -> None:
    parts = Telling()
    parts.propose()
    parts.tick(100)
    assert parts.said() == [], "it is not on disk here yet"
    parts.life.now_ms = NOW
    parts.write()
    parts.said()
    parts.told("b2")
    for later_ms, to in ((99, []), (100, ["b3"]), (199, []), (200, ["b3"])):
        parts.tick(later_ms)
        assert [name for name, _ in parts.said()] == to
    parts.tick(999)
    assert parts.answers() == []
    parts.tick(1_000)
    (answer,) = parts.took(Answer)
    assert isinstance(answer.error, RequestTimeoutError)
    assert "b3 did not confirm it in time" in str(answer.error)


def test_a_broker_that_is_another_instance_by_now_is_not_waited_for() -> None:
    parts = Telling()
    parts.propose()
    parts.write()
    parts.carry_out()
    parts.told("b2")
    parts.greeted("b3", 6)
    parts.tick(1)
    assert parts.answers() == [(REQUEST, "")]


def test_a_change_of_another_broker_is_confirmed_once_it_is_on_disk_and_made_once() -> None:
    parts = Telling()
    for _ in range(2):
        parts.teller.tell("b2", 5, Tell(1, queue("q1")))
    assert parts.said() == []
    assert len(parts.write()) == 1
    assert (parts.said(), parts.life.record.number, parts.life.durable.number) == ([("b2", Told(1))], 1, 1)
    parts.teller.tell("b2", 5, Tell(1, queue("q1")))
    assert (parts.said(), parts.write()) == ([("b2", Told(1))], [])


def test_a_change_that_another_came_before_is_left_out_with_a_warning_and_confirmed() -> None:
    parts = Telling()
    parts.propose()
    parts.write()
    parts.said()
    parts.teller.tell("b2", 5, Tell(1, queue("q1")))
    assert (parts.said(), [note.warning for note in parts.took(Note)]) == ([("b2", Told(1))], [True])
    assert parts.life.record.number == 1


def test_another_instance_counts_anew() -> None:
    parts = Telling()
    for incarnation, name in ((5, "q1"), (6, "q2")):
        parts.teller.tell("b2", incarnation, Tell(1, queue(name)))
    assert parts.life.record.number == 2


def test_sequences_that_came_are_known_in_any_order_and_kept_as_one_number() -> None:
    heard = Heard(5)
    assert [heard.add(number) for number in (2, 3, 2, 1, 1, 3, 5)] == [True, True, False, True, False, False, True]
    assert (heard.floor, heard.above) == (3, {5})


def test_a_change_that_all_confirmed_and_that_is_late_here_is_said_to_be_so_and_not_unconfirmed() -> None:
    parts = Telling()
    parts.propose()
    parts.write()
    parts.told("b2", "b3")
    parts.applier.pump(0)
    parts.tick(1_000)
    assert parts.took(Answer) == [], "it waits for what is done here alone"
    parts.life.now_ms = NOW + parts.life.settings.carry_out_ms
    parts.applier.tell_late()
    (answer,) = parts.took(Answer)
    assert str(answer.error) == (
        "the change is recorded and will be carried out here later: broker b1 is still at it after 15 s"
    )
    parts.tick(60_000)
    assert parts.took(Answer) == []


def test_a_change_that_does_not_get_to_the_disk_here_is_given_up() -> None:
    parts = Telling()
    parts.propose()
    parts.teller.tick()
    parts.tick(1_000)
    assert parts.answers() == [(REQUEST, RequestTimeoutError.__name__)]
