"""Messages between the member machines of two brokers.

Messages are plain frozen values; the carrier may lose, repeat, delay and reorder them.  Every envelope names the sender
and its incarnation, so that what an older instance of a broker says is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from raybroker.cluster.change_record import Change, Entry
from raybroker.cluster.term import Leadership
from raybroker.model.value import Value


class Position(Value):
    """How far a record goes: its id, the number of its last entry, and the hash of all up to there."""

    record: str
    number: int
    digest: str


class Message(Value):
    """What one member machine says to another."""


class Greet(Message):
    """Who I am and what has to be equal.  ``answer``: greet me back."""

    properties: Mapping[str, object]
    claim: Leadership
    joined: int
    answer: bool


class Refuse(Message):
    """You may not talk to me: ``text`` says why; ``stale``: a later instance of you is known."""

    text: str
    stale: bool = False


class Beat(Message):
    """I live.  ``operating``: I am fully integrated; ``joined`` orders the brokers that are."""

    claim: Leadership
    position: Position
    joined: int
    operating: bool


class Ask(Message):
    """To the master: what comes after this position?"""

    position: Position


class Entries(Message):
    """From the master: entries in order, some or all of those up to ``last``."""

    claim: Leadership
    entries: tuple[Entry, ...]
    last: int


class Whole(Message):
    """From the master: its whole record, as ``ChangeRecord.dump`` writes it."""

    claim: Leadership
    dump: bytes


class Disagree(Message):
    """From the master: your position is not on my record, and I cannot tell why; an administrator has to look."""

    position: Position
    text: str


class Proposal(Message):
    """To the master: make this change.  ``request`` counts the proposals of one instance; said again until answered."""

    request: int
    change: Change


class Decision(Message):
    """From the master: entry ``number`` of ``record`` is durable, or the error ``code`` with its ``text``."""

    request: int
    record: str
    number: int
    code: str = ""
    text: str = ""


class Tell(Message):
    """Without a master: this was changed here; ``sequence`` counts the changes of one instance."""

    sequence: int
    change: Change


class Told(Message):
    """Answer to a Tell: it is durable here too."""

    sequence: int


class Offer(Message):
    """From the master that is going to be replaced: keep this record; it is yours if I say so."""

    claim: Leadership
    dump: bytes


class Taken(Message):
    """Answer to an Offer: the record is durable here, up to this position."""

    claim: Leadership
    position: Position


class Bye(Message):
    """I shut down in order."""


class Envelope(Value):
    """One message with who says it; ``to``: the only incarnation of the receiver that it is for, 0 for any."""

    sender: str
    incarnation: int
    to: int
    message: Message
