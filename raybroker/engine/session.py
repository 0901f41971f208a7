"""One client's connection to a host: its producers and consumers, by handle, and what it asks of them.

A *handle* numbers a producer or consumer on this connection and is chosen by the client; an *epoch* is the host's own
number of the attachment, never used twice.  Acknowledgements and credit carry both, so what belongs to an ended
attachment is recognised and dropped instead of settling somebody else's messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from raybroker.core import command as cmd
from raybroker.core.delivery.window import CREDIT_MAX
from raybroker.core.outcome import Refused
from raybroker.engine import consumer_watch, schedules
from raybroker.engine import sessions_consuming as consuming
from raybroker.engine import sessions_txn as txn
from raybroker.engine.attachments import Attachment, Outbox
from raybroker.engine.browsing import Browser
from raybroker.engine.host import Host
from raybroker.engine.overrides import columns_of, in_default_unit, overridden, parts_in
from raybroker.engine.ports import Peer
from raybroker.engine.transactions import OPEN, Transaction
from raybroker.model.block import Block
from raybroker.model.errors import (
    BrokerError,
    InvalidClientIDError,
    InvalidDestinationError,
    ProtocolError,
    ResourceAllocationError,
    StoreError,
    TransactionRolledBackError,
)
from raybroker.model.names import require_no_metrics_topic

HANDLES_MAX: Final = 65_536
"""Producers, consumers and browsers on one connection to one host."""
SKEW_MS_MAX: Final = 2_000
"""A client's clock that differs by more is written to the log."""


class Session:
    """Created for a connection that has authenticated; :meth:`close` when it ends, for whatever reason.

    ``connection``: id of the client's connection, which may have sessions on other hosts too.
    """

    def __init__(self, host: Host, peer: Peer) -> None:
        self.host = host
        self.peer = peer
        self.outbox = Outbox()
        self.producers: dict[int, Attachment] = {}
        self.consumers: dict[int, Attachment] = {}
        self.browsers: dict[int, Browser] = {}
        self.producer_ids: dict[int, int] = {}
        self.transactions: dict[int, Transaction] = {}
        """By the client's number."""
        self.client_id: str | None = None
        self.connection = ""
        self.started = True
        self.flow_open = True
        host.sessions[self] = None

    # ---- requests --------------------------------------------------------------------------------------------------

    def call(self, request: int, op: str, args: dict[str, Any]) -> None:
        """Carry out a control request; the peer gets a reply or a failure, never nothing."""
        handler = _OPS.get(op)
        try:
            if handler is None:
                raise ProtocolError(f"unknown request {op!r}; known are {', '.join(_OPS)}")
            if self.host.failure is not None:
                raise StoreError(f"the host has stopped: {self.host.failure}")
            handler(self, request, args)
        except BrokerError as error:
            self.peer.failed(request, error.code, str(error))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            self.peer.failed(request, ProtocolError.code, f"request {op!r} is malformed: {error!r}")

    def _hello(self, request: int, args: dict[str, Any]) -> None:
        client_id, connection = args.get("client_id"), str(args.get("connection", ""))
        if client_id and any(o.client_id == client_id and o.connection != connection for o in self.host.sessions):
            raise InvalidClientIDError(
                f"client id {client_id!r} is in use by another connection; close that one or choose another id"
            )
        self.client_id, self.connection = client_id, connection
        skew_ms = int(args.get("now_ms", 0)) - self.host.clock.now_ms()
        if "now_ms" in args and abs(skew_ms) > SKEW_MS_MAX:
            self.host.report(
                f"[B2102] the clock of client {client_id or connection} differs from the broker's by {skew_ms} ms:"
                " its messages expire and are delivered at the wrong time; set the clocks"
            )
        self.started = bool(args.get("started", True))
        if self.connection:
            self.host.catalogue.found(self.connection)
        self.peer.reply(request, {"incarnation": self.host.incarnation})

    @property
    def origin(self) -> tuple[str, str]:
        """Who sends, for noLocal."""
        return self.connection, self.client_id or ""

    def _open_producer(self, request: int, args: dict[str, Any]) -> None:
        handle, producer = self.new_handle(args), int(args["producer"])
        if not 0 <= producer < 1 << 64:
            raise ProtocolError(f"producer {producer} is not a number of 64 bits")
        generation = int(args.get("generation", 0))
        require_no_metrics_topic(consuming.kind_of(args), str(args["name"]))
        home = self.host.find(consuming.kind_of(args), args["name"])
        attachment = self.host.attach(home, self.peer, handle, self.outbox)
        self.producers[handle] = attachment
        self.producer_ids[handle] = producer
        try:
            self.perform_attach(attachment, cmd.AttachProducer(attachment.number, producer, generation))
        except BrokerError:
            del self.producers[handle], self.producer_ids[handle]
            raise
        self.peer.reply(request, {"epoch": attachment.number, **consumer_watch.checks_of(home.attributes)})

    def _close_producer(self, request: int, args: dict[str, Any]) -> None:
        attachment = self.producers.pop(int(args["handle"]), None)
        if attachment is not None:
            self.detach(attachment, cmd.DetachProducer(attachment.number, forget=True))
        self.peer.reply(request, None)

    def _start(self, request: int, args: dict[str, Any]) -> None:
        self.started = True
        self._apply_flow()
        self.peer.reply(request, None)

    def _stop(self, request: int, args: dict[str, Any]) -> None:
        self.started = False
        self._apply_flow()
        self.peer.reply(request, None)

    # ---- messages --------------------------------------------------------------------------------------------------

    def send(self, handle: int, floor: int, block: Block, txn_number: int = 0) -> None:
        """A block from a producer. One for a handle that is not attached is told so, message by message."""
        attachment = self.producers.get(handle)
        if attachment is None or attachment.number not in self.host.attachments:
            if block.persistent or txn_number:
                self._refuse(handle, block, InvalidDestinationError.code, "the destination was destroyed")
            return
        producer = self.producer_ids[handle]
        if block.producer != producer:
            raise ProtocolError(f"a block of producer {block.producer:#x} came from producer {producer:#x}")
        home = attachment.home
        confirm = block.persistent or txn_number > 0
        number = 0
        if txn_number:
            transaction = txn.opened(self, txn_number)
            if transaction.state not in OPEN:
                self._refuse(handle, block, TransactionRolledBackError.code, "the transaction was rolled back")
                return
            reason = self.host.transactions.joins(transaction, attachment.number, block.count)
            if reason is not None:
                transaction.refusal = transaction.refusal or ResourceAllocationError(reason)
                self._refuse(handle, block, ResourceAllocationError.code, reason)
                return
            transaction.homes[home] = None
            number = transaction.number
        codec, attributes = self.host.codec, home.attributes
        block = overridden(attributes, block, self.host.clock.now_ms())
        block = in_default_unit(codec, attributes, home.kind, home.name, block)
        room = not block.persistent or self.host.has_room(block.view.nbytes)
        persistent = block.persistent and self.host.definition(home).owner is None
        content = codec.content(block) if home.kind == "topic" or home.selective or number else None
        parts = parts_in(codec, attributes, block, self.host.clock.now_ms())
        ids = codec.dedup_ids(block) if attributes.duplicateWindowMs > 0 else None
        command = cmd.Send(
            attachment.number, producer, block.first_seq, block.lengths, persistent, floor, room,
            columns_of(codec, block, parts), content, self.origin, number, ids, confirm,
        )  # fmt: skip
        if confirm and not number:
            self.host.meters.sending(attachment, block.first_seq, block.count)
        outcome = self.host.perform(home, command, block)
        if number and outcome is not None:
            self.host.transactions.refused(number, outcome)

    def _refuse(self, handle: int, block: Block, code: str, text: str) -> None:
        self.peer.sent(handle, block.first_seq, block.count, (Refused(0, block.count, code, text),))

    def acknowledge(self, handle: int, epoch: int, request: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Deliveries are done with; with the epoch of an ended attachment nothing is (they were given back)."""
        attachment = self.consumer(handle, epoch)
        if attachment is None:
            if request:
                self.peer.acked(request, sum(last - first + 1 for first, last in ranges))
            return
        self.host.meters.acknowledged(attachment, ranges)
        self.perform(attachment, cmd.Acknowledge(attachment.number, ranges, request))

    def settle(
        self, handle: int, epoch: int, request: int, outcome: str, delay_ms: int, reason: str,
        ranges: Sequence[tuple[int, int]],
    ) -> None:  # fmt: skip
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

    def extend(self, handle: int, epoch: int, ranges: Sequence[tuple[int, int]]) -> None:
        attachment = self.consumer(handle, epoch)
        if attachment is not None:
            self.perform(attachment, cmd.Extend(attachment.number, ranges))

    def credit(self, handle: int, epoch: int, count: int) -> None:
        attachment = self.consumer(handle, epoch)
        if attachment is not None:
            self.host.meters.asked(attachment, count)
            self.perform(attachment, cmd.Grant(attachment.number, count))

    def drain(self, handle: int, epoch: int, count: int) -> None:
        """The consumer is in drain mode and asks for ``count`` messages of what there is now."""
        attachment = self.consumer(handle, epoch)
        if attachment is not None:
            self.host.meters.asked(attachment, count, drain=True)
            self.perform(attachment, cmd.Drain(attachment.number, min(count, CREDIT_MAX)))

    def flow(self, go: bool) -> None:
        """The client's buffers are full, or have room again."""
        self.flow_open = go
        self._apply_flow()

    def writable(self) -> None:
        """The connection can take more."""
        self.host.writable(self.outbox)

    def close(self) -> None:
        """The connection is gone: what its consumers held goes back, its producers may come back."""
        self.host.sessions.pop(self, None)
        self.host.watching.left(self)
        self.browsers.clear()
        for attachment in self.producers.values():
            self.detach(attachment, cmd.DetachProducer(attachment.number, forget=False))
        for attachment in self.consumers.values():
            self.detach(attachment, cmd.DetachConsumer(attachment.number, lost=True))
        self.producers.clear()
        self.consumers.clear()
        self.host.transactions.closed(self)  # After its consumers are gone: what they had consumed goes to others.
        self.transactions.clear()
        self.outbox.waiting.clear()
        if self.connection and not any(other.connection == self.connection for other in self.host.sessions):
            self.host.catalogue.lost(self.connection)

    # ---- internals -------------------------------------------------------------------------------------------------

    def new_handle(self, args: dict[str, Any]) -> int:
        handle = int(args["handle"])
        if handle in self.producers or handle in self.consumers or handle in self.browsers or not 0 <= handle < 1 << 32:
            raise ProtocolError(f"handle {handle} is not free")
        if len(self.producers) + len(self.consumers) + len(self.browsers) >= HANDLES_MAX:
            raise ProtocolError(f"a connection has at most {HANDLES_MAX} producers and consumers")
        return handle

    def perform_attach(self, attachment: Attachment, command: cmd.AttachProducer | cmd.AttachConsumer) -> None:
        try:
            self.host.perform(attachment.home, command)
        except BrokerError:
            del self.host.attachments[attachment.number]
            raise

    def perform(self, attachment: Attachment, command: cmd.Command) -> None:
        if attachment.number in self.host.attachments:
            self.host.perform(attachment.home, command)

    def detach(self, attachment: Attachment, command: cmd.Command) -> None:
        if self.host.attachments.pop(attachment.number, None) is not None:
            self.host.meters.left(attachment)
            self.host.perform(attachment.home, command)

    def consumer(self, handle: int, epoch: int) -> Attachment | None:
        attachment = self.consumers.get(handle)
        if attachment is None or attachment.number != epoch or epoch not in self.host.attachments:
            return None
        return attachment

    def _apply_flow(self) -> None:
        """Hold or let go all consumers of the connection."""
        go = self.started and self.flow_open
        for attachment in self.consumers.values():
            number = attachment.number
            self.perform(attachment, cmd.Proceed(number) if go else cmd.Hold(number))


_OPS: Final[dict[str, Callable[[Session, int, dict[str, Any]], None]]] = {
    "hello": Session._hello,
    "open_producer": Session._open_producer,
    "close_producer": Session._close_producer,
    "start": Session._start,
    "stop": Session._stop,
    **consuming.OPS,
    **txn.OPS,
    **schedules.OPS,
    **consumer_watch.OPS,
}
