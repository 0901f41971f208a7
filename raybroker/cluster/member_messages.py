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


class MemberMessage(Value):
    """A message of one member machine to another."""


class Greet(MemberMessage):
    """A greeting: the sender and its properties that must be equal. ``answer``: the receiver greets back."""

    properties: Mapping[str, object]
    claim: Leadership
    joined: int
    answer: bool


class Refuse(MemberMessage):
    """Refusal of the receiver, with the reason; ``stale``: a later instance of the receiver is known."""

    text: str
    stale: bool = False


class Beat(MemberMessage):
    """A heartbeat. ``operating``: the sender is fully integrated; ``joined`` orders the brokers that are."""

    claim: Leadership
    position: Position
    joined: int
    operating: bool


class Ask(MemberMessage):
    """A member asks the master for the entries after this position."""

    position: Position


class Entries(MemberMessage):
    """The master sends entries in order, some or all of those up to ``last``."""

    claim: Leadership
    entries: tuple[Entry, ...]
    last: int


class Whole(MemberMessage):
    """The master sends its whole record, as ``ChangeRecord.dump`` writes it."""

    claim: Leadership
    dump: bytes


class Disagree(MemberMessage):
    """The master says that its record does not contain the receiver's position; an administrator has to decide."""

    position: Position
    text: str


class ChangeProposal(MemberMessage):
    """A member proposes a change to the master. ``request`` counts the proposals of one instance; repeated until
    answered."""

    request: int
    change: Change


class ChangeDecided(MemberMessage):
    """The master says that entry ``number`` of ``record`` is durable, or the error ``code`` with its ``text``."""

    request: int
    record: str
    number: int
    code: str = ""
    text: str = ""


class Tell(MemberMessage):
    """A broker without a master sends a change of its own; ``sequence`` counts the changes of one instance."""

    sequence: int
    change: Change


class Told(MemberMessage):
    """Answer to a Tell: the change is durable at the sender of this."""

    sequence: int


class RecordOffer(MemberMessage):
    """A master that hands over sends its record, which the receiver keeps until the hand-over is decided."""

    claim: Leadership
    dump: bytes


class MasterTaken(MemberMessage):
    """Answer to an Offer: the record is durable here, up to this position."""

    claim: Leadership
    position: Position


class Bye(MemberMessage):
    """The sender shuts down in order."""


class Envelope(Value):
    """One message with its sender; ``to``: the only incarnation of the receiver that it is for, 0 for any."""

    sender: str
    incarnation: int
    to: int
    message: MemberMessage
