"""Outcome of a command: records to make durable and effects to release, in an order that the outcome states.

The engine appends ``records`` in order, releases ``after_durable`` only once they and everything appended before them
are durable, and ``immediate`` at once.  A producer's acknowledgement or a persistent delivery can therefore not come
before the disk by accident: it would have to be put into the wrong tuple here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from raybroker.model.blocks.record import LogEntry


class Refused(NamedTuple):
    """Messages start … end - 1 of a block (indexes) that were not taken, and why (an error code and its text)."""

    start: int
    end: int
    code: str
    text: str


class SendAnswered(NamedTuple):
    """Tell a producer: ``messages`` from ``first_seq`` on are settled, stored but for those refused.

    Of messages that nobody waits for only those are told of which some were refused, or which give credit back."""

    attachment: int
    first_seq: int
    messages: int
    refused: tuple[Refused, ...]


class Gate(NamedTuple):
    """Tell a producer "open", "slow" (the destination is full) or "paused", as it was decided.

    It is told what holds when that reaches it, so that the last word is the true one in any order.
    """

    attachment: int
    state: str
    until_ms: int = 0


class Deliver(NamedTuple):
    """Give a consumer messages ``mask`` of a block, tagged tag, tag + 1, …; attempt 1 is the first delivery.

    ``fence``: larger than that of every delivery before, of these messages and of all others of the delivery queue; 0:
    the consumer has not asked for it.  ``states``: the checkpoints of these messages, by their index.
    """

    attachment: int
    tag: int
    ordinal: int
    mask: int
    attempt: int
    fence: int = 0
    states: Mapping[int, bytes] | None = None


class Acked(NamedTuple):
    """Tell a consumer: its acknowledgement is durable. ``unknown`` messages of it were not with this consumer."""

    attachment: int
    request: int
    unknown: int


class CheckpointKept(NamedTuple):
    """Tell a consumer: its checkpoint is durable."""

    attachment: int
    request: int


class Released(NamedTuple):
    """Tell a consumer: what it gave back is back; deliveries from ``next_tag`` on are new ones."""

    attachment: int
    request: int
    next_tag: int


class Drained(NamedTuple):
    """Tell a consumer in drain mode: there is nothing more for it, and ``unused`` of its credit is void.

    One of batches: that was all of its batch, or with 1 there is none.

    ``tag``: what was decided for the consumer before comes with smaller tags, what comes later with larger ones.
    """

    attachment: int
    unused: int
    tag: int


class Ready(NamedTuple):
    """Tell a consumer in drain mode: a Drain would bring it something now."""

    attachment: int
    tag: int


class Withdrawn(NamedTuple):
    """Tell a consumer: these deliveries, by tags, are void: an earlier message of their unit of order went back, or
    they were not acknowledged in time."""

    attachment: int
    ranges: tuple[tuple[int, int], ...]


class Recall(NamedTuple):
    """Tell a consumer: give back what of these deliveries the application has not begun. Answered by Recalled."""

    attachment: int
    ranges: tuple[tuple[int, int], ...]


class Promoted(NamedTuple):
    """A backup consumer became an active one."""

    attachment: int


class Retire(NamedTuple):
    """No message of these blocks is held any more: their bytes may go. ``persistent``: the store has them too."""

    ordinals: tuple[int, ...]
    persistent: bool


class DeadLetter(NamedTuple):
    """Messages are dead: put them where the destination's dead go, or nowhere, and answer with SettleDeadLetters.

    ``reason`` is one of OLDEST, LOW_PRIORITY, EXPIRED, STALE, UNDELIVERABLE, ERROR; ``comment`` says more, and
    ``failure`` is what its consumer said of the last attempt (``model.failure``).  ``cause``: of ``model.causes``,
    where failures of a cause that is counted apart were too many.
    """

    queue: int
    ordinal: int
    mask: int
    attempts: int
    reason: str
    comment: str
    failure: str = ""
    cause: str = ""


class Compose(NamedTuple):
    """A unit of work is complete: make one message of its ``parts``, as (block, message) in order, and answer with
    Composed."""

    queue: int
    unit: str
    parts: tuple[tuple[int, int], ...]


class Idle(NamedTuple):
    """Nothing has used this auto-created destination for the reap time."""


Effect = (
    SendAnswered
    | Gate
    | Deliver
    | Acked
    | CheckpointKept
    | Released
    | Drained
    | Ready
    | Withdrawn
    | Recall
    | Promoted
    | Retire
    | DeadLetter
    | Compose
    | Idle
)


@dataclass(slots=True)
class Outcome:
    """See the module.

    accepted   the ordinal that a Send's block got, or None when nothing of it was taken
    wake_at    the earliest moment, milliseconds, at which a Tick can change anything; None for never
    unfinished work is left that was too much for one step: send a Tick soon
    damaged    blocks whose headers were needed and could not be read
    """

    records: list[LogEntry] = field(default_factory=list)
    after_durable: list[Effect] = field(default_factory=list)
    immediate: list[Effect] = field(default_factory=list)
    wake_at: int | None = None
    accepted: int | None = None
    unfinished: bool = False
    damaged: list[int] = field(default_factory=list)
