"""The native protocol by plain requests of HTTP, for ways that let no WebSocket pass.

    POST /native/poll          opens a session: {"session", "pull_s", "wait_s"}
    POST /native/poll/up       bytes of the client, in the body
    POST /native/poll/down     bytes for the client, when there are some: 200; 204: none have come in time
    POST /native/poll/end      ends the session

All but the first have the headers SESSION and NUMBER. Each way counts its requests from 1, and the client has one of
each way under way. One whose answer was lost is sent again with its number, and is answered again: bytes pass once. A
session that there is not, or no longer, is 410; a number that is not the next one ends it.

A session is a connection to the service's listener, as a WebSocket is: preamble, login, rights and bounds are those of
every client. Its id cannot be guessed, and counts only for who comes as its opener came, with the same certificate or
without TLS. The address of the client does not count: proxies of one network have several.

Bounds: SESSIONS_MAX sessions, OF_ADDRESS_MAX of one address; UP_BYTES_MAX a body; READ_BYTES an answer, held as the
client may ask again, or SCARCE_BYTES when those of all sessions could be more than HELD_BYTES_MAX. A session ends
when nobody asks for EXPIRE_S, or three pull periods.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from raybroker.model.errors import BrokerError, ProtocolError, ResourceAllocationError
from raybroker.services.listening.arrivals import Origin
from raybroker.services.rest.relay import Arrive, origin_of
from raybroker.services.web.application import answered_with
from raybroker.services.web.problems import RefusedError
from raybroker.system import entropy

LOG: Final = logging.getLogger("raybroker.services")
PATH: Final = "/native/poll"
SESSION: Final = "Raybroker-Session"
NUMBER: Final = "Raybroker-Number"
SESSIONS_MAX: Final = 1024
OF_ADDRESS_MAX: Final = 512
ID_BYTES: Final = 24
UP_BYTES_MAX: Final = 1 << 20
READ_BYTES: Final = 256 << 10
SCARCE_BYTES: Final = 16 << 10
HELD_BYTES_MAX: Final = 64 << 20
WAIT_S: Final = 20.0
"""How long a poll waits for bytes: shorter than proxies wait for an answer."""
PULL_WAIT_S: Final = 0.5
"""The same where clients pause between polls: for the answer to what they have just sent."""
EXPIRE_S: Final = 60.0
UPS_MAX: Final = 2
"""Requests of one session that bring bytes at once: one, and the same one again."""
_HEADERS: Final = {"Cache-Control": "no-store"}
_ENDED: Final = "the session has ended, or there never was one: open another one"

Read = Callable[[Request, int], AbstractAsyncContextManager[bytes]]
"""The body of a request with at most so many bytes; raises BrokerError."""


class PollSession:
    """One connection to the listener; ``own`` is its end here."""

    def __init__(self, own: socket.socket, origin: Origin, address: str) -> None:
        self.origin = origin
        self.address = address
        self.ended = False
        self.told = b""
        """The answer to the latest poll, for a client that asks again."""
        self.expiry: asyncio.TimerHandle | None = None
        self._own = own
        self._told_number = self._taken_number = 0
        self._ups = 0
        self._taking = asyncio.Lock()
        self._sending: asyncio.Future[None] | None = None
        self._waiter: asyncio.Future[bool] | None = None
        """Of the poll that waits for bytes."""

    async def up(self, number: int, data: bytes) -> None:
        """Bytes of the client; those of a number that were taken before are not taken again."""
        if self._ups >= UPS_MAX:
            raise ResourceAllocationError(f"{UPS_MAX} requests with bytes are under way; try again")
        self._ups += 1
        try:
            async with self._taking:
                self._require_open()
                if number == self._taken_number > 0:
                    return
                if number != self._taken_number + 1:
                    raise ProtocolError(f"request {number} up came after {self._taken_number}")
                self._taken_number = number
                sending = self._sending = asyncio.ensure_future(
                    asyncio.get_running_loop().sock_sendall(self._own, data)
                )
                await asyncio.wait([sending])
                self._require_open()
                sending.result()
        finally:
            self._ups -= 1

    def _require_open(self) -> None:
        if self.ended:
            raise EOFError

    async def down(self, number: int, wait_s: float, most: int) -> bytes:
        """Bytes for the client, b"" when none have come in time. Raises EOFError at their end."""
        self._give_up()
        if number == self._told_number and number > 0:
            return self.told
        if number != self._told_number + 1:
            raise ProtocolError(f"request {number} down came after {self._told_number}")
        data = self._read(most)
        if data is None:
            waiter = self._waiter = asyncio.get_running_loop().create_future()
            ready = await self._readable(waiter, wait_s)
            self._require_open()
            if self._waiter is not waiter:
                return b""  # The client has asked again: nobody hears this answer.
            self._waiter = None
            data = self._read(most) if ready else None
        self._told_number, self.told = number, data or b""
        return self.told

    def _give_up(self) -> None:
        """An earlier poll that still waits does so for nobody."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            asyncio.get_running_loop().remove_reader(self._own.fileno())
            waiter.set_result(False)

    def _read(self, most: int) -> bytes | None:
        """None: nothing is there."""
        try:
            data = self._own.recv(most)
        except BlockingIOError:
            return None
        if not data:
            raise EOFError
        return data

    async def _readable(self, waiter: asyncio.Future[bool], wait_s: float) -> bool:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._own.fileno(), _tell, waiter)
        try:
            async with asyncio.timeout(wait_s):
                return await waiter
        except TimeoutError:
            return False
        finally:
            if self._waiter is waiter:
                loop.remove_reader(self._own.fileno())

    def close(self) -> None:
        self.ended = True
        if self.expiry is not None:
            self.expiry.cancel()
        self._give_up()
        if self._sending is None or self._sending.done():
            self._own.close()
        else:  # The loop has to let go of the socket first.
            self._sending.add_done_callback(lambda _: self._own.close())
            self._sending.cancel()


def _tell(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(True)


class LongPoll:
    """``arrive`` gives a socket to the listener; ``read`` reads bodies; ``pull_s``: seconds between polls of a client
    that gets nothing, -1: none."""

    def __init__(
        self,
        arrive: Arrive,
        read: Read,
        *,
        pull_s: int = -1,
        most: int = SESSIONS_MAX,
        of_address: int = OF_ADDRESS_MAX,
        expire_s: float = EXPIRE_S,
        wait_s: float = WAIT_S,
    ) -> None:
        self._arrive = arrive
        self._read = read
        self._pull_s = pull_s
        self._most = most
        self._of_address = of_address
        self._expire_s = max(expire_s, 3.0 * pull_s)
        self._wait_s = PULL_WAIT_S if pull_s > 0 else wait_s
        self.sessions: dict[str, PollSession] = {}
        self._addresses: Counter[str] = Counter()
        steps = {"": self._open, "/up": self._up, "/down": self._down, "/end": self._answer_end}
        self.steps = {PATH + path: _answering(step) for path, step in steps.items()}
        """Path → what answers a POST there. No error of a request gets out of it."""

    async def _open(self, request: Request) -> Response:
        host, port = request.client or ("", 0)
        if len(self.sessions) >= self._most or self._addresses[host] >= self._of_address:
            raise ResourceAllocationError(f"{self._addresses[host]} sessions of {host} are open; try again")
        own, other = socket.socketpair()
        own.setblocking(False)
        other.setblocking(False)
        key, session = entropy.token(ID_BYTES).hex(), PollSession(own, origin_of(request), host)
        self.sessions[key] = session
        self._addresses[host] += 1
        self._expect(key, session)
        self._arrive(other, f"{host}:{port}", session.origin)
        text = f'{{"session": "{key}", "pull_s": {self._pull_s}, "wait_s": {self._wait_s}}}'
        return Response(text, 201, _HEADERS, "application/json")

    async def _up(self, request: Request) -> Response:
        key, session, number = self._known(request)
        async with self._read(request, UP_BYTES_MAX) as data:
            try:
                await session.up(number, data)
            except ProtocolError:
                self._leave(key)
                raise
            except OSError as error:  # The broker has ended it, and what it has said before is still to be asked for.
                LOG.debug("bytes of a polled connection came too late: %s", error)
        return Response(status_code=204, headers=_HEADERS)

    async def _down(self, request: Request) -> Response:
        key, session, number = self._known(request)
        scarce = len(self.sessions) * READ_BYTES > HELD_BYTES_MAX
        try:
            data = await session.down(number, self._wait_s, SCARCE_BYTES if scarce else READ_BYTES)
        except (EOFError, OSError, ProtocolError):
            self._leave(key)
            raise
        return Response(data, 200 if data else 204, _HEADERS, "application/octet-stream")

    async def _answer_end(self, request: Request) -> Response:
        self._leave(self._known(request)[0])
        return Response(status_code=204, headers=_HEADERS)

    def _known(self, request: Request) -> tuple[str, PollSession, int]:
        """The session of who asks, and the number of the request."""
        key, text = request.headers.get(SESSION, ""), request.headers.get(NUMBER, "0")
        session = self.sessions.get(key)
        if session is None or session.origin != origin_of(request):
            raise RefusedError(_ENDED, 410)
        if not (text.isascii() and text.isdecimal() and len(text) <= 18):
            raise ProtocolError(f"{NUMBER}: {text!r:.40} is no number")
        self._expect(key, session)
        return key, session, int(text)

    def _expect(self, key: str, session: PollSession) -> None:
        """It ends unless somebody asks in time."""
        if session.expiry is not None:
            session.expiry.cancel()
        session.expiry = asyncio.get_running_loop().call_later(self._expire_s, self._leave, key)

    def _leave(self, key: str) -> None:
        session = self.sessions.pop(key, None)
        if session is not None:
            session.close()
            self._addresses[session.address] -= 1
            if self._addresses[session.address] <= 0:
                del self._addresses[session.address]

    async def close(self) -> None:
        """End all sessions: whoever waits is told."""
        for key in list(self.sessions):
            self._leave(key)


def _answering(step: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            return await step(request)
        except ClientDisconnect:
            return Response(status_code=400)
        except (EOFError, OSError):
            error: BrokerError = RefusedError(_ENDED, 410)
        except BrokerError as refused:
            error = refused
        except Exception as failure:  # whoever asks is told, and the log has the rest
            LOG.exception("a request of a long poll could not be answered")
            error = BrokerError(f"the broker failed: {failure!r:.200}")
        return answered_with(error)

    return answer
