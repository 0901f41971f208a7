"""Frames to one STOMP client, and whether there may be any more.

An error is answered by ERROR, and ends the connection in every version:

    CONNECTING              logged in   CONNECTED
    CONNECTING, CONNECTED   ended       ENDED
    any other               lost        LOST

ENDED: an ERROR was sent, or the answer to DISCONNECT, and what comes is not looked at any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from raybroker.model.errors import BrokerError, ConnectionLostError, ProtocolError
from raybroker.model.machine import Machine
from raybroker.services.gateways.answers import Answers
from raybroker.wire.stomp.frame import VERSIONS, StompFrame, Version, encode, receipt

LOG: Final = logging.getLogger("raybroker.services")
ERROR_CHARS_MAX: Final = 2000


class StompState(StrEnum):
    CONNECTING = "CONNECTING"
    CONNECTED = "CONNECTED"
    ENDED = "ENDED"
    LOST = "LOST"


class StompEvent(StrEnum):
    LOG_IN = "logged in"
    END = "ended"
    LOSE = "lost"


_S, _E = StompState, StompEvent
OPEN: Final = (_S.CONNECTING, _S.CONNECTED)
CONNECTION: Final = Machine(
    "the connection",
    [
        ((_S.CONNECTING,), _E.LOG_IN, _S.CONNECTED),
        (OPEN, _E.END, _S.ENDED),
        ((*OPEN, _S.ENDED), _E.LOSE, _S.LOST),
    ],
)


class StompOutput:
    """``peer``: address and port of the client; ``answers``: large messages of all clients that are being sent;
    ``finish``: called once an ERROR was written."""

    def __init__(self, peer: str, answers: Answers, finish: Callable[[], None]) -> None:
        self.peer = peer
        self.answers = answers
        self.turn = asyncio.Lock()
        """Held by the subscription that writes a batch."""
        self.user = ""
        self.version: Version = "1.0"
        self.transport: asyncio.Transport | None = None
        self.state = StompState.CONNECTING
        self.drained = asyncio.Event()
        """Set while nothing is unsent."""
        self.drained.set()
        self.bytes_out = 0
        self._loop = asyncio.get_running_loop()
        self.wrote_s = self._loop.time()
        """When something was written last, by the loop's clock."""
        self._finish = finish

    def happens(self, event: StompEvent) -> None:
        self.state = CONNECTION.after(self.state, event)

    @property
    def unsent_bytes(self) -> int:
        return self.transport.get_write_buffer_size() if self.transport is not None and self.state is not _S.LOST else 0

    def write(self, data: bytes) -> None:
        """Send bytes, unless the connection has ended."""
        if self.transport is not None and self.state in OPEN and data:
            self.wrote_s = self._loop.time()
            self.bytes_out += len(data)
            self.transport.write(data)

    async def flushed(self) -> None:
        """Nothing is unsent. Raises ConnectionLostError when the connection is lost."""
        await self.drained.wait()
        if self.state is _S.LOST:
            raise ConnectionLostError("the STOMP client is gone")

    def receipt(self, frame: StompFrame) -> None:
        """Answer a frame that asks for it."""
        wanted = frame.headers.get("receipt")
        if wanted is not None:
            self.write(receipt(wanted, self.version))

    def fail(self, error: BaseException, frame: StompFrame | None) -> None:
        """ERROR, and the end."""
        if self.state not in OPEN:
            return
        if not isinstance(error, BrokerError):
            LOG.error("a frame of the STOMP client %s could not be handled", self.peer, exc_info=error)
            error = BrokerError(f"the broker failed: {type(error).__name__}")
        text = str(error)[:ERROR_CHARS_MAX]
        headers = {"message": text.split("\n")[0], "error-code": str(error.code), "content-type": "text/plain"}
        if frame is not None and "receipt" in frame.headers:
            headers["receipt-id"] = frame.headers["receipt"]
        if isinstance(error, ProtocolError) and self.state is _S.CONNECTING:
            headers["version"] = ",".join(VERSIONS)
        what = f"The frame {frame.command[:40]} could not be processed: " if frame is not None else ""
        self.write(encode(StompFrame("ERROR", headers, f"{what}{text}\n".encode()), self.version))
        LOG.info("[B1067] the STOMP client %s is told an error and closed: %s", self.peer, text)
        self._finish()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()
