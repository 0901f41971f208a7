"""State that the parts of a copy's machine share: its log, promise, what is being saved, the actions that come out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raybroker.replication.events import CutLog, InstallSnapshot, ReplicaAction, SaveEntries, SavePromise, SendToCopy
from raybroker.replication.messages import CopyMessage
from raybroker.replication.positions import BEGINNING, NO_TERM, Body, LogPosition, ReplicatedEntry, Term
from raybroker.replication.replica_log import KEPT_BYTES, ReplicaLog
from raybroker.replication.replica_set import NOBODY, ReplicaSet

Then = Callable[[], None]


@dataclass(frozen=True, slots=True)
class SavedCopy:
    """What a copy's disk holds; the defaults are a disk that is new.

    promised   nothing of an earlier term is taken
    base       where the entries begin; committed
    members    the replica set as of ``base``
    entries    what follows
    committed  an index up to which the log is known to be final; it may be more
    lost       with a damage: where the log ended before it, as far as the disk still says; None: that is not known
    damage     number of a damage, by which entries may be missing that this copy had once answered for; 0: it has all
    """

    promised: Term = NO_TERM
    base: LogPosition = BEGINNING
    members: ReplicaSet = NOBODY
    entries: Sequence[ReplicatedEntry] = ()
    committed: int = 0
    damage: int = 0
    lost: LogPosition | None = None


class CopyState:
    """State of copy ``me``, and the one way by which anything is saved.

    promised   the highest term that this copy has promised itself to, saved or not
    committed  entries up to here are final, as far as is known here
    spare_bytes  of entries that are kept besides, for copies that have just got a snapshot, or get one
    """

    __slots__ = (
        "_held",
        "_lost",
        "_saved",
        "_token",
        "committed",
        "damage",
        "log",
        "me",
        "now_ms",
        "out",
        "promised",
        "spare_bytes",
    )

    def __init__(self, me: str, saved: SavedCopy, now_ms: int, kept_bytes: int = KEPT_BYTES) -> None:
        self.me = me
        self.now_ms = now_ms
        self.out: list[ReplicaAction] = []
        self.log = ReplicaLog(saved.base, saved.members, saved.entries, kept_bytes)
        self.promised = saved.promised
        self.committed = max(saved.base.index, min(saved.committed, self.log.last.index))
        self.damage = saved.damage
        self.spare_bytes = 0
        self._lost = saved.lost
        self._token = self._saved = 0
        self._held: deque[tuple[int, Then]] = deque()

    def send(self, to: str, message: CopyMessage) -> None:
        self.out.append(SendToCopy(to, message))

    # ---- what is saved

    def _next_token(self) -> int:
        self._token += 1
        return self._token

    def when_saved(self, then: Then) -> None:
        """Run ``then`` when everything that was to be saved so far is on disk."""
        if self._saved == self._token:
            then()
        else:
            self._held.append((self._token, then))

    def saved(self, token: int) -> None:
        """Everything up to ``token`` is on disk."""
        self._saved = max(self._saved, token)
        held = self._held
        while held and held[0][0] <= token:
            held.popleft()[1]()

    def promise(self, term: Term, then: Then | None = None) -> None:
        """Promise ``term``; ``then`` runs when the promise is on disk."""
        self.promised = term
        self.out.append(SavePromise(self._next_token(), term, self.damage))
        if then is not None:
            self.when_saved(then)

    def end(self) -> LogPosition | None:
        """Return where the log ends, or ended before a damage; None where that is not known."""
        last, lost = self.log.last, self._lost
        if not self.damage:
            return last
        return last if lost is not None and last.as_recent_as(lost) else lost

    def heal(self) -> None:
        """The log has again whatever this copy ever answered for."""
        self.damage = 0
        self.out.append(SavePromise(self._next_token(), self.promised, 0))

    def extend(self, entries: Sequence[ReplicatedEntry]) -> None:
        """The log goes on with these."""
        for entry in entries:
            self.log.append(entry)
        self.out.append(SaveEntries(self._next_token(), tuple(entries), self.committed))

    def cut(self, index: int) -> None:
        """What comes after ``index`` was never committed."""
        assert index >= self.committed
        self.log.cut(index)
        self.out.append(CutLog(self._next_token(), index))

    def install(self, at: LogPosition, members: ReplicaSet, content: Body) -> None:
        """The log becomes a snapshot."""
        self.log = ReplicaLog(at, members)
        self.committed = at.index
        self.out.append(InstallSnapshot(self._next_token(), at, members, content))

    def commit(self, index: int) -> None:
        """Entries up to ``index`` are final."""
        self.committed = max(self.committed, index)
        self.log.forget(self.committed, self.spare_bytes)
