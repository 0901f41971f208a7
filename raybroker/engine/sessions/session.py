"""One client's connection to a host: its producers and consumers, by handle, and what it asks of them.

A *handle* numbers a producer or consumer on this connection and is chosen by the client; an *epoch* is the host's own
number of the attachment, never used twice.  Acknowledgements and credit carry both, so what belongs to an ended
attachment is recognised and dropped instead of settling somebody else's messages.

Control requests are carried out by families of operations, each in a file of its own (``…_requests``), which are handed
to the session as one table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from raybroker.core import command as cmd
from raybroker.core.delivery.window import CREDIT_MAX
from raybroker.core.outcome import Refused
from raybroker.engine.measuring.meters import Meters
from raybroker.engine.path.block_intake import BlockIntake
from raybroker.engine.path.blocked_sends import Blocked, BlockedSends
from raybroker.engine.path.client_effects import ClientEffects
from raybroker.engine.path.executor import Executor
from raybroker.engine.ports import Peer
from raybroker.engine.sessions.attachments import Attachment, Attachments, Outbox
from raybroker.engine.sessions.sessions import ClientSession, Sessions
from raybroker.engine.transactions.transaction_state import TransactionEvent
from raybroker.engine.transactions.transactions import Transaction, Transactions
from raybroker.model.blocks.block import Block
from raybroker.model.blocks.large_block import LargeBlock
from raybroker.model.errors import (
    BrokerError,
    InvalidDestinationError,
    ProtocolError,
    ResourceAllocationError,
    SecurityError,
    TransactionRolledBackError,
)

if TYPE_CHECKING:
    from raybroker.engine.destinations.browsing import Browsing

HANDLES_MAX: Final = 65_536
"""Producers, consumers and browsers on one connection to one host."""

Arguments = dict[str, Any]
Operation = Callable[["Session", int, Arguments], None]
"""Carries out a request of a session; it answers, or raises a BrokerError, or what malformed arguments cause."""


class SessionParts(NamedTuple):
    """What the sessions of a host share.

    operations  name of a request → who carries it out
    give_body   gives a block the body that a session has sent ahead under a number
    writable    called with a session whose client can take more
    leaving     called, one after another, with a session that has ended, before its producers and consumers go
    lost        called with the id of a connection that has no session any more
    """

    executor: Executor
    attachments: Attachments
    sessions: Sessions
    outgoing: ClientEffects
    intake: BlockIntake
    meters: Meters
    transactions: Transactions
    blocked: BlockedSends
    operations: Mapping[str, Operation]
    give_body: Callable[[ClientSession, int, LargeBlock], None]
    writable: Callable[[ClientSession], None]
    leaving: Sequence[Callable[[ClientSession], None]]
    lost: Callable[[str], None]


class Session:
    """Created for a connection that has authenticated; :meth:`close` when it ends, for whatever reason."""

    def __init__(self, parts: SessionParts, peer: Peer) -> None:
        self.peer = peer
        self.client = ClientSession(peer)
        self.outbox = Outbox()
        self.producers: dict[int, Attachment] = {}
        self.consumers: dict[int, Attachment] = {}
        self.browsers: dict[int, Browsing] = {}
        self.producer_ids: dict[int, int] = {}
        self.transactions: dict[int, Transaction] = {}
        """By the client's number."""
        self._started = True
        self._flow_open = True
        self._parts = parts
        self._live = parts.attachments.by_number
        self._perform = parts.executor.perform
        self._command = parts.intake.command
        self._meters = parts.meters
        parts.sessions.open[self.client] = None

    # ---- requests --------------------------------------------------------------------------------------------------

    def call(self, request: int, op: str, args: Arguments) -> None:
        """Carry out a control request; the peer gets a reply or a failure, never nothing."""
        operation = self._parts.operations.get(op)
        try:
            if operation is None:
                raise ProtocolError(f"unknown request {op!r}; known are {', '.join(self._parts.operations)}")
            self._parts.executor.require_running()
            if self.client.blocked:
                again = partial(self.call, request, op, args)
                if self._parts.blocked.puts_off(self.client, op, args, again):
                    return
            operation(self, request, args)
        except BrokerError as error:
            self.peer.failed(request, error.code, str(error))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            self.peer.failed(request, ProtocolError.code, f"request {op!r} is malformed: {error!r}")

    def transaction(self, number: int) -> Transaction:
        """The session's transaction of that number; the first use begins a local one."""
        found = self.transactions.get(number)
        if found is None:
            found = self.transactions[number] = self._parts.transactions.begin_transaction(self.client)
        return found

    # ---- messages --------------------------------------------------------------------------------------------------

    def send(self, handle: int, floor: int, block: Block, txn_number: int = 0) -> None:
        """A block from a producer. One for a handle that is not attached is told so, message by message."""
        attachment = self.producers.get(handle)
        if attachment is None or attachment.number not in self._live:
            if block.persistent or txn_number or (attachment is not None and attachment.answers):
                self._refuse(handle, block, InvalidDestinationError.code, "the destination was destroyed")
            return
        producer = self.producer_ids[handle]
        if block.producer != producer:
            raise ProtocolError(f"a block of producer {block.producer:#x} came from producer {producer:#x}")
        destination = attachment.destination
        confirm = block.persistent or txn_number > 0 or attachment.answers
        number = 0
        if txn_number:
            transaction = self.transaction(txn_number)
            if not self._joins(transaction, attachment, block):
                return
            transaction.destinations[destination] = None
            number = transaction.number
        elif block.persistent:
            self._meters.sending(attachment, block.first_seq, block.count)
        client = self.client
        origin = client.connection, client.client_id or ""
        command, block = self._command(
            destination, attachment.number, block, floor=floor, origin=origin, txn=number, confirm=confirm
        )
        if destination.policy.account is None:
            outcome = self._perform(destination, command, block)
        else:
            send = Blocked(client, attachment, command, block, txn_number, self._parts.transactions)
            outcome = self._parts.blocked.send(send, attachment.send_timeout_ms)
        if number and outcome is not None:
            self._parts.transactions.note_refusal(number, outcome)

    def send_large(self, handle: int, floor: int, body: int, block: LargeBlock, txn_number: int = 0) -> None:
        """Do what :meth:`send` does, for a message whose body came ahead under the number ``body``."""
        self._parts.give_body(self.client, body, block)
        self.send(handle, floor, block, txn_number)

    def _joins(self, transaction: Transaction, attachment: Attachment, block: Block) -> bool:
        """Whether a block may be sent in a transaction; its producer is told if not."""
        if not transaction.takes(TransactionEvent.JOIN):
            code = TransactionRolledBackError.code
            self._refuse(attachment.handle, block, code, "the transaction was rolled back")
            return False
        reason = self._parts.transactions.joins(transaction, attachment.number, block.count)
        if reason is not None:
            transaction.refusal = transaction.refusal or ResourceAllocationError(reason)
            self._refuse(attachment.handle, block, ResourceAllocationError.code, reason)
        return reason is None

    def _refuse(self, handle: int, block: Block, code: str, text: str) -> None:
        self.peer.sent(handle, block.first_seq, block.count, (Refused(0, block.count, code, text),))

    def acknowledge(self, handle: int, epoch: int, request: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Deliveries are done with; with the epoch of an ended attachment nothing is (they were given back)."""
        attachment = self.consumer(handle, epoch)
        if attachment is None:
            if request:
                self.peer.acked(request, sum(last - first + 1 for first, last in ranges))
            return
        self._meters.acknowledged(attachment, ranges)
        self._perform(attachment.destination, cmd.Acknowledge(epoch, ranges, request))

    def settle_deliveries(
        self,
        handle: int,
        epoch: int,
        request: int,
        outcome: str,
        delay_ms: int,
        reason: str,
        ranges: Sequence[tuple[int, int]],
    ) -> None:
        """Another outcome than an acknowledgement."""
        attachment = self.consumer(handle, epoch)
        if attachment is None:
            if request:
                self.peer.acked(request, sum(last - first + 1 for first, last in ranges))
            return
        self.perform(attachment, cmd.Settle(attachment.number, ranges, request, outcome, delay_ms, reason))

    def begun(self, handle: int, epoch: int, tag: int) -> None:
        attachment = self.consumer(handle, epoch)
        if attachment is not None:
            self.perform(attachment, cmd.Begun(attachment.number, tag))

    def taken(self, handle: int, epoch: int, tag: int) -> None:
        attachment = self.consumer(handle, epoch)
        if attachment is not None:
            self.perform(attachment, cmd.Taken(attachment.number, tag))

    def extend(self, handle: int, epoch: int, ranges: Sequence[tuple[int, int]]) -> None:
        attachment = self.consumer(handle, epoch)
        if attachment is not None:
            self.perform(attachment, cmd.Extend(attachment.number, ranges))

    def recalled(self, handle: int, epoch: int, ranges: Sequence[tuple[int, int]]) -> None:
        """What the consumer gives back of what it was asked for."""
        attachment = self.consumer(handle, epoch)
        if attachment is not None:
            self.perform(attachment, cmd.Recalled(attachment.number, ranges))

    def credit(self, handle: int, epoch: int, count: int) -> None:
        attachment = self.consumer(handle, epoch)
        if attachment is not None:
            self._meters.asked(attachment, count)
            self.perform(attachment, cmd.Grant(attachment.number, count))

    def drain(self, handle: int, epoch: int, count: int) -> None:
        """The consumer is in drain mode and asks for ``count`` messages of what there is now."""
        attachment = self.consumer(handle, epoch)
        if attachment is not None:
            self._meters.asked(attachment, count, drain=True)
            self.perform(attachment, cmd.Drain(attachment.number, min(count, CREDIT_MAX)))

    def flow(self, go: bool) -> None:
        """The client's buffers are full, or have room again."""
        self._flow_open = go
        self._apply_flow()

    def start(self, started: bool) -> None:
        """The client starts the connection, or stops it."""
        self._started = started
        self._apply_flow()

    @property
    def delivering(self) -> bool:
        """Whether consumers get messages now."""
        return self._started and self._flow_open

    def writable(self) -> None:
        """The connection can take more."""
        self._parts.outgoing.writable(self.outbox)
        self._parts.writable(self.client)

    def close(self) -> None:
        """The connection is gone: what its consumers held goes back, its producers may come back."""
        parts, client = self._parts, self.client
        parts.sessions.open.pop(client, None)
        for leaves in parts.leaving:
            leaves(client)
        self.browsers.clear()
        if client.blocked:
            parts.blocked.gone(client)
        for attachment in self.producers.values():
            self.detach(attachment, cmd.DetachProducer(attachment.number, forget=False))
        for attachment in self.consumers.values():
            self.detach(attachment, cmd.DetachConsumer(attachment.number, lost=True))
        self.producers.clear()
        self.consumers.clear()
        parts.transactions.closed(client)  # After its consumers are gone: what they had consumed goes to others.
        self.transactions.clear()
        self.outbox.waiting.clear()
        if client.connection and not parts.sessions.has_connection(client.connection):
            parts.lost(client.connection)

    # ---- internals -------------------------------------------------------------------------------------------------

    def new_handle(self, args: Arguments) -> int:
        handle = int(args["handle"])
        if handle in self.producers or handle in self.consumers or handle in self.browsers or not 0 <= handle < 1 << 32:
            raise ProtocolError(f"handle {handle} is not free")
        if len(self.producers) + len(self.consumers) + len(self.browsers) >= HANDLES_MAX:
            raise ProtocolError(f"a connection has at most {HANDLES_MAX} producers and consumers")
        return handle

    def perform_attach(self, attachment: Attachment, command: cmd.AttachProducer | cmd.AttachConsumer) -> None:
        try:
            self._perform(attachment.destination, command)
        except BrokerError:
            del self._live[attachment.number]
            raise

    def perform(self, attachment: Attachment, command: cmd.Command) -> None:
        if attachment.number in self._live:
            self._perform(attachment.destination, command)

    def detach(self, attachment: Attachment, command: cmd.Command) -> None:
        if self.client.blocked:
            self._parts.blocked.left(attachment)
        if self._live.pop(attachment.number, None) is not None:
            self._meters.left(attachment)
            self._perform(attachment.destination, command)

    def consumer(self, handle: int, epoch: int) -> Attachment | None:
        attachment = self.consumers.get(handle)
        if attachment is None or attachment.number != epoch or epoch not in self._live:
            return None
        return attachment

    def _apply_flow(self) -> None:
        """Hold or let go all consumers of the connection."""
        go = self.delivering
        for attachment in self.consumers.values():
            number = attachment.number
            self.perform(attachment, cmd.Proceed(number) if go else cmd.Hold(number))


def revoke(session: Session, refused: Callable[[str, str, str], str]) -> None:
    """End the consumers, producers and browsers whose rights are gone; ``refused(kind, name, operation)``: why, "" for
    those that may go on. What a consumer holds goes back."""

    def told(handle: int, kind: str, name: str, operation: str) -> bool:
        why = refused(kind, name, operation)
        if why:
            session.peer.event("halted", {"handle": handle, "code": SecurityError.code, "text": why})
        return bool(why)

    for handle, consumer in list(session.consumers.items()):
        if told(handle, consumer.destination.kind, consumer.destination.name, "consume"):
            del session.consumers[handle]
            session.detach(consumer, cmd.DetachConsumer(consumer.number))
    for handle, producer in list(session.producers.items()):
        if told(handle, producer.destination.kind, producer.destination.name, "produce"):
            del session.producers[handle]
            session.detach(producer, cmd.DetachProducer(producer.number, forget=False))
    for handle, browser in list(session.browsers.items()):
        if told(handle, browser.destination.kind, browser.destination.name, "browse"):
            del session.browsers[handle]
