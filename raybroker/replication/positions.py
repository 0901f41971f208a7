"""Terms and positions in a log of copies, and the chain by which two logs are compared.

A term belongs to one leader.  Its nonce tells two candidates apart that took the same number; terms are ordered by
number, then nonce.  A position names an entry: the term it was written in, its index, and the chain, which is a hash of
the entry and of everything before it.  Two logs with one chain at an index are equal up to there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from typing import Final, NamedTuple

from raybroker.model.blocks.record import Buffer

CHAIN_BYTES: Final = 16
_HEAD: Final = struct.Struct("<QQQB")


class Term(NamedTuple):
    """``number``: unsigned 64 bit, grows by one with each candidate; ``nonce``: unsigned 64 bit, random."""

    number: int
    nonce: int


NO_TERM: Final = Term(0, 0)


@dataclass(frozen=True, slots=True)
class LogPosition:
    """An entry's place in a log; index 0 is before the first."""

    term: Term
    index: int
    chain: bytes

    def as_recent_as(self, other: LogPosition) -> bool:
        """True when a log that ends here lacks nothing committed that a log ending at ``other`` may have."""
        return (self.term, self.index) >= (other.term, other.index)


BEGINNING: Final = LogPosition(NO_TERM, 0, bytes(CHAIN_BYTES))


class EntryKind(IntEnum):
    """BATCH: what a host commits.  LEADER: a term begins; it has no body.  MEMBERS: a replica set, packed."""

    BATCH = 1
    LEADER = 2
    MEMBERS = 3


Body = tuple[Buffer, ...]


class ReplicatedEntry(NamedTuple):
    """One entry of the log: ``body`` is opaque buffers, one behind the other, of ``nbytes`` bytes in all."""

    at: LogPosition
    kind: EntryKind
    body: Body
    nbytes: int


def chained(previous: bytes, term: Term, index: int, kind: EntryKind, body: Iterable[Buffer]) -> bytes:
    """Return the chain of an entry that follows one with the chain ``previous``; 16 bytes."""
    made = blake2b(previous, digest_size=CHAIN_BYTES)
    made.update(_HEAD.pack(term.number, term.nonce, index, kind))
    for part in body:
        made.update(part)
    return made.digest()


def following(before: LogPosition, term: Term, kind: EntryKind, body: Body) -> ReplicatedEntry:
    """Return the entry with this body that comes after ``before``."""
    index = before.index + 1
    nbytes = sum(part.nbytes if isinstance(part, memoryview) else len(part) for part in body)
    at = LogPosition(term, index, chained(before.chain, term, index, kind, body))
    return ReplicatedEntry(at, kind, body, nbytes)


def intact(before: LogPosition, entry: ReplicatedEntry) -> bool:
    """True when the entry is the one that was written after ``before``: not a bit of either is different."""
    at = entry.at
    return at.index == before.index + 1 and at.chain == chained(before.chain, at.term, at.index, entry.kind, entry.body)
