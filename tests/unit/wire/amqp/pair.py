"""Two engines of AMQP that talk to each other, and the frames that go between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from raybroker.wire.amqp.connection import ConnectionEndpoint
from raybroker.wire.amqp.events import AmqpEvent, LinkAttached, SessionBegun
from raybroker.wire.amqp.frames import FRAME_HEAD, HEADER_BYTES, PROTOCOL_AMQP, encode_frame, protocol_header
from raybroker.wire.amqp.limits import AmqpLimits
from raybroker.wire.amqp.links import LinkEndpoint, ReceivingLink, SendingLink
from raybroker.wire.amqp.performatives import AmqpOpen, AmqpSource, AmqpTarget, decode_composite, encode_composite
from raybroker.wire.amqp.sessions import SessionEndpoint


class Pair:
    """A listening and a connecting end, without a login. ``heard`` and ``told``: events of the listening and of the
    connecting end since :meth:`talk` began."""

    def __init__(self, limits: AmqpLimits | None = None, client_limits: AmqpLimits | None = None) -> None:
        limits = limits or AmqpLimits()
        self.server = ConnectionEndpoint.listening(limits, ())
        self.client = ConnectionEndpoint.connecting(client_limits or limits, login=False)
        self.heard: list[AmqpEvent] = []
        self.told: list[AmqpEvent] = []

    def talk(self) -> list[AmqpEvent]:
        """Exchange what there is until nobody says anything; what the listening end heard."""
        self.heard, self.told = [], []
        while self.server.has_output or self.client.has_output:
            self.heard += self.server.receive_data(self.client.data_to_send())
            self.told += self.client.receive_data(self.server.data_to_send())
        return self.heard

    def opened(self) -> Pair:
        self.client.send_open("client")
        self.talk()
        self.server.send_open("server")
        self.talk()
        return self

    def session(self) -> tuple[SessionEndpoint, SessionEndpoint]:
        """A session, as the connecting and as the listening end have it."""
        ours = self.client.begin_session()
        (begun,) = self.talk()
        assert isinstance(begun, SessionBegun)
        begun.session.send_begin()
        self.talk()
        return ours, begun.session

    def incoming(self, session: SessionEndpoint, **more: Any) -> tuple[SendingLink, ReceivingLink]:
        """A link on which the connecting end sends; without credit."""
        ours = session.attach_sender(f"in{len(session.links)}", AmqpSource(), AmqpTarget("q"))
        theirs = self.answered(**more)
        assert isinstance(theirs, ReceivingLink)
        return ours, theirs

    def outgoing(self, session: SessionEndpoint) -> tuple[ReceivingLink, SendingLink]:
        """A link on which the listening end sends; without credit."""
        ours = session.attach_receiver(f"out{len(session.links)}", AmqpSource("q"), AmqpTarget())
        theirs = self.answered()
        assert isinstance(theirs, SendingLink)
        return ours, theirs

    def answered(self, **more: Any) -> LinkEndpoint:
        (attached,) = self.talk()
        assert isinstance(attached, LinkAttached)
        attached.link.send_attach(attached.attach.source, attached.attach.target, **more)
        self.talk()
        return attached.link


def frame(performative: Any, payload: bytes = b"", channel: int = 0) -> bytes:
    """The bytes of one frame."""
    return encode_frame(channel, encode_composite(performative) + payload)


def said(data: bytes) -> Iterator[Any]:
    """Performatives in what an end has written, behind protocol headers."""
    while data:
        if data.startswith(b"AMQP"):
            data = data[HEADER_BYTES:]
            continue
        size, doff, _, _ = FRAME_HEAD.unpack_from(data)
        if size > 8:
            yield decode_composite(data[:size], 4 * doff)[0]
        data = data[size:]


def opened_server(limits: AmqpLimits | None = None) -> ConnectionEndpoint:
    """A listening end with which a peer of bare frames has opened a connection; its output is taken."""
    server = ConnectionEndpoint.listening(limits or AmqpLimits(), ())
    server.receive_data(protocol_header(PROTOCOL_AMQP) + frame(AmqpOpen("peer")))
    server.send_open("server")
    server.take_output()
    return server
