"""Sessions of a connection: they are begun and ended, and have links."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from typing import Any

from raybroker.model.errors import IllegalStateError
from raybroker.wire.amqp.limits import AmqpLimits, IncompleteBytes
from raybroker.wire.amqp.links import FrameOutput, LinkEndpoint, ReceivingLink, SendingLink, SessionLane
from raybroker.wire.amqp.performatives import AmqpBegin, AmqpEnd, AmqpError
from raybroker.wire.amqp.states import ENDPOINT, EndpointEvent, EndpointState
from raybroker.wire.amqp.windows import OUTGOING_WINDOW, SessionWindow


class SessionEndpoint:
    """``channels``: the sessions of the connection, by the channels of this side; ``incomplete``: shared by them.

    ``peer``: what the peer's begin said; ``context``: for whoever uses the session.
    """

    __slots__ = (
        "_channels",
        "context",
        "failed",
        "incomplete",
        "lane",
        "limits",
        "links_of_peer",
        "peer",
        "remote_channel",
        "state",
    )

    def __init__(
        self,
        channel: int,
        output: FrameOutput,
        channels: dict[int, SessionEndpoint],
        limits: AmqpLimits,
        incomplete: IncompleteBytes,
    ) -> None:
        self.lane = SessionLane(channel, output, SessionWindow(limits.incoming_window))
        self._channels = channels
        channels[channel] = self
        self.limits = limits
        self.incomplete = incomplete
        self.links_of_peer: dict[int, LinkEndpoint] = {}
        """Links that the peer has attached, by its handles."""
        self.peer: AmqpBegin | None = None
        self.remote_channel: int | None = None
        self.state = EndpointState.IDLE
        self.context: Any = None
        self.failed = False

    @property
    def links(self) -> Collection[LinkEndpoint]:
        """Links that have not ended on both sides."""
        return self.lane.links.values()

    @property
    def blocked(self) -> bool:
        """Deliveries wait for the peer's session window; SessionUnblocked tells when none does any more."""
        return bool(self.lane.waiting)

    def happens(self, event: EndpointEvent) -> None:
        self.state = ENDPOINT.after(self.state, event)

    def send_begin(self, **more: Any) -> None:
        """Begin the session, or answer the peer's begin. ``more``: capabilities and properties of AmqpBegin."""
        if self.lane.ended:
            return
        self.happens(EndpointEvent.OPEN)
        window = self.lane.window
        numbers = (self.remote_channel, window.next_outgoing_id, window.incoming_max, OUTGOING_WINDOW)
        self.lane.write(AmqpBegin(*numbers, self.limits.handle_max, **more))

    def send_end(self, error: AmqpError | None = None) -> None:
        """End the session, or answer the peer's end. Its links end with it."""
        if self.lane.ended or not ENDPOINT.takes(self.state, EndpointEvent.CLOSE):
            return
        self.happens(EndpointEvent.CLOSE)
        self.lane.write(AmqpEnd(error))
        self.end_all()

    def end_all(self) -> None:
        """Its links have ended; the channel is free once both sides have ended the session."""
        for link in self.lane.links.values():
            self.drop_partial(link)
        self.lane.end_all()
        self.links_of_peer.clear()
        if self.state is EndpointState.CLOSED:
            self._channels.pop(self.lane.channel, None)

    def drop_partial(self, link: LinkEndpoint) -> None:
        """Forget what has come of a delivery that is not whole."""
        if isinstance(link, ReceivingLink):
            self.incomplete.total -= link.drop_partial()

    def attach_sender(self, name: str, source: Any = None, target: Any = None, **more: Any) -> SendingLink:
        """Attach a link on which this side sends. ``more``: further fields of AmqpAttach."""
        link = self.new_sender(name, None)
        link.send_attach(source, target, **more)
        return link

    def attach_receiver(self, name: str, source: Any = None, target: Any = None, **more: Any) -> ReceivingLink:
        """Attach a link on which the peer sends. ``more``: further fields of AmqpAttach."""
        link = self.new_receiver(name, None)
        link.send_attach(source, target, **more)
        return link

    def new_sender(self, name: str, wanted: int | None) -> SendingLink:
        """A link that is not attached yet; ``wanted``: the handle, when it is free. Raises IllegalStateError when the
        session has ended or is full."""
        link = SendingLink(self.lane, self._free_handle(wanted), name)
        self.lane.links[link.handle] = link
        return link

    def new_receiver(self, name: str, wanted: int | None) -> ReceivingLink:
        """A receiver, as :meth:`new_sender` makes a sender."""
        link = ReceivingLink(self.lane, self._free_handle(wanted), name, self.limits.message_bytes_max)
        self.lane.links[link.handle] = link
        return link

    @property
    def full(self) -> bool:
        """It has no handle left."""
        return len(self.lane.links) > self._handle_max

    @property
    def _handle_max(self) -> int:
        return self.limits.handle_max if self.peer is None else min(self.limits.handle_max, self.peer.handle_max)

    def _free_handle(self, wanted: int | None) -> int:
        if self.lane.ended or self.full:
            raise IllegalStateError("the session has ended" if self.lane.ended else "the session has no handle left")
        links = self.lane.links
        if wanted is None or wanted > self._handle_max or wanted in links:
            return next(number for number in count() if number not in links)
        return wanted
