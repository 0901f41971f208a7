"""Ports of the engine: what it needs from the world, as protocols; it never imports the things themselves.

A store, a clock and the peer of a connection are all that a host needs to carry out decisions of the core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from raybroker.core.outcome import Refused
from raybroker.core.selector.content import Content
from raybroker.model.blocks.block import Block
from raybroker.model.blocks.large_block import LargeBlock, LargeBody
from raybroker.model.blocks.record import Buffer, EntryRun, LogEntry, StoreStats
from raybroker.model.errors import BrokerError
from raybroker.model.settings.settings import DestinationAttributes

__all__ = [
    "BodyStore",
    "Clock",
    "Codec",
    "CommitStamps",
    "Committer",
    "Death",
    "Fault",
    "Forward",
    "Governed",
    "IncomingBody",
    "LogCopies",
    "Memory",
    "Named",
    "Notice",
    "Peer",
    "Refused",
    "Store",
    "Worker",
]


class Named(Protocol):
    """A destination, for parts that only have to know which one it is."""

    @property
    def kind(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def number(self) -> int: ...


class Governed(Named, Protocol):
    """A destination, for parts that act by its attributes alone."""

    @property
    def attributes(self) -> DestinationAttributes: ...


class Notice(str):
    """A line for the log that is for information; a line that is no notice is a warning."""

    __slots__ = ()


class Fault(str):
    """A line for the log that is an error: something does not work until somebody mends it."""

    __slots__ = ()


class Store(Protocol):
    """A durable, ordered log of entries with random access to message blocks.

    One process has one store open at a time.  ``commit`` and ``maintain`` are called from one thread only; everything
    else may be called from any thread.  After any error raised by ``commit`` the store is dead: nothing is retried.
    """

    def recover(self) -> Iterator[LogEntry]:
        """Give back what was stored; called once, before anything else.

        First the last complete CHECKPOINT (if any), then every BLOCK written before it that is still there (payload
        empty), then every BLOCK and NOTE after it, in log order.  A (destination, ordinal) is given once, however
        often it was moved.
        """
        ...

    def recover_runs(self) -> Iterator[LogEntry | EntryRun]:
        """Do what :meth:`recover` does, in its place: blocks that are side by side may come together, and the order
        holds within each destination."""
        ...

    def commit(self, entries: Sequence[LogEntry]) -> Callable[[], None] | None:
        """Write one batch and return when it is durable: all of it survives a crash, or none of it.

        Gives back what notes that it is durable, so that its loss would be noticed: to be called in the same thread
        once those who wait are told.  The next ``commit`` and ``maintain`` do it else.
        """
        ...

    def read(self, destination: int, ordinal: int) -> bytes:
        """The verified payload of a live block; raises StoreDamagedError naming what cannot be trusted."""
        ...

    def salvage(self, destination: int, ordinal: int) -> bytes:
        """What is in the place of a live block now, whether or not it can be trusted; raises KeyError, StoreError."""
        ...

    def free(self, destination: int, ordinals: Iterable[int]) -> None:
        """These blocks are dead and durably known to be: their space may be used again."""
        ...

    def checkpoint_due(self) -> bool:
        """True when committing a CHECKPOINT now would let space be reclaimed or recovery be shorter."""
        ...

    def checkpoint_helps(self) -> bool:
        """True when a CHECKPOINT made now would give space back, though none is due: for a host with nothing to do."""
        ...

    def tidy_helps(self) -> bool:
        """True when ``maintain`` would give back space, though nothing was written that made work for it."""
        ...

    def maintain(self, budget_bytes: int) -> bool:
        """Reclaim space, copying at most ``budget_bytes`` of survivors; True when more is left to do."""
        ...

    def compact(self) -> None:
        """Give back all space that can be: the next CHECKPOINT begins it, and ``maintain`` does it.  In any thread."""
        ...

    @property
    def compacting(self) -> bool:
        """Whether what ``compact`` asked for is not done yet."""
        ...

    def usage(self) -> dict[int, tuple[int, int]]:
        """Destination → (live blocks, bytes of their payloads), of those that have any."""
        ...

    def plain_because(self) -> str:
        """Why the store keeps blocks as they came and takes none that were compressed for it, for people; "" when it
        takes them.  In any thread; may change."""
        ...

    def has_room(self, nbytes: int) -> bool:
        """Whether a batch of about ``nbytes`` with a block would be taken now; False before the disk is full."""
        ...

    def stats(self) -> StoreStats: ...

    def close(self) -> None: ...


class IncomingBody(LargeBody, Protocol):
    """A large body that comes piece by piece; one thread at a time writes it."""

    def write(self, data: bytes) -> None:
        """The next piece, of the size that it has to have; raises StoreFullError and StoreError."""
        ...

    def finish(self) -> None:
        """All pieces are there: make it durable; raises StoreError."""
        ...


class BodyStore(Protocol):
    """The place of large bodies, outside of memory. One that no block has claimed goes with the last reference to
    it."""

    def begin_body(self, nbytes: int) -> IncomingBody:
        """A body that will come, in any thread; raises StoreFullError and StoreError."""
        ...

    def large(self, destination: int, ordinal: int) -> LargeBlock | None:
        """A stored block whose body came in pieces, without its body; None for any other block."""
        ...


class GivenBody(Protocol):
    """A body that a process of the same Ray has given to this one by reference; in any thread, one at a time."""

    @property
    def nbytes(self) -> int: ...

    def pieces(self) -> Iterator[bytes]:
        """Its pieces in order; raises BrokerError when it cannot be had."""
        ...

    def owned(self) -> LargeBody:
        """A copy that lasts as long as this process refers to it, whoever else ends; raises BrokerError."""
        ...


TakeBody = Callable[[str], GivenBody]
"""The body that was given to this process under a token, once, in any thread; raises IllegalStateError when it is not
there, and BrokerError when it cannot be had."""


class Worker(Protocol):
    """Does one thing after the other outside of the engine's thread, because it waits for a disk."""

    def run(self, job: Callable[[], bytes | None], done: Callable[[bytes | None, BrokerError | None], None]) -> None:
        """Call ``job``, then ``done`` in the engine's thread, with what it returned or the BrokerError that it
        raised."""
        ...


class CommitStamps:
    """The times when the commit of a batch began and ended, monotonic; 0: not yet. ``sync_ns``: what its sync took;
    ``elsewhere``: another thread than the engine's did it."""

    __slots__ = ("began_ns", "elsewhere", "ended_ns", "sync_ns")

    def __init__(self) -> None:
        self.began_ns = self.ended_ns = self.sync_ns = 0
        self.elsewhere = False


class Committer(Protocol):
    """Makes batches durable in the order given, and says so in that order: one sync is in flight at a time."""

    overloaded: bool
    """True while so much waits that no more should be taken from producers."""
    pending_bytes: int
    """What was submitted and is not durable."""

    def submit(self, entries: Sequence[LogEntry], done: Callable[[], None]) -> None:
        """Queue ``entries``; call ``done`` in the engine's own thread once they are durable."""
        ...

    def trace(self, stamps: CommitStamps | None) -> None:
        """Stamp the commit of the batch that is submitted next; None: of none, if none has come.

        Called in the engine's thread.
        """
        ...

    def tidy(self) -> None:
        """Let the store reclaim space soon, though nothing is committed; to be repeated while it has to.

        Called in the engine's thread.
        """
        ...

    def close(self) -> None:
        """Finish what waits, then end."""
        ...


class LogCopies(Protocol):
    """The copies of a host's log on other nodes: what the store has is not durable before they have it too.

    Calls never wait, and may come in any thread.
    """

    def last_index(self) -> int:
        """Return the entry of what the store committed last."""
        ...

    def released_index(self) -> int:
        """Return the entry up to which as many copies as must have the log on disk."""
        ...

    def may_dispatch(self) -> bool:
        """Return whether no other copy can be leading now: to be asked right before a message is handed out."""
        ...

    def tell_released(self, released: Callable[[], object]) -> None:
        """Call ``released`` whenever more is released, in any thread."""
        ...


class Memory(Protocol):
    """The memory of the broker's processes."""

    def usage(self) -> tuple[int, int]:
        """Bytes that are used, and bytes that may be, 0 when that is not known; cheap."""
        ...

    def give_back(self, *, thorough: bool) -> None:
        """Give freed memory back to the system; ``thorough``: look for more that nobody needs, which takes longer."""
        ...


class Clock(Protocol):
    """Wall time for what users see, monotonic time for measurements."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01T00:00Z."""
        ...

    def monotonic_ns(self) -> int: ...


class Death(NamedTuple):
    """Why messages are dead, for what is written on them.

    reason        OLDEST, LOW_PRIORITY, EXPIRED, STALE, UNDELIVERABLE or ERROR
    origin        type and name of the destination where they died
    broker        of that destination
    failure       what its consumer said of the last attempt (``model.failure``)
    subscription  of the topic, where it died for that alone; else ""
    cause         of model.causes, where it failed too often by one that is counted apart; else ""
    """

    reason: str
    comment: str
    attempts: int
    origin: tuple[str, str]
    broker: str
    failure: str = ""
    subscription: str = ""
    cause: str = ""


class Codec(Protocol):
    """What the engine has to know of the content of a block, which it does not read itself."""

    def content(self, block: Block) -> Content:
        """Headers for selectors, decoded when asked for."""
        ...

    def dedup_ids(self, block: Block) -> list[str | None] | None:
        """Deduplication ids of the messages; None when no message has one."""
        ...

    def units(self, block: Block) -> tuple[str | None, ...] | None:
        """The unit of order of each message; None when no message has one."""
        ...

    def works(self, block: Block) -> tuple[tuple[str, int, bool] | None, ...] | None:
        """What each message is in a unit of work: its name, the number there, the end; None when none is in one."""
        ...

    def composed(
        self, unit: str, parts: Sequence[tuple[Block, int]], *, producer: int, first_seq: int, version_key: str
    ) -> bytes:
        """The message of a complete unit of work as a block, with the lowest version of its parts, which
        ``version_key`` names; raises MessageTooLargeError."""
        ...

    def in_unit(self, block: Block, unit: str) -> Block:
        """The block with that unit of order on each message that has none."""
        ...

    def delivered(self, data: bytes, count: int) -> bytes:
        """The encoded block with that many deliveries more behind each of its messages."""
        ...

    def wish(self, block: Block, index: int) -> tuple[bool | None, bool | None, bool | None]:
        """What the message itself says about its death: keep it, log it, cut its body."""
        ...

    def deaths(self, block: Block, index: int, queue: str) -> int:
        """How often a message has died in a queue."""
        ...

    def dead_block(
        self, block: Block, mask: int, death: Death, *, producer: int, first_seq: int, now_ms: int, truncate: bool
    ) -> bytes:
        """The messages as a new block with the properties of the dead."""
        ...

    def revived(self, block: Block, mask: int, *, producer: int, first_seq: int, now_ms: int) -> list[Revived]:
        """Dead messages without those properties, by the destination that each came from."""
        ...

    def quarantined(
        self,
        raw: bytes,
        mask: int,
        origin: tuple[str, str],
        error: str,
        *,
        broker: str,
        producer: int,
        seq: int,
        now_ms: int,
        body_bytes_max: int,
    ) -> bytes:
        """The record of a damaged block that is skipped, as a block."""
        ...

    def occurrence(
        self,
        block: Block,
        properties: Mapping[str, Any],
        *,
        producer: int,
        first_seq: int,
        now_ms: int,
        ttl_ms: int,
        delay_ms: int,
    ) -> bytes:
        """The message of a schedule as it is sent this time, with more properties."""
        ...

    def packed(self, data: Buffer) -> Buffer:
        """An encoded block with its bodies compressed, as a store or a paging file may keep it; ``data`` where that
        makes it no smaller."""
        ...

    def unpacked(self, data: Buffer) -> Buffer:
        """The block that was packed, or ``data`` when it was not; raises StoreDamagedError."""
        ...

    def life(self, block: Block, index: int, policy: str) -> dict[str, Any]:
        """What the log of messages' lives says of a message."""
        ...

    def expiry_record(self, block: Block, index: int, policy: str, destination: str) -> str:
        """The line that the Log policy writes for an expired message."""
        ...


Revived = tuple[str, str, str, int, bytes]
"""Type and name of a destination, its subscription or "" for all, messages of the old block, the new block."""

Forward = Callable[[str, str, bytes, Callable[[bool], None]], None]
"""Send a block to (type, name) on another host and say whether it is stored there."""


class Peer(Protocol):
    """The client at the other end of a connection, as the engine sees it: somebody to tell things to.

    Calls never block and never raise; a peer that is gone ignores them.
    """

    def reply(self, request: int, result: object) -> None: ...

    def failed(self, request: int, code: str, text: str) -> None: ...

    def sent(self, handle: int, first_seq: int, count: int, refused: Sequence[Refused]) -> None: ...

    def deliver(self, handle: int, epoch: int, tag: int, attempt: int, block: Sequence[Buffer]) -> None: ...

    def deliver_large(self, handle: int, epoch: int, tag: int, attempt: int, ordinal: int, front: Buffer) -> None:
        """A message whose body the client asks for, piece by piece, by the number of its block."""
        ...

    def acked(self, request: int, unknown: int) -> None: ...

    def released(self, handle: int, request: int, next_tag: int) -> None: ...

    def drained(self, handle: int, epoch: int, unused: int) -> None: ...

    def ready(self, handle: int, epoch: int) -> None: ...

    def withdrawn(self, handle: int, epoch: int, ranges: Sequence[tuple[int, int]]) -> None: ...

    def recall(self, handle: int, epoch: int, ranges: Sequence[tuple[int, int]]) -> None: ...

    def mark(self, handle: int, epoch: int, tag: int, fence: int) -> None:
        """What is to be known of the delivery with that tag, which comes next."""
        ...

    def checkpoint(self, handle: int, epoch: int, tag: int, state: bytes) -> None:
        """The checkpoint of the message with that tag, which comes next."""
        ...

    def promoted(self, handle: int) -> None: ...

    def gate(self, handle: int, state: str, until_ms: int) -> None: ...

    def event(self, name: str, data: dict[str, object]) -> None: ...

    def congested(self) -> bool:
        """True while no message should be delivered to it; the engine then waits for ``Session.writable``."""
        ...

    def full(self) -> bool:
        """True while it would have to buffer more than it should; then it is congested as well. It also is when the
        client has to say first that it wants more messages (imqConnectionFlowCount)."""
        ...

    def room(self) -> int:
        """How many messages may be delivered before it is congested; 0 for any number."""
        ...

    def close(self, code: str, text: str) -> None: ...
