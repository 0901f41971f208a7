"""Commands that a destination can be given. They are values: replaying them replays the destination.

``attachment`` numbers one producer or consumer on one connection; the engine hands the numbers out and never uses one
twice, so that what belongs to an ended attachment can be recognised and refused.  ``queue`` numbers a subscription of a
topic; a queue has delivery queue 0 only.  ``txn`` is the host's number of a transaction; 0 is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from raybroker.core.blocks.block_entry import PLAIN, Columns
from raybroker.core.selector.content import Content
from raybroker.core.subscription import Subscription
from raybroker.model.batch import Batch
from raybroker.model.settings.settings import DestinationAttributes


class AttachProducer(NamedTuple):
    """A producer opens the destination; raises ResourceAllocationError at maxNumProducers.

    ``generation`` grows each time that this producer opens; an opening that comes after a later one, from a connection
    that the producer has left, raises IllegalStateError. 0 is from a producer that does not count.
    """

    attachment: int
    producer: int
    generation: int = 0


class DetachProducer(NamedTuple):
    """The producer is detached. ``forget``: it was closed and will retry nothing."""

    attachment: int
    forget: bool


class Send(NamedTuple):
    """A block arrives. Messages have the sequence numbers first_seq … first_seq + count - 1 of ``producer``.

    attachment  0: the host itself sends
    sizes       body bytes of each message
    floor       the producer will never again retry a sequence number below this one
    room        False when the store would not take it: then what is persistent and not held already is refused
    columns     priorities, expiry and delivery times
    content     headers, for selectors; None when nobody looks
    origin      connection and client id of the producer, for noLocal
    txn         the block waits for this transaction
    dedup_ids   one deduplication id or None for each message
    confirm     whether the producer waits to be told; None: it does when they are persistent or forced to be
    moved       they were taken from a producer before, elsewhere: moved, forwarded, dead or imported
    turned_away why none of it is taken, when it has waited for room in a pool in vain; ""
    only        the one delivery queue of a topic that gets them, whatever its selector says; None: each that wants
    them.
                Not for blocks of a transaction. Raises InvalidDestinationError when that delivery queue is gone
    barred      why the host has no memory for it: then what is not held already is refused; "" it has
    heads       header bytes of each message, where the destination limits them; None: maximumMessageSize does not count
    referred    its one body came by reference, for which there is a limit of its own
    """

    attachment: int
    producer: int
    first_seq: int
    sizes: Sequence[int]
    persistent: bool
    floor: int
    room: bool = True
    columns: Columns = PLAIN
    content: Content | None = None
    origin: tuple[str, str] = ("", "")
    txn: int = 0
    dedup_ids: Sequence[str | None] | None = None
    confirm: bool | None = None
    moved: bool = False
    only: int | None = None
    turned_away: str = ""
    barred: str = ""
    heads: Sequence[int] | None = None
    referred: bool = False


class AttachConsumer(NamedTuple):
    """A consumer opens the destination.

    flow          "credit": at most ``limit`` messages, then what is granted; -1 is unlimited.
                  "prefetch": at most ``limit`` unacknowledged messages, topped up at half; 0 polls
    no_ack        a message counts as acknowledged when it is handed to the connection
    held          start without delivery, until Proceed
    selector      what it wants; of a queue only, a subscription has its own
    subscription  which subscription of a topic it serves; None for a queue
    lease_ms      how long it may keep a message unacknowledged; 0 for ever
    drain         start in drain mode, see Drain
    owner         the session it belongs to; "" it is one of its own
    remote        its home is another broker
    recalls       it can give back what its application has not begun, when it is asked to: Recall
    shares        nobody has set how much it prefetches: other consumers that are idle get some of that, unless
                  prefetchRecall says otherwise
    buffer_bytes  how many bytes of bodies may lie in its buffer, see Taken; 0 for any number
    buffer_cost   instead of that, what the messages in its buffer may cost together; 0 for any cost
    fenced        each of its deliveries has a fencing number
    tunes         it chooses its limit by itself, see Tuned
    labels        what is at hand where it is: messages of a destination with affinityKey that ask for one of these are
                  its at first
    batch         it gets batches, one for each Grant, whatever flow and limit say; each ends with Drained. None: it
                  gets messages
    """

    attachment: int
    flow: str
    limit: int
    no_ack: bool
    held: bool
    selector: str | None = None
    subscription: Subscription | None = None
    lease_ms: int = 0
    drain: bool = False
    owner: str = ""
    remote: bool = False
    recalls: bool = False
    shares: bool = False
    buffer_bytes: int = 0
    buffer_cost: int = 0
    fenced: bool = False
    tunes: bool = False
    batch: Batch | None = None
    labels: Sequence[str] = ()


class DetachConsumer(NamedTuple):
    """The consumer is gone; what it had not acknowledged goes back to its place.

    ``lost``: it did not close; then what is known to have reached the application counts as failed.
    Deliveries after ``seen`` never reached the application and do not count; -1: that is not known of any.
    """

    attachment: int
    lost: bool = False
    seen: int = -1


class Grant(NamedTuple):
    """The consumer asks for ``credit`` more messages; with prefetch 0 it polls for that many.

    This ends drain mode.
    """

    attachment: int
    credit: int


class Drain(NamedTuple):
    """The consumer goes over to drain mode, or is in it: up to ``credit`` messages at once, and then no credit is left.

    Answered by Drained unless all credit was used; that of 0 always is. When there is something for it later, it is
    told once: Ready. One of batches asks for none any more, and is told so by Drained if its batch has not left.
    """

    attachment: int
    credit: int


class Missed(NamedTuple):
    """``messages`` that were handed out were taken back before they left: the consumer may have as many others."""

    attachment: int
    messages: int


class Acknowledge(NamedTuple):
    """The consumer has acknowledged the deliveries tagged first … last of each range. request 0 wants no
    confirmation."""

    attachment: int
    ranges: Sequence[tuple[int, int]]
    request: int


class Settle(NamedTuple):
    """Another outcome for deliveries: "reject" for good, "release" uncounted, "fail" with a delay ("fail.CAUSE" where
    the cause is counted apart), "expired",
    "unseen" when the application never got them.

    ``delay_ms`` -1: what the destination says.
    """

    attachment: int
    ranges: Sequence[tuple[int, int]]
    request: int
    outcome: str
    delay_ms: int = -1
    reason: str = ""


class Recalled(NamedTuple):
    """The consumer gives back these of the deliveries that it was asked for by Recall: its application has not begun
    them, and they are as before they were handed out. Of the others its application has got some, or has settled them.

    ``last``: that was all; else more of the answer is to come.
    """

    attachment: int
    ranges: Sequence[tuple[int, int]]
    last: bool = True


class LeaveNode(NamedTuple):
    """The node of the consumer is drained: it gets nothing more, and is asked to give back what its application has not
    begun. ``leaving`` False: that is over."""

    attachment: int
    leaving: bool


class TakeBack(NamedTuple):
    """The transaction in which the consumer has received messages was rolled back without it: all of them go back.

    Deliveries up to ``tag`` had reached the application: that counts as a failure, with ``delay_ms``.
    """

    attachment: int
    tag: int
    delay_ms: int = 0


class Begun(NamedTuple):
    """Deliveries up to ``tag`` have reached the application."""

    attachment: int
    tag: int


class Taken(NamedTuple):
    """Nothing up to ``tag`` is in the buffer of a consumer any more that has a bound in bytes or cost."""

    attachment: int
    tag: int


class Tuned(NamedTuple):
    """The consumer has chosen another limit by the pace of its application; what it asks for goes by that already."""

    attachment: int
    limit: int


class Extend(NamedTuple):
    """The time for acknowledging these deliveries starts again."""

    attachment: int
    ranges: Sequence[tuple[int, int]]


class Checkpoint(NamedTuple):
    """The consumer says how far it is with a delivery, for whoever gets its message next.

    Answered by CheckpointKept.
    """

    attachment: int
    tag: int
    request: int
    state: bytes


class Release(NamedTuple):
    """The consumer gives back everything unacknowledged and starts again with ``credit`` (recover).

    In drain mode a credit of 0 keeps that mode, and another one ends it.
    Deliveries up to ``consumed`` had reached the application: that counts as a failure, with ``delay_ms``;
    ``reason`` is what is written on those that are dead by it. ``seen``: as of DetachConsumer.
    """

    attachment: int
    credit: int
    request: int
    consumed: int = 0
    delay_ms: int = 0
    reason: str = ""
    seen: int = -1


class Hold(NamedTuple):
    """Deliver nothing to this consumer until Proceed (a full connection)."""

    attachment: int


class Proceed(NamedTuple):
    attachment: int


class Update(NamedTuple):
    """The destination has new attributes, already checked against the table of settings."""

    attributes: DestinationAttributes


class Purge(NamedTuple):
    """Discard every message that is not with a consumer; of one delivery queue only when ``queue`` is given."""

    queue: int | None = None


class Remove(NamedTuple):
    """Discard waiting messages, given as block → mask; ``aside``: hold them as dead letters."""

    chosen: Mapping[int, int]
    aside: bool = False


class SettleDeadLetters(NamedTuple):
    """What became of dead messages (DeadLetter) is settled: they are elsewhere, or discarded.

    ``dead`` False: they were not dead, and are with another destination now.
    """

    queue: int
    ordinal: int
    mask: int
    dead: bool = True


class Composed(NamedTuple):
    """The message of a complete unit of work takes the place of its ``parts``, as (block, message); ``send`` brings it.
    Limits do not count: the parts were within them."""

    queue: int
    parts: Sequence[tuple[int, int]]
    send: Send


class ReturnDeadLetters(NamedTuple):
    """No destination takes these dead messages, or messages that were put aside: they wait again."""

    queue: int
    ordinal: int
    mask: int


class PublishVersion(NamedTuple):
    """That is the current version of a queue with versionKey, from which it follows what is stale.

    ``back``: it may be lower than the one before. Raises IllegalStateError for a lower one without, and for a
    destination without versionKey.
    """

    version: int
    back: bool = False


class TakeKnownIds(NamedTuple):
    """Deduplication ids that the destination took where it was before: each with when that was by the wall clock, and
    whether it outlives a restart."""

    ids: Sequence[tuple[str, int, bool]]


class Pause(NamedTuple):
    """Stop work, of model.definitions.pauses; ``until_ms`` 0: until Resume."""

    which: str
    until_ms: int = 0


class Resume(NamedTuple):
    which: str


class Subscribe(NamedTuple):
    """Make a durable subscription of a topic that nobody has attached to yet; one that is there already stays.

    Raises IllegalStateError when its name is in use with other options.
    """

    subscription: Subscription


class Unsubscribe(NamedTuple):
    """End a subscription of a topic; raises IllegalStateError while a consumer is attached."""

    client_id: str
    name: str


class StageAcks(NamedTuple):
    """Acknowledgements that wait for a transaction; raises TransactionRolledBackError when one is not possible."""

    txn: int
    attachment: int
    ranges: Sequence[tuple[int, int]]


class StageCheckpoint(NamedTuple):
    """A checkpoint that counts once its transaction commits; the message stays with its consumer. For transactions that
    commit in one phase here. Raises TransactionRolledBackError for a message that the consumer does not hold any more,
    else as Checkpoint does."""

    txn: int
    attachment: int
    tag: int
    state: bytes


class Prepare(NamedTuple):
    """Write down what the transaction does here, so that it survives until Decide."""

    txn: int


class Decide(NamedTuple):
    """The transaction ends: what it sent becomes visible and what it consumed is gone, or the other way round."""

    txn: int
    commit: bool
    delay_ms: int = 0


class Tick(NamedTuple):
    """Nothing but time has passed."""


Command = (
    AttachProducer
    | DetachProducer
    | Send
    | AttachConsumer
    | DetachConsumer
    | Grant
    | Drain
    | Missed
    | Acknowledge
    | Settle
    | Recalled
    | LeaveNode
    | TakeBack
    | Begun
    | Taken
    | Tuned
    | Extend
    | Checkpoint
    | Release
    | Hold
    | Proceed
    | Update
    | Purge
    | Remove
    | SettleDeadLetters
    | ReturnDeadLetters
    | Composed
    | PublishVersion
    | TakeKnownIds
    | Pause
    | Resume
    | Subscribe
    | Unsubscribe
    | StageAcks
    | StageCheckpoint
    | Prepare
    | Decide
    | Tick
)
