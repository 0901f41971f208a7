"""Events of a connection of AMQP 1.0: what ``ConnectionEndpoint.receive_data`` tells, in the order in which it came.

During the login the performatives of SASL are events themselves: a listening side gets SaslInit and SaslResponse, a
connecting side SaslMechanisms, SaslChallenge and SaslOutcome.

``by_peer`` False: the engine has ended a session or a link itself, because the peer has broken a rule, has told the
peer why, and nothing has to be answered. True: the peer ended it, and ``send_end()`` or ``send_detach()`` answers,
unless that was called before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from raybroker.wire.amqp.conditions import AmqpViolation
from raybroker.wire.amqp.links import LinkEndpoint, ReceivingLink, SendingLink, Unsettled
from raybroker.wire.amqp.performatives import (
    AmqpAttach,
    AmqpBegin,
    AmqpError,
    AmqpOpen,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from raybroker.wire.amqp.sessions import SessionEndpoint


class HeaderReceived(NamedTuple):
    """The peer's protocol header came, and was answered. ``protocol``: 0 for AMQP, 3 for SASL."""

    protocol: int


class ConnectionOpened(NamedTuple):
    """The peer has opened the connection; a listening side answers with ``send_open()``, and refuses with
    ``send_close()`` behind that."""

    open: AmqpOpen


class SessionBegun(NamedTuple):
    """The peer has begun a session, to be answered with ``session.send_begin()``; or has answered ours."""

    session: SessionEndpoint
    begin: AmqpBegin


class LinkAttached(NamedTuple):
    """The peer has attached a link, to be answered with ``link.send_attach()`` or ``link.refuse()``; or has answered
    ours.

    A SendingLink carries deliveries to the peer, whose role is then receiver. CreditGiven may follow before it is
    answered, and the link can send once it is.
    """

    session: SessionEndpoint
    link: LinkEndpoint
    attach: AmqpAttach


class DeliveryReceived(NamedTuple):
    """A whole message came. Unless ``settled``, ``link.settle_deliveries`` answers it."""

    link: ReceivingLink
    delivery_id: int
    delivery_tag: bytes
    settled: bool
    state: Any
    message_format: int
    payload: bytes


class DeliveryAborted(NamedTuple):
    """The sender has given up a delivery of which a part had come; it has used one credit."""

    link: ReceivingLink


class DispositionReceived(NamedTuple):
    """The peer tells a state of deliveries of one link; ``state`` None: none was told, and the default outcome holds.
    A range over deliveries of several links is told link by link. Dispositions that accept and settle deliveries of one
    link, with nothing else between, are told as one.

    Those that it has not ``settled`` stay unsettled until this side settles them.
    """

    link: LinkEndpoint
    deliveries: list[Unsettled]
    state: Any
    settled: bool


class CreditGiven(NamedTuple):
    """A receiver grants ``credit`` deliveries from now on, in all. ``drain``: what cannot be used at once is to be
    given back with ``link.drained()``."""

    link: SendingLink
    credit: int
    drain: bool


class LinkDrained(NamedTuple):
    """The sender has nothing more for the credit that was granted with ``drain``; the link has none left."""

    link: ReceivingLink


class SessionUnblocked(NamedTuple):
    """Deliveries that waited for the peer's session window are all written; ``session.blocked`` is False again."""

    session: SessionEndpoint


class LinkDetached(NamedTuple):
    """A link has ended, or is detached (``closed`` False): the peer keeps its terminus."""

    link: LinkEndpoint
    closed: bool
    error: AmqpError | None
    by_peer: bool


class SessionEnded(NamedTuple):
    """A session has ended, and all its links with it."""

    session: SessionEndpoint
    error: AmqpError | None
    by_peer: bool


class ConnectionClosed(NamedTuple):
    """The peer has closed the connection; ``send_close()`` answers it, unless that was called before."""

    error: AmqpError | None


class ProtocolFailed(NamedTuple):
    """The peer has broken the protocol and was told; the output is to be written, and the connection cut."""

    error: AmqpViolation


AmqpEvent = (
    HeaderReceived
    | SaslMechanisms
    | SaslInit
    | SaslChallenge
    | SaslResponse
    | SaslOutcome
    | ConnectionOpened
    | SessionBegun
    | LinkAttached
    | DeliveryReceived
    | DeliveryAborted
    | DispositionReceived
    | CreditGiven
    | LinkDrained
    | SessionUnblocked
    | LinkDetached
    | SessionEnded
    | ConnectionClosed
    | ProtocolFailed
)
