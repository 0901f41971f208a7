"""Notes that clients of a run write down, and the bodies of its messages.

A producer says what it is about to send before it sends it, and a consumer says what it was given before it
acknowledges it: whatever is killed in between, what is known to have happened is noted, and the rest is unknown, never
wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

_BODY: Final = struct.Struct("<4sQIQQ")
_MARK: Final = b"RBV1"
NUMBER_BITS: Final = 32
"""A transaction's number is that of its mover, and behind it so many bits for which one of it this is."""
BODY_BYTES: Final = _BODY.size
"""The least length of a body."""


class VerifyLane(StrEnum):
    """A destination of the run, and what is promised of it."""

    QUEUE = "queue"
    UNITS = "units"
    """A queue whose messages are of units of order."""
    MOVED = "moved"
    """Two queues: transactions take from the one and send to the other, of which the deliveries are noted."""


class BodyContent(NamedTuple):
    """The body of a message. ``transaction``: the one that moved it; 0 for none."""

    run: int
    producer: int
    number: int
    transaction: int


class NotedDelivery(NamedTuple):
    """A message as it was given to a consumer. ``flagged``: it came as one that may have come before."""

    producer: int
    number: int
    attempt: int
    flagged: bool
    transaction: int = 0


@dataclass(frozen=True, slots=True)
class SendsBegun:
    """A producer is about to send ``count`` messages from ``first`` on."""

    lane: VerifyLane
    producer: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class SendsConfirmed:
    """The broker has told a producer that it stores them."""

    lane: VerifyLane
    producer: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class ErrorTold:
    """What a client was told in place of an answer that it wanted; what became of its call is unknown."""

    who: str
    text: str


@dataclass(frozen=True, slots=True)
class Delivered:
    """A consumer was given these, and has not acknowledged them."""

    lane: VerifyLane
    consumer: int
    deliveries: Sequence[NotedDelivery]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The broker has told a consumer that they are acknowledged."""

    lane: VerifyLane
    consumer: int
    deliveries: Sequence[NotedDelivery]


@dataclass(frozen=True, slots=True)
class RolledBack:
    """A transaction that its client is about to roll back: what it has sent may never be delivered."""

    transaction: int


@dataclass(frozen=True, slots=True)
class Foreign:
    """Messages that the run has not made."""

    lane: VerifyLane
    count: int


Note = SendsBegun | SendsConfirmed | ErrorTold | Delivered | Acknowledged | RolledBack | Foreign


def packed(content: BodyContent, size_bytes: int) -> bytes:
    """A body of that many bytes."""
    return _BODY.pack(_MARK, *content).ljust(size_bytes, b".")


def content_of(body: object, run: int) -> BodyContent | None:
    """What a body says; None for one that is not of the run."""
    if not isinstance(body, bytes) or len(body) < BODY_BYTES:
        return None
    mark, *rest = _BODY.unpack_from(body)
    content = BodyContent(*rest)
    return content if mark == _MARK and content.run == run else None
