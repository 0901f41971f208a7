"""One connection of a STOMP client: its socket, the login, heart-beats, and how it ends.

Bytes are read while few of them wait to be handled, and frames are handled while few bytes wait to be written: whoever
does not read is not listened to.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, cast

from raybroker.model.errors import BrokerError, ConnectionLostError, ProtocolError, SecurityError
from raybroker.services.gateways.client_server import ClientConnection, Known
from raybroker.services.stomp.broker import StompBroker
from raybroker.services.stomp.limits import READ_BYTES_HIGH
from raybroker.services.stomp.output import OPEN, StompEvent, StompOutput, StompState
from raybroker.services.stomp.session import StompSession
from raybroker.transport.unread import UnreadWatch
from raybroker.wire.stomp.frame import EOL, VERSIONS, StompFrame, Version, encode
from raybroker.wire.stomp.parser import Parser

LOG: Final = logging.getLogger("raybroker.services")
BEAT_MS: Final = 100
"""How often we can send heart-beats at most, and want some: a client's own wish decides, unless it is shorter."""
BEAT_MS_MAX: Final = 24 * 3600 * 1000
GRACE: Final = 2.0
"""A client is gone after so many of its intervals without a byte."""
GRACE_S: Final = 1.0
"""And so much more, for machines that are busy."""
LINGER_S: Final = 2.0
"""After an ERROR or the answer to DISCONNECT a client has so much time to read it and to end the connection."""
_SERVER: Final = "raybroker"


class StompConnection(ClientConnection):
    """See the module. ``peer``: address and port; ``known``: called when it has logged in; ``gone``: when it is lost
    and nothing is done for it any more."""

    def __init__(
        self,
        broker: StompBroker,
        peer: str,
        *,
        known: Known,
        gone: Known,
    ) -> None:
        self.output = StompOutput(peer, broker.answers, self._finish)
        self._broker = broker
        self._known = known
        self._gone = gone
        self._loop = asyncio.get_running_loop()
        self._parser = Parser(body_bytes_max=0, head_bytes_max=broker.limits.login_bytes_max)
        self._session: StompSession | None = None
        self._working: asyncio.Task[None] | None = None
        self._more = asyncio.Event()
        self._handling = False
        """The task has a frame, and will look for the next one."""
        self._left: StompFrame | Exception | None = None
        """A frame, or the end of frames, that was found in the bytes as they came and that the task is to see to."""
        self._stoppable = False
        """The task has begun, and does not close the session yet: it may be cancelled."""
        self._heard_s = self._loop.time()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._watch = UnreadWatch(broker.limits.bounds.unread_s, self.output, self._give_up)

    # ---- the transport -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.output.transport = cast(asyncio.Transport, transport)
        self.output.transport.set_write_buffer_limits(1, 0)  # With 0, TLS would be full with nothing in it.
        self._timers["login"] = self._loop.call_later(self._broker.limits.handshake_s, self._too_slow)
        self._working = self._loop.create_task(self._work())
        self._watch.start()

    @property
    def silent(self) -> bool:
        """It has not logged in, and nothing is done for it."""
        return self._session is None and not self._handling

    def _give_up(self, why: str) -> None:
        """It does not read."""
        LOG.warning("[B2068] the STOMP client %s is closed: %s", self.output.peer, why)
        self.output.abort()

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._loop.time()
        if self.output.state not in OPEN:
            return
        self._parser.feed(data)
        self._take_what_came()
        held, unfinished = self._parser.buffered, self._broker.unfinished
        if held > READ_BYTES_HIGH and self.output.state in OPEN:
            unfinished.grows(self.output, held)
        elif unfinished.total:
            unfinished.ends(self.output)

    def _take_what_came(self) -> None:
        if self._session is not None and not self._handling and self._left is None:
            self._broker.together(self._take_at_once)
            if self._left is None and self.output.drained.is_set():
                return
        if self._handling and self._parser.buffered > READ_BYTES_HIGH and self.output.transport is not None:
            self.output.transport.pause_reading()
        self._more.set()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.output.drained.clear()

    def resume_writing(self) -> None:
        self.output.drained.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.output.happens(StompEvent.LOSE)
        self._watch.stop()
        self._broker.unfinished.ends(self.output)
        self.output.drained.set()
        self._cancel_timers()
        self._stop_working()
        if self._working is None:
            self._gone(self)

    def _finish(self) -> None:
        """Nothing more is handled; the client may read what was written."""
        if self.output.state not in OPEN:
            return
        self.output.happens(StompEvent.END)
        self._broker.unfinished.ends(self.output)
        self._cancel_timers()
        self._stop_working()
        transport = self.output.transport
        if transport is None:
            return
        if transport.can_write_eof():
            transport.write_eof()
        transport.resume_reading()  # What it still sends is dropped: closing now would take away what it has not read.
        self._timers["linger"] = self._loop.call_later(LINGER_S, transport.abort)
        self._more.set()

    def _stop_working(self) -> None:
        """Whatever the frame at hand waits for; the session is then closed to its end."""
        working = self._working
        if working is None or not self._stoppable:
            return
        if working is not asyncio.current_task(self._loop):
            working.cancel()

    def end_with(self, error: BrokerError) -> None:
        """The broker has ended the connection behind this one, or the server shuts down."""
        self.output.fail(error, None)

    # ---- reading -----------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Handle frames, one after another, until the end."""
        frame: StompFrame | None = None
        self._stoppable = True
        try:
            while self.output.state in OPEN:
                frame = None
                frame = await self._next_frame()
                if frame is None:
                    break
                await self._handle(frame)
        except asyncio.CancelledError:
            if self.output.state in OPEN:
                raise
        except ConnectionLostError as error:
            self.output.fail(error, frame)
        except Exception as error:  # noqa: BLE001 - told to the client, and logged when it is no fault of its own
            if self._session is None:
                self._broker.refused(self.output.peer, str(error))
            self.output.fail(error, frame)
        finally:
            self._stoppable = False
            await self._close_session()
            self._working = None
            if self.output.state is StompState.LOST:
                self._gone(self)

    def _take_at_once(self) -> None:
        """Handle frames that have to wait for nothing, as they come: a task would begin with them a turn of the loop
        later. The first other frame is left to it."""
        session, parser = self._session, self._parser
        assert session is not None
        try:
            while (
                self.output.drained.is_set()
                and self.output.state in OPEN
                and (frame := parser.next_frame()) is not None
            ):
                if not session.send_at_once(frame):
                    self._left = frame
                    return
        except Exception as error:  # noqa: BLE001 - the task tells the client
            self._left = error

    async def _next_frame(self) -> StompFrame | None:
        while self.output.state in OPEN:
            left, self._left = self._left, None
            if isinstance(left, Exception):
                raise left
            frame = left or self._parser.next_frame()
            if frame is not None:
                self._handling = True
                await self.output.flushed()
                return frame
            self._handling = False
            unfinished = self._broker.unfinished
            if unfinished.total and self._parser.buffered <= READ_BYTES_HIGH:
                unfinished.ends(self.output)
            self._more.clear()
            if self.output.transport is not None and not self.output.transport.is_reading():
                self.output.transport.resume_reading()
            await self._more.wait()
        return None

    async def _handle(self, frame: StompFrame) -> None:
        if self._session is None:
            await self._connect(frame)
        elif frame.command == "DISCONNECT":
            await self._session.settle_all()
            self.output.receipt(frame)
            self._finish()
        else:
            await self._session.handle(frame)

    # ---- the login ---------------------------------------------------------------------------------------------------

    async def _connect(self, frame: StompFrame) -> None:
        if frame.command not in ("CONNECT", "STOMP"):
            raise ProtocolError(f"the first frame is CONNECT, not {frame.command}")
        headers = frame.headers
        version = chosen_version(headers.get("accept-version"))
        they_ms, we_ms = heart_beat(headers.get("heart-beat"))
        core, sessions = await self._broker.connect(
            self.output.peer,
            headers.get("login", ""),
            headers.get("passcode", ""),
            headers.get("client-id") or None,
            version,
            self.end_with,
        )
        try:
            await core.start()
            self.output.happens(StompEvent.LOG_IN)
        except BaseException:
            await core.close()
            raise
        self.output.user = headers.get("login", "")
        self.output.version = self._parser.version = version
        limits = self._broker.limits
        self._parser.body_bytes_max, self._parser.head_bytes_max = limits.body_bytes_max, limits.head_bytes_max
        self._session = StompSession(core, sessions, self.output, version, limits.prefetch_bytes)
        self._cancel_timers()
        self._known(self)
        told = {
            "version": version,
            "server": f"{_SERVER}/{self._broker.version}",
            "session": core.identity,
            "heart-beat": f"{BEAT_MS},{BEAT_MS}" if version != "1.0" else "0,0",
            "user-name": self.output.user,
        }
        self.output.write(encode(StompFrame("CONNECTED", told), version))
        if version != "1.0":
            self._begin_beats(they_ms, we_ms)

    def _too_slow(self) -> None:
        self._broker.refused(self.output.peer, "it has not logged in in time")
        self.output.fail(SecurityError("no login came in time"), None)

    # ---- heart-beats -------------------------------------------------------------------------------------------------

    def _begin_beats(self, they_ms: int, we_ms: int) -> None:
        """``they_ms``, ``we_ms``: how often a byte comes, or is to be sent; 0 is never."""
        if they_ms:
            self._expect(max(they_ms, BEAT_MS) / 1000 * GRACE + GRACE_S)
        if we_ms:
            self._beat(max(we_ms, BEAT_MS) / 1000)

    def _expect(self, silence_s: float) -> None:
        left_s = self._heard_s + silence_s - self._loop.time()
        if left_s <= 0 and self.output.transport is not None and self.output.transport.is_reading():
            LOG.info("[B1068] the STOMP client %s is closed: no heart-beat for %.1f s", self.output.peer, silence_s)
            self.output.abort()
        else:
            self._timers["silence"] = self._loop.call_later(max(left_s, silence_s / 10), self._expect, silence_s)

    def _beat(self, interval_s: float) -> None:
        """Write when nothing else was written for most of the interval."""
        if self._loop.time() - self.output.wrote_s >= interval_s / 2 and self.output.drained.is_set():
            self.output.write(EOL)
        self._timers["beat"] = self._loop.call_later(interval_s / 2, self._beat, interval_s)

    def _cancel_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def _close_session(self) -> None:
        session = self._session
        if session is not None:
            try:
                await session.close()
            except Exception:
                LOG.exception("the session of the STOMP client %s has not ended as it should", self.output.peer)

    @property
    def peer(self) -> str:
        return self.output.peer

    def abort(self) -> None:
        self.output.abort()

    async def ended(self) -> None:
        """Wait until it has ended."""
        if self._working is not None:
            await asyncio.wait([self._working])


def chosen_version(accepted: str | None) -> Version:
    """The highest that both have; a client that says none has 1.0. Raises ProtocolError when there is none."""
    if accepted is None:
        return "1.0"
    theirs = {one.strip() for one in accepted.split(",")}
    found = [one for one in VERSIONS if one in theirs]
    if not found:
        raise ProtocolError(f"accept-version:{accepted:.80} has no version that is supported: {', '.join(VERSIONS)}")
    return found[-1]


def heart_beat(text: str | None) -> tuple[int, int]:
    """(how often the client sends, how often it wants to hear), ms; raises ProtocolError."""
    if text is None:
        return 0, 0
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(part.isascii() and part.isdecimal() and len(part) <= 12 for part in parts):
        raise ProtocolError(f"heart-beat:{text:.40} is no pair of milliseconds")
    they, we = (min(int(part), BEAT_MS_MAX) for part in parts)
    return they, we
