"""Messages between copies.  A network may lose, repeat, delay and reorder messages.

``stamp_ms`` is the leader's monotonic clock when it sent what is answered: a lease counts from there, not from the
answer's arrival.  ``round`` grows whenever the leader begins anew with a copy: what is answered to an earlier one
says nothing of what the copy has.  ``damage`` is the number of the damage that the sender's log has had and is not
healed of, 0 for none; ``mends`` is the one that the leader knows of, so that nothing that was sent before heals a copy.
"""

from __future__ import annotations

from raybroker.model.value import Value
from raybroker.replication.positions import NO_TERM, Body, LogPosition, ReplicatedEntry, Term
from raybroker.replication.replica_set import ReplicaSet


class CopyMessage(Value):
    """Base of all."""


class AskPromise(CopyMessage):
    """A candidate whose log ends at ``last`` wants to lead in ``term``.  ``after``: the leader of that term has handed
    its lead over to the candidate, so that whoever heard it does not wait for its silence; NO_TERM: nobody has."""

    term: Term
    last: LogPosition
    after: Term = NO_TERM


class Promised(CopyMessage):
    """The sender's disk says that it takes nothing of an earlier term any more."""

    term: Term


class PromiseRefused(CopyMessage):
    """The sender has promised ``promised`` to another one.  It is the term that was asked for where the candidate's log
    lacks something, or where the sender's own log was damaged and cannot vote: ``reason`` says it."""

    term: Term
    promised: Term
    reason: str


class TakeLead(CopyMessage):
    """The sender led in ``term`` and leads no more: the receiver, which was sent all of its log before, is to ask for
    promises at once, in a term with this ``nonce``."""

    term: Term
    nonce: int


class Append(CopyMessage):
    """``entries`` come after ``previous``; without any it is a heartbeat.  ``committed``: index up to which all is."""

    term: Term
    previous: LogPosition
    entries: tuple[ReplicatedEntry, ...]
    committed: int
    stamp_ms: int
    round: int
    mends: int


class Appended(CopyMessage):
    """The sender's disk has the leader's log up to ``index``."""

    term: Term
    index: int
    stamp_ms: int
    round: int


class Behind(CopyMessage):
    """``previous`` is not in the sender's log, or it was damaged and the leader did not know.

    Its log ends at ``last``, and is the leader's up to ``sure`` at least.
    """

    term: Term
    last: LogPosition
    sure: LogPosition
    stamp_ms: int
    round: int
    damage: int


class LogSnapshot(CopyMessage):
    """All that is owed at ``at``, for a copy that is too far behind; ``content`` is opaque."""

    term: Term
    at: LogPosition
    members: ReplicaSet
    content: Body
    stamp_ms: int
    round: int
    mends: int
