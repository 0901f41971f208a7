"""Fuzzing of AMQP 1.0 without sockets: values, messages, and both ends of a connection; run by ``wire.py``."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from raybroker.wire.amqp.conditions import AmqpViolation
from raybroker.wire.amqp.connection import ConnectionEndpoint
from raybroker.wire.amqp.events import (
    AmqpEvent,
    ConnectionClosed,
    ConnectionOpened,
    CreditGiven,
    DeliveryReceived,
    DispositionReceived,
    LinkAttached,
    LinkDetached,
    ProtocolFailed,
    SessionBegun,
    SessionEnded,
)
from raybroker.wire.amqp.frames import PROTOCOL_AMQP, PROTOCOL_SASL, SASL_FRAME, encode_frame, protocol_header
from raybroker.wire.amqp.limits import AmqpLimits
from raybroker.wire.amqp.links import ReceivingLink, SendingLink
from raybroker.wire.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    AmqpAttach,
    AmqpBegin,
    AmqpClose,
    AmqpDetach,
    AmqpDisposition,
    AmqpEnd,
    AmqpError,
    AmqpFlow,
    AmqpHeader,
    AmqpModified,
    AmqpOpen,
    AmqpProperties,
    AmqpSource,
    AmqpTarget,
    AmqpTransfer,
    Coordinator,
    SaslInit,
    SaslOutcome,
    SaslResponse,
    TransactionalState,
    encode_composite,
)
from raybroker.wire.amqp.sections import MessageSections, header_section, properties_section, value_section
from raybroker.wire.amqp.states import EndpointState
from raybroker.wire.amqp.types import AmqpArray, decode, encode, skip
from tests.fuzz.engine import Target
from tests.unit.wire.amqp.pair import frame, said
from tests.unit.wire.amqp.test_performatives import of_table
from tests.unit.wire.amqp.test_types import values

LIMITS = AmqpLimits(
    frame_bytes_max=4096,
    login_frame_bytes_max=1024,
    login_bytes_max=4096,
    channel_max=3,
    handle_max=3,
    incoming_window=5,
    message_bytes_max=2000,
    incomplete_bytes_max=3000,
)
SENT_MAX = 50
"""Messages that an end sends to who grants credit without end."""


def pieces(data: bytes) -> list[bytes]:
    """The first byte says how the rest is cut."""
    step = (data[0] if data else 0) or 1 << 30
    return [data[at : at + step] for at in range(1, len(data), step)]


def value(data: bytes) -> None:
    try:
        found, end = decode(data)
    except AmqpViolation:
        return
    assert 0 < end <= len(data)
    assert skip(data, 0) == end
    if type(found) is not AmqpArray:
        encode(found)


def message(data: bytes) -> None:
    try:
        found = MessageSections(data)
        assert (found.sections[-1].end if found.sections else 0) == len(data)
        for name in (
            "header",
            "delivery_annotations",
            "message_annotations",
            "properties",
            "application_properties",
            "body",
            "footer",
        ):
            try:
                getattr(found, name)
            except AmqpViolation:
                pass
    except AmqpViolation:
        pass


class Answering:
    """One end that answers whatever it is told, as far as that goes."""

    def __init__(self, connection: ConnectionEndpoint) -> None:
        self.connection = connection
        self.sent = 0
        self.arrived = 0
        self.failed = False

    def hear(self, data: bytes) -> None:
        self.arrived += len(data)
        events = self.connection.receive_data(data)
        while events:
            for event in events:
                assert not self.failed, "an event came behind the last one"
                self.handle(event)
            events = self.connection.receive_data(b"")
        assert self.connection.incomplete_bytes <= self.arrived
        held = max(LIMITS.frame_bytes_max, LIMITS.login_bytes_max) + LIMITS.incomplete_bytes_max
        assert self.connection.incomplete_bytes <= held
        assert len(self.connection.sessions) <= LIMITS.channel_max + 1
        assert all(len(session.links) <= LIMITS.handle_max + 1 for session in self.connection.sessions)
        # What is answered is well formed, whatever was asked.
        list(said(self.connection.data_to_send()))

    def handle(self, event: AmqpEvent) -> None:
        if isinstance(event, ProtocolFailed):
            assert self.connection.closed
            assert event.error.condition.startswith("amqp:")
            self.failed = True
        elif isinstance(event, SaslInit):
            self.connection.challenge(b"go on")
        elif isinstance(event, SaslResponse):
            self.connection.end_login(0 if event.response == b"right" else 1)
        elif isinstance(event, ConnectionOpened):
            if self.connection.login.listening:
                self.connection.send_open("fuzzed")
        elif isinstance(event, ConnectionClosed):
            self.connection.send_close()
        elif isinstance(event, SessionBegun):
            if event.begin.remote_channel is None:
                event.session.send_begin()
        elif isinstance(event, SessionEnded):
            event.session.send_end()
        elif isinstance(event, LinkAttached):
            self.attached(event)
        elif isinstance(event, LinkDetached):
            event.link.send_detach()
        elif isinstance(event, DeliveryReceived):
            assert len(event.payload) <= LIMITS.message_bytes_max
            message(event.payload)
            event.link.settle_deliveries([event.delivery_id], ACCEPTED)
            event.link.grant(3)
        elif isinstance(event, CreditGiven):
            self.send(event.link)
            if event.drain:
                event.link.drained()
        elif isinstance(event, DispositionReceived) and not event.settled:
            event.link.settle_deliveries([one.delivery_id for one in event.deliveries], event.state)

    def attached(self, event: LinkAttached) -> None:
        if event.link.state is EndpointState.OPEN:
            return
        if event.attach.target is None and event.attach.source is None:
            event.link.refuse(AmqpError("amqp:not-found"))
            return
        event.link.send_attach(event.attach.source, event.attach.target)
        if isinstance(event.link, ReceivingLink):
            event.link.grant(3)

    def send(self, link: SendingLink) -> None:
        while link.sendable and self.sent < SENT_MAX:
            self.sent += 1
            link.send([b"m" * 100 * self.sent])


def stranger(data: bytes) -> None:
    """Nobody gets in without the login, and little is held of who has not."""
    end = Answering(ConnectionEndpoint.listening(LIMITS, ("SCRAM-SHA-256",)))
    for piece in pieces(data):
        end.hear(piece)
        if end.connection.peer is None:
            assert end.connection.incomplete_bytes <= LIMITS.login_bytes_max
    assert end.connection.peer is None or b"right" in data


def listening(data: bytes) -> None:
    end = Answering(ConnectionEndpoint.listening(LIMITS, ()))
    end.hear(protocol_header(PROTOCOL_AMQP) + frame(AmqpOpen("peer")))
    before = end.arrived
    for piece in pieces(data):
        end.hear(piece)
    if not end.connection.closed and not any(session.links for session in end.connection.sessions):
        assert end.connection.incomplete_bytes == unfinished(data[1:][: end.arrived - before])


def connecting(data: bytes) -> None:
    end = Answering(ConnectionEndpoint.connecting(LIMITS, login=False))
    end.connection.send_open("fuzzed")
    session = end.connection.begin_session()
    session.attach_sender("s", AmqpSource(), AmqpTarget("q"))
    session.attach_receiver("r", AmqpSource("q"), AmqpTarget())
    opening = protocol_header(PROTOCOL_AMQP) + frame(AmqpOpen("peer")) + frame(AmqpBegin(0, 0, 5, 5))
    opening += frame(AmqpAttach("s", 0, True, source=AmqpSource(), target=AmqpTarget("q")))
    opening += frame(AmqpFlow(0, 5, 0, 5, 0, 0, 5))
    end.hear(opening)
    for piece in pieces(data):
        end.hear(piece)


def unfinished(data: bytes) -> int:
    """Bytes behind the last whole frame: as many are taken as were declared."""
    while len(data) >= 4 and len(data) >= (size := int.from_bytes(data[:4], "big")) >= 8:
        data = data[size:]
    return len(data)


# ---- inputs ----------------------------------------------------------------------------------------------------------

_few = st.integers(0, 4)
_ids = st.integers(0, 6) | st.sampled_from([(1 << 32) - 1, 1 << 31])
_some = st.none() | _ids
_flags = st.booleans()
_states = st.sampled_from([None, ACCEPTED, RELEASED, AmqpModified(True), TransactionalState(b"t", ACCEPTED)])
_termini = st.sampled_from([None, AmqpTarget("q"), Coordinator()])


def _made(kind: type[Any], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values of a class with some fields; the others have their defaults."""
    return st.fixed_dictionaries(fields).map(lambda found: kind(**found))


_performatives: st.SearchStrategy[Any] = st.one_of(
    _made(
        AmqpBegin,
        remote_channel=st.none() | _few,
        next_outgoing_id=_ids,
        incoming_window=_ids,
        outgoing_window=_ids,
        handle_max=_ids,
    ),
    _made(
        AmqpAttach,
        name=st.sampled_from(["s", "r", "l"]),
        handle=_few,
        role=_flags,
        source=st.sampled_from([None, AmqpSource("q")]),
        target=_termini,
        initial_delivery_count=_some,
    ),
    _made(
        AmqpFlow,
        next_incoming_id=_some,
        incoming_window=_ids,
        next_outgoing_id=_ids,
        outgoing_window=_ids,
        handle=st.none() | _few,
        delivery_count=_some,
        link_credit=_some,
        drain=_flags,
        echo=_flags,
    ),
    _made(
        AmqpTransfer,
        handle=_few,
        delivery_id=_some,
        delivery_tag=st.none() | st.binary(max_size=33),
        settled=st.none() | _flags,
        more=_flags,
        state=_states,
        aborted=_flags,
    ),
    _made(AmqpDisposition, role=_flags, first=_ids, last=_some, settled=_flags, state=_states),
    _made(AmqpDetach, handle=_few, closed=_flags),
    st.just(AmqpEnd()),
    st.just(AmqpClose()),
    of_table(),
)
_payloads = st.sampled_from([b"", header_section(AmqpHeader(True)) + value_section("text")]) | st.binary(max_size=700)
_frames = st.builds(
    lambda performative, payload, channel: frame(
        performative, payload if isinstance(performative, AmqpTransfer) else b"", channel
    ),
    _performatives,
    _payloads,
    st.sampled_from([0, 0, 0, 0, 1, 5]),
)
_opening = frame(AmqpBegin(None, 0, 5, 5)) + frame(
    AmqpAttach("l", 0, False, source=AmqpSource(), target=AmqpTarget("q"), initial_delivery_count=0)
)
_sasl = st.sampled_from(
    [
        protocol_header(PROTOCOL_SASL),
        protocol_header(PROTOCOL_AMQP),
        *(
            encode_frame(0, encode_composite(one), SASL_FRAME)
            for one in (SaslInit("SCRAM-SHA-256", b"x"), SaslResponse(b"right"), SaslResponse(b"wrong"), SaslOutcome(0))
        ),
        frame(AmqpOpen("peer")),
        _opening,
    ]
)


@st.composite
def damaged(draw: st.DrawFn, source: st.SearchStrategy[bytes], most: int = 12) -> bytes:
    """Real pieces, with some bytes changed, removed or put in."""
    data = bytearray(b"".join(draw(st.lists(source, min_size=1, max_size=most))))
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        what = draw(st.sampled_from(("flip", "cut", "insert")))
        if what == "flip" and data:
            data[at] ^= draw(st.integers(1, 255))
        elif what == "cut":
            del data[at : at + draw(st.integers(1, 12))]
        else:
            data[at:at] = draw(st.binary(max_size=12))
    return bytes(data)


def targets() -> dict[str, tuple[Target, st.SearchStrategy[bytes]]]:
    """Name → what is fuzzed, and inputs for it."""
    first = st.integers(0, 255).map(lambda n: bytes([n]))
    encoded = values.map(encode)
    parts = st.sampled_from(
        [header_section(AmqpHeader(True)), value_section([1, "a"]), properties_section(_PROPERTIES)]
    )
    frames = damaged(_frames) | damaged(_frames).map(lambda data: _opening + data)
    return {
        "amqp_value": (value, damaged(encoded, 2) | st.binary(max_size=60)),
        "amqp_message": (message, damaged(parts | of_table().map(encode_composite), 5) | st.binary(max_size=60)),
        "amqp_stranger": (stranger, st.tuples(first, damaged(_sasl) | st.binary(max_size=60)).map(b"".join)),
        "amqp_listening": (listening, st.tuples(first, frames).map(b"".join)),
        "amqp_connecting": (connecting, st.tuples(first, frames).map(b"".join)),
    }


_PROPERTIES = AmqpProperties("id", to="q", group_id="g")
