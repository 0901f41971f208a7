"""The acknowledgement window against a plain count: who waits, who is told, and that nobody is forgotten."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raybroker.client.consumer.acknowledging.acknowledgement_window import FAULTS_MAX, AcknowledgementWindow
from raybroker.client.io.io_thread import fulfil, refuse
from raybroker.errors import BrokerError, ConnectionLostError, IllegalStateError


class Consumer:
    failure: BrokerError | None = None

    def __init__(self) -> None:
        self.back: list[Any] = []

    def went_back(self, epoch: int, ranges: Any, why: str) -> None:
        self.back.append(ranges)


class WindowMachine(RuleBasedStateMachine):
    """An application that receives through a window, and a broker that answers, in any order."""

    @initialize(limit=st.integers(2, 8))
    def begin(self, limit: int) -> None:
        self.limit = limit
        self.window = AcknowledgementWindow(limit)
        self.consumer = Consumer()
        self.in_hand = self.serial = self.taken = 0
        self.scheduled = False
        self.open: list[tuple[Any, int]] = []
        self.waiting: Any = None
        self.wanted = 0
        self.untold = 0

    @precondition(lambda self: self.waiting is None)
    @rule(wanted=st.integers(1, 10))
    def receive(self, wanted: int) -> None:
        if self.in_hand and self.window.mark(self.in_hand, self.serial):
            assert not self.scheduled
            self.scheduled = True
        self.in_hand = 0
        self.wanted = wanted
        self.waiting = self.window.room(wanted)
        if self.waiting is None:
            self.hand_out()

    def hand_out(self) -> None:
        self.waiting = None
        assert self.window.unconfirmed == 0 or self.window.unconfirmed + self.wanted <= self.limit
        self.serial += self.wanted
        self.in_hand = self.wanted

    @precondition(lambda self: self.scheduled)
    @rule(lost=st.integers(0, 3))
    def acknowledge(self, lost: int) -> None:
        """``lost``: so many are not there any more."""
        self.scheduled = False
        count, up_to = self.window.take_due()
        assert 0 < count <= max(self.limit, 10)
        assert up_to == self.serial - self.in_hand
        self.taken += count
        lost = min(lost, count)
        if count > lost:
            answer = self.window.await_answer(self.consumer, 1, [(1, count - lost)])
            self.open.append((answer, count - lost))
        if lost:
            self.window.count_ended(lost)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), outcome=st.sampled_from(["confirmed", "unknown", "lost", "failed"]))
    def answer(self, data: Any, outcome: str) -> None:
        answer, count = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        if outcome in ("confirmed", "unknown"):
            fulfil(answer, count if outcome == "unknown" else 0)
        else:
            refuse(answer, ConnectionLostError("gone") if outcome == "lost" else BrokerError("failed"))
        self.untold += outcome in ("unknown", "failed")

    @rule()
    def look(self) -> None:
        if not self.untold:
            self.window.check()
            return
        with pytest.raises((BrokerError, IllegalStateError)) as caught:
            self.window.check()
        notes = getattr(caught.value, "__notes__", [])
        told = 1 + sum(int(note.split()[1]) if note.endswith(" more") else 1 for note in notes)
        assert told == self.untold
        self.untold = 0

    @invariant()
    def nobody_waits_without_a_reason(self) -> None:
        if not hasattr(self, "window"):
            return
        open_ = sum(count for _, count in self.open)
        assert self.window.unconfirmed >= open_
        assert bool(self.untold) == self.window.failed
        if self.waiting is not None:
            most = max(self.limit - self.wanted, 0)
            assert self.waiting.done() == (self.window.unconfirmed <= most)
            if self.waiting.done():
                self.hand_out()

    def teardown(self) -> None:
        if not hasattr(self, "window"):
            return
        if self.scheduled:
            self.acknowledge(0)
        while self.open:
            fulfil(self.open.pop()[0], 0)
        assert self.window.unconfirmed == 0
        assert self.waiting is None or self.waiting.done()
        assert self.window.room(0) is None


TestWindow = WindowMachine.TestCase
TestWindow.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_failures_are_bounded_and_all_of_them_counted() -> None:
    window = AcknowledgementWindow(1_000)
    window.mark(100, 100)
    for number in range(100):
        window.count_ended(1, BrokerError(f"number {number}"))
    with pytest.raises(BrokerError, match="number 0") as caught:
        window.check()
    assert len(caught.value.__notes__) == FAULTS_MAX
    assert caught.value.__notes__[-1] == f"and {100 - FAULTS_MAX} more"
    window.check()


def test_answers_from_another_thread_reach_whoever_waits() -> None:
    window, consumer = AcknowledgementWindow(5), Consumer()
    rounds, posted = 2_000, threading.Semaphore(0)

    def broker() -> None:
        done = 0
        while done < rounds:
            posted.acquire()
            count, _ = window.take_due()
            done += count
            if count:
                fulfil(window.await_answer(consumer, 1, [(1, count)]), 0)

    answering = threading.Thread(target=broker, daemon=True)
    answering.start()
    for serial in range(1, rounds + 1):
        if window.mark(1, serial):
            posted.release()
        room = window.room(1)
        if room is not None:
            room.result(20)
        assert window.unconfirmed < 5
    left = window.room(0)
    if left is not None:
        left.result(20)
    answering.join(20)
    assert not answering.is_alive()
