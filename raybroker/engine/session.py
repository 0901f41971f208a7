"""One client's connection to a host: its producers and consumers, by handle, and what it asks of them.

A *handle* numbers a producer or consumer on this connection and is chosen by the client; an *epoch* is the host's own
number of the attachment, never used twice.  Acknowledgements and credit carry both, so what belongs to an ended
attachment is recognised and dropped instead of settling somebody else's messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from raybroker.core import command as cmd
from raybroker.core.outcome import Refused
from raybroker.core.window import CREDIT_MAX
from raybroker.engine.host import Attachment, Host, Outbox
from raybroker.engine.ports import Peer
from raybroker.model.block import Block
from raybroker.model.errors import BrokerError, InvalidDestinationError, ProtocolError, StoreError

HANDLES_MAX: Final = 65_536
"""Producers and consumers on one connection to one host."""


class Session:
    """Created for a connection that has authenticated; :meth:`close` when it ends, for whatever reason."""

    def __init__(self, host: Host, peer: Peer) -> None:
        self.host = host
        self.peer = peer
        self.outbox = Outbox()
        self.producers: dict[int, Attachment] = {}
        self.consumers: dict[int, Attachment] = {}
        self.producer_ids: dict[int, int] = {}
        self.client_id: str | None = None
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
        self.client_id = args.get("client_id")
        self.started = bool(args.get("started", True))
        self.peer.reply(request, {"incarnation": self.host.incarnation})

    def _open_producer(self, request: int, args: dict[str, Any]) -> None:
        handle, producer = self._new_handle(args), int(args["producer"])
        if not 0 <= producer < 1 << 64:
            raise ProtocolError(f"producer {producer} is not a number of 64 bits")
        generation = int(args.get("generation", 0))
        queue = self.host.queue(args["name"])
        attachment = self.host.attach(queue, self.peer, handle, self.outbox)
        self._perform_attach(attachment, cmd.AttachProducer(attachment.number, producer, generation))
        self.producers[handle] = attachment
        self.producer_ids[handle] = producer
        self.peer.reply(request, {"epoch": attachment.number})

    def _open_consumer(self, request: int, args: dict[str, Any]) -> None:
        handle = self._new_handle(args)
        flow, limit, no_ack = args["flow"], int(args["limit"]), bool(args["no_ack"])
        if flow not in ("credit", "prefetch") or not -1 <= limit <= CREDIT_MAX:
            raise ProtocolError(f"flow {flow!r} with limit {limit} is not understood")

        queue = self.host.queue(args["name"])
        effective = effective_limit(flow, limit, queue.attributes.consumer_flow_limit)
        attachment = self.host.attach(queue, self.peer, handle, self.outbox, eager=no_ack)
        command = cmd.AttachConsumer(attachment.number, flow, effective, no_ack, held=True)
        self._perform_attach(attachment, command)
        self.consumers[handle] = attachment
        active = queue.consumers.by_attachment[attachment.number].active
        self.peer.reply(request, {"epoch": attachment.number, "limit": effective, "active": active})
        if self.started and self.flow_open:
            self._perform(attachment, cmd.Proceed(attachment.number))

    def _close_producer(self, request: int, args: dict[str, Any]) -> None:
        attachment = self.producers.pop(int(args["handle"]), None)
        if attachment is not None:
            self._detach(attachment, cmd.DetachProducer(attachment.number, forget=True))
        self.peer.reply(request, None)

    def _close_consumer(self, request: int, args: dict[str, Any]) -> None:
        attachment = self.consumers.pop(int(args["handle"]), None)
        if attachment is not None:
            self._detach(attachment, cmd.DetachConsumer(attachment.number))
        self.peer.reply(request, None)

    def _release(self, request: int, args: dict[str, Any]) -> None:
        attachment = self._consumer(int(args["handle"]), args["epoch"])
        if attachment is None:
            raise InvalidDestinationError("the consumer is not attached any more")
        credit = int(args["credit"])
        if not -1 <= credit <= CREDIT_MAX:
            raise ProtocolError(f"a credit of {credit}; it is -1 to {CREDIT_MAX}")
        self._perform(attachment, cmd.Release(attachment.number, credit, request))

    def _start(self, request: int, args: dict[str, Any]) -> None:
        self.started = True
        self._apply_flow()
        self.peer.reply(request, None)

    def _stop(self, request: int, args: dict[str, Any]) -> None:
        self.started = False
        self._apply_flow()
        self.peer.reply(request, None)

    # ---- messages --------------------------------------------------------------------------------------------------

    def send(self, handle: int, floor: int, block: Block) -> None:
        """A block from a producer. One for a handle that is not attached is told so, message by message."""
        attachment = self.producers.get(handle)
        if attachment is None or attachment.number not in self.host.attachments:
            if block.persistent:
                refusal = Refused(0, block.count, InvalidDestinationError.code, "the destination was destroyed")
                self.peer.sent(handle, block.first_seq, block.count, (refusal,))
            return
        producer = self.producer_ids[handle]
        if block.producer != producer:
            raise ProtocolError(f"a block of producer {block.producer:#x} came from producer {producer:#x}")
        room = not block.persistent or self.host.has_room(block.view.nbytes)
        command = cmd.Send(attachment.number, producer, block.first_seq, block.lengths, block.persistent, floor, room)
        self.host.perform(attachment.queue, command, block)

    def acknowledge(self, handle: int, epoch: int, request: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Deliveries are done with; with the epoch of an ended attachment nothing is (they were given back)."""
        attachment = self._consumer(handle, epoch)
        if attachment is None:
            if request:
                self.peer.acked(request, sum(last - first + 1 for first, last in ranges))
            return
        self._perform(attachment, cmd.Acknowledge(attachment.number, ranges, request))

    def credit(self, handle: int, epoch: int, count: int) -> None:
        attachment = self._consumer(handle, epoch)
        if attachment is not None:
            self._perform(attachment, cmd.Grant(attachment.number, count))

    def flow(self, go: bool) -> None:
        """The client's buffers are full, or have room again (F-15)."""
        self.flow_open = go
        self._apply_flow()

    def writable(self) -> None:
        """The connection can take more."""
        self.host.writable(self.outbox)

    def close(self) -> None:
        """The connection is gone: what its consumers held goes back (B-07), its producers may come back (R-13)."""
        self.host.sessions.pop(self, None)
        for attachment in self.producers.values():
            self._detach(attachment, cmd.DetachProducer(attachment.number, forget=False))
        for attachment in self.consumers.values():
            self._detach(attachment, cmd.DetachConsumer(attachment.number))
        self.producers.clear()
        self.consumers.clear()
        self.outbox.waiting.clear()

    # ---- internals -------------------------------------------------------------------------------------------------

    def _new_handle(self, args: dict[str, Any]) -> int:
        handle = int(args["handle"])
        if handle in self.producers or handle in self.consumers or not 0 <= handle < 1 << 32:
            raise ProtocolError(f"handle {handle} is not free")
        if len(self.producers) + len(self.consumers) >= HANDLES_MAX:
            raise ProtocolError(f"a connection has at most {HANDLES_MAX} producers and consumers")
        return handle

    def _perform_attach(self, attachment: Attachment, command: cmd.AttachProducer | cmd.AttachConsumer) -> None:
        try:
            self.host.perform(attachment.queue, command)
        except BrokerError:
            del self.host.attachments[attachment.number]
            raise

    def _perform(self, attachment: Attachment, command: cmd.Command) -> None:
        if attachment.number in self.host.attachments:
            self.host.perform(attachment.queue, command)

    def _detach(self, attachment: Attachment, command: cmd.Command) -> None:
        if self.host.attachments.pop(attachment.number, None) is not None:
            self.host.perform(attachment.queue, command)

    def _consumer(self, handle: int, epoch: int) -> Attachment | None:
        attachment = self.consumers.get(handle)
        if attachment is None or attachment.number != epoch or epoch not in self.host.attachments:
            return None
        return attachment

    def _apply_flow(self) -> None:
        """Hold or let go all consumers of the connection (C-12)."""
        go = self.started and self.flow_open
        for attachment in self.consumers.values():
            number = attachment.number
            self._perform(attachment, cmd.Proceed(number) if go else cmd.Hold(number))


def effective_limit(flow: str, wanted: int, of_destination: int | None) -> int:
    """The smaller of what the client wants and the destination allows, over the finite ones (F-06, D-18).

    For "credit" 0 and -1 are without limit; for "prefetch" 0 polls.
    """
    unlimited = wanted < 0 or (wanted == 0 and flow == "credit")
    if of_destination is None:
        return -1 if unlimited else wanted
    return of_destination if unlimited else min(wanted, of_destination)


_OPS: Final[dict[str, Callable[[Session, int, dict[str, Any]], None]]] = {
    "hello": Session._hello,
    "open_producer": Session._open_producer,
    "open_consumer": Session._open_consumer,
    "close_producer": Session._close_producer,
    "close_consumer": Session._close_consumer,
    "release": Session._release,
    "start": Session._start,
    "stop": Session._stop,
}
