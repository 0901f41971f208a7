"""One end of a connection of AMQP 1.0.

    phase     comes                       next
    HEADER    the header of SASL          LOGIN     (also a listening side's first, when it offers mechanisms)
    HEADER    the header of AMQP          FRAMES    (after the login, or where none is required)
    LOGIN     frames of SASL              HEADER    once the outcome is ok
    FRAMES    frames of AMQP              FRAMES

What breaks the protocol ends the connection: the peer is told by a close, or in the phase HEADER by the header that
would be right, ProtocolFailed is the last event, and what comes after that is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import count
from typing import Any, Final

from raybroker.model.errors import IllegalStateError
from raybroker.wire.amqp.conditions import (
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    AmqpViolation,
    SessionViolation,
)
from raybroker.wire.amqp.events import (
    AmqpEvent,
    ConnectionClosed,
    ConnectionOpened,
    HeaderReceived,
    ProtocolFailed,
    SessionBegun,
    SessionEnded,
)
from raybroker.wire.amqp.frames import (
    AMQP_FRAME,
    EMPTY_FRAME,
    FRAME_BYTES_MIN,
    PROTOCOL_AMQP,
    PROTOCOL_SASL,
    SASL_FRAME,
    FrameReader,
    encode_frame,
    protocol_header,
)
from raybroker.wire.amqp.limits import AmqpLimits, IncompleteBytes
from raybroker.wire.amqp.links import FrameOutput
from raybroker.wire.amqp.performatives import (
    AmqpBegin,
    AmqpClose,
    AmqpEnd,
    AmqpError,
    AmqpOpen,
    AmqpTransfer,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    decode_composite,
    encode_composite,
)
from raybroker.wire.amqp.receiving import HANDLERS, received_transfer
from raybroker.wire.amqp.sessions import SessionEndpoint
from raybroker.wire.amqp.states import ENDPOINT, SASL, EndpointEvent, EndpointState, SaslEvent, SaslState
from raybroker.wire.amqp.types import Buffer

_OF_CLIENT: Final = {SaslInit: SaslEvent.INIT, SaslResponse: SaslEvent.RESPOND}
_OF_SERVER: Final = {SaslMechanisms: SaslEvent.OFFER, SaslChallenge: SaslEvent.CHALLENGE, SaslOutcome: SaslEvent.REFUSE}
SASL_OK: Final = 0
_OF_CONNECTION: Final = frozenset({AmqpOpen, AmqpBegin, AmqpEnd, AmqpClose})
_OPEN: Final = EndpointState.OPEN


class Phase(StrEnum):
    HEADER = "HEADER"
    LOGIN = "LOGIN"
    FRAMES = "FRAMES"


class AmqpLogin:
    """The login of one connection. ``mechanisms``: what a listening side offers; ``required``: nobody comes without."""

    __slots__ = ("listening", "mechanisms", "required", "state")

    def __init__(self, *, listening: bool, mechanisms: Sequence[str], required: bool) -> None:
        self.listening = listening
        self.mechanisms = tuple(mechanisms)
        self.required = required
        self.state = SaslState.MECHANISMS

    def happens(self, event: SaslEvent) -> None:
        self.state = SASL.after(self.state, event)

    def peer_does(self, performative: Any) -> None:
        """A frame of the peer came. Raises AmqpViolation when it is not its turn."""
        event = (_OF_CLIENT if self.listening else _OF_SERVER).get(type(performative))
        if isinstance(performative, SaslOutcome) and performative.code == SASL_OK:
            event = SaslEvent.ACCEPT
        if event is None or not SASL.takes(self.state, event):
            raise AmqpViolation(f"a {type(performative).__name__} came out of turn in the login", NOT_ALLOWED)
        self.happens(event)

    @property
    def waits(self) -> bool:
        """It is for this side to go on."""
        return self.state is (SaslState.DECIDING if self.listening else SaslState.INIT) or (
            not self.listening and self.state is SaslState.RESPONSE
        )


class ConnectionEndpoint:
    """``peer``: what the peer's open said, None before it came.

    Made by :meth:`listening` or :meth:`connecting`.
    """

    __slots__ = (
        "_channels",
        "_channels_of_peer",
        "_failed",
        "_incomplete",
        "_output",
        "_phase",
        "_reader",
        "limits",
        "login",
        "peer",
        "state",
    )

    def __init__(self, limits: AmqpLimits, login: AmqpLogin) -> None:
        self.limits = limits
        self.login = login
        self.state = EndpointState.IDLE
        self.peer: AmqpOpen | None = None
        self._reader = FrameReader(limits.login_frame_bytes_max)
        self._output = FrameOutput(FRAME_BYTES_MIN)
        self._phase = Phase.HEADER
        self._channels: dict[int, SessionEndpoint] = {}
        self._channels_of_peer: dict[int, SessionEndpoint] = {}
        self._incomplete = IncompleteBytes(limits.incomplete_bytes_max)
        self._failed = False

    @classmethod
    def listening(
        cls, limits: AmqpLimits, mechanisms: Sequence[str], *, login_required: bool = True
    ) -> ConnectionEndpoint:
        """The end that has accepted a connection. Without mechanisms there is no login."""
        return cls(
            limits, AmqpLogin(listening=True, mechanisms=mechanisms, required=login_required and bool(mechanisms))
        )

    @classmethod
    def connecting(cls, limits: AmqpLimits, *, login: bool = True) -> ConnectionEndpoint:
        """The end that has made a connection; its protocol header is output already."""
        made = cls(limits, AmqpLogin(listening=False, mechanisms=(), required=login))
        made._output.buffers.append(protocol_header(PROTOCOL_SASL if login else PROTOCOL_AMQP))
        return made

    @property
    def closed(self) -> bool:
        """Nothing more comes or goes but what is in the output."""
        return self._failed or self.state is EndpointState.CLOSED

    @property
    def sessions(self) -> list[SessionEndpoint]:
        """Sessions that have not ended on both sides."""
        return list(self._channels.values())

    @property
    def incomplete_bytes(self) -> int:
        """Bytes of frames and of deliveries that are not whole."""
        return self._incomplete.total + self._reader.held_bytes

    # ---- output --------------------------------------------------------------------------------------------------

    @property
    def has_output(self) -> bool:
        return bool(self._output.buffers)

    def take_output(self) -> list[Buffer]:
        """What is to be written, in its order; it is not given again."""
        buffers = self._output.buffers
        self._output.buffers = []
        return buffers

    def data_to_send(self) -> bytes:
        """The output as one."""
        return b"".join(self.take_output())

    def keep_alive(self) -> None:
        """Send an empty frame: the peer's idle-time-out is about to pass."""
        if self._phase is Phase.FRAMES and not self.closed:
            self._output.buffers.append(EMPTY_FRAME)

    # ---- the login -----------------------------------------------------------------------------------------------

    def _write_login(self, performative: Any) -> None:
        self._output.buffers.append(encode_frame(0, encode_composite(performative), SASL_FRAME))

    def challenge(self, challenge: bytes) -> None:
        """Answer SaslInit or SaslResponse by a challenge; then call ``receive_data(b"")``: more may have come."""
        self.login.happens(SaslEvent.CHALLENGE)
        self._write_login(SaslChallenge(challenge))

    def end_login(self, code: int, additional_data: bytes | None = None) -> None:
        """Tell the outcome: 0 is ok, 1 wrong credentials, 2 a failure of the broker. Then ``receive_data(b"")``."""
        self.login.happens(SaslEvent.ACCEPT if code == SASL_OK else SaslEvent.REFUSE)
        self._write_login(SaslOutcome(code, additional_data))
        if code == SASL_OK:
            self._phase = Phase.HEADER
        else:
            self._failed = True

    def begin_login(self, mechanism: str, initial_response: bytes | None = None, hostname: str | None = None) -> None:
        """Answer SaslMechanisms."""
        self.login.happens(SaslEvent.INIT)
        self._write_login(SaslInit(mechanism, initial_response, hostname))

    def respond(self, response: bytes) -> None:
        """Answer SaslChallenge."""
        self.login.happens(SaslEvent.RESPOND)
        self._write_login(SaslResponse(response))

    # ---- open, begin, close --------------------------------------------------------------------------------------

    def send_open(self, container_id: str, **more: Any) -> None:
        """Open the connection, or answer the peer's open. ``more``: further fields of AmqpOpen; the largest frame and
        channel are those of the limits. Raises IllegalStateError before the login has ended."""
        if self.closed:
            return
        if self._phase is not Phase.FRAMES and (self.login.listening or self._protocol() != PROTOCOL_AMQP):
            raise IllegalStateError("a connection is opened after its header and its login")
        self.state = ENDPOINT.after(self.state, EndpointEvent.OPEN)
        limits = self.limits
        told = AmqpOpen(container_id, max_frame_size=limits.frame_bytes_max, channel_max=limits.channel_max, **more)
        self._output.write(0, told)

    def begin_session(self, **more: Any) -> SessionEndpoint:
        """Begin a session. ``more``: capabilities and properties of AmqpBegin."""
        made = self._new_session(None)
        made.send_begin(**more)
        return made

    def send_close(self, error: AmqpError | None = None) -> None:
        """Close the connection, or answer the peer's close. Its sessions end with it."""
        if self.closed or self.state is EndpointState.CLOSING:
            return
        if self.state in (EndpointState.IDLE, EndpointState.PEER_OPENED):
            self.send_open("")
        self.state = ENDPOINT.after(self.state, EndpointEvent.CLOSE)
        self._output.write(0, AmqpClose(error))
        self._end_sessions()

    def _end_sessions(self) -> None:
        for session in self.sessions:
            session.end_all()

    @property
    def _channel_max(self) -> int:
        return self.limits.channel_max if self.peer is None else min(self.limits.channel_max, self.peer.channel_max)

    @property
    def _full(self) -> bool:
        """It has no channel left."""
        return len(self._channels) > self._channel_max

    def _new_session(self, wanted: int | None) -> SessionEndpoint:
        if self.closed or self._full:
            raise IllegalStateError("the connection is closed" if self.closed else "the connection has no channel left")
        channels = self._channels
        if wanted is None or wanted > self._channel_max or wanted in channels:
            wanted = next(number for number in count() if number not in channels)
        return SessionEndpoint(wanted, self._output, channels, self.limits, self._incomplete)

    # ---- input ---------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> list[AmqpEvent]:
        """Take what came, and tell what it means. Nothing is raised for what a peer sends."""
        events: list[AmqpEvent] = []
        if self.closed:
            return events
        self._reader.feed(data)
        try:
            going = True
            while going and not self.closed:
                if self._phase is Phase.FRAMES:
                    self._take_frames(events)
                    break
                going = self._take_header(events) if self._phase is Phase.HEADER else self._take_login(events)
            if self.peer is None and self._reader.held_bytes > self.limits.login_bytes_max:
                why = f"more than {self.limits.login_bytes_max} bytes came before the login has ended"
                raise AmqpViolation(why, RESOURCE_LIMIT_EXCEEDED)
        except AmqpViolation as error:
            self._fail(error)
            events.append(ProtocolFailed(error))
        return events

    def _fail(self, error: AmqpViolation) -> None:
        """The peer has broken the protocol, and is told."""
        if self._phase is Phase.HEADER:
            self._output.buffers.append(protocol_header(self._protocol()))
        elif self._phase is Phase.FRAMES:
            self.send_close(AmqpError(error.condition, str(error)))
        self._failed = True
        self._reader = FrameReader(FRAME_BYTES_MIN)
        self._end_sessions()

    def _protocol(self) -> int:
        """The protocol whose header has to come."""
        login = self.login
        return PROTOCOL_SASL if login.required and login.state is not SaslState.DONE else PROTOCOL_AMQP

    def _take_header(self, events: list[AmqpEvent]) -> bool:
        protocol = self._reader.next_header()
        if protocol is None:
            return False
        login = self.login
        optional = protocol == PROTOCOL_SASL and login.mechanisms and login.state is SaslState.MECHANISMS
        if protocol != self._protocol() and not optional:
            wanted = "SASL" if self._protocol() == PROTOCOL_SASL else "AMQP"
            raise AmqpViolation(f"the protocol header {protocol} came; {wanted} is wanted", FRAMING_ERROR)
        if login.listening:
            self._output.buffers.append(protocol_header(protocol))
        if protocol == PROTOCOL_AMQP:
            self._phase = Phase.FRAMES
        else:
            self._phase = Phase.LOGIN
            if login.listening:
                login.happens(SaslEvent.OFFER)
                self._write_login(SaslMechanisms(login.mechanisms))
        events.append(HeaderReceived(protocol))
        return True

    def _take_login(self, events: list[AmqpEvent]) -> bool:
        if self.login.waits or (cut := self._reader.next_frame()) is None:
            return False
        kind, _, frame, at = cut
        if kind != SASL_FRAME:
            raise AmqpViolation(f"a frame of type {kind} came during the login", FRAMING_ERROR)
        performative, end = decode_composite(frame, at)
        if end != len(frame):
            raise AmqpViolation("a frame of SASL goes on behind its performative", FRAMING_ERROR)
        self.login.peer_does(performative)
        if self.login.state is SaslState.DONE:
            self._phase = Phase.HEADER
            self._output.buffers.append(protocol_header(PROTOCOL_AMQP))
        elif self.login.state is SaslState.REFUSED:
            self._failed = True
        events.append(performative)
        return True

    def _take_frames(self, events: list[AmqpEvent]) -> None:
        """Take the frames that are whole."""
        next_frame, sessions = self._reader.next_frame, self._channels_of_peer
        while (cut := next_frame()) is not None:
            kind, channel, frame, at = cut
            if kind != AMQP_FRAME:
                raise AmqpViolation(f"a frame of type {kind} came; it is 0", FRAMING_ERROR)
            if at == len(frame):
                continue
            performative, end = decode_composite(frame, at)
            of = type(performative)
            session = sessions.get(channel)
            if session is None or self.state is not _OPEN or of in _OF_CONNECTION:
                if end != len(frame) and of is not AmqpTransfer:
                    raise AmqpViolation("a frame goes on behind its performative", FRAMING_ERROR)
                session = self._take_other(channel, session, performative, events)
                if session is None:
                    if self.closed:
                        return
                    continue
            if session.lane.ended:
                continue
            try:
                if of is AmqpTransfer:
                    received_transfer(session, performative, frame[end:], events)
                elif end != len(frame):
                    raise AmqpViolation("a frame goes on behind its performative", FRAMING_ERROR)
                elif of in HANDLERS:
                    HANDLERS[of](session, performative, events)
                else:
                    raise AmqpViolation(f"a {of.__name__} is no performative of AMQP", FRAMING_ERROR)
            except SessionViolation as error:
                if session.state is EndpointState.PEER_OPENED:  # What is not begun here cannot be ended.
                    raise
                told = AmqpError(error.condition, str(error))
                session.failed = True
                session.send_end(told)
                events.append(SessionEnded(session, told, by_peer=False))

    def _take_other(
        self, channel: int, session: SessionEndpoint | None, performative: Any, events: list[AmqpEvent]
    ) -> SessionEndpoint | None:
        """Take what is not for a session, or comes while the connection is not open on both sides; the session that is
        to take it, None when that is done."""
        of = type(performative)
        if of is AmqpOpen or of is AmqpClose:
            self._take_connection(performative, events)
        elif self.state is EndpointState.CLOSING:
            return None
        elif self.peer is None or self.state is EndpointState.PEER_CLOSED:
            when = "before the open" if self.peer is None else "after the close"
            raise AmqpViolation(f"a {of.__name__} came {when}", ILLEGAL_STATE)
        elif of is AmqpBegin:
            self._take_begin(channel, performative, events)
        elif session is None:
            raise AmqpViolation(f"a {of.__name__} came on channel {channel}, which has no session", NOT_ALLOWED)
        elif of is AmqpEnd:
            self._take_end(channel, session, performative, events)
        else:
            return session
        return None

    def _take_connection(self, performative: Any, events: list[AmqpEvent]) -> None:
        opens = isinstance(performative, AmqpOpen)
        event = EndpointEvent.PEER_OPENS if opens else EndpointEvent.PEER_CLOSES
        if not ENDPOINT.takes(self.state, event):
            what = "an open" if opens else "a close"
            raise AmqpViolation(f"{what} came; the connection is {self.state}", ILLEGAL_STATE)
        if opens:
            if performative.max_frame_size < FRAME_BYTES_MIN:
                why = f"max-frame-size {performative.max_frame_size}; it is at least {FRAME_BYTES_MIN}"
                raise AmqpViolation(why, INVALID_FIELD)
            self.peer = performative
            self._reader.frame_bytes_max = self.limits.frame_bytes_max
            self._output.frame_bytes_max = min(performative.max_frame_size, self.limits.frame_bytes_max)
            if self.state is not EndpointState.CLOSING:
                events.append(ConnectionOpened(performative))
        else:
            events.append(ConnectionClosed(performative.error))
            self._end_sessions()
        self.state = ENDPOINT.after(self.state, event)

    def _take_begin(self, channel: int, begin: AmqpBegin, events: list[AmqpEvent]) -> None:
        if channel > self.limits.channel_max:
            raise AmqpViolation(f"the channel {channel}; channel-max is {self.limits.channel_max}", FRAMING_ERROR)
        if channel in self._channels_of_peer:
            raise AmqpViolation(f"the channel {channel} has a session already", NOT_ALLOWED)
        if begin.remote_channel is None:
            if self._full:
                why = f"the connection has {len(self._channels)} sessions; it has no more"
                raise AmqpViolation(why, RESOURCE_LIMIT_EXCEEDED)
            session = self._new_session(channel)
        else:
            known = self._channels.get(begin.remote_channel)
            if known is None or known.peer is not None:
                raise AmqpViolation(
                    f"a begin answers channel {begin.remote_channel}, which waits for none", NOT_ALLOWED
                )
            session = known
        self._channels_of_peer[channel] = session
        session.remote_channel = channel
        session.peer = begin
        session.lane.window.begun(begin.next_outgoing_id, begin.incoming_window)
        session.happens(EndpointEvent.PEER_OPENS)
        if not session.lane.ended:
            events.append(SessionBegun(session, begin))

    def _take_end(self, channel: int, session: SessionEndpoint, end: AmqpEnd, events: list[AmqpEvent]) -> None:
        del self._channels_of_peer[channel]
        session.happens(EndpointEvent.PEER_CLOSES)
        ended_here = session.lane.ended
        session.end_all()
        session.lane.ended = ended_here
        if not session.failed:
            events.append(SessionEnded(session, end.error, by_peer=True))
