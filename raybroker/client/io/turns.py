"""Leader and followers: who serves the sockets of a process, its IO thread or a thread that waits for an answer.

    NOBODY → LEADER   a thread waits for an answer of its own, and serves until it has it, for a moment at most
    LEADER → NOBODY   it has its answer, or its moment is over
    NOBODY → SERVER   the IO thread, since no leader came for a while, or somebody needs the event loop
    SERVER → NOBODY   the IO thread steps aside for a thread that makes one call after another

A thread leads only while no other one waits: those who follow are served by the IO thread, in the event loop.  Who
waits without saying so is looked after by the IO thread, within two of its looks.

Pure: :class:`Turns` decides, under a lock of its user's; ``io_thread`` carries it out.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

LEAD_NS: Final = 10_000_000
"""How long a leader serves; then the IO thread does, and it waits for its answer as a follower."""
LOOP_NS: Final = 50_000_000
"""So often the event loop has to run, whoever leads: timers and tasks need it."""
NOBODY_NS: Final = 5_000_000
"""The IO thread looks so often whether a leader came, and serves when none did."""


class TurnOwner(Enum):
    NOBODY = "nobody"
    LEADER = "leader"
    SERVER = "server"


class Turns:
    """Who serves now. Threads are named by their identity, an integer; times are of one monotonic clock."""

    __slots__ = (
        "_expected",
        "_followers",
        "_last",
        "_last_ns",
        "_leads",
        "_looked_at",
        "_served_ns",
        "leader",
        "owner",
    )

    def __init__(self) -> None:
        self.owner = TurnOwner.SERVER
        self.leader = 0
        """The thread that leads; 0 when none does."""
        self._expected = 0
        """The thread that serves what it posts next itself."""
        self._leads = 0
        self._looked_at = 0
        """How many had led when the IO thread looked the last time."""
        self._followers: set[int] = set()
        """Threads that wait and do not serve. A set: a wait that a signal ends at any moment may end twice."""
        self._last = 0
        """The thread that made the last call, and when it had its answer."""
        self._last_ns = 0
        self._served_ns = 0
        """When the event loop ran the last time, as far as is known."""

    def lead(self, thread: int, now_ns: int) -> bool:
        """A thread is about to wait: True when it is to serve meanwhile, False when it has to follow."""
        if self.owner is not TurnOwner.NOBODY or self._followers:
            return False
        if now_ns - self._served_ns > LOOP_NS:
            return False
        self.owner = TurnOwner.LEADER
        self.leader = thread
        self._leads += 1
        return True

    def expect(self, thread: int) -> None:
        """A thread is about to post something and to wait for what comes of it."""
        self._expected = thread

    def posted(self, thread: int) -> bool:
        """A thread posted something while nobody serves: True when the IO thread is needed at once."""
        expected = thread == self._expected
        self._expected = 0
        return not expected

    def left(self, now_ns: int, *, needs_loop: bool) -> bool:
        """The leader serves no more: True when the IO thread is needed at once."""
        self._last, self._last_ns = self.leader, now_ns
        self.owner = TurnOwner.NOBODY
        self.leader = 0
        return needs_loop or bool(self._followers)

    def follow(self, thread: int) -> bool:
        """A thread waits for those who serve: True when the IO thread is needed at once."""
        self._followers.add(thread)
        self._expected = 0  # What it was about to post was posted before already.
        return self.owner is TurnOwner.NOBODY

    def followed(self, thread: int, now_ns: int) -> bool:
        """It has its answer: True when the IO thread is to step aside.

        That is for a thread that makes one call right after another while no other one waits.
        """
        self._followers.discard(thread)
        again = thread == self._last and now_ns - self._last_ns < LOOP_NS
        self._last, self._last_ns = thread, now_ns
        return again and not self._followers and self.owner is TurnOwner.SERVER

    def step_aside(self, now_ns: int) -> bool:
        """The IO thread was asked to: True when it does, False when somebody follows it meanwhile."""
        self._served_ns = now_ns
        if self._followers:
            return False
        self.owner = TurnOwner.NOBODY
        self._looked_at = self._leads
        return True

    def serve_if_idle(self, *, needed: bool) -> bool:
        """The IO thread looks: True when it serves from now on. ``needed``: somebody woke it up."""
        idle = self._looked_at == self._leads
        self._looked_at = self._leads
        if self.owner is not TurnOwner.NOBODY or not (idle or needed or self._followers):
            return False
        self.owner = TurnOwner.SERVER
        return True
