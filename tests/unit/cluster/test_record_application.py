"""The record is carried out step by step, all of it at first and after a failure, and who waits is told."""

from __future__ import annotations

import pytest

from raybroker.cluster.change_record import Change
from raybroker.cluster.events import Apply, Note
from raybroker.cluster.member_state import MemberState
from raybroker.cluster.record_application import CHANGES_MAX
from tests.unit.cluster.parts import NOW, Parts, collector, queue


def add(parts: Parts, *names: str) -> None:
    parts.life.entries_durable([parts.life.record.propose(queue(name)) for name in names])


def test_the_first_step_is_the_whole_record_once_it_reaches_what_was_asked_for() -> None:
    parts = Parts()
    add(parts, "q1")
    parts.applier.pump(2)
    assert parts.took(Apply) == []
    add(parts, "q2")
    parts.applier.pump(2)
    (step,) = parts.took(Apply)
    assert (step.number, step.changes) == (2, ())
    assert step.whole is not None
    assert list(step.whole.destinations) == [("queue", "q1"), ("queue", "q2")]
    assert step.whole is not parts.life.agreed, "it does not change while it is carried out"
    assert (parts.applier.applied, parts.applier.settled) == (-1, False)
    parts.applier.done(2, "")
    assert (parts.applier.applied, parts.applier.settled) == (2, True)


def test_later_entries_go_one_step_at_a_time_and_so_many_in_one() -> None:
    parts = Parts()
    parts.carry_out()
    parts.took(Apply)
    add(parts, *(f"q{number}" for number in range(CHANGES_MAX + 1)))
    assert not parts.applier.settled
    for number, changes in ((CHANGES_MAX, CHANGES_MAX), (CHANGES_MAX + 1, 1)):
        parts.applier.pump(0)
        parts.applier.pump(0)
        (step,) = parts.took(Apply)
        assert (step.number, len(step.changes), step.whole) == (number, changes, None)
        parts.applier.done(number, "")
    assert parts.applier.settled


@pytest.mark.parametrize("state", [MemberState.STARTING, MemberState.WAITING_FOR_MASTER, MemberState.STOPPED])
def test_a_broker_that_has_no_record_yet_carries_nothing_out(state: MemberState) -> None:
    parts = Parts()
    parts.life.state = state
    parts.applier.pump(0)
    assert parts.took(Apply) == []


def test_who_waits_is_told_when_its_entry_is_carried_out() -> None:
    parts = Parts()
    found, then = collector()
    parts.applier.when(0, then)
    assert found == [], "nothing is carried out before the first time"
    parts.carry_out()
    assert found == [""]
    parts.applier.when(0, then)
    parts.applier.when(1, then)
    assert found == ["", ""]
    add(parts, "q1")
    parts.carry_out()
    assert found == ["", "", ""]


def test_after_a_failure_all_of_it_is_tried_again_and_not_at_once() -> None:
    parts = Parts(retry_ms=50)
    parts.carry_out()
    parts.took(Apply)
    found, then = collector()
    add(parts, "q1")
    parts.applier.when(1, then)
    parts.carry_out("disk full")
    assert (found, parts.applier.applied, parts.applier.failure) == (["disk full"], 0, "disk full")
    assert [note.warning for note in parts.took(Note)] == [True]
    parts.took(Apply)
    for later_ms, steps in ((49, 0), (50, 1)):
        parts.life.now_ms = NOW + later_ms
        parts.applier.pump(0)
        assert [step.whole is not None for step in parts.took(Apply)] == [True] * steps
    parts.applier.done(1, "")
    assert (parts.applier.failure, parts.applier.settled) == ("", True)


def test_nothing_counts_as_carried_out_while_all_of_it_is_done_anew() -> None:
    parts = Parts()
    parts.carry_out()
    assert parts.applier.settled
    found, then = collector()
    parts.applier.whole()
    parts.applier.when(0, then)
    assert (found, parts.applier.settled) == ([], False)
    parts.applier.anew("replaced")
    assert (found, parts.applier.applied) == (["replaced"], -1)
    parts.applier.pump(0)
    assert not parts.applier.settled, "a step is under way"


def test_what_was_overtaken_by_another_record_does_not_count() -> None:
    parts = Parts()
    add(parts, "q1")
    parts.applier.pump(0)
    parts.took(Apply)
    found, then = collector()
    parts.applier.when(1, then)
    parts.applier.anew("replaced")
    assert found == ["replaced"]
    parts.applier.done(1, "")
    assert (parts.applier.applied, parts.applier.settled) == (-1, False)
    parts.applier.pump(0)
    assert [step.number for step in parts.took(Apply)] == [1]


def test_a_step_that_nobody_asked_for_is_not_believed() -> None:
    parts = Parts()
    add(parts, "q1")
    parts.applier.pump(0)
    parts.applier.done(7, "")
    assert (parts.applier.applied, parts.applier.settled) == (-1, False)


def test_what_was_destroyed_is_forgotten_once_the_whole_record_is_carried_out() -> None:
    parts = Parts()
    parts.life.agreed.past.add(("queue", "old"))
    parts.life.record.state.past.add(("queue", "old"))
    parts.carry_out("not yet")
    assert parts.life.agreed.past
    parts.applier.whole()
    parts.carry_out()
    assert (parts.life.agreed.past, parts.life.record.state.past) == (set(), set())


def test_what_the_record_destroyed_is_remembered_while_a_part_waits_for_a_host() -> None:
    parts = Parts()
    add(parts, "q1")
    parts.life.entries_durable([parts.life.record.propose(Change("destroy_destination", ("queue", "q1")))])
    past = {("queue", "q1")}
    parts.applier.pump(0)
    parts.applier.done(2, "", partly=True)
    assert (parts.applier.applied, parts.applier.settled) == (2, True), "nothing else is held up"
    assert parts.life.agreed.past == past
    parts.took(Apply)
    parts.applier.whole()
    parts.applier.pump(0)
    (step,) = parts.took(Apply)
    assert step.whole is not None
    assert step.whole.past == past
    parts.applier.done(2, "")
    assert parts.life.agreed.past == set()


def test_who_waits_too_long_is_told_so_and_the_others_wait_on() -> None:
    parts = Parts(carry_out_ms=2_000)
    parts.carry_out()
    parts.took(Apply)
    add(parts, "q1", "q2")
    first, then_first = collector()
    second, then_second = collector()
    parts.applier.when(1, then_first)
    parts.applier.pump(0)
    parts.life.now_ms += 1_500
    parts.applier.when(2, then_second)
    parts.life.now_ms += 499
    parts.applier.tell_late()
    assert first == []
    parts.life.now_ms += 1
    parts.applier.tell_late()
    assert first == ["broker b1 is still at it after 2 s"]
    parts.applier.done(2, "")
    assert (len(first), second) == (1, [""]), "an answer is given once"
