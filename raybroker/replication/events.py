"""Events that a copy's machine takes, and the actions that it asks for.

The shell carries actions out in order.  ``SendToCopy`` may lose, repeat and delay its message.  What is to be saved is
saved in the order of the tokens, each as a whole, and is told with ``SaveDone`` when it is on disk; an error of the
disk ends the copy's process.  The machine asks for what depends on a save only after its ``SaveDone``.
"""

from __future__ import annotations

from raybroker.model.value import Value
from raybroker.replication.messages import CopyMessage
from raybroker.replication.positions import Body, LogPosition, ReplicatedEntry, Term
from raybroker.replication.replica_set import MemberChange, ReplicaSet

# ---- events


class ReplicaEvent(Value):
    """An input of the machine."""


class CopyMessageReceived(ReplicaEvent):
    """Another copy's machine sent this."""

    sender: str
    message: CopyMessage


class SaveDone(ReplicaEvent):
    """The save with this token, and all before it, are on disk."""

    token: int


class ReplicaTick(ReplicaEvent):
    """Time has passed.  Needed every TICK_MS while the copy leads or wants to; more often does no harm."""


class LinkLost(ReplicaEvent):
    """The connection with a copy has ended: its process has, or the network between has lost it."""

    copy: str


class Lead(ReplicaEvent):
    """Somebody who knows of the leader's end, or an operator, wants this copy to lead; ``nonce``: random, 64 bit."""

    nonce: int


class HandLeadOver(ReplicaEvent):
    """An operator wants copy ``to`` to lead in this one's place, at once; ``nonce``: random, 64 bit.  ``quiet``: only
    while no batch is under way, which somebody would have to send again.  Answered with ``LeaderEnded``, or with
    ``HandOverRefused``."""

    to: str
    nonce: int
    quiet: bool = False


class AppendBatch(ReplicaEvent):
    """The leader's host commits a batch.  ``EntriesReleased`` tells when it may be answered for."""

    body: Body


class ChangeSet(ReplicaEvent):
    """A copy is added, gets its vote or goes.  Answered with ``SetChanged``; ``request``: any number not in use."""

    request: int
    change: MemberChange
    copy: str


class RequireInSync(ReplicaEvent):
    """Another number of voters must have an entry before it is released, 0 for a majority.  Answered as ChangeSet."""

    request: int
    min_in_sync: int


class SnapshotMade(ReplicaEvent):
    """What ``MakeSnapshot`` asked for: all that is owed at index ``index``, which is committed."""

    to: str
    index: int
    content: Body


# ---- actions


class ReplicaAction(Value):
    """What the shell has to do."""


class SendToCopy(ReplicaAction):
    to: str
    message: CopyMessage


class SavePromise(ReplicaAction):
    """Nothing of a term before ``term`` is taken any more.  ``damage`` 0: the log lacks nothing any more either."""

    token: int
    term: Term
    damage: int


class SaveEntries(ReplicaAction):
    """The log goes on with these; ``committed``: an index up to which it is known to be final."""

    token: int
    entries: tuple[ReplicatedEntry, ...]
    committed: int


class CutLog(ReplicaAction):
    """Entries after ``index`` were never committed, and go."""

    token: int
    index: int


class InstallSnapshot(ReplicaAction):
    """The log is replaced: it is written beside the old one, synced, and then takes its place as a whole."""

    token: int
    at: LogPosition
    members: ReplicaSet
    content: Body


class MakeSnapshot(ReplicaAction):
    """Copy ``to`` needs all that is owed at some committed index; answered with ``SnapshotMade``, once."""

    to: str


class EntriesReleased(ReplicaAction):
    """Entries up to ``index`` are committed, and as many copies have them as must: what waits for them may go."""

    index: int


class LeaderBegan(ReplicaAction):
    """This copy leads: its log, read as after a restart, is what holds.  ``index``: of the leader's own record."""

    term: Term
    index: int


class LeaderEnded(ReplicaAction):
    """This copy does not lead any more.  What was not committed may be, or may never be."""

    reason: str


class NotElected(ReplicaAction):
    """``Lead`` came to nothing; it may be tried again."""

    reason: str


class HandOverRefused(ReplicaAction):
    """``HandLeadOver`` came to nothing, and this copy leads on if it did; it may be tried again."""

    reason: str


class SetChanged(ReplicaAction):
    """``reason`` "": the change is final."""

    request: int
    reason: str = ""


class Stopped(ReplicaAction):
    """The copy must not go on: somebody has to look, ``reason`` says why."""

    reason: str
