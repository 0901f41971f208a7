"""Leader and followers: one serves at a time, nobody who waits is left alone, and the IO thread comes back."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raybroker.client.io.turns import LOOP_NS, TurnOwner, Turns

ME, OTHER = 1, 2


def aside(turns: Turns, now_ns: int = 0) -> Turns:
    assert turns.step_aside(now_ns)
    return turns


def test_the_io_thread_serves_first_and_nobody_leads_beside_it() -> None:
    turns = Turns()
    assert turns.owner is TurnOwner.SERVER
    assert not turns.lead(ME, 0)


def test_one_thread_leads_at_a_time() -> None:
    turns = aside(Turns())
    assert turns.lead(ME, 1)
    assert (turns.owner, turns.leader) == (TurnOwner.LEADER, ME)
    assert not turns.lead(OTHER, 1)
    assert not turns.left(2, needs_loop=False)
    assert turns.lead(OTHER, 3)


def test_a_leader_that_leaves_wakes_the_io_thread_for_those_who_follow_and_for_the_loop() -> None:
    turns = aside(Turns())
    assert turns.lead(ME, 1)
    assert not turns.follow(OTHER)  # Somebody serves.
    assert turns.left(2, needs_loop=False)
    assert not turns.lead(ME, 3)  # Somebody follows.
    assert turns.serve_if_idle(needed=True)
    assert not turns.followed(OTHER, 4)
    aside(turns)
    assert turns.lead(ME, 5)
    assert turns.left(6, needs_loop=True)


def test_a_follower_wakes_the_io_thread_when_nobody_serves() -> None:
    turns = aside(Turns())
    assert turns.follow(ME)
    assert turns.serve_if_idle(needed=False)
    assert not turns.step_aside(1)


def test_the_io_thread_steps_aside_for_one_call_right_after_another_of_the_same_thread() -> None:
    turns = Turns()
    for thread, now_ns, expected in ((ME, 1, False), (ME, 2, True), (OTHER, 3, False), (ME, 4, False)):
        turns.follow(thread)
        assert turns.followed(thread, now_ns) is expected
    turns.follow(ME)
    assert not turns.followed(ME, 4 + LOOP_NS)
    turns.follow(ME)
    turns.follow(OTHER)
    assert not turns.followed(ME, 5 + LOOP_NS)  # Another one waits.


def test_the_io_thread_serves_when_no_leader_came_since_it_looked() -> None:
    turns = aside(Turns())
    assert turns.lead(ME, 1)
    assert not turns.serve_if_idle(needed=True)  # Not beside a leader.
    turns.left(2, needs_loop=False)
    assert turns.lead(ME, 3)
    turns.left(4, needs_loop=False)
    assert not turns.serve_if_idle(needed=False)
    assert turns.serve_if_idle(needed=False)


def test_the_loop_runs_from_time_to_time_however_many_lead() -> None:
    turns = aside(Turns(), 10)
    assert turns.lead(ME, 10 + LOOP_NS)
    turns.left(11 + LOOP_NS, needs_loop=False)
    assert not turns.lead(ME, 11 + LOOP_NS)


def test_what_is_posted_wakes_the_io_thread_unless_its_thread_is_about_to_wait() -> None:
    turns = aside(Turns())
    assert turns.posted(ME)
    turns.expect(ME)
    assert turns.posted(OTHER)
    turns.expect(ME)
    assert not turns.posted(ME)
    assert turns.posted(ME)
    turns.expect(ME)
    turns.follow(ME)
    assert turns.posted(ME)


class Waiting(RuleBasedStateMachine):
    """Threads call, an IO thread serves, in any order: whoever waits is served by somebody who is awake."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = Turns()
        self.now_ns = 0
        self.leading = 0
        self.following: set[int] = set()
        self.woken = False
        """The IO thread is going to look because it was needed."""
        self.asked_aside = False
        self.lost = False
        """A link is lost, and what is waited for comes after work that only the event loop does."""
        self.told = False
        """Whoever leads has been told, and leaves next."""

    def _wake(self, needed: bool) -> None:
        self.woken = self.woken or needed

    @rule(thread=st.integers(1, 4), passes_ns=st.integers(0, LOOP_NS))
    def call(self, thread: int, passes_ns: int) -> None:
        self.now_ns += passes_ns
        if thread == self.leading or thread in self.following:
            return
        if self.turns.lead(thread, self.now_ns):
            assert not self.leading
            self.leading, self.told = thread, self.lost  # It finds the end of the link, or what the loop has noted.
        else:
            self._wake(self.turns.follow(thread))
            self.following.add(thread)

    @precondition(lambda self: self.leading)
    @rule(needs_loop=st.booleans(), gives_up=st.booleans())
    def leave(self, needs_loop: bool, gives_up: bool) -> None:
        thread, self.leading = self.leading, 0
        self._wake(self.turns.left(self.now_ns, needs_loop=needs_loop or self.lost))
        self.told = False
        if gives_up or self.lost:
            self._wake(self.turns.follow(thread))
            self.following.add(thread)

    @rule()
    def lose(self) -> None:
        """The link of those who wait is lost. A leader reads its end; nobody else does while the loop stands still."""
        self.lost = True
        self.told = bool(self.leading)

    @precondition(lambda self: self.lost and self.turns.owner is TurnOwner.SERVER)
    @rule()
    def recover(self) -> None:
        self.lost = False

    @precondition(lambda self: self.following and self.turns.owner is not TurnOwner.NOBODY and not self.lost)
    @rule(data=st.data())
    def answered(self, data: st.DataObject) -> None:
        thread = data.draw(st.sampled_from(sorted(self.following)))
        self.following.remove(thread)
        self.asked_aside |= self.turns.followed(thread, self.now_ns)

    @precondition(lambda self: self.asked_aside and self.turns.owner is TurnOwner.SERVER and not self.lost)
    @rule()
    def step_aside(self) -> None:
        self.asked_aside = False
        assert self.turns.step_aside(self.now_ns) is not bool(self.following)

    @precondition(lambda self: self.turns.owner is not TurnOwner.SERVER)
    @rule()
    def look(self) -> None:
        needed, self.woken = self.woken, False
        if self.turns.serve_if_idle(needed=needed):
            assert not self.leading

    @invariant()
    def one_serves(self) -> None:
        assert (self.turns.owner is TurnOwner.LEADER) == bool(self.leading)
        assert self.turns.leader == self.leading

    @invariant()
    def no_follower_is_left_alone(self) -> None:
        if self.following and self.turns.owner is TurnOwner.NOBODY:
            assert self.woken

    @invariant()
    def whoever_waits_for_a_lost_link_gets_the_loop(self) -> None:
        if self.lost and (self.following or self.leading):
            assert self.told or self.woken or self.turns.owner is TurnOwner.SERVER

    @invariant()
    def the_io_thread_comes_back(self) -> None:
        if self.turns.owner is TurnOwner.NOBODY:
            copy = Turns()
            for name in Turns.__slots__:
                setattr(copy, name, getattr(self.turns, name))
            assert copy.serve_if_idle(needed=False) or copy.serve_if_idle(needed=False)


TestWaiting = pytest.mark.timeout(120)(
    settings(max_examples=200, stateful_step_count=40, deadline=None)(Waiting).TestCase
)
