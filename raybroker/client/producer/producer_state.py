"""The producer state machine: messages that a handle has accepted and that are not settled, without IO or threads.

Messages collect in an open batch, which is sealed into a block when it is full, when a message with the other delivery
mode comes, or when somebody flushes; priority, time to live and delivery delay may differ from message to message.
Sealed persistent blocks stay until the broker settles them and are sent again, in order and with their old sequence
numbers, after a reconnect (the broker recognises them).
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import islice, takewhile
from typing import Any, NamedTuple

from raybroker.client.connection.whole_body import WholeBody
from raybroker.content.headers import id_prefix
from raybroker.content.possible_duplicates import in_doubt
from raybroker.model.blocks.block import BLOCK_BYTES_TARGET, BLOCK_MESSAGES_MAX, encode_block
from raybroker.model.blocks.large_block import LARGE_BODY_BYTES

MESSAGE_OVERHEAD_BYTES = 64
"""What a waiting message costs beside its body, for the bound on a handle's memory."""


class Shared(NamedTuple):
    """What a message has beside body and headers; usually the same object for all messages of a producer.

    ``ttl_ms`` 0: never expires, ``delay_ms`` 0: may be delivered at once; ``named``: receivers see a
    message id, ``stamped``: and when it was packed; ``unit``: its unit of order, which its headers have too.
    """

    persistent: bool
    priority: int
    ttl_ms: int = 0
    delay_ms: int = 0
    named: bool = True
    stamped: bool = True
    unit: str | None = None


Refusal = tuple[int, int, BaseException]
"""Numbers of the first message that was refused and of the one behind the last, and why."""
RunTold = Callable[[int, int, Sequence[Refusal]], object]
"""Gets the numbers of the first message and of the one behind the last that are settled, and which were refused; the
others are stored. It is called once for each block that has some of the messages, on the IO loop."""


class SentRun:
    """Messages of one block that were given at once and whose outcome one is told at once: ``count`` from the index
    ``at`` on, which have the numbers from ``first`` on for whoever gave them.

    A future and a call for each message would cost a gateway, which has hundreds of one read, more than to send them.
    """

    __slots__ = ("_told", "at", "count", "first")

    def __init__(self, told: RunTold, first: int, at: int, count: int) -> None:
        self._told: RunTold | None = told
        self.first = first
        self.at = at
        self.count = count

    def tell_outcome(self, refusals: Sequence[Refusal]) -> None:
        """Tell what has become of them, once. ``refusals``: of the block, by indexes in it."""
        told, self._told = self._told, None
        if told is not None:
            start, end, by = self.at, self.at + self.count, self.first - self.at
            mine = [(max(a, start) + by, min(b, end) + by, why) for a, b, why in refusals if a < end and b > start]
            told(start + by, end + by, mine)


Columns = tuple[list[bytes] | None, bytes | None, "array[int] | None"]


class SendBatch:
    """Messages from first_seq on; ``waiters`` wait for the messages of ``indexes``, or one for all of them (-1).

    ``runs``: those of them that are settled together, and that nobody among the waiters waits for.

    ``timed``: those of them that do not wait for ever, in their order, and from when they wait, nanoseconds.

    ``shared`` is that of the first message. Columns exist once a message differs from what a block has for all.
    ``held``: nobody waits for it while nothing can leave.
    """

    __slots__ = (
        "_mixed",
        "bodies",
        "count",
        "data",
        "deliver_at",
        "expires",
        "first_seq",
        "floor",
        "headers",
        "held",
        "indexes",
        "kinds",
        "large",
        "priorities",
        "runs",
        "shared",
        "size",
        "timed",
        "timestamp_ms",
        "waiters",
    )

    def __init__(self, first_seq: int, shared: Shared, timestamp_ms: int) -> None:
        self.first_seq = self.floor = first_seq
        self.shared = shared
        self.timestamp_ms = timestamp_ms if shared.stamped else 0
        self.count = 0
        self.size = 0
        self.bodies: list[bytes] = []
        self.kinds = bytearray()
        self.headers: list[bytes] | None = None
        self.priorities: bytearray | None = None
        self.expires: array[int] | None = None
        self.deliver_at: array[int] | None = None
        self.indexes: list[int] = []
        self.waiters: list[Future[str]] = []
        self.runs: list[SentRun] = []
        self.timed: dict[Future[str], int] = {}
        self.data = b""
        """The encoded block, or its front when its body is ``large``."""
        self.large: WholeBody | None = None
        self.held = False
        self._mixed = bool(shared.ttl_ms or shared.delay_ms)
        """Every message has to be looked at for the columns."""

    def add(self, kind: int, body: bytes, header: bytes, shared: Shared, now_ms: int) -> None:
        if self._mixed or shared is not self.shared:
            self._add_columns(shared, now_ms)
        if self.headers is not None:
            self.headers.append(header)
        elif header:
            self.headers = [b""] * self.count
            self.headers.append(header)
        self.bodies.append(body)
        self.kinds.append(kind)
        self.count += 1

    def add_run(self, kind: int, bodies: list[bytes], header: bytes, shared: Shared, now_ms: int) -> None:
        """Do what :meth:`add` does, for messages that differ in nothing but their bodies."""
        if self._mixed or shared is not self.shared:
            for body in bodies:
                self.add(kind, body, header, shared, now_ms)
            return
        if self.headers is None and header:
            self.headers = [b""] * self.count
        if self.headers is not None:
            self.headers += [header] * len(bodies)
        self.bodies += bodies
        self.kinds += bytes((kind,)) * len(bodies)
        self.count += len(bodies)

    def _add_columns(self, shared: Shared, now_ms: int) -> None:
        """Note what the next message has of its own; those before it have what the block says or nothing."""
        if self.priorities is None and shared.priority != self.shared.priority:
            self.priorities = bytearray((self.shared.priority,)) * self.count
        if self.priorities is not None:
            self.priorities.append(shared.priority)
        if self.expires is None and shared.ttl_ms:
            self.expires = array("Q", bytes(8 * self.count))
        if self.expires is not None:
            self.expires.append(now_ms + shared.ttl_ms if shared.ttl_ms else 0)
        if self.deliver_at is None and shared.delay_ms:
            self.deliver_at = array("Q", bytes(8 * self.count))
        if self.deliver_at is not None:
            self.deliver_at.append(now_ms + shared.delay_ms if shared.delay_ms else 0)
        self._mixed = not (self.priorities is None and self.expires is None and self.deliver_at is None)

    def fill(self, kinds: bytes, bodies: list[bytes], now_ms: int, own: Columns) -> None:
        """Be a batch of these bodies and no others, with the attributes of ``shared`` where ``own`` says nothing."""
        self.bodies = bodies
        self.kinds = bytearray(kinds)
        self.count = len(bodies)
        self.size = sum(map(len, bodies)) + MESSAGE_OVERHEAD_BYTES * self.count
        if self.shared.ttl_ms:
            self.expires = array("Q", (now_ms + self.shared.ttl_ms,)) * self.count
        if self.shared.delay_ms:
            self.deliver_at = array("Q", (now_ms + self.shared.delay_ms,)) * self.count
        headers, priorities, ttls_ms = own
        if headers is not None:
            self.headers = headers
            self.size += sum(map(len, headers))
        if priorities is not None:
            self.priorities = bytearray(priorities)
        if ttls_ms is not None:
            self.expires = array("Q", [now_ms + ttl_ms if ttl_ms else 0 for ttl_ms in ttls_ms])

    def leave(self) -> None:
        """It has left unanswered: everybody who waited for that was told, and nobody waits for what becomes of it."""
        self.indexes, self.waiters, self.runs, self.timed = [], [], [], {}

    def drop_content(self) -> None:
        """What was in it is not needed any more."""
        self.data, self.large = b"", None

    @property
    def block(self) -> bytes:
        """The whole block, encoded."""
        return self.data if self.large is None else b"".join((self.data, self.large.data))

    @property
    def unawaited(self) -> int:
        """Messages that nobody waits for."""
        if self.indexes[:1] == [-1]:
            return 0
        return self.count - len(self.indexes) - sum(run.count for run in self.runs)

    def takes(self, shared: Shared) -> bool:
        """Whether a message with these attributes can be in the same block."""
        mine = self.shared
        return shared.persistent == mine.persistent and shared.stamped == mine.stamped

    def encode(self, producer: int) -> None:
        """Make the block; bodies are not needed after that."""
        kinds = self.kinds
        first = kinds[0]
        uniform = kinds.count(first) == self.count
        if self.count == 1 and len(self.bodies[0]) > LARGE_BODY_BYTES:
            body: Any = self.bodies[0]
            self.large = body if isinstance(body, WholeBody) else WholeBody(body)
        self.data = encode_block(
            self.bodies,
            producer=producer,
            first_seq=self.first_seq,
            timestamp_ms=self.timestamp_ms,
            persistent=self.shared.persistent,
            kinds=first if uniform else bytes(kinds),
            headers=self.headers,
            priority=self.shared.priority,
            priorities=None if self.priorities is None else bytes(self.priorities),
            expires=self.expires,
            deliver_at=self.deliver_at,
            front=self.large is not None,
        )
        self.bodies = []
        self.headers = self.priorities = self.expires = self.deliver_at = None


class ProducerState:
    """State of one producer handle; ``producer`` is its identity for as long as it lives.

    Whoever uses it from several threads holds a lock around every call.
    """

    __slots__ = (
        "_broker",
        "_written",
        "answered",
        "credit",
        "everything",
        "held_bytes",
        "id_prefix",
        "next_seq",
        "open",
        "producer",
        "ready",
        "scheduled",
        "unsettled",
        "unsettled_bytes",
        "unsettled_messages",
    )

    def __init__(self, producer: int) -> None:
        self.producer = producer
        self.id_prefix = id_prefix(producer)
        """Of the ids of its messages, which their sequence numbers follow."""
        self.next_seq = 1
        self.open: SendBatch | None = None
        """Takes further messages."""
        self.ready: deque[SendBatch] = deque()
        """Sealed and not written to a connection."""
        self.unsettled: deque[SendBatch] = deque()
        """Persistent, written to the present connection, and not settled."""
        self.unsettled_bytes = 0
        """Of what is written and not settled, for the window."""
        self.unsettled_messages = 0
        self.credit = 0
        """Messages that may be written and not settled, 0 for no limit: then those that are not persistent are settled
        by the broker as well."""
        self.answered = False
        """What is not persistent is settled by the broker too, whatever the credit."""
        self.held_bytes = 0
        """All of the above, for the bound on memory."""
        self.scheduled = False
        """It will be looked at what may be written."""
        self.everything = False
        """The open block is to leave then too, and not only those that are full."""
        self._written = 0
        """So many of those that are ready were written to a connection before."""
        self._broker = ""
        """Where the last connection led."""

    def add(
        self,
        kind: int,
        body: bytes,
        header: bytes,
        shared: Shared,
        now_ms: int,
        waiter: Future[str] | None,
        since_ns: int = 0,
    ) -> int:
        """Accept one message; returns its sequence number. ``since_ns``: ``waiter`` waits from then (:meth:`late`)."""
        size = len(body) + len(header) + MESSAGE_OVERHEAD_BYTES
        batch, seq = self.open, self.next_seq
        if (
            batch is None
            or batch.size + size > BLOCK_BYTES_TARGET
            or batch.count == BLOCK_MESSAGES_MAX
            or batch.count == self.credit
            or (shared is not batch.shared and not batch.takes(shared))
        ):
            if batch is not None:
                self.seal()
            batch = self.open = SendBatch(seq, shared, now_ms)
        if waiter is not None:
            batch.indexes.append(batch.count)
            batch.waiters.append(waiter)
            if since_ns:
                batch.timed[waiter] = since_ns
        batch.add(kind, body, header, shared, now_ms)
        batch.size += size
        self.next_seq = seq + 1
        self.held_bytes += size
        return seq

    def add_alike(
        self, kind: int, body: bytes, header: bytes, shared: Shared, waiter: Future[str] | None, since_ns: int
    ) -> int:
        """Do what :meth:`add` does, for a message that goes into the open batch and has nothing that those before it
        have not: then no time is needed. 0 for any other, with which nothing has happened."""
        batch = self.open
        if batch is None or shared is not batch.shared or batch._mixed or header or batch.headers is not None:
            return 0
        size, count = len(body) + MESSAGE_OVERHEAD_BYTES, batch.count
        whole = batch.size + size
        if whole > BLOCK_BYTES_TARGET or count == BLOCK_MESSAGES_MAX or count == self.credit:
            return 0
        if waiter is not None:
            batch.indexes.append(count)
            batch.waiters.append(waiter)
            if since_ns:
                batch.timed[waiter] = since_ns
        batch.bodies.append(body)
        batch.kinds.append(kind)
        batch.count = count + 1
        batch.size = whole
        self.held_bytes += size
        seq = self.next_seq
        self.next_seq = seq + 1
        return seq

    def add_run(
        self, kind: int, bodies: list[bytes], header: bytes, shared: Shared, now_ms: int, told: RunTold
    ) -> None:
        """Accept messages that differ in nothing but their bodies, in as few blocks as they fit into.

        ``told`` gets what becomes of them, by their places in ``bodies``.
        """
        at, count = 0, len(bodies)
        more = len(header) + MESSAGE_OVERHEAD_BYTES
        block_max = min(self.credit or BLOCK_MESSAGES_MAX, BLOCK_MESSAGES_MAX)
        while at < count:
            batch = self.open
            size = len(bodies[at]) + more
            if (
                batch is None
                or batch.size + size > BLOCK_BYTES_TARGET
                or batch.count >= block_max
                or (shared is not batch.shared and not batch.takes(shared))
            ):
                self.seal()
                batch = self.open = SendBatch(self.next_seq, shared, now_ms)
            end, most = at + 1, min(count, at + block_max - batch.count)
            while end < most and (larger := size + len(bodies[end]) + more) + batch.size <= BLOCK_BYTES_TARGET:
                size = larger
                end += 1
            batch.runs.append(SentRun(told, at, batch.count, end - at))
            batch.add_run(kind, bodies if end - at == count else bodies[at:end], header, shared, now_ms)
            batch.size += size
            self.held_bytes += size
            self.next_seq += end - at
            at = end

    def add_many(
        self,
        kinds: bytes,
        bodies: list[bytes],
        shared: Shared,
        now_ms: int,
        waiter: Future[str] | None,
        own: Columns = (None, None, None),
        *,
        held: bool = False,
    ) -> None:
        """Accept a run of bodies as one block of its own; ``waiter`` waits for all of them, unless it is done or None.

        ``own``: headers, priorities and times to live in milliseconds, one a message, or None; ``held``: see SendBatch.
        """
        # What came one by one stays in front: blocks leave in the order of their sequence numbers.
        self.seal()
        batch = SendBatch(self.next_seq, shared, now_ms)
        batch.held = held
        batch.fill(kinds, bodies, now_ms, own)
        if waiter is not None and not waiter.done():
            batch.indexes.append(-1)
            batch.waiters.append(waiter)
        batch.encode(self.producer)
        self.next_seq += batch.count
        self.held_bytes += batch.size
        self.ready.append(batch)

    def seal(self) -> None:
        """Close the open batch, if there is one."""
        batch = self.open
        if batch is not None:
            batch.encode(self.producer)
            self.open = None
            self.ready.append(batch)

    def next_ready(self, window_bytes: int = 0) -> SendBatch | None:
        """Take the next block to write, with ``floor`` below which no sequence number will be sent again.

        A persistent one then waits to be settled, another one is done. With ``window_bytes`` None unless less than
        that is under way and the block is within the credit, where one that is larger than all of it goes alone.
        """
        if not self.ready:
            return None
        batch, under_way = self.ready[0], self.unsettled_messages
        if window_bytes and (
            self.unsettled_bytes >= window_bytes or (under_way and under_way + batch.count > self.credit > 0)
        ):
            return None
        del self.ready[0]
        batch.floor = self.unsettled[0].first_seq if self.unsettled else batch.first_seq
        self._written = max(self._written - 1, 0)
        if batch.shared.persistent or self.credit or self.answered or batch.large is not None:
            self.unsettled.append(batch)
            self.unsettled_bytes += batch.size
            self.unsettled_messages += batch.count
        else:
            self.held_bytes -= batch.size
        return batch

    def awaits(self, batch: SendBatch) -> bool:
        """Whether the broker settles it, and not its leaving."""
        return batch.shared.persistent or self.credit > 0 or self.answered

    @property
    def crowded(self) -> bool:
        """It holds as many messages as the credit allows to be under way."""
        if not self.credit:
            return False
        waiting = sum(batch.count for batch in self.ready) + (self.open.count if self.open is not None else 0)
        return self.unsettled_messages + waiting >= self.credit

    def forget_volatile(self) -> list[SendBatch]:
        """What was written and is not persistent will not be settled: the connection or the credit has gone; returns
        it."""
        gone = [batch for batch in self.unsettled if not batch.shared.persistent]
        for batch in gone:
            self.settle_block(batch.first_seq)
        return gone

    def hold(self) -> list[tuple[int, Future[str]]]:
        """Nothing can leave now: those who do not wait for that, with the sequence number of the first message."""
        held: list[tuple[int, Future[str]]] = []
        for batch in self.ready:
            if batch.held and batch.waiters:
                held.append((batch.first_seq, batch.waiters[0]))
                batch.leave()
        return held

    def take_back(self, waiter: Future[str]) -> bool:
        """Give up all that ``waiter`` waits for; False when it may have left, or is not alone in its block."""
        if self.open is not None and any(other is waiter for other in self.open.waiters):
            self.seal()
        for batch in list(islice(self.ready, self._written, None)):
            if batch.waiters and batch.waiters[0] is waiter and (batch.count == 1 or batch.indexes[0] < 0):
                self.ready.remove(batch)
                self.held_bytes -= batch.size
                return True
        return False

    def unsent(self) -> list[SendBatch]:
        """Give up what was never written to a connection; returns it so that those who wait can be told."""
        self.seal()
        gone = [self.ready.pop() for _ in range(len(self.ready) - self._written)]
        self.held_bytes -= sum(batch.size for batch in gone)
        return gone[::-1]

    def late(self, until_ns: int) -> tuple[list[Future[str]], int]:
        """Return those who wait from ``until_ns`` or before and are not to wait any longer, and from when the next one
        waits.

        The second is 0 when there is nobody else. Their messages stay.
        """
        gone, first = list[Future[str]](), 0
        for batch in (*self.unsettled, *self.ready, *([self.open] if self.open is not None else ())):
            timed = batch.timed
            late = [waiter for waiter, _ in takewhile(lambda row: row[1] <= until_ns, timed.items())]
            for waiter in late:
                del timed[waiter]
            gone += late
            since_ns = next(iter(timed.values()), 0)
            if since_ns and (not first or since_ns < first):
                first = since_ns
        return gone, first

    @property
    def floor(self) -> int:
        """No sequence number below this one will be sent again."""
        if self.unsettled:
            return self.unsettled[0].first_seq
        if self.ready:
            return self.ready[0].first_seq
        return self.open.first_seq if self.open is not None else self.next_seq

    def settle_block(self, first_seq: int) -> SendBatch | None:
        """The broker settled the block that starts with ``first_seq``; None when it had been settled before."""
        unsettled = self.unsettled
        for batch in unsettled:
            if batch.first_seq == first_seq:
                unsettled.remove(batch)
                self.held_bytes -= batch.size
                self.unsettled_bytes -= batch.size
                self.unsettled_messages -= batch.count
                return batch
        return None

    def send_again(self, broker: str = "") -> None:
        """The connection was lost: everything unsettled goes out again, before what never went out.

        To another broker than before it goes as what may come twice: it cannot know what the last one has stored.
        """
        self.forget_volatile()
        self.ready.extendleft(reversed(self.unsettled))
        self._written += len(self.unsettled)
        self.unsettled.clear()
        self.unsettled_bytes = self.unsettled_messages = 0
        if self._broker not in ("", broker):
            for batch in islice(self.ready, self._written):
                batch.data = in_doubt(batch.data, front=batch.large is not None)
        self._broker = broker

    def in_doubt(self) -> list[SendBatch]:
        """Return those that were written to some connection and not settled: the broker may have stored them."""
        return [*self.unsettled, *islice(self.ready, self._written)]

    def abandon(self) -> list[SendBatch]:
        """Give up everything; returns it so that those who wait can be told."""
        batches = [*self.unsettled, *self.ready, *([self.open] if self.open is not None else ())]
        self.open = None
        self._written = 0
        self.unsettled.clear()
        self.ready.clear()
        self.held_bytes = self.unsettled_bytes = self.unsettled_messages = 0
        return batches
