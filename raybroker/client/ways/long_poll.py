"""The native protocol by plain requests, for clients whose way lets no WebSocket pass.

One connection carries what the link writes, one request after the other, and another one asks for what comes. A request
whose answer is lost is sent again with its number, for RETRY_S; so connections that a proxy ends cost time and nothing
else. How the server numbers, waits and ends is in ``services/rest/long_poll.py``.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from raybroker.client.ways.http_requests import HttpAnswer, HttpRequests
from raybroker.client.ways.target import Target
from raybroker.model.errors import BrokerError, ConnectionLostError, NoClusterError, ProtocolError
from raybroker.transport.link import WRITE_BYTES_HIGH, WRITE_BYTES_LOW, Link
from raybroker.wire.native.preamble import preamble

PATH: Final = "/native/poll"
SESSION: Final = "Raybroker-Session"
NUMBER: Final = "Raybroker-Number"
PIECE_BYTES: Final = 1 << 20
OPEN_TIMEOUT_S: Final = 4.0
ANSWER_TIMEOUT_S: Final = 15.0
"""For an answer that has nothing to wait for, or beyond what the server waits."""
RETRY_S: Final = 45.0
"""How long a request is sent again: shorter than a session lives that nobody asks for."""
RETRY_PAUSE_S: Final = 0.2
END_TIMEOUT_S: Final = 5.0
ENDED: Final = 410
_AGAIN: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses of a server or proxy that cannot answer now."""


async def dial(target: Target, key: str, factory: Callable[[], Link], tls: Mapping[str, Any]) -> object:
    """Do what ``web_socket.dial`` does."""
    opening = HttpRequests(target, tls)
    try:
        async with asyncio.timeout(OPEN_TIMEOUT_S):
            await opening.connect()
        told = _told(await _opened(opening))
    except BaseException:
        opening.close()
        raise
    link = factory()
    carrier = _Carrier(link, opening, HttpRequests(target, tls), told)
    link.connection_made(carrier)
    carrier.start()
    link.write(preamble(key))
    return link


async def _opened(opening: HttpRequests) -> HttpAnswer:
    try:
        return await opening.post(PATH, {}, b"", OPEN_TIMEOUT_S)
    except TimeoutError:
        raise
    except (OSError, ProtocolError) as error:
        raise ConnectionLostError(f"it ended the connection, and answers no request: {error}") from None


def _told(answer: HttpAnswer) -> dict[str, Any]:
    """What the server says of the session that it has opened."""
    try:
        found = json.loads(answer.body) if answer.status in (201, 503) else None
    except ValueError:
        found = None
    if answer.status == 201 and isinstance(found, dict) and {"session", "pull_s", "wait_s"} <= found.keys():
        return found
    why = f": {found.get('detail')}" if isinstance(found, dict) else ""
    raise NoClusterError(f"it does not take the native protocol by requests at {PATH} (status {answer.status}){why}")


class _Unsent:
    """Bytes that wait to be sent, and whether the link is told that they are too many."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._parts: deque[bytes] = deque()
        self._full = False
        self.limit(None, None)

    def __bool__(self) -> bool:
        return bool(self._parts)

    def limit(self, high: int | None, low: int | None) -> None:
        self._high = WRITE_BYTES_HIGH if high is None else high
        self._low = WRITE_BYTES_LOW if low is None else low

    def add(self, data: Any) -> bool:
        """True when there are too many from now on."""
        view = memoryview(data)
        for start in range(0, len(view), PIECE_BYTES):
            self._parts.append(bytes(view[start : start + PIECE_BYTES]))
        self.nbytes += len(view)
        was, self._full = self._full, self._full or self.nbytes > self._high
        return self._full and not was

    def piece(self) -> bytes:
        """Return as many of the oldest bytes as one request takes; they count until they are sent."""
        parts, size = [], 0
        while self._parts and size + len(self._parts[0]) <= PIECE_BYTES:
            parts.append(self._parts.popleft())
            size += len(parts[-1])
        return b"".join(parts)

    def sent(self, nbytes: int) -> bool:
        """True when there are not too many any more."""
        self.nbytes -= nbytes
        was, self._full = self._full, self._full and self.nbytes > self._low
        return was and not self._full


class _Carrier(asyncio.Transport):
    """What the link writes to, and gets its bytes from."""

    def __init__(self, link: Link, up: HttpRequests, down: HttpRequests, told: dict[str, Any]) -> None:
        super().__init__()
        self._link = link
        self._up = up
        self._down = down
        self._session = str(told["session"])
        self._pull_s = float(told["pull_s"])
        self._wait_s = float(told["wait_s"])
        self._unsent = _Unsent()
        self._wanted = asyncio.Event()
        """There is something to send, or the link has been closed."""
        self._sent = asyncio.Event()
        """Something was sent: its answer may be there."""
        self._reads = asyncio.Event()
        self._reads.set()
        self._closing = self._over = self._deaf = False
        """``_deaf``: the broker takes nothing any more."""
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._guarded(work)) for work in (self._send_all, self._poll)]

    # ---- what the link asks ------------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The socket is not given away: bytes on it are requests."""
        return default if name == "socket" else self._up.extra(name) or self._down.extra(name) or default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._unsent.limit(high, low)

    def get_write_buffer_size(self) -> int:
        return self._unsent.nbytes

    def write(self, data: Any) -> None:
        if self._over or self._closing:
            return
        became_full = self._unsent.add(data)
        self._wanted.set()
        if became_full:
            self._link.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def is_reading(self) -> bool:
        return self._reads.is_set()

    def pause_reading(self) -> None:
        self._reads.clear()

    def resume_reading(self) -> None:
        self._reads.set()

    def is_closing(self) -> bool:
        return self._closing or self._over

    def close(self) -> None:
        """End when all is sent."""
        self._closing = True
        self._wanted.set()
        if self._deaf:
            self._lose_connection(None)

    def abort(self) -> None:
        self._lose_connection(None)

    # ---- both ways ---------------------------------------------------------------------------------------------------

    async def _guarded(self, work: Callable[[], Any]) -> None:
        try:
            await work()
        except EOFError:
            self._lose_connection(None)
        except (OSError, TimeoutError, BrokerError) as error:
            self._lose_connection(
                error if isinstance(error, OSError) else ConnectionError(str(error) or "no answer in time")
            )

    async def _send_all(self) -> None:
        number = 0
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._unsent:
                number += 1
                data = self._unsent.piece()
                try:
                    await self._post(self._up, "up", number, data, ANSWER_TIMEOUT_S)
                except EOFError:  # What the broker has said before it ended is still to be asked for.
                    self._deaf = True
                    return
                has_room = self._unsent.sent(len(data))
                self._sent.set()
                if has_room:
                    self._link.resume_writing()
            if self._closing:
                self._lose_connection(None)
                return

    async def _poll(self) -> None:
        number = 0
        while True:
            await self._reads.wait()
            self._sent.clear()
            number += 1
            data = await self._post(self._down, "down", number, b"", self._wait_s + ANSWER_TIMEOUT_S)
            await self._reads.wait()
            if data:
                self._link.data_received(data)
            elif self._pull_s > 0:
                await self._pause()

    async def _pause(self) -> None:
        """Wait until the next poll, which is due at once when something is sent."""
        try:
            async with asyncio.timeout(self._pull_s):
                await self._sent.wait()
        except TimeoutError:
            return

    async def _post(self, way: HttpRequests, what: str, number: int, body: bytes, timeout_s: float) -> bytes:
        """The body of the answer; raises EOFError when the session has ended, and OSError, TimeoutError and BrokerError
        when there is no answer for RETRY_S."""
        loop = asyncio.get_running_loop()
        headers = {SESSION: self._session, NUMBER: str(number), "Content-Type": "application/octet-stream"}
        until_s = loop.time() + RETRY_S
        while True:
            try:
                answer = await way.post(f"{PATH}/{what}", headers, body, timeout_s)
            except ssl.SSLCertVerificationError:
                raise
            except (OSError, TimeoutError, ProtocolError):
                if loop.time() + RETRY_PAUSE_S > until_s:
                    raise
            else:
                if answer.status in (200, 204):
                    return answer.body
                if answer.status == ENDED:
                    raise EOFError
                if answer.status not in _AGAIN or loop.time() + RETRY_PAUSE_S > until_s:
                    raise ConnectionError(f"a request was answered with status {answer.status}")
            await asyncio.sleep(RETRY_PAUSE_S)

    def _lose_connection(self, error: Exception | None) -> None:
        """The link is told; the session is ended in the background, if it can be told."""
        if self._over:
            return
        self._over = True
        loop = asyncio.get_running_loop()
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()
        ending = loop.create_task(self._end_session())
        _ENDING.add(ending)
        ending.add_done_callback(_ENDING.discard)
        loop.call_soon(self._link.connection_lost, error)

    async def _end_session(self) -> None:
        self._down.close()
        try:
            await self._up.post(f"{PATH}/end", {SESSION: self._session}, b"", END_TIMEOUT_S)
        except (OSError, TimeoutError, ProtocolError):
            return  # It ends by itself when nobody asks for it.
        finally:
            self._up.close()


_ENDING: Final[set[asyncio.Task[None]]] = set()
"""Sessions that are being ended: the loop itself keeps no task alive."""
