"""What the member machines of two brokers say to each other.

Messages are plain frozen values; the carrier may lose, repeat, delay and reorder them.  Every envelope names the sender
and its incarnation, so that what an older instance of a broker says is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from raybroker.cluster.change_record import Change, Entry
from raybroker.cluster.term import Leadership


@dataclass(frozen=True, slots=True)
class Position:
    """How far a record goes: its id, the number of its last entry, and the hash of all up to there."""

    record: str
    number: int
    digest: str


@dataclass(frozen=True, slots=True)
class Greet:
    """Who I am and what has to be equal.  ``answer``: greet me back."""

    properties: Mapping[str, object]
    claim: Leadership
    joined: int
    answer: bool


@dataclass(frozen=True, slots=True)
class Refuse:
    """You may not talk to me: ``text`` says why; ``stale``: a later instance of you is known."""

    text: str
    stale: bool = False


@dataclass(frozen=True, slots=True)
class Beat:
    """I live.  ``operating``: I am fully integrated; ``joined`` orders the brokers that are."""

    claim: Leadership
    position: Position
    joined: int
    operating: bool


@dataclass(frozen=True, slots=True)
class Ask:
    """To the master: what comes after this position?"""

    position: Position


@dataclass(frozen=True, slots=True)
class Entries:
    """From the master: entries in order, some or all of those up to ``last``."""

    claim: Leadership
    entries: tuple[Entry, ...]
    last: int


@dataclass(frozen=True, slots=True)
class Whole:
    """From the master: its whole record, as ``ChangeRecord.dump`` writes it."""

    claim: Leadership
    dump: bytes


@dataclass(frozen=True, slots=True)
class Disagree:
    """From the master: your position is not on my record, and I cannot tell why; an administrator has to look."""

    position: Position
    text: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """To the master: make this change.  ``request`` counts the proposals of one instance; said again until answered."""

    request: int
    change: Change


@dataclass(frozen=True, slots=True)
class Decision:
    """From the master: entry ``number`` of ``record`` is durable, or the error ``code`` with its ``text``."""

    request: int
    record: str
    number: int
    code: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Tell:
    """Without a master: this was changed here; ``sequence`` counts the changes of one instance."""

    sequence: int
    change: Change


@dataclass(frozen=True, slots=True)
class Told:
    """Answer to a Tell: it is durable here too."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Offer:
    """From the master that is going to be replaced: keep this record; it is yours if I say so."""

    claim: Leadership
    dump: bytes


@dataclass(frozen=True, slots=True)
class Taken:
    """Answer to an Offer: the record is durable here, up to this position."""

    claim: Leadership
    position: Position


@dataclass(frozen=True, slots=True)
class Bye:
    """I shut down in order."""


Message = (
    Greet | Refuse | Beat | Ask | Entries | Whole | Disagree | Proposal | Decision | Tell | Told | Offer | Taken | Bye
)


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message with who says it; ``to``: the only incarnation of the receiver that it is for, 0 for any."""

    sender: str
    incarnation: int
    to: int
    message: Message
