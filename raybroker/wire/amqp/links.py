"""Links of a session, and the lane on which their deliveries leave."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from raybroker.model.errors import IllegalStateError
from raybroker.wire.amqp.conditions import INVALID_FIELD, AmqpViolation
from raybroker.wire.amqp.frames import FRAME_HEAD, encode_frame
from raybroker.wire.amqp.packed_forms import TAG_SLOT, UINT_SLOT, PackedForm
from raybroker.wire.amqp.performatives import (
    ACCEPTED,
    U32,
    AmqpAttach,
    AmqpDetach,
    AmqpDisposition,
    AmqpError,
    AmqpFlow,
    AmqpTransfer,
    encode_composite,
)
from raybroker.wire.amqp.states import ENDPOINT, EndpointEvent, EndpointState
from raybroker.wire.amqp.types import Buffer
from raybroker.wire.amqp.windows import OUTGOING_WINDOW, SessionWindow

WAITING_MAX: Final = 4096
"""Deliveries of a session that wait for its window; who sends looks at ``SendingLink.sendable``."""
TAG_BYTES_MAX: Final = 32
_new: Final = tuple.__new__
"""Makes a named tuple without a call of Python: there is one for each message."""


class FrameOutput:
    """What a connection is to write; ``frame_bytes_max``: the peer's."""

    __slots__ = ("buffers", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self.buffers: list[Buffer] = []
        self.frame_bytes_max = frame_bytes_max

    def write(self, channel: int, performative: Any) -> None:
        self.buffers.append(encode_frame(channel, encode_composite(performative)))


class Unsettled(NamedTuple):
    """A delivery of a link that was not settled. ``context``: what was given to ``SendingLink.send`` with it."""

    link: LinkEndpoint
    delivery_id: int
    context: Any


class OutgoingDelivery:
    """A delivery that waits for the session window, or is longer than a frame."""

    __slots__ = ("at", "context", "data", "link", "more")

    def __init__(self, link: SendingLink, data: memoryview, context: Any, more: dict[str, Any]) -> None:
        self.link = link
        self.data = data
        self.context = context
        self.more = more
        """Further fields of its first transfer."""
        self.at: int | None = None
        """Bytes that were sent; None before the first frame."""


class SessionLane:
    """The output of one session: its numbers of deliveries, the order in which they leave, and what is unsettled.

    ``waiting``: deliveries, and links that were drained behind them.
    """

    __slots__ = (
        "_accepted",
        "channel",
        "ended",
        "links",
        "next_delivery_id",
        "output",
        "received",
        "sent",
        "waiting",
        "window",
    )

    def __init__(self, channel: int, output: FrameOutput, window: SessionWindow) -> None:
        self.channel = channel
        self.links: dict[int, LinkEndpoint] = {}
        """Links that have not ended on both sides, by the handles of this side."""
        self.ended = False
        """Nothing more is written."""
        self.output = output
        self.window = window
        self.next_delivery_id = 0
        self.waiting: deque[OutgoingDelivery | SendingLink] = deque()
        self.sent: dict[int, Unsettled] = {}
        """Deliveries to the peer that are not settled, by their numbers."""
        self.received: dict[int, ReceivingLink] = {}
        """Deliveries of the peer that are not settled → their links."""
        self._accepted = PackedForm(
            channel,
            AmqpDisposition,
            role=True,
            first=UINT_SLOT,
            last=UINT_SLOT,
            settled=True,
            state=ACCEPTED,
        )

    def write(self, performative: Any) -> None:
        if not self.ended:
            self.output.write(self.channel, performative)

    def end_all(self) -> None:
        """The session has ended: its links have, too, and nothing waits."""
        self.ended = True
        for link in self.links.values():
            link.state = EndpointState.CLOSED
            link.credit = 0
        for left in (self.links, self.waiting, self.sent, self.received):
            left.clear()

    def flow(self, link: LinkEndpoint | None = None, *, drain: bool = False, echo: bool = False) -> None:
        """Tell the peer the window of the session, and the state of a link."""
        window = self.window
        window.incoming = window.incoming_max
        sides = (window.next_incoming_id, window.incoming_max, window.next_outgoing_id, OUTGOING_WINDOW)
        if link is None:
            self.write(AmqpFlow(*sides, echo=echo))
        else:
            counts = (link.handle, link.delivery_count, link.credit, link.available)
            self.write(AmqpFlow(*sides, *counts, drain, echo))

    def new_delivery(self, link: SendingLink, context: Any, settled: bool) -> int:
        """The number of a delivery that begins to leave."""
        number = self.next_delivery_id
        self.next_delivery_id = (number + 1) & U32
        if not settled:
            self.sent[number] = _new(Unsettled, (link, number, context))
        return number

    def send_waiting(self) -> bool:
        """Send what the window allows; whether nothing waits any more."""
        waiting, window = self.waiting, self.window
        while waiting:
            first = waiting[0]
            if isinstance(first, SendingLink):
                self.flow(first, drain=first.draining)
            elif not window.outgoing:
                return False
            elif not self._send_frame(first):
                continue
            waiting.popleft()
        return True

    def _send_frame(self, delivery: OutgoingDelivery) -> bool:
        """The next frame of a delivery; whether it was its last."""
        handle, left, at = delivery.link.handle, len(delivery.data), delivery.at
        if at is None:
            number = self.new_delivery(delivery.link, delivery.context, delivery.more["settled"])
            fields = {"delivery_id": number, "delivery_tag": number.to_bytes(4, "big"), **delivery.more}
            at = 0
        else:
            fields = {}
        left -= at
        body = encode_composite(AmqpTransfer(handle, **fields, more=True))
        room = self.output.frame_bytes_max - FRAME_HEAD.size - len(body)
        if left <= room:
            body = encode_composite(AmqpTransfer(handle, **fields))
        size = min(left, room)
        head = FRAME_HEAD.pack(FRAME_HEAD.size + len(body) + size, 2, 0, self.channel)
        self.output.buffers += (head + body, delivery.data[at : at + size])
        self.window.sent()
        delivery.at = at + size
        return size == left

    def settle_received(self, first: int, last: int, state: Any, settled: bool) -> None:
        """A state of deliveries of the peer."""
        if settled and state is ACCEPTED:
            self.output.buffers.append(self._accepted.pack(self._accepted.size, first, last))
        else:
            self.write(AmqpDisposition(True, first, None if first == last else last, settled, state))

    def forget_link(self, link: LinkEndpoint) -> None:
        """A link has ended: nothing of it waits, and nothing is unsettled."""
        self.waiting = deque(
            one
            for one in self.waiting
            if one is not link and not (isinstance(one, OutgoingDelivery) and one.link is link)
        )
        for number in [number for number, one in self.sent.items() if one.link is link]:
            del self.sent[number]
        for number in [number for number, one in self.received.items() if one is link]:
            del self.received[number]


class LinkEndpoint:
    """What links in both directions have.

    ``peer``: what the peer's attach said, None before it came; ``context``: for whoever uses the link; ``credit``:
    deliveries that may still be sent; ``draining``: the receiver wants back what is not used at once. What is done to a
    link that has ended is left out quietly: its end may be among events that are still to be handled.
    """

    __slots__ = (
        "available",
        "context",
        "credit",
        "delivery_count",
        "draining",
        "failed",
        "handle",
        "lane",
        "name",
        "peer",
        "state",
    )
    role = False
    """Whether this side is the receiver."""

    def __init__(self, lane: SessionLane, handle: int, name: str) -> None:
        self.lane = lane
        self.handle = handle
        self.name = name
        self.state = EndpointState.IDLE
        self.peer: AmqpAttach | None = None
        self.context: Any = None
        self.credit = 0
        self.delivery_count = 0
        self.draining = False
        self.available: int | None = None
        self.failed = False
        """The engine has detached it, because the peer has broken a rule."""

    def happens(self, event: EndpointEvent) -> None:
        self.state = ENDPOINT.after(self.state, event)

    def send_attach(self, source: Any = None, target: Any = None, **more: Any) -> None:
        """Attach the link, or answer the peer's attach. ``more``: further fields of AmqpAttach; the settle modes are
        those of the peer unless others are named."""
        if self.lane.ended or self.failed or self.state is EndpointState.CLOSED:
            return
        self.happens(EndpointEvent.OPEN)
        if self.peer is not None:
            modes = {"snd_settle_mode": self.peer.snd_settle_mode, "rcv_settle_mode": self.peer.rcv_settle_mode}
            more = {**modes, **more}
        self._write_attach(AmqpAttach(self.name, self.handle, self.role, source=source, target=target, **more))

    def _write_attach(self, attach: AmqpAttach) -> None:
        self.lane.write(attach)

    def refuse(self, error: AmqpError) -> None:
        """Answer the peer's attach by one without a terminus, and end the link with the error."""
        peer = self.peer
        if peer is None:
            raise IllegalStateError("the peer has not attached the link")
        if self.role:
            self.send_attach(source=peer.source)
        else:
            self.send_attach(target=peer.target)
        self.send_detach(error)

    def send_detach(self, error: AmqpError | None = None, *, closed: bool = True) -> None:
        """End the link, or answer the peer's detach. ``closed`` False: the terminus stays."""
        if self.lane.ended or not ENDPOINT.takes(self.state, EndpointEvent.CLOSE):
            return
        self.happens(EndpointEvent.CLOSE)
        self.lane.write(AmqpDetach(self.handle, closed, error))
        self.drop_unsettled()

    def drop_unsettled(self) -> None:
        """One side has ended it: nothing of it waits or is unsettled."""
        self.credit = 0
        self.lane.forget_link(self)
        if self.state is EndpointState.CLOSED:
            self.lane.links.pop(self.handle, None)

    def attached(self, attach: AmqpAttach) -> None:
        """The peer has attached it."""
        self.peer = attach
        self.happens(EndpointEvent.PEER_OPENS)


class SendingLink(LinkEndpoint):
    """A link on which this side sends."""

    __slots__ = ("_forms",)

    def __init__(self, lane: SessionLane, handle: int, name: str) -> None:
        super().__init__(lane, handle, name)
        self._forms = tuple(
            PackedForm(
                lane.channel,
                AmqpTransfer,
                handle=handle,
                delivery_id=UINT_SLOT,
                delivery_tag=TAG_SLOT,
                message_format=0,
                settled=settled,
            )
            for settled in (False, True)
        )

    def _write_attach(self, attach: AmqpAttach) -> None:
        self.lane.write(attach._replace(initial_delivery_count=self.delivery_count))

    @property
    def sendable(self) -> int:
        """Deliveries that may be sent at once: the credit, or 0 while the session window is used up."""
        return 0 if self.lane.waiting or not self.lane.window.outgoing else self.credit

    def send(
        self,
        parts: Sequence[Buffer],
        context: Any = None,
        *,
        settled: bool = False,
        state: Any = None,
        format_: int = 0,
    ) -> None:
        """Send a message, whose encoding is the parts in their order; it uses one credit. What the session window does
        not allow yet waits. ``context`` comes back with its disposition. The tag is the number of the delivery."""
        if self.credit < 1 or self.state is not EndpointState.OPEN:
            raise IllegalStateError(f"the link {self.name} is {self.state} with {self.credit} credits: it cannot send")
        lane = self.lane
        window, output = lane.window, lane.output
        size = 0
        for part in parts:
            size += len(part)
        form = self._forms[settled]
        if (
            lane.waiting
            or not window.outgoing
            or state is not None
            or format_
            or form.size + size > output.frame_bytes_max
        ):
            if len(lane.waiting) >= WAITING_MAX:
                raise IllegalStateError(f"{WAITING_MAX} deliveries wait for the peer's session window")
            more = {"message_format": format_, "settled": settled, "state": state}
            lane.waiting.append(OutgoingDelivery(self, memoryview(b"".join(parts)), context, more))
            lane.send_waiting()
        else:
            number = lane.new_delivery(self, context, settled)
            output.buffers.append(form.pack(form.size + size, number, number))
            output.buffers += parts
            window.sent()
        self.credit -= 1
        self.delivery_count = (self.delivery_count + 1) & U32

    def drained(self) -> None:
        """Give back the credit that is left: there is nothing to send. The receiver is told, after what waits."""
        if self.state is not EndpointState.OPEN:
            return
        self.delivery_count = (self.delivery_count + self.credit) & U32
        self.credit = 0
        self.tell_state()

    def tell_state(self) -> None:
        """Tell the receiver the state of the link, after what waits."""
        self.lane.waiting.append(self)
        self.lane.send_waiting()

    def granted(self, flow: AmqpFlow) -> None:
        """The receiver grants credit. Raises AmqpViolation."""
        under_way = (self.delivery_count - (flow.delivery_count or 0)) & U32
        if under_way >= 1 << 31:
            raise AmqpViolation(f"the delivery-count of a flow is ahead of the sender of {self.name}", INVALID_FIELD)
        self.credit = max(0, (flow.link_credit or 0) - under_way)
        self.draining = flow.drain

    def settle_deliveries(self, delivery_ids: Iterable[int], state: Any = None) -> None:
        """Settle deliveries for which the receiver has told a state without settling them."""
        sent = self.lane.sent
        for first, last in runs_of([number for number in delivery_ids if sent.pop(number, None) is not None]):
            self.lane.write(AmqpDisposition(False, first, None if first == last else last, True, state))


class ReceivingLink(LinkEndpoint):
    """A link on which the peer sends. ``max_message_size``: of one message, as this side has told; 0 is without limit.

    ``parts``: what has come of a delivery that is not whole, ``first``: its first transfer.
    """

    __slots__ = ("_limit", "first", "held_bytes", "max_message_size", "parts")
    role = True

    def __init__(self, lane: SessionLane, handle: int, name: str, max_message_size: int) -> None:
        super().__init__(lane, handle, name)
        self.max_message_size = max_message_size
        self.parts: list[bytes] = []
        self.first: AmqpTransfer | None = None
        self.held_bytes = 0
        self._limit = 0
        """The delivery count up to which credit was ever granted: a sender may not have heard of less."""

    def _write_attach(self, attach: AmqpAttach) -> None:
        if attach.max_message_size is None:
            attach = attach._replace(max_message_size=self.max_message_size or None)
        self.max_message_size = attach.max_message_size or 0
        self.lane.write(attach)

    def grant(self, credit: int, *, drain: bool = False, echo: bool = False) -> None:
        """Let the sender send so many deliveries from now on, in all. ``drain``: it is to give back what it cannot use
        at once; LinkDrained tells when."""
        if self.state is not EndpointState.OPEN:
            return
        self.credit = credit
        self.draining = drain
        limit = (self.delivery_count + credit) & U32
        if (limit - self._limit) & U32 < 1 << 31:
            self._limit = limit
        self.lane.flow(self, drain=drain, echo=echo)

    def attached(self, attach: AmqpAttach) -> None:
        super().attached(attach)
        self.delivery_count = self._limit = attach.initial_delivery_count or 0

    def told(self, flow: AmqpFlow) -> bool:
        """The sender tells its state; whether that ends a drain. Raises AmqpViolation."""
        given_back = ((flow.delivery_count or 0) - self.delivery_count) & U32
        if flow.delivery_count is not None:
            if given_back > self.credit:
                raise AmqpViolation(f"the sender of {self.name} gives back more credit than it has", INVALID_FIELD)
            self.delivery_count = flow.delivery_count
            self.credit -= given_back
        self.available = flow.available
        if not self.draining or self.credit or self.first is not None:
            return False
        self.draining = False
        self._limit = self.delivery_count
        return True

    def uses_credit(self) -> bool:
        """A delivery begins to come; whether it may."""
        if self.delivery_count == self._limit:
            return False
        self.delivery_count = (self.delivery_count + 1) & U32
        self.credit = max(0, self.credit - 1)
        return True

    def settle_deliveries(self, delivery_ids: Iterable[int], state: Any, *, settled: bool = True) -> None:
        """Tell the sender a state of deliveries, in as few frames as there are runs of numbers; those that are settled
        already are left out. ``settled`` False: the sender is to settle them."""
        received = self.lane.received
        if settled:
            known = [number for number in delivery_ids if received.pop(number, None) is not None]
        else:
            known = [number for number in delivery_ids if number in received]
        for first, last in runs_of(known):
            self.lane.settle_received(first, last, state, settled)

    def drop_partial(self) -> int:
        """Forget what has come of a delivery that is not whole; how many bytes."""
        size, self.held_bytes = self.held_bytes, 0
        self.parts = []
        self.first = None
        return size


def runs_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of each run of numbers that follow one another."""
    runs: list[tuple[int, int]] = []
    first = last = -1
    for number in numbers:
        if number == last + 1 and first >= 0:
            last = number
        else:
            if first >= 0:
                runs.append((first, last))
            first = last = number
    if first >= 0:
        runs.append((first, last))
    return runs
