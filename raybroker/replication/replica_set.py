"""Replica sets: the copies of one log, those with a vote and those that still learn, and one change of a set at a time.

A copy is named by the id on its disk.  A disk that is new, was emptied or was cloned has an id that no set knows, so it
has no vote before a leader has brought it up to date and a majority has agreed to it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from raybroker.model.errors import ConfigError

VOTERS_MAX: Final = 7
"""Copies with a vote, while one is being replaced included."""
_SEPARATOR: Final = "\n"


class MemberChange(StrEnum):
    """ADD: a new copy begins to learn.  PROMOTE: a copy that has learned gets a vote.  REMOVE: either kind goes."""

    ADD = "add"
    PROMOTE = "promote"
    REMOVE = "remove"


class ReplicaSet(NamedTuple):
    """``voters`` and ``learners``: ids of copies, in order.

    ``min_in_sync``: how many voters must have an entry, 0 for a majority; less than a majority counts as one.
    """

    voters: tuple[str, ...]
    learners: tuple[str, ...] = ()
    min_in_sync: int = 0

    @property
    def majority(self) -> int:
        """How many voters decide who leads and what is committed."""
        return len(self.voters) // 2 + 1

    @property
    def quorum(self) -> int:
        """How many voters must have an entry before anybody is told that it is there."""
        return max(self.majority, min(self.min_in_sync, len(self.voters)))

    @property
    def copies(self) -> tuple[str, ...]:
        return self.voters + self.learners

    def changed(self, change: MemberChange, copy: str) -> ReplicaSet:
        """Return the set after one change; raises ConfigError for one that makes no sense, with the reason."""
        voters, learners, _ = self
        if change is MemberChange.ADD:
            if copy in self.copies:
                raise ConfigError(f"copy {copy} is in the replica set already")
            return self._replace(learners=(*learners, copy))
        if change is MemberChange.PROMOTE:
            if copy not in learners:
                raise ConfigError(f"copy {copy} does not learn: only a copy that was added can get a vote")
            if len(voters) >= VOTERS_MAX:
                raise ConfigError(f"the replica set has {VOTERS_MAX} voters, the most there may be: remove one first")
            return self._replace(voters=(*voters, copy), learners=tuple(one for one in learners if one != copy))
        if copy not in self.copies:
            raise ConfigError(f"copy {copy} is not in the replica set")
        if copy in voters and len(voters) <= max(1, self.min_in_sync):
            raise ConfigError(
                f"copy {copy} cannot be removed: {len(voters)} voters are left, and minInSync is"
                f" {max(1, self.min_in_sync)}; add another copy first"
            )
        return self._replace(
            voters=tuple(one for one in voters if one != copy), learners=tuple(one for one in learners if one != copy)
        )

    def requiring(self, min_in_sync: int) -> ReplicaSet:
        """Return the set of which so many voters must have an entry; raises ConfigError where there are fewer."""
        if min_in_sync > len(self.voters):
            raise ConfigError(f"minInSync = {min_in_sync} is more than there are voters: {len(self.voters)}")
        return self._replace(min_in_sync=min_in_sync)

    def packed(self) -> bytes:
        """Return the set as the body of an entry."""
        rows = [str(self.min_in_sync), " ".join(self.voters), " ".join(self.learners)]
        return _SEPARATOR.join(rows).encode()


NOBODY: Final = ReplicaSet(())
"""What a copy knows that no leader has spoken to yet."""


def unpacked_set(body: bytes) -> ReplicaSet:
    """Return the set that :meth:`ReplicaSet.packed` made."""
    least, voters, learners = body.decode().split(_SEPARATOR)
    return ReplicaSet(tuple(voters.split()), tuple(learners.split()), int(least))
