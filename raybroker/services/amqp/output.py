"""The output to one AMQP client: what the engine has, written in one go at the end of whatever made it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raybroker.model.errors import ConnectionLostError
from raybroker.services.gateways.answers import Answers
from raybroker.wire.amqp.connection import ConnectionEndpoint


class AmqpOutput:
    """``peer``: address and port of the client; ``answers``: large messages of all clients that are being sent."""

    def __init__(self, peer: str, engine: ConnectionEndpoint, answers: Answers) -> None:
        self.peer = peer
        self.engine = engine
        self.answers = answers
        self.user = ""
        self.turn = asyncio.Lock()
        """Held by the link that writes a batch."""
        self.transport: asyncio.Transport | None = None
        self.lost = False
        self.drained = asyncio.Event()
        """Set while nothing is unsent."""
        self.drained.set()
        self.bytes_out = 0
        self.wrote_s = 0.0
        """When something was written last, by the loop's clock."""
        self.loop = asyncio.get_running_loop()
        self._before: list[Callable[[], object]] = []
        self._due = False

    @property
    def unsent_bytes(self) -> int:
        return self.transport.get_write_buffer_size() if self.transport is not None and not self.lost else 0

    def flush(self) -> None:
        """Write what the engine has."""
        if self._before:
            before, self._before = self._before, []
            for work in before:
                work()
        buffers = self.engine.take_output()
        if not buffers or self.transport is None or self.lost:
            return
        data = b"".join(buffers)
        self.bytes_out += len(data)
        self.wrote_s = self.loop.time()
        self.transport.write(data)

    def flush_soon(self, before: Callable[[], object] | None = None) -> None:
        """Write in the next turn of the loop, with all that is to be written by then; ``before`` is called first."""
        if before is not None:
            self._before.append(before)
        if not self._due:
            self._due = True
            self.loop.call_soon(self._flush_due)

    def _flush_due(self) -> None:
        self._due = False
        self.flush()

    async def flushed(self) -> None:
        """Nothing is unsent. Raises ConnectionLostError when the connection is lost."""
        await self.drained.wait()
        if self.lost:
            raise ConnectionLostError("the AMQP client is gone")

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()
