"""What a destination can be asked to do. Commands are values: replaying them replays the destination.

``attachment`` numbers one producer or consumer on one connection; the engine hands the numbers out and never uses one
twice, so that what belongs to an ended attachment can be recognised and refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from raybroker.model.settings import DestinationAttributes


class AttachProducer(NamedTuple):
    """A producer opens the destination; raises ResourceAllocationError at maxNumProducers (D-14).

    ``generation`` grows each time that this producer opens; an opening that comes after a later one, from a connection
    that the producer has left, raises IllegalStateError. 0 is from a producer that does not count.
    """

    attachment: int
    producer: int
    generation: int = 0


class DetachProducer(NamedTuple):
    """The producer is gone. ``forget``: it said goodbye and will retry nothing."""

    attachment: int
    forget: bool


class Send(NamedTuple):
    """A block arrives. Messages have the sequence numbers first_seq … first_seq + count - 1 of ``producer``.

    sizes   body bytes of each message
    floor   the producer will never again retry a sequence number below this one
    room    False when the store would not take it: then what is persistent and not held already is refused
    """

    attachment: int
    producer: int
    first_seq: int
    sizes: Sequence[int]
    persistent: bool
    floor: int
    room: bool = True


class AttachConsumer(NamedTuple):
    """A consumer opens the destination.

    flow       "credit": at most ``limit`` messages, then what is granted (F-05 … F-09); -1 is unlimited.
               "prefetch": at most ``limit`` unacknowledged messages, topped up at half (F-17 … F-19); 0 polls (F-20).
    no_ack     a message counts as acknowledged when it is handed to the connection (R-10)
    held       start without delivery, until Proceed (C-12)
    """

    attachment: int
    flow: str
    limit: int
    no_ack: bool
    held: bool


class DetachConsumer(NamedTuple):
    """The consumer is gone; what it had not acknowledged goes back to its place (B-07, F-25)."""

    attachment: int


class Grant(NamedTuple):
    """The consumer asks for ``credit`` more messages (F-09); with prefetch 0 it polls for that many (F-20)."""

    attachment: int
    credit: int


class Acknowledge(NamedTuple):
    """The consumer is done with the deliveries tagged first … last of each range. request 0 wants no confirmation."""

    attachment: int
    ranges: Sequence[tuple[int, int]]
    request: int


class Release(NamedTuple):
    """The consumer gives back everything unacknowledged and starts again with ``credit`` (recover, R-11)."""

    attachment: int
    credit: int
    request: int


class Hold(NamedTuple):
    """Deliver nothing to this consumer until Proceed (C-12, F-15, a full connection)."""

    attachment: int


class Proceed(NamedTuple):
    attachment: int


class Update(NamedTuple):
    """The destination has new attributes, already checked against the table of settings (D-03)."""

    attributes: DestinationAttributes


class Purge(NamedTuple):
    """Discard every message that is not with a consumer."""


class Tick(NamedTuple):
    """Nothing but time has passed."""


Command = (
    AttachProducer | DetachProducer | Send | AttachConsumer | DetachConsumer | Grant | Acknowledge | Release
    | Hold | Proceed | Update | Purge | Tick
)  # fmt: skip
