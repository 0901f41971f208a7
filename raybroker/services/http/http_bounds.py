"""Bounds of connections over HTTP: how many there may be, what each may send, and how long it may take.

A connection that waits for a request (its head has begun and not ended, or nothing has come since it was accepted) has
``Guard.headers_s``; when there is no room for another connection, the one that waits longest makes room. A line and its
headers have ``headers_bytes`` and HEADERS_MAX headers; so has what follows a body in chunks, and what separates
requests. A client that does not read its last answer is cut off after CLOSE_TIMEOUT_S, one that does not read an
earlier one after IDLE_TIMEOUT_S, and one that takes nothing of an answer that is still being written, or of what comes
over its WebSocket, after ``unread_s``.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from raybroker.model.settings.setting_listeners import UNREAD_S

CERTIFICATE: Final = "raybroker.certificate"
"""Where a client's certificate is in the state of a connection."""
CONNECTIONS_MAX: Final = 2048
CONNECTIONS_OF_ADDRESS_MAX: Final = 1024
HEADERS_TIMEOUT_S: Final = 10.0
HEADERS_BYTES_MAX: Final = 16_384
HEADERS_MAX: Final = 256
BODY_AHEAD_BYTES: Final = 64 << 10
"""Of a body that the application has not asked for; no more is read then."""
IDLE_TIMEOUT_S: Final = 60.0
"""Between requests of a connection."""
CLOSE_TIMEOUT_S: Final = 5.0
"""For the last answer to be read, and for the end of a WebSocket to be answered."""


class Waiting(Protocol):
    """A connection whose request has not come."""

    def give_up(self, why: str) -> None:
        """End it now."""
        ...


class Guard:
    """Counts connections by address, and knows those whose headers have not come. ``refused``: (address, why), for the
    log."""

    def __init__(
        self,
        refused: Callable[[str, str], None] = lambda peer, why: None,
        *,
        most: int = CONNECTIONS_MAX,
        of_address: int = CONNECTIONS_OF_ADDRESS_MAX,
        headers_s: float = HEADERS_TIMEOUT_S,
        headers_bytes: int = HEADERS_BYTES_MAX,
        unread_s: float = UNREAD_S,
    ) -> None:
        self.refused = refused
        self.headers_s = headers_s
        self.headers_bytes = headers_bytes
        self.unread_s = unread_s
        self._most = most
        self._of_address = of_address
        self._addresses: Counter[str] = Counter()
        self._waiting: OrderedDict[Waiting, None] = OrderedDict()

    def __len__(self) -> int:
        return self._addresses.total()

    def arrived(self, address: str) -> bool:
        """One more connection; False when there is no room for it."""
        if self._addresses[address] >= self._of_address:
            self.refused(address, f"{self._of_address} connections of that address are open")
            return False
        if len(self) >= self._most:
            if not self._waiting:
                self.refused(address, f"{self._most} connections are open")
                return False
            next(iter(self._waiting)).give_up("others need the room, and its request has not come")
        self._addresses[address] += 1
        return True

    def left(self, address: str) -> None:
        self._addresses[address] -= 1
        if self._addresses[address] <= 0:
            del self._addresses[address]

    def waits(self, connection: Waiting) -> None:
        """Its headers have not come."""
        self._waiting[connection] = None

    def waits_no_longer(self, connection: Waiting) -> None:
        self._waiting.pop(connection, None)


class CountedTransport:
    """A transport whose written bytes are counted, and whose client is waited for when it reads too slowly."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.raw = transport
        self.is_closing = transport.is_closing
        self.bytes_out = 0
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def unsent_bytes(self) -> int:
        return self.raw.get_write_buffer_size()

    @property
    def is_full(self) -> bool:
        """The client has to read before more is written."""
        return not self._writable.is_set()

    def write(self, data: bytes) -> None:
        """A connection that has ended takes it too, and loses it."""
        if data and not self.is_closing():
            self.bytes_out += len(data)
            self.raw.write(data)

    def read_on(self, reading: bool) -> None:
        """Read from the client, or not."""
        if self.is_closing():
            return
        if reading:
            self.raw.resume_reading()
        else:
            self.raw.pause_reading()

    def full(self, is_full: bool) -> None:
        """Take what the event loop says of its buffer; also at the end of a connection, where nobody waits any more."""
        if is_full:
            self._writable.clear()
        else:
            self._writable.set()

    async def drained(self) -> None:
        """The client has read enough, or has gone."""
        await self._writable.wait()
