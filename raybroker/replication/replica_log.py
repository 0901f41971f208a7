"""The end of a copy's log, as its machine knows it: the entries, where they begin, and the replica set at each.

What is older than the end is on disk only: whoever needs it gets a snapshot.  The end is bounded in bytes, but for what
is not committed yet, which is never let go.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from raybroker.model.errors import StoreDamagedError
from raybroker.replication.positions import EntryKind, LogPosition, ReplicatedEntry, intact
from raybroker.replication.replica_set import ReplicaSet, unpacked_set

KEPT_BYTES: Final = 16 << 20
"""Of committed entries that are kept for copies that missed them."""
ENTRY_BYTES: Final = 256
"""What an entry counts beside its body."""


class ReplicaLog:
    """The log after ``base``, which is committed.  ``members``: the replica set as of ``base``.

    Raises StoreDamagedError when the entries do not follow each other.
    """

    __slots__ = ("_entries", "_sets", "base", "kept_bytes", "nbytes")

    def __init__(
        self,
        base: LogPosition,
        members: ReplicaSet,
        entries: Sequence[ReplicatedEntry] = (),
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        self.base = base
        self.nbytes = 0
        self.kept_bytes = kept_bytes
        self._entries: list[ReplicatedEntry] = []
        self._sets: list[tuple[int, ReplicaSet]] = [(base.index, members)]
        for entry in entries:
            if not intact(self.last, entry):
                raise StoreDamagedError(f"entry {entry.at.index} does not follow entry {self.last.index} of this copy")
            self.append(entry)

    @property
    def last(self) -> LogPosition:
        return self._entries[-1].at if self._entries else self.base

    @property
    def members(self) -> ReplicaSet:
        """The latest set, committed or not: it is the one that counts."""
        return self._sets[-1][1]

    @property
    def members_index(self) -> int:
        """The entry that made the latest set."""
        return self._sets[-1][0]

    def members_at(self, index: int) -> ReplicaSet:
        """Return the set as of an entry at ``base`` or behind it."""
        return next(members for since, members in reversed(self._sets) if since <= index)

    def position_at(self, index: int) -> LogPosition | None:
        """Return the position of an entry; None before ``base`` and after the end."""
        if index == self.base.index:
            return self.base
        place = index - self.base.index - 1
        return self._entries[place].at if 0 <= place < len(self._entries) else None

    def append(self, entry: ReplicatedEntry) -> None:
        assert entry.at.index == self.last.index + 1
        self._entries.append(entry)
        self.nbytes += entry.nbytes + ENTRY_BYTES
        if entry.kind is EntryKind.MEMBERS:
            self._sets.append((entry.at.index, unpacked_set(b"".join(entry.body))))

    def cut(self, index: int) -> None:
        """Let go what comes after ``index``."""
        assert index >= self.base.index
        place = index - self.base.index
        self.nbytes -= sum(entry.nbytes + ENTRY_BYTES for entry in self._entries[place:])
        del self._entries[place:]
        while self._sets[-1][0] > index:
            self._sets.pop()

    def forget(self, committed: int, spare_bytes: int = 0) -> None:
        """Let go the oldest committed entries, down to what is kept for copies that missed them, and ``spare_bytes``
        more."""
        kept_bytes = self.kept_bytes + spare_bytes
        if self.nbytes <= kept_bytes or committed <= self.base.index:
            return
        gone, left = 0, self.nbytes
        for entry in islice(self._entries, committed - self.base.index):
            if left <= kept_bytes // 2:
                break
            left -= entry.nbytes + ENTRY_BYTES
            gone += 1
        if gone:
            members = self.members_at(self.base.index + gone)
            self.base = self._entries[gone - 1].at
            del self._entries[:gone]
            self.nbytes = left
            self._sets = [(self.base.index, members), *((at, one) for at, one in self._sets if at > self.base.index)]

    def after(self, index: int, count_max: int, bytes_max: int) -> tuple[ReplicatedEntry, ...]:
        """Return entries behind ``index``, at least one if there is one; ``index`` is not before ``base``."""
        assert index >= self.base.index
        found: list[ReplicatedEntry] = []
        nbytes = 0
        for entry in islice(self._entries, index - self.base.index, index - self.base.index + count_max):
            nbytes += entry.nbytes
            if found and nbytes > bytes_max:
                break
            found.append(entry)
        return tuple(found)
