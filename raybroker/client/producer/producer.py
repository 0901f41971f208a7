"""The producer behind every face: thread safe to feed, and on the IO loop it writes, settles and recovers.

A handle holds at most ``raybroker.producer.buffer_bytes`` of unsettled messages; whoever sends more waits.  Blocks go
out when they are full, when somebody waits for one, when nothing that left before is unconfirmed, or
``raybroker.producer.linger_ms`` after the first message.

In a transacted session blocks belong to the open transaction and wait for its commit at most twice the linger time:
once written they are the host's, and what becomes of them is the commit's business; they are never sent again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, cast

from raybroker.client.connection.channel import Channel, ended_by
from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.connection.endpoint import Endpoint
from raybroker.client.connection.shared_body import ReferredBody
from raybroker.client.destinations import Destination
from raybroker.client.io.io_thread import fulfil
from raybroker.client.producer.bodies.block_split import pieces
from raybroker.client.producer.bodies.body_encoding import Encode
from raybroker.client.producer.bodies.compression import compressed, too_large
from raybroker.client.producer.bodies.large_sends import LargeSends
from raybroker.client.producer.bodies.xml_validation import validating
from raybroker.client.producer.pacing.flow_rate import flow_rates
from raybroker.client.producer.pacing.linger import LINGERING_BYTES_MAX, Linger
from raybroker.client.producer.pacing.losses import Losses
from raybroker.client.producer.pacing.one_way import one_way_sends
from raybroker.client.producer.pacing.send_room import SendRoom
from raybroker.client.producer.pacing.send_timeout import ATTRIBUTE, SendTimeout
from raybroker.client.producer.producer_owner import ProducerOwner
from raybroker.client.producer.producer_state import ProducerState, RunTold, SendBatch, Shared
from raybroker.client.producer.send_many import MANY_MESSAGES, Each, Own, encoded
from raybroker.client.producer.settlement import (
    NOTHING_TO_WAIT_FOR,
    Row,
    complete,
    first_fault,
    refuse_all,
    unheard,
    unknown_outcome,
)
from raybroker.client.producer.tracing import ProducerTrace
from raybroker.client.session.current_transaction import CurrentTransaction, TransactionPart
from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import (
    BrokerError,
    ConnectionLostError,
    IllegalStateError,
    TransactionRolledBackError,
)
from raybroker.wire.native import frames as wire

log = logging.getLogger("raybroker.client")


class AtHost:
    """What a producer is at the host that it is attached to.

    window_bytes   so much may be under way
    generation     how often it was attached
    remembers_ids  the destination looks for deduplication ids that it has taken before
    trace          measures its sends; None: nobody does
    """

    __slots__ = ("generation", "remembers_ids", "trace", "window_bytes")

    def __init__(self, window_bytes: int) -> None:
        self.window_bytes = window_bytes
        self.generation = 0
        self.remembers_ids = True
        self.trace: ProducerTrace | None = None


class ProducerCore(Endpoint):
    """See the module. ``shared`` is what messages have unless a send says otherwise; ``transactions``: those of its
    session, or None."""

    def __init__(
        self,
        connection: ConnectionCore,
        destination: Destination,
        producer: int,
        shared: Shared,
        *,
        encode: Encode,
        transactions: CurrentTransaction[ProducerCore] | None = None,
    ) -> None:
        super().__init__(destination)
        attributes = connection.attributes
        self.shared = shared
        self.failure: BrokerError | None = None
        """Why it ended without being closed."""
        self._losses = Losses(self._tell_refused, told=transactions is not None)
        self._owner: ProducerOwner[ProducerCore] = ProducerOwner()
        self._connection = connection
        self._part = TransactionPart(transactions)
        self.encode = encode
        self._state = ProducerState(producer)
        self.one_way = one_way_sends(attributes, destination.kind, transacted=transactions is not None)
        """Which non-persistent sends wait; None: none does."""
        self._state.answered = self.one_way is not None
        self._lock = threading.Lock()
        self._room = SendRoom(
            self._state,
            self._lock,
            self.name,
            attributes,
            connection.clock.monotonic_ns,
            under_way=None if transactions is None else transactions.under_way,
            rates=flow_rates(attributes),
            later=self._call_room,
        )
        self._send_timeout = SendTimeout(
            self._state, self._lock, self.name, attributes[ATTRIBUTE], connection.clock.monotonic_ns
        )
        self._linger = Linger(
            self._state,
            self._lock,
            self._flush,
            connection.io,
            attributes["raybroker.producer.linger_ms"] / 1000,
            min(LINGERING_BYTES_MAX, self._room.bytes_max // 2),
            transacted=transactions is not None,
        )
        self._large = LargeSends(
            destination,
            self._state,
            self._lock,
            self._room,
            connection.tasks,
            self._flush,
            self._losses.give_up,
            note_refusal=transactions.note_refusal if transactions is not None else None,
        )
        self._at_host = AtHost(attributes["raybroker.producer.window_bytes"])

    @property
    def transacted(self) -> bool:
        """Its messages belong to transactions."""
        return self._part.transactions is not None

    def belong_to(self, owner: ProducerOwner[ProducerCore]) -> None:
        """Make it one of several attachments of a handle."""
        self._owner = owner
        self.reports_failure = False

    # ---- any thread ------------------------------------------------------------------------------------------------

    def put(
        self, body: Any, header: bytes, shared: Shared, waiter: Future[str] | None, *, urgent: bool, block: bool = True
    ) -> str | None:
        """Accept one message; returns its id, or None when there is no room and ``block`` is False.

        ``waiter`` is told what becomes of it, and unless ``urgent`` does not wait for ever.
        """
        if self._connection.io.unusable:
            self._connection.io.require_usable()
        if type(body) is ReferredBody:
            kind, data = body.kind, cast(bytes, body)
        else:
            kind, data = self.encode(body)
            if len(data) > self._connection.message_bytes_max:
                raise too_large(len(data), self._connection.message_bytes_max)
            if header:
                kind, data, header = compressed(kind, data, header)
        with self._lock:
            state, room = self._state, self._room
            # Nearly all messages find room, and no credit or rate to be held back for.
            if (state.credit or state.held_bytes >= room.easy_bytes or room.stopped is not None) and not room.enter(
                settled=waiter is not None, block=block
            ):
                return None
            since_ns, sealed = 0 if waiter is None or urgent else self._send_timeout.monotonic_ns(), len(state.ready)
            # Most messages are like those before them: then neither the time of day nor the columns are looked at.
            seq = 0 if state.open is None else state.add_alike(kind, data, header, shared, waiter, since_ns)
            if not seq:
                seq = state.add(kind, data, header, shared, self._connection.clock.now_ms(), waiter, since_ns)
            if urgent:
                self._schedule()
            else:
                if len(state.ready) > sealed:
                    self._schedule(everything=False)
                # Nothing is under way whose answer would take this message along: it leaves at once. One that is not
                # answered lingers, since without answers each of them would leave alone.
                elif not (self._part.transactions is not None or state.unsettled_messages) and (
                    shared.persistent or state.answered
                ):
                    # What cannot leave since long waits unwritten, and its timeout is not running any more.
                    if not state.everything or self._send_timeout.idle:
                        self._schedule()
                    return f"{state.id_prefix}{seq}"
                if not self._linger.running:
                    self._linger.start_time()
        return f"{state.id_prefix}{seq}"

    def put_run(self, kind: int, bodies: list[bytes], header: bytes, shared: Shared, told: RunTold) -> bool:
        """Accept messages that differ in nothing but their bodies, which are encoded and not large; they leave at once.

        ``told`` gets what becomes of them. False: none was accepted, since not all of them may be, and :meth:`put` says
        so of each. In a transaction none is.
        """
        if self._part.transactions is not None or self._connection.io.unusable:
            return False
        with self._lock:
            state, room = self._state, self._room
            # What is waited for the buffer alone bounds, and no credit.
            fits = state.held_bytes + sum(map(len, bodies)) < room.easy_bytes
            if not fits or room.stopped is not None or room.ending is not None:
                return False
            state.add_run(kind, bodies, header, shared, self._connection.clock.now_ms(), told)
            self._schedule()
        return True

    def put_many(
        self, bodies: Iterable[Any], shared: Shared, each: Each | None = None
    ) -> Iterator[tuple[int, Future[str]]]:
        """Accept messages as full blocks; yields how many, and a future to be waited for, for each block.

        In a transaction there is nothing to wait for but its commit. A block that is not persistent, and that the
        broker does not answer, is waited for until it has left, or nothing can leave. A part of no messages says that
        there is no room for the next ones, and that this waits for it in whatever thread goes on. ``each``: what each
        message has of its own.
        """
        self._connection.io.require_usable()
        source, most = iter(bodies), self._connection.message_bytes_max
        held = not (shared.persistent or self._state.answered)
        while chunk := list(islice(source, MANY_MESSAGES)):
            kinds, data, own = encoded(chunk, self.encode, each, most)
            for start, end in pieces(data, self._together):
                if not self.has_room():
                    yield 0, NOTHING_TO_WAIT_FOR
                part = own.part(start, end)
                yield end - start, self.put_block(kinds[start:end], data[start:end], shared, part, held=held)

    def put_block(
        self,
        kinds: bytes,
        bodies: list[bytes],
        shared: Shared,
        own: Own,
        now_ms: int | None = None,
        *,
        held: bool = False,
    ) -> Future[str]:
        """Accept encoded bodies as one block; ``now_ms``: when they were packed, None for now; ``held``: nobody waits
        for it while nothing can leave."""
        done: Future[str] = Future() if self._part.transactions is None else NOTHING_TO_WAIT_FOR
        with self._lock:
            self._room.wait(len(bodies))
            now_ms = self._connection.clock.now_ms() if now_ms is None else now_ms
            self._state.add_many(kinds, bodies, shared, now_ms, done, own, held=held)
            if self._part.transactions is None or self._state.held_bytes > self._linger.bytes_max:
                self._schedule()
            else:  # A commit is likely to follow, and takes it along.
                self._linger.start_time()
        return done

    def _together(self) -> int:
        """Messages that may go as one block: the credit, or what the rate allows; 0 for any number."""
        credit, run = self._state.credit if self._part.transactions is None else 0, self._room.run
        return min(credit, run) if credit and run else credit or run

    def check_window(self) -> None:
        """A message with a deduplication id is about to be sent: log, once, when the destination ignores it."""
        if not self._at_host.remembers_ids:
            self._at_host.remembers_ids = True
            log.warning(
                "dedup_id of messages to %s does nothing: the destination has duplicateWindowMs=0; set it with"
                " raybroker update dst -t %s -n %s -o duplicateWindowMs=60000",
                self.name,
                self.destination.kind[0],
                self.name,
            )

    def room_future(self) -> Future[None]:
        """Done when there may be room again."""
        with self._lock:
            return self._room.future()

    @property
    def stopped(self) -> bool:
        """Nothing may be sent now."""
        return self._room.stopped is not None

    def has_room(self) -> bool:
        """Whether a message would be taken, or refused, without waiting."""
        with self._lock:
            return self._room.takes_more

    @property
    def waits_for_rate(self) -> bool:
        """The rate holds the next message back, and nothing else does."""
        with self._lock:
            return self._room.waits_for_rate

    @property
    def flow_limit(self) -> float | None:
        """Messages a second that may be sent now, since the destination is or was over a threshold; None: no limit."""
        with self._lock:
            return self._room.limit

    def _call_room(self, wait_s: float) -> None:
        self._connection.io.post(self._connection.io.loop.call_later, wait_s, self._room_due)

    def take_back(self, waiter: Future[str]) -> bool:
        """Whoever sent a message waits no longer: True when it has not left, and will not."""
        with self._lock:
            taken = self._state.take_back(waiter)
            self._room.changed()
            return taken

    def wait_no_longer(self, error: BrokerError) -> None:
        """Its session is being closed: who waits for a full destination gets ``error``; what has left is settled."""
        with self._lock:
            self._room.end_waiting(error)
        self._end_waiting()

    def _end_waiting(self) -> None:
        """Refuse what has not left for a full destination, if nobody is to wait for that any more."""
        error = self._room.ending
        if error is None:
            return
        with self._lock:
            batches = self._state.unsent() if self._room.slow else []
            self._room.changed()
        refuse_all(batches, error)
        # To count them takes the IO loop, which a process that ends has no more.
        if batches:
            self._connection.io.post(self._losses.give_up, batches, error)

    def refuse_sends(self, error: BrokerError | None) -> None:
        """Nothing may be sent because of ``error``, or anything again. What is final stays."""
        with self._lock:
            self._room.stop(error)

    def _schedule(self, *, everything: bool = True) -> None:
        """Have what is full written, or everything; with the lock held, in any thread."""
        state = self._state
        if everything:
            state.everything = True
        if not state.scheduled:
            state.scheduled = True
            self._connection.io.post(self._flush_scheduled)

    # ---- the IO loop -----------------------------------------------------------------------------------------------

    def _room_due(self) -> None:
        with self._lock:
            self._room.due()

    def _flush(self) -> None:
        """Write everything, as far as the connection takes it; an error ends the producer."""
        self._state.everything = True
        self._flush_scheduled()

    def _flush_scheduled(self) -> None:
        """Write what is full, or everything if that was asked for meanwhile."""
        try:
            if self._send_timeout.idle:
                self._send_timeout.watch()
            if self._part.transactions is not None:
                self._write_in_transaction(self._part.transactions)
            else:
                self._write()
        except Exception as error:  # noqa: BLE001 - whoever waits for a message has to be told
            self._connection.attachments.broke(self, error)

    def _write(self) -> None:
        done, held = list[SendBatch](), list[tuple[int, Future[str]]]()
        with self._lock:
            self._state.scheduled = False
            channel = self._channel
            if channel is None or channel.lost or self._room.slow:
                held = self._state.hold()
            elif not self._large.under_way(channel):
                done = self._write_ready(channel)
        for seq, waiter in held:
            fulfil(waiter, f"{self._state.id_prefix}{seq}")
        for batch in done:
            complete(batch, self._state.producer, ())
            if batch.waiters or batch.runs:
                batch.leave()

    def _write_ready(self, channel: Channel) -> list[SendBatch]:
        """Write what is sealed, as far as the channel and the window take it, with the lock held; returns what has left
        and is not waited for any longer."""
        state, buffers, done = self._state, list[Buffer](), list[SendBatch]()
        if (
            state.everything and state.unsettled_bytes < self._at_host.window_bytes
        ):  # Or else it grows until there is room.
            state.everything = False
            state.seal()
        while not channel.link.congested and (batch := state.next_ready(self._at_host.window_bytes)) is not None:
            if batch.large is not None:
                if buffers:
                    channel.link.write(*buffers)
                    buffers.clear()
                if self._large.send_in_pieces(channel, self._handle, batch):
                    break
                if not state.awaits(batch):
                    state.settle_block(batch.first_seq)
            if self._at_host.trace is None:
                buffers.extend(wire.send(self._handle, batch.floor, batch.block))
            else:
                buffers.extend(self._at_host.trace.frame(self._handle, batch.floor, batch.first_seq, batch.block))
            if not (batch.shared.persistent or state.answered):
                done.append(batch)
            if len(buffers) >= 32:
                channel.link.write(*buffers)
                buffers.clear()
        if buffers:
            channel.link.write(*buffers)
        if done:
            self._room.changed()
        return done

    def _write_in_transaction(self, transactions: CurrentTransaction[ProducerCore]) -> None:
        """Blocks of a transaction are the host's once they are written; those of a lost one are dropped.

        Whoever waits for one of its messages is told then: what becomes of all of them is told by the commit.
        """
        written: list[SendBatch] = []
        transaction = transactions.transaction
        if transaction is not None and transaction.lost and not transaction.complete:
            self.discard(TransactionRolledBackError(f"the transaction can only be rolled back: {transaction.lost}"))
        with self._lock:
            channel, state = self._channel, self._state
            state.scheduled = False
            if transaction is None or transaction.complete or channel is None or channel.lost:
                return  # A full destination is no reason to wait any more: what is here has been taken.
            if self._large.under_way(channel):
                return
            state.seal()
            while not channel.link.congested and (batch := state.next_ready()) is not None:
                self._part.wrote_in = transaction
                number = transaction.number_on(channel, self.destination)
                if self._large.send_in_pieces(channel, self._handle, batch, number):
                    break
                # A commit is likely to follow in this turn of the loop, and leaves in the same write. The block is
                # settled already: it is the host's now, and is never sent again.
                channel.link.write_soon(*wire.send_tx(self._handle, batch.floor, number, batch.block))
                state.settle_block(batch.first_seq)
                batch.drop_content()
                written.append(batch)
            self._room.changed()
        for batch in written:
            complete(batch, state.producer, ())

    def discard(self, error: BrokerError) -> None:
        """The transaction is not to be: what did not leave yet never will."""
        with self._lock:
            batches = self._state.abandon()
            self._room.changed()
        refuse_all(batches, error)

    def handed_over(self) -> bool:
        """Write what is here; True when everything has left."""
        if self._state.held_bytes:
            self._flush()
        return not self._state.held_bytes

    @property
    def spoils(self) -> BrokerError | None:
        """Why the open transaction lacks something that was sent in it here; a producer that had no part in the
        transaction it failed in spoils none."""
        return self.failure if self._part.spoils else None

    def end_transaction(self) -> None:
        """The transaction was committed, or rolled back: the next one may send."""
        self._part.end_transaction()
        if self._room.stopped is not None:
            self.refuse_sends(None)

    async def attach(self, channel: Channel) -> None:
        """Open on a channel, and send again what the last one left unsettled."""
        handle = channel.new_handle(self)
        self._at_host.generation += 1
        with self._lock:
            # What the last host said of its gate holds no more: the answer of this one says what holds.
            self._room.gate("open")
        args = {
            "handle": handle,
            "name": self.name,
            "type": self.destination.kind,
            "producer": self._state.producer,
            "generation": self._at_host.generation,
            "obeys": flow_rates(self._connection.attributes) is not None,
            "answers": self.one_way is not None,
            "send_timeout_ms": self._connection.attributes["SendTimeout"],
        }
        try:
            answer = await channel.call("open_producer", args, self._opened)
            self._at_host.remembers_ids = bool(answer.get("dedup"))
            self.encode = await validating(self.encode, self.name, answer.get("xml"))
        except BaseException:
            if channel.endpoints.pop(handle, None) is not None:
                channel.leave("close_producer", handle)
            raise
        with self._lock:
            self._channel, self._handle = channel, handle
            # A log that has copies is the same one at whichever broker, and knows what it has.
            self._state.send_again(channel.place.member)
            self._state.credit = int(answer.get("credit", 0))
            if answer.get("gate"):
                self._room.gate(str(answer["gate"]))
        self._flush()
        self._owner.member_turned()

    def _opened(self, answer: Mapping[str, Any]) -> None:
        """Take the answer, before any frame that follows it."""
        self._signal(armed=bool(answer.get("armed")))

    def _signal(self, *, armed: bool) -> None:
        """The destination is over a threshold, or is not: obey."""
        with self._lock:
            before = self._room.limit
            self._room.signal(armed=armed)
            now = self._room.limit
        if now is not None and before is None:
            log.info(
                "%s is over a threshold: this producer sends at most %g messages a second, then fewer", self.name, now
            )

    def on_frame(self, frame: wire.Frame) -> None:
        if isinstance(frame, wire.SentFrame | wire.RefusedFrame):
            rows = frame.rows if isinstance(frame, wire.RefusedFrame) else ()
            if self._part.transactions is not None:
                self._refused_in_transaction(rows, self._part.transactions)
                return
            with self._lock:
                state = self._state
                batch = state.settle_block(frame.first_seq)
                if self._room.waiters.some:
                    self._room.changed()
                if state.ready or state.everything:
                    self._schedule(everything=False)
                elif state.held_bytes and not state.unsettled_messages:  # What came meanwhile waits no longer.
                    self._schedule()
            if batch is not None:
                complete(batch, state.producer, rows)
                if self.one_way is not None:
                    self.one_way.refusing = bool(rows) and first_fault(rows) is not None
            if rows:
                self._losses.know(rows)
                heard = batch is not None and (batch.shared.persistent or state.answered)
                self._losses.refuse(unheard(batch, rows) if batch is not None and heard else rows)
        elif isinstance(frame, wire.TracedFrame):
            if self._at_host.trace is not None:
                self._at_host.trace.heard(frame)
        elif isinstance(frame, wire.EventFrame):
            if frame.name == "credit":
                self._take_credit(int(frame.data.get("credit", 0)))
                return
            if frame.name == "armed":
                self._signal(armed=bool(frame.data.get("armed")))
                return
            if frame.name != "gate":
                self._connection.attachments.end_handle(self, ended_by(frame, self.name))
                return
            with self._lock:
                self._room.gate(str(frame.data.get("state")))
                self._room.changed()
            self._end_waiting()
            self._flush()
            self._owner.member_turned()

    def _take_credit(self, credit: int) -> None:
        """The limits of its destination have changed."""
        with self._lock:
            self._state.credit = credit
            if not credit and not self._state.answered:
                self._state.forget_volatile()
            self._room.changed()
        self._flush()

    def _tell_refused(self, count: int, error: BrokerError) -> None:
        """The application hears of messages that nobody waits for and that did not get there."""
        channel = self._channel
        address = channel.place.key if channel is not None else ""
        self._connection.events.messages_refused(address, self.name, count, error)

    def _refused_in_transaction(self, rows: Sequence[Row], transactions: CurrentTransaction[ProducerCore]) -> None:
        """What a host refuses keeps the transaction from being committed."""
        with self._lock:
            fault = first_fault(rows)
            if fault is not None:
                transactions.note_refusal(fault)
                self._room.stop(fault)
        self._losses.know(rows)

    def on_writable(self) -> None:
        self._flush()

    def on_lost(self) -> None:
        channel, self._channel = self._channel, None
        self._lose_unanswered()
        self._owner.member_turned()
        if self._part.transactions is not None:
            self._part.transactions.lose(f"the connection to {self.name} was lost", channel)
        else:
            self._flush()  # Nothing can leave.
        if not self.closed:
            self._connection.attachments.recover(self)

    def _lose_unanswered(self) -> None:
        """What was written and is not persistent is not sent again: whoever waits for it is told, and so are others.

        What the broker does not answer has been forgotten since it was written, and is not known of.
        """
        with self._lock:
            batches = self._state.forget_volatile()
            self._room.changed()
        if batches:
            error = unknown_outcome(ConnectionLostError(f"the connection of the producer for {self.name} was lost"))
            refuse_all(batches, error)
            self._losses.give_up(batches, error)

    def fail(self, error: BrokerError) -> None:
        """It is over: everybody who waits gets ``error``."""
        error = self.failure = self._owner.error_of(self, error)
        current = self._part.transactions.transaction if self._part.transactions is not None else None
        self._part.fail(current, holds_some=self.holds_some)
        self._owner.member_failed(self)
        self._send_timeout.stop()
        with self._lock:
            self._room.finish(error)
        self._give_up(error)

    async def close(self) -> None:
        """Close the handle on the host; what is unsettled has been waited for by the caller."""
        channel = self._channel
        self._send_timeout.stop()
        with self._lock:
            self._room.finish(self.failure or IllegalStateError(f"the producer for {self.name} is closed"))
            self.closed = True
        try:
            if channel is not None and not channel.lost:
                # What was refused of messages that nobody waited for is told before the answer.
                await channel.call("close_producer", {"handle": self._handle})
        finally:
            if channel is not None:
                channel.endpoints.pop(self._handle, None)
            self._give_up(IllegalStateError(f"the producer for {self.name} was closed"))
            self._connection.handles.forget_producer(self)

    def _give_up(self, error: BrokerError) -> None:
        """Nothing more is sent: whoever waits is told, and whether the message may be stored all the same."""
        with self._lock:
            doubtful = self._state.in_doubt()
            batches = self._state.abandon()
            self._room.changed()
        self._losses.give_up(batches, error)
        # In doubt first: they are among the batches too, and a future keeps the first error that it gets.
        refuse_all(doubtful, unknown_outcome(error))
        refuse_all(batches, error)

    def trace(self) -> ProducerTrace:
        """Measure its sends from now on: see ``tracing``."""
        if self._at_host.trace is None:
            self._at_host.trace = ProducerTrace(self._connection.clock.monotonic_ns)
        return self._at_host.trace

    @property
    def refused(self) -> int:
        """Messages that were refused and that nobody waited for."""
        return self._losses.refused

    @property
    def duplicates(self) -> int:
        """Messages that the broker had taken before, by their deduplication ids."""
        return self._losses.duplicates

    @property
    def throttled(self) -> bool:
        """The destination is full and has said so: what is here may never leave."""
        return self._room.slow and self._state.held_bytes > 0

    @property
    def holds_some(self) -> bool:
        """Something that was sent has not left, or is not settled."""
        return self._state.held_bytes > 0

    @property
    def low(self) -> str:
        """Why its broker takes nothing from any producer at present; "" when it does."""
        return self._room.low

    def settled_futures(self) -> list[Future[None]]:
        return [self.settled_future()]

    def settled_future(self) -> Future[None]:
        """Done when everything accepted so far is settled, or the producer has failed."""
        with self._lock:
            done = self._room.empty_future()
            if not done.done():
                self._schedule()
        return done

    async def call_host(self, op: str, args: dict[str, Any]) -> Any:
        """One request to its host about the handle, again while it is being brought back; raises what the host
        answers, and why the producer has ended."""

        async def once() -> Any:
            if self.failure is not None:
                raise self.failure
            if self.closed:
                raise IllegalStateError(f"the producer for {self.name} is closed")
            if self.place is None:
                raise ConnectionLostError(f"the producer for {self.name} is not connected")
            channel, handle = self.place
            return await channel.call(op, {**args, "handle": handle})

        return await self._connection.tasks.with_retry(self.name, once)
