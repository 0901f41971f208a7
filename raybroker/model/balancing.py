"""Balancing: the choice of the member of a distributed destination for a message or a consumer.

Members are given in the same order everywhere; positions of round-robin are independent of each other, and random
numbers come in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

Policy = Literal["Round-Robin", "Random"]
POLICIES: Final[tuple[Policy, ...]] = ("Round-Robin", "Random")


class Candidate(NamedTuple):
    """A member as a chooser sees it.

    broker     its name
    local      on the broker of the producer or consumer
    store      persistent messages can be kept
    consumers  how many it has
    """

    broker: str
    local: bool = False
    store: bool = True
    consumers: int = 0


def send_level(member: Candidate, *, persistent: bool, affinity: bool) -> int:
    """The preference of a member for one message, 0 is best.

    For a persistent message: 0 local with store and consumer, 1 remote with both, 2 local with store, 3 remote with
    store, 4 local with consumer, 5 remote with consumer, 6 local, 7 remote.  The store does not matter to others, nor
    does the place without server affinity.
    """
    level = 4 if persistent and not member.store else 0
    level += 2 if member.consumers == 0 else 0
    return level + (1 if affinity and not member.local else 0)


def consumer_level(member: Candidate, *, affinity: bool) -> int:
    """The preference of a member for a new consumer, 0 is best.

    With affinity: local without consumer, local, remote without consumer, remote; else without consumer, any.
    """
    level = 1 if member.consumers else 0
    return level + (2 if affinity and not member.local else 0)


class Chooser:
    """One position among members: round-robin, or by numbers that come in.

    ``number`` gives a random number; ``position`` is where round-robin starts.
    """

    def __init__(self, policy: str, number: Callable[[], int], position: int = 0) -> None:
        if policy not in POLICIES:
            raise ValueError(f"{policy!r} is none of {', '.join(POLICIES)}")
        self.policy = policy
        self._number = number
        self._position = position

    def choose(self, levels: Sequence[int]) -> int:
        """The index of one of the members of the lowest level.

        Round-robin walks over all members and skips those of a higher level, so that a member that becomes the best
        again is not due twice.
        """
        best, count = min(levels), len(levels)
        if self.policy == "Random":
            chosen = [index for index, level in enumerate(levels) if level == best]
            return chosen[self._number() % len(chosen)]
        index = self._position % count
        while levels[index] != best:
            index = (index + 1) % count
        self._position = index + 1
        return index


class ProducerBalancer:
    """The choice of members for one producer's messages.

    Balanced per send when ``load_balancing``; else the first choice is kept for as long as its member is there.
    """

    def __init__(self, chooser: Chooser, *, load_balancing: bool = True, affinity: bool = True) -> None:
        self._chooser = chooser
        self._per_send = load_balancing
        self._affinity = affinity
        self._found: tuple[Sequence[Candidate], tuple[list[int], list[int]]] = ((), ([], []))
        """Members, and their levels for messages that are not persistent and that are; replaced as a whole."""
        self._kept: str | None = None

    def update(self, members: Sequence[Candidate]) -> None:
        """The members that can be reached now."""
        self._found = (
            members,
            (
                [send_level(member, persistent=False, affinity=self._affinity) for member in members],
                [send_level(member, persistent=True, affinity=self._affinity) for member in members],
            ),
        )

    def choose(self, *, persistent: bool) -> str | None:
        """The broker of the member for the next message; None when no member can be reached."""
        members, levels = self._found
        if not members:
            return None
        if not self._per_send:
            for member in members:
                if member.broker == self._kept:
                    return self._kept
        self._kept = members[self._chooser.choose(levels[persistent])].broker
        return self._kept


def place_consumer(members: Sequence[Candidate], chooser: Chooser, *, affinity: bool) -> str:
    """The broker where a new consumer that is pinned to one member goes."""
    return members[chooser.choose([consumer_level(member, affinity=affinity) for member in members])].broker
