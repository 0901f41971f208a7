"""One connection of an AMQP client: its socket, the login, keep-alives, and how it ends.

    CONNECTING                  logged in   OPENING
    OPENING                     opened      OPEN
    CONNECTING, OPENING, OPEN   ended       ENDED
    any other                   lost        LOST

OPENING: the client has proved who it is, and its open is to come or to be answered.  ENDED: a close was sent, and what
comes is not looked at any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Any, Final, cast
from zlib import crc32

from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.session import opening
from raybroker.client.ways.logging_in import RelayedDigest
from raybroker.model.errors import (
    BrokerError,
    InvalidClientIDError,
    LoginLimitError,
    ProtocolError,
    ResourceAllocationError,
    SecurityError,
    ServiceClosedError,
)
from raybroker.model.machine import Machine
from raybroker.model.naming.names import check_client_id
from raybroker.services.amqp.broker import DIGESTS, AmqpBroker
from raybroker.services.amqp.client import AmqpClient
from raybroker.services.amqp.conditions import told
from raybroker.services.amqp.limits import IDLE_GRACE, LINGER_S, UNSENT_BYTES_HIGH
from raybroker.services.amqp.login import login_text
from raybroker.services.amqp.output import AmqpOutput
from raybroker.services.amqp.session import AmqpSession
from raybroker.services.gateways.client_server import ClientConnection, Known
from raybroker.services.gateways.gateway import LoggedIn
from raybroker.transport.unread import UnreadWatch
from raybroker.wire.amqp.conditions import CONNECTION_REDIRECT, INVALID_FIELD
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
    SessionUnblocked,
)
from raybroker.wire.amqp.links import SessionLane
from raybroker.wire.amqp.performatives import AmqpError, AmqpOpen, SaslInit, SaslResponse
from raybroker.wire.amqp.types import Int, Symbol

LOG: Final = logging.getLogger("raybroker.services")
SOLE: Final = "sole-connection-for-container"
OFFERED: Final = (SOLE, "DELAYED_DELIVERY", "ANONYMOUS-RELAY", "SHARED-SUBS")
FAILED: Final = "amqp:connection-establishment-failed"
WEB_PATH: Final = "/amqp"
"""Where the HTTP services have AMQP over WebSocket."""
SASL_OK: Final = 0
SASL_AUTH: Final = 1
SASL_SYS_TEMP: Final = 4
READS_PART: Final = 4
"""A client is looked at so often within the time in which something has to come of it."""


class AmqpState(StrEnum):
    CONNECTING = "CONNECTING"
    OPENING = "OPENING"
    OPEN = "OPEN"
    ENDED = "ENDED"
    LOST = "LOST"


class AmqpStep(StrEnum):
    LOG_IN = "logged in"
    OPEN = "opened"
    END = "ended"
    LOSE = "lost"


GOING: Final = (AmqpState.CONNECTING, AmqpState.OPENING, AmqpState.OPEN)
CONNECTION: Final = Machine(
    "the connection",
    [
        ((AmqpState.CONNECTING,), AmqpStep.LOG_IN, AmqpState.OPENING),
        ((AmqpState.OPENING,), AmqpStep.OPEN, AmqpState.OPEN),
        (GOING, AmqpStep.END, AmqpState.ENDED),
        ((*GOING, AmqpState.ENDED), AmqpStep.LOSE, AmqpState.LOST),
    ],
)


def certificate_of(transport: asyncio.BaseTransport | None) -> bytes | None:
    """The certificate that a client has shown, and that TLS has verified."""
    tls = transport.get_extra_info("ssl_object") if transport is not None else None
    found: bytes | None = tls.getpeercert(binary_form=True) if tls is not None else None
    return found


class AmqpConnection(ClientConnection):
    """See the module. ``peer``: address and port; ``known``: called when it has logged in; ``gone``: when it is lost
    and nothing is done for it any more."""

    def __init__(self, broker: AmqpBroker, peer: str, *, known: Known, gone: Known) -> None:
        self._peer = peer
        self.state = AmqpState.CONNECTING
        self._broker = broker
        self._told = known, gone
        self._loop = asyncio.get_running_loop()
        self.output: AmqpOutput
        self._logged_in: LoggedIn | ResourceAllocationError | None = None
        """Or why it has no room, which it is told when it opens: the outcome of a login has no text."""
        self._client: AmqpClient | None = None
        self._sessions: dict[SessionLane, AmqpSession] = {}
        self._response: asyncio.Future[bytes] | None = None
        self._working: asyncio.Task[Any] | None = None
        """The login, the open, or the end."""
        self._early: list[AmqpEvent] = []
        """What came before the open was answered."""
        self._heard_s = self._loop.time()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._watch: UnreadWatch | None = None

    # ---- the transport -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        broker, made = self._broker, cast(asyncio.Transport, transport)
        mechanisms = broker.mechanisms(self.peer, certified=certificate_of(made) is not None)
        engine = ConnectionEndpoint.listening(broker.limits.wire, mechanisms)
        self.output = AmqpOutput(self.peer, engine, broker.answers)
        self.output.transport = made
        made.set_write_buffer_limits(1, 0)  # With 0, TLS would be full with nothing in it.
        self._watch = UnreadWatch(broker.limits.bounds.unread_s, self.output, self._give_up)
        self._watch.start()
        self._timers["login"] = self._loop.call_later(broker.limits.handshake_s, self._too_slow)

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def silent(self) -> bool:
        """It has not logged in, and nothing is done for it."""
        return self.state is AmqpState.CONNECTING and self._working is None

    def _give_up(self, why: str) -> None:
        """It does not read."""
        LOG.warning("[B2229] the AMQP client %s is closed: %s", self.peer, why)
        self.output.abort()

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._loop.time()
        if self.state in GOING:
            self._broker.together(partial(self._take_data, data))

    def _take_data(self, data: bytes) -> None:
        output = self.output
        latest: Any = None
        # Nearly all are messages, each of which costs the calls that are made for it here: a link collects those that
        # follow one another, and hands them over before anything else happens.
        for event in output.engine.receive_data(data):
            if type(event) is DeliveryReceived and self.state is AmqpState.OPEN:
                context = event.link.context
                if context is not latest:
                    if latest is not None:
                        latest.hand_over()
                    latest = context
                if context is not None:
                    context.received(event)
            else:
                if latest is not None:
                    latest.hand_over()
                    latest = None
                self._handle(event)
        if latest is not None:
            latest.hand_over()
        output.flush()
        held, unfinished = output.engine.incomplete_bytes, self._broker.unfinished
        if held > UNSENT_BYTES_HIGH and self.state in GOING:
            unfinished.grows(output, held)
        elif unfinished.total:
            unfinished.ends(output)
        if output.unsent_bytes > UNSENT_BYTES_HIGH:
            self._regulate()

    def _regulate(self) -> None:
        """Read on, or not: the client does not read, its messages wait for room, or it is about to be let in."""
        transport, client = self.output.transport, self._client
        if transport is None or self.state is AmqpState.LOST:
            return
        waits = (
            self.output.unsent_bytes > UNSENT_BYTES_HIGH
            or (client is not None and client.has_much_pending)
            or (self.state is AmqpState.OPENING and self._working is not None)
        )
        if waits and transport.is_reading():
            transport.pause_reading()
        elif not waits and not transport.is_reading() and not transport.is_closing():
            transport.resume_reading()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.output.drained.clear()

    def resume_writing(self) -> None:
        self.output.drained.set()
        self._regulate()

    def connection_lost(self, exc: Exception | None) -> None:
        self.state = CONNECTION.after(self.state, AmqpStep.LOSE)
        output = self.output
        output.lost = True
        if self._watch is not None:
            self._watch.stop()
        self._broker.unfinished.ends(output)
        output.drained.set()
        self._cancel_timers()
        if self._response is not None and not self._response.done():
            self._response.cancel()
        self._end_client(clean=False)

    def _end_client(self, *, clean: bool) -> None:
        """What is open for the client ends, once; then it is gone if it is lost."""
        working, client, logged_in = self._working, self._client, self._logged_in
        if client is None and logged_in is None and working is None:
            if self.state is AmqpState.LOST:
                self._told[1](self)
            return
        if working is not None and working.get_name().endswith("ends"):
            return
        self._working = self._broker.loops.once("a client ends", self._close_client(working, clean=clean))

    async def _close_client(self, working: asyncio.Task[Any] | None, *, clean: bool) -> None:
        try:
            if working is not None:
                working.cancel()
                await asyncio.wait([working])
            client, logged_in = self._client, self._logged_in
            self._client = self._logged_in = None
            sessions, self._sessions = list(self._sessions.values()), {}
            for session in sessions:
                await session.ended(clean=clean)
            if client is not None:
                self._broker.counts.connections -= 1
                await client.end()
            elif isinstance(logged_in, LoggedIn):
                logged_in.log_out()
        finally:
            self._working = None
            if self.state is AmqpState.LOST:
                self._told[1](self)

    def _finish(self) -> None:
        """Nothing more is handled; the client may read what was written."""
        if self.state not in GOING:
            return
        self.state = CONNECTION.after(self.state, AmqpStep.END)
        self.output.flush()
        self._broker.unfinished.ends(self.output)
        self._cancel_timers()
        transport = self.output.transport
        if transport is None:
            return
        if transport.can_write_eof():
            transport.write_eof()
        if not transport.is_closing():
            transport.resume_reading()  # What it sends is dropped: closing now would take away what it has not read.
        self._timers["linger"] = self._loop.call_later(LINGER_S, transport.abort)

    def abort(self) -> None:
        self.output.abort()

    def end_with(self, error: BrokerError) -> None:
        """The broker has ended the connection behind this one, or the server shuts down."""
        if self.state not in GOING:
            return
        LOG.info("[B1230] the AMQP client %s is told an error and closed: %s", self.peer, error)
        self.output.engine.send_close(told(error))
        self._finish()
        self._end_client(clean=False)

    async def ended(self) -> None:
        """Wait until it has ended."""
        if self._working is not None:
            await asyncio.wait([self._working])

    def _cancel_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _too_slow(self) -> None:
        self._broker.refused(self.peer, "it has not logged in in time")
        self.end_with(SecurityError("no login came in time"))

    # ---- events ------------------------------------------------------------------------------------------------------

    def _handle(self, event: AmqpEvent) -> None:
        handler = _HANDLERS.get(type(event))
        if handler is None:
            return
        if self.state is AmqpState.OPEN or type(event) in _BEFORE_OPEN:
            handler(self, event)
        elif self.state in GOING:
            self._early.append(event)

    def _on_delivery(self, event: DeliveryReceived) -> None:
        context = event.link.context
        if context is not None:
            context.received(event)
            context.hand_over()

    def _on_disposition(self, event: DispositionReceived) -> None:
        context = event.link.context
        if context is None or event.link.role:
            return
        try:
            context.disposed(event)
        except BrokerError as error:
            event.link.send_detach(told(error))
            self._on_detach(LinkDetached(event.link, True, None, by_peer=False))

    def _on_credit(self, event: CreditGiven) -> None:
        if event.link.context is not None:
            event.link.context.wake()

    def _on_unblocked(self, event: SessionUnblocked) -> None:
        for link in event.session.links:
            if not link.role and link.context is not None:
                link.context.wake()

    def _on_begin(self, event: SessionBegun) -> None:
        assert self._client is not None
        self._sessions[event.session.lane] = AmqpSession(self._client, event.session)
        event.session.send_begin()

    def _on_attach(self, event: LinkAttached) -> None:
        self._sessions[event.session.lane].attached(event)

    def _on_detach(self, event: LinkDetached) -> None:
        session = self._sessions.get(event.link.lane)
        if session is not None:
            session.detached(event)

    def _on_session_end(self, event: SessionEnded) -> None:
        session = self._sessions.pop(event.session.lane, None)
        if session is not None:
            self._broker.loops.once("a session ends", self._end_session(session, event))

    async def _end_session(self, session: AmqpSession, event: SessionEnded) -> None:
        await session.ended(clean=True)
        if event.by_peer:
            event.session.send_end()
        self.output.flush()

    def _on_close(self, event: ConnectionClosed) -> None:
        """The client closes: everything goes back in order before it is answered."""
        if event.error is not None:
            LOG.info(
                "[B1231] the AMQP client %s closes: %s", self.peer, event.error.description or event.error.condition
            )
        self._working = self._broker.loops.once("a client closes and ends", self._close(self._working))

    async def _close(self, working: asyncio.Task[Any] | None) -> None:
        await self._close_client(working, clean=True)
        if self.state in GOING:
            self.output.engine.send_close()
            self._finish()

    def _on_failure(self, event: ProtocolFailed) -> None:
        if self._logged_in is None and self._client is None:
            self._broker.refused(self.peer, str(event.error))
        LOG.info("[B1230] the AMQP client %s is told an error and closed: %s", self.peer, event.error)
        self._finish()
        self._end_client(clean=False)

    # ---- the login ---------------------------------------------------------------------------------------------------

    def _on_init(self, init: SaslInit) -> None:
        self._working = self._broker.loops.once("a client logs in", self._log_in(init))

    def _on_response(self, event: SaslResponse) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_result(event.response)

    async def _answer_of(self, challenge: str) -> str:
        """Send a challenge; what the client says to it."""
        self._response = self._loop.create_future()
        self.output.engine.challenge(challenge.encode())
        self.output.flush()
        self._take_data(b"")
        return login_text(await self._response)

    async def _log_in(self, init: SaslInit) -> None:
        broker, engine = self._broker, self.output.engine
        try:
            claim = broker.claim(init, self.peer, self._answer_of)
            logged_in = await broker.log_in(claim, self.peer, self.end_with, certificate_of(self.output.transport))
        except BrokerError as error:
            broker.refused(self.peer, str(error))
            full = isinstance(error, ResourceAllocationError) and not isinstance(error, LoginLimitError)
            # The login by SCRAM does not end well without a proof of the broker's.
            if full and self.state in GOING and init.mechanism not in DIGESTS:
                self._let_in(cast(ResourceAllocationError, error))
                return
            refused = isinstance(error, SecurityError | ProtocolError) and not isinstance(error, LoginLimitError)
            self._working = None
            if self.state in GOING:
                engine.end_login(SASL_AUTH if refused else SASL_SYS_TEMP)
                self._finish()
            return
        except BaseException:
            self._working = None
            raise
        self._logged_in = logged_in
        if self.state not in GOING:
            self._working = None
            self._end_client(clean=False)
            return
        self.output.user = claim.user
        relayed = claim.credentials
        self._let_in(logged_in, relayed.signature if isinstance(relayed, RelayedDigest) else None)

    def _let_in(self, found: LoggedIn | ResourceAllocationError, signature: bytes | None = None) -> None:
        """The login is over; the client opens the connection."""
        self._working, self._logged_in = None, found
        self.state = CONNECTION.after(self.state, AmqpStep.LOG_IN)
        self.output.engine.end_login(SASL_OK, signature)
        self._take_data(b"")

    def _on_open(self, event: ConnectionOpened) -> None:
        self._working = self._broker.loops.once("a client opens", self._open(event.open))
        self._regulate()

    async def _open(self, opened: AmqpOpen) -> None:
        broker, engine, logged_in = self._broker, self.output.engine, self._logged_in
        assert logged_in is not None
        own = {"product": "raybroker", "version": broker.version}
        limits = broker.limits
        others: list[tuple[str, int]] = []
        try:
            if isinstance(logged_in, ResourceAllocationError):
                raise logged_in
            others = await logged_in.others_at(broker.gateway.service)
            if logged_in.closed:
                logged_in.log_out()
                raise ServiceClosedError(f"{logged_in.closed}; try later")
            core = await self._connect(logged_in, opened)
        except BrokerError as error:
            self._logged_in = self._working = None
            broker.refused(self.peer, str(error))
            failure = told(error)
            if isinstance(error, InvalidClientIDError):
                failure = AmqpError(INVALID_FIELD, str(error), {Symbol("invalid-field"): Symbol("container-id")})
            elif isinstance(error, ServiceClosedError) and others:
                # Not all to the same one, and one client always to the same.
                host, port = others[crc32(opened.container_id.encode()) % len(others)]
                failure = AmqpError(CONNECTION_REDIRECT, str(error), self._server(host, port))
            engine.send_open(own["product"], offered_capabilities=_symbols(OFFERED), properties={Symbol(FAILED): True})
            engine.send_close(failure)
            self._finish()
            return
        self._logged_in = None
        self._client = AmqpClient(
            partial(opening.gateway_session, core),
            core.clock.now_ms,
            core.close,
            self.output,
            limits,
            broker.loops,
            broker.counts,
            self._regulate,
        )
        broker.counts.connections += 1
        self._working = None
        if self.state not in GOING:
            self._end_client(clean=False)
            return
        self.state = CONNECTION.after(self.state, AmqpStep.OPEN)
        self._cancel_timers()
        self._told[0](self)
        properties: dict[Any, Any] = {Symbol(key): value for key, value in own.items()}
        if others:
            properties[Symbol("failover-server-list")] = [self._server(host, port) for host, port in others]
        engine.send_open(
            f"{own['product']}-{logged_in.home}",
            idle_time_out=int(limits.idle_s * 1000) or None,
            offered_capabilities=_symbols(OFFERED),
            properties=properties,
        )
        self._begin_beats((opened.idle_time_out or 0) / 1000, limits.idle_s)
        early, self._early = self._early, []
        broker.together(partial(self._replay, early))
        self._regulate()

    def _server(self, host: str, port: int) -> dict[Any, Any]:
        """Another broker, as a client reads where it may go when this one is lost."""
        web = self._broker.gateway.service.startswith("http")
        scheme = f"amqp{'ws' if web else ''}{'s' if self._broker.tls else ''}"
        told = {"hostname": host, "network-host": host, "port": Int(port), "scheme": scheme}
        if web:
            told["path"] = WEB_PATH
        return {Symbol(key): value for key, value in told.items()}

    def _replay(self, early: list[AmqpEvent]) -> None:
        for event in early:
            self._handle(event)
        self._take_data(b"")

    async def _connect(self, logged_in: LoggedIn, opened: AmqpOpen) -> ConnectionCore:
        """The connection to the broker. Its client id is the container id: for itself when the client asks for that."""
        sole = SOLE in (opened.desired_capabilities or ())
        client_id: str | None = opened.container_id
        try:
            client_id = check_client_id(opened.container_id)
        except InvalidClientIDError:
            if sole:
                raise
            client_id = None
        return await logged_in.connect(client_id, sole=sole, bodies_bytes=self._broker.limits.prefetch_bytes)

    # ---- keep-alives -------------------------------------------------------------------------------------------------

    def _begin_beats(self, theirs_s: float, ours_s: float) -> None:
        """``theirs_s``: the client wants to hear of us within that time; ``ours_s``: we were to hear of it."""
        if theirs_s:
            self._beat(theirs_s / 2)
        if ours_s:
            self._expect(ours_s * IDLE_GRACE)

    def _beat(self, interval_s: float) -> None:
        """Write when nothing else was written for most of the interval."""
        if self._loop.time() - self.output.wrote_s >= interval_s / 2 and self.output.drained.is_set():
            self.output.engine.keep_alive()
            self.output.flush()
        self._timers["beat"] = self._loop.call_later(interval_s / 2, self._beat, interval_s)

    def _expect(self, silence_s: float) -> None:
        left_s = self._heard_s + silence_s - self._loop.time()
        transport = self.output.transport
        if left_s <= 0 and transport is not None and transport.is_reading():
            LOG.info("[B1232] the AMQP client %s is closed: nothing came of it for %.1f s", self.peer, silence_s)
            self.output.abort()
        else:
            self._timers["silence"] = self._loop.call_later(
                max(left_s, silence_s / READS_PART), self._expect, silence_s
            )


def _symbols(names: tuple[str, ...]) -> tuple[Symbol, ...]:
    return tuple(map(Symbol, names))


_HANDLERS: Final[dict[type[Any], Callable[[Any, Any], None]]] = {
    DeliveryReceived: AmqpConnection._on_delivery,
    DispositionReceived: AmqpConnection._on_disposition,
    CreditGiven: AmqpConnection._on_credit,
    SessionUnblocked: AmqpConnection._on_unblocked,
    SessionBegun: AmqpConnection._on_begin,
    LinkAttached: AmqpConnection._on_attach,
    LinkDetached: AmqpConnection._on_detach,
    SessionEnded: AmqpConnection._on_session_end,
    ConnectionClosed: AmqpConnection._on_close,
    ProtocolFailed: AmqpConnection._on_failure,
    SaslInit: AmqpConnection._on_init,
    SaslResponse: AmqpConnection._on_response,
    ConnectionOpened: AmqpConnection._on_open,
}
_BEFORE_OPEN: Final = frozenset({ProtocolFailed, SaslInit, SaslResponse, ConnectionOpened, ConnectionClosed})
