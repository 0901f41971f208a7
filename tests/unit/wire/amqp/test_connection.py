"""One connection: its header and login, open and close, sessions, and what a peer does wrong."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.wire.amqp.conditions import (
    DECODE_ERROR,
    FRAMING_ERROR,
    HANDLE_IN_USE,
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
)
from raybroker.wire.amqp.connection import ConnectionEndpoint
from raybroker.wire.amqp.events import (
    ConnectionClosed,
    ConnectionOpened,
    HeaderReceived,
    LinkAttached,
    ProtocolFailed,
    SessionBegun,
    SessionEnded,
)
from raybroker.wire.amqp.frames import (
    EMPTY_FRAME,
    PROTOCOL_AMQP,
    PROTOCOL_SASL,
    SASL_FRAME,
    encode_frame,
    protocol_header,
)
from raybroker.wire.amqp.limits import AmqpLimits
from raybroker.wire.amqp.performatives import (
    AmqpAttach,
    AmqpBegin,
    AmqpClose,
    AmqpDetach,
    AmqpDisposition,
    AmqpEnd,
    AmqpError,
    AmqpFlow,
    AmqpOpen,
    AmqpSource,
    AmqpTarget,
    AmqpTransfer,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    encode_composite,
)
from tests.unit.wire.amqp.pair import Pair, frame, opened_server, said

BEGIN = AmqpBegin(None, 0, 100, 100)
SENDER = AmqpAttach("l", 0, False, source=AmqpSource(), target=AmqpTarget("q"), initial_delivery_count=0)


def sasl(performative: Any) -> bytes:
    return encode_frame(0, encode_composite(performative), SASL_FRAME)


def test_a_login_in_several_steps() -> None:
    limits = AmqpLimits()
    server = ConnectionEndpoint.listening(limits, ("SCRAM-SHA-256", "PLAIN"))
    client = ConnectionEndpoint.connecting(limits)
    assert server.receive_data(client.data_to_send()) == [HeaderReceived(PROTOCOL_SASL)]
    told = client.receive_data(server.data_to_send())
    assert told == [HeaderReceived(PROTOCOL_SASL), SaslMechanisms(("SCRAM-SHA-256", "PLAIN"))]
    client.begin_login("SCRAM-SHA-256", b"first", "host")
    assert server.receive_data(client.data_to_send()) == [SaslInit("SCRAM-SHA-256", b"first", "host")]
    server.challenge(b"nonce")
    assert client.receive_data(server.data_to_send()) == [SaslChallenge(b"nonce")]
    client.respond(b"proof")
    assert server.receive_data(client.data_to_send()) == [SaslResponse(b"proof")]
    server.end_login(0, b"signature")
    assert client.receive_data(server.data_to_send()) == [SaslOutcome(0, b"signature")]
    client.send_open("client")
    assert server.receive_data(client.data_to_send())[0] == HeaderReceived(PROTOCOL_AMQP)
    assert client.receive_data(server.data_to_send()) == [HeaderReceived(PROTOCOL_AMQP)]
    assert server.peer is not None
    assert server.peer.container_id == "client"


def test_a_client_that_does_not_wait_is_read_on_after_the_outcome() -> None:
    server = ConnectionEndpoint.listening(AmqpLimits(), ("ANONYMOUS",))
    hasty = protocol_header(PROTOCOL_SASL) + sasl(SaslInit("ANONYMOUS"))
    hasty += protocol_header(PROTOCOL_AMQP) + frame(AmqpOpen("hasty")) + frame(BEGIN)
    assert server.receive_data(hasty) == [HeaderReceived(PROTOCOL_SASL), SaslInit("ANONYMOUS")]
    assert server.receive_data(b"") == []
    server.end_login(0)
    header, opened, begun = server.receive_data(b"")
    assert header == HeaderReceived(PROTOCOL_AMQP)
    assert isinstance(opened, ConnectionOpened)
    assert isinstance(begun, SessionBegun)


def test_a_refused_login_is_the_end() -> None:
    server = ConnectionEndpoint.listening(AmqpLimits(), ("PLAIN",))
    server.receive_data(protocol_header(PROTOCOL_SASL) + sasl(SaslInit("PLAIN", b"\0ann\0wrong")))
    server.take_output()
    server.end_login(1)
    assert server.closed
    assert server.data_to_send() == sasl(SaslOutcome(1))
    assert server.receive_data(protocol_header(PROTOCOL_AMQP)) == []


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (b"GET / HTTP/1.1\r\n", FRAMING_ERROR),
        (b"AMQP\0\0\x09\x01", FRAMING_ERROR),
        (b"AMQP\1\1\0\0", FRAMING_ERROR),
        (protocol_header(PROTOCOL_AMQP), FRAMING_ERROR),
        (b"X", FRAMING_ERROR),
    ],
)
def test_a_header_that_is_not_wanted_is_answered_with_the_right_one(data: bytes, condition: str) -> None:
    server = ConnectionEndpoint.listening(AmqpLimits(), ("PLAIN",))
    (failed,) = server.receive_data(data)
    assert isinstance(failed, ProtocolFailed)
    assert failed.error.condition == condition
    assert server.data_to_send() == protocol_header(PROTOCOL_SASL)
    assert server.closed


@pytest.mark.parametrize(
    "data",
    [
        sasl(SaslResponse(b"x")),
        sasl(SaslOutcome(0)),
        sasl(SaslMechanisms(("PLAIN",))),
        frame(AmqpOpen("x")),
        sasl(AmqpOpen("x")),
        sasl(SaslInit("PLAIN")) + b"x" * 70_000,
    ],
)
def test_what_is_out_of_turn_in_a_login_ends_the_connection(data: bytes) -> None:
    server = ConnectionEndpoint.listening(AmqpLimits(), ("PLAIN",))
    events = server.receive_data(protocol_header(PROTOCOL_SASL) + data)
    assert isinstance(events[-1], ProtocolFailed)
    assert server.closed
    assert server.incomplete_bytes == 0


def test_a_login_is_optional_where_it_is_not_required() -> None:
    for protocol in (PROTOCOL_AMQP, PROTOCOL_SASL):
        server = ConnectionEndpoint.listening(AmqpLimits(), ("ANONYMOUS",), login_required=False)
        assert server.receive_data(protocol_header(protocol)) == [HeaderReceived(protocol)]


def test_large_frames_are_refused_before_the_connection_is_open() -> None:
    limits = AmqpLimits(login_frame_bytes_max=512)
    server = ConnectionEndpoint.listening(limits, ())
    (_, failed) = server.receive_data(protocol_header(PROTOCOL_AMQP) + frame(AmqpOpen("x" * 600)))
    assert isinstance(failed, ProtocolFailed)
    assert failed.error.condition == FRAMING_ERROR
    opened = opened_server(limits)
    assert opened.receive_data(frame(AmqpBegin(None, 0, 1, 1, properties={"x": "y" * 1000})))


def test_open_and_close_by_the_peer() -> None:
    pair = Pair().opened()
    assert pair.server.peer is not None
    pair.client.send_close(AmqpError("amqp:not-allowed", "enough"))
    assert pair.talk() == [ConnectionClosed(AmqpError("amqp:not-allowed", "enough"))]
    assert not pair.server.closed
    pair.server.send_close()
    assert pair.server.closed
    pair.talk()
    assert pair.told == [ConnectionClosed(None)]
    assert pair.client.closed


def test_a_close_before_the_open_opens_first() -> None:
    server = ConnectionEndpoint.listening(AmqpLimits(), ())
    server.receive_data(protocol_header(PROTOCOL_AMQP))
    server.take_output()
    server.send_close(AmqpError("amqp:connection:forced"))
    assert list(map(type, said(server.data_to_send()))) == [AmqpOpen, AmqpClose]


def test_empty_frames_say_nothing() -> None:
    pair = Pair().opened()
    pair.client.keep_alive()
    assert pair.client.has_output
    assert pair.talk() == []
    assert bytes.fromhex("0000000802000000") == EMPTY_FRAME


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (b"\0\0\0\7\2\0\0\0", FRAMING_ERROR),  # shorter than its head
        (b"\0\0\0\x0c\1\0\0\0abcd", FRAMING_ERROR),  # the body begins within the head
        (b"\0\0\0\x0c\4\0\0\0abcd", FRAMING_ERROR),  # the body begins behind the frame
        (b"\0\0\0\x0c\2\1\0\0abcd", FRAMING_ERROR),  # SASL after the login
        (b"\0\0\0\x0c\2\7\0\0abcd", FRAMING_ERROR),
        (b"\x7f\xff\xff\xff\2\0\0\0", FRAMING_ERROR),
        (encode_frame(0, b"\0\x53\x10"), DECODE_ERROR),
        (encode_frame(0, b"\x40"), DECODE_ERROR),
        (encode_frame(0, b"\0\x53\x99\x45"), NOT_ALLOWED),  # a descriptor that nobody knows, without a session
        (encode_frame(0, b"\0\x53\x11\xc0\x02\1\x41"), DECODE_ERROR),  # a boolean for a channel
        (encode_frame(0, b"\0\x53\x17\x45\x40"), FRAMING_ERROR),  # bytes behind an end
        (frame(AmqpOpen("again")), ILLEGAL_STATE),
        (frame(AmqpTransfer(0)), NOT_ALLOWED),
        (frame(BEGIN, channel=2000), FRAMING_ERROR),
        (frame(BEGIN) + frame(BEGIN), NOT_ALLOWED),
        (frame(AmqpBegin(5, 0, 1, 1)), NOT_ALLOWED),
        (frame(BEGIN) + frame(SENDER._replace(handle=5000)), FRAMING_ERROR),
        (frame(BEGIN) + frame(AmqpEnd()) + frame(SENDER), NOT_ALLOWED),
        (frame(BEGIN) + frame(AmqpSource()), FRAMING_ERROR),
        (frame(AmqpClose()) + frame(BEGIN), ILLEGAL_STATE),
    ],
)
def test_what_breaks_the_protocol_ends_the_connection_with_its_condition(data: bytes, condition: str) -> None:
    server = opened_server()
    events = server.receive_data(data)
    failed = events[-1]
    assert isinstance(failed, ProtocolFailed)
    assert failed.error.condition == condition
    assert server.closed
    assert server.receive_data(data) == []
    close = [one for one in said(server.data_to_send()) if isinstance(one, AmqpClose)]
    assert [one.error.condition for one in close] == [condition]


def test_a_frame_size_below_the_least_is_refused() -> None:
    server = ConnectionEndpoint.listening(AmqpLimits(), ())
    events = server.receive_data(protocol_header(PROTOCOL_AMQP) + frame(AmqpOpen("x", max_frame_size=511)))
    assert isinstance(events[-1], ProtocolFailed)
    assert events[-1].error.condition == INVALID_FIELD


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (frame(AmqpTransfer(1, 0, b"t")), UNATTACHED_HANDLE),
        (frame(AmqpFlow(0, 10, 0, 10, 1, 0, 1)), UNATTACHED_HANDLE),
        (frame(AmqpDetach(1)), UNATTACHED_HANDLE),
        (frame(SENDER) + frame(SENDER._replace(name="other")), HANDLE_IN_USE),
        (frame(AmqpFlow(1, 10, 0, 10)), INVALID_FIELD),  # receives what was never sent
        (frame(SENDER._replace(role=True)) + frame(AmqpTransfer(0, 0, b"t")), NOT_ALLOWED),
        (
            frame(SENDER) + frame(AmqpDetach(0)) + frame(SENDER) + frame(AmqpDetach(0)) + frame(SENDER),
            RESOURCE_LIMIT_EXCEEDED,  # of ends that are not answered yet
        ),
    ],
)
def test_what_breaks_a_rule_of_a_session_ends_that_alone(data: bytes, condition: str) -> None:
    server = opened_server(AmqpLimits(handle_max=1))
    (begun,) = server.receive_data(frame(BEGIN))
    assert isinstance(begun, SessionBegun)
    begun.session.send_begin()
    ends = server.receive_data(data)
    ends += server.receive_data(frame(AmqpDisposition(False, 0)))  # dropped: it is under way
    ended = ends[-1]
    assert isinstance(ended, SessionEnded)
    assert not ended.by_peer
    assert ended.error is not None
    assert ended.error.condition == condition
    assert not server.closed
    assert [one.error.condition for one in said(server.data_to_send()) if isinstance(one, AmqpEnd)] == [condition]
    begun.session.send_end()
    assert not server.has_output
    assert server.receive_data(frame(AmqpEnd())) == []
    assert server.sessions == []
    assert isinstance(server.receive_data(frame(BEGIN))[0], SessionBegun)


def test_transfers_beyond_the_window_end_the_session() -> None:
    server = opened_server(AmqpLimits(incoming_window=1))
    (begun,) = server.receive_data(frame(BEGIN))
    assert isinstance(begun, SessionBegun)
    begun.session.send_begin()
    begun.session.lane.window.incoming = 0
    (ended,) = server.receive_data(frame(SENDER) + frame(AmqpTransfer(0, 0, b"t")))[1:]
    assert isinstance(ended, SessionEnded)
    assert ended.error is not None
    assert ended.error.condition == WINDOW_VIOLATION


def test_sessions_are_bounded_and_their_channels_are_used_again() -> None:
    server = opened_server(AmqpLimits(channel_max=2))
    events = server.receive_data(b"".join(frame(BEGIN, channel=n) for n in range(3)))
    assert len(events) == 3
    server.receive_data(b"".join(frame(AmqpEnd(), channel=n) for n in range(3)))
    # They are not answered yet: the channels are not free.
    (failed,) = server.receive_data(frame(BEGIN))
    assert isinstance(failed, ProtocolFailed)
    assert failed.error.condition == RESOURCE_LIMIT_EXCEEDED


def test_a_session_that_was_ended_may_begin_again() -> None:
    pair = Pair().opened()
    for _ in range(3):
        ours, theirs = pair.session()
        assert ours.lane.channel == theirs.lane.channel == 0
        ours.send_end()
        assert pair.talk() == [SessionEnded(theirs, None, by_peer=True)]
        theirs.send_end()
        pair.talk()
        assert pair.told == [SessionEnded(ours, None, by_peer=True)]
    assert pair.client.sessions == pair.server.sessions == []


def test_what_is_done_to_something_that_has_ended_is_left_out() -> None:
    server = opened_server()
    begun, attached, ended, closed = server.receive_data(
        frame(BEGIN) + frame(SENDER) + frame(AmqpEnd()) + frame(AmqpClose())
    )
    assert isinstance(begun, SessionBegun)
    assert isinstance(attached, LinkAttached)
    assert isinstance(ended, SessionEnded)
    assert isinstance(closed, ConnectionClosed)
    begun.session.send_begin()
    attached.link.send_attach()
    attached.link.send_detach()
    ended.session.send_end()
    assert not server.has_output
    server.send_close()
    assert list(said(server.data_to_send())) == [AmqpClose()]
