"""Large deliveries: messages whose bodies a consumer's connection reads, piece by piece, before anybody sees them.

What follows on the same handle waits until then, so that the order stays; other handles do not wait.  The body becomes
one value of bytes, and no second copy of it is made.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from io import BytesIO
from typing import Any, Final, Protocol

from raybroker.client.connection.body_room import BodyRoom, CountedBody
from raybroker.client.connection.shared_body import SharedObjects, shared_body
from raybroker.client.connection.whole_body import WholeBody
from raybroker.model.blocks.large_block import PIECES_WAITING_MAX, LargeBlock, pieces_of
from raybroker.model.errors import BrokerError, ProtocolError
from raybroker.wire.native import frames as wire

AHEAD: Final = 4
"""Pieces that are asked for at a time, for one handle."""

Request = Callable[[str, dict[str, Any]], "asyncio.Future[Any]"]


class OfHandle(Protocol):
    """A frame for one producer or consumer."""

    @property
    def handle(self) -> int: ...


class LargeDeliveries:
    """The large deliveries of one connection, on its loop. ``request`` asks the host; ``deliver`` takes what is
    complete, and ``broke`` the exception that this raised.

    All handles together ask for no more pieces at a time than the host lets wait; the others wait for their turn.
    A message that cannot be read is delivered without its body; whoever gets it passes over it.  ``room``: what bodies
    of consumers wait for; those that are browsed do not, since all of a request come together.
    """

    def __init__(
        self,
        request: Request,
        deliver: Callable[[Any], None],
        broke: Callable[[BaseException], None],
        room: BodyRoom | None = None,
    ) -> None:
        self._request = request
        self._deliver = deliver
        self._broke = broke
        self.behind: dict[int, deque[Any]] = {}
        """By handle: what is being read, and what waits behind it; empty: nothing is."""
        self._reading: dict[int, asyncio.Task[None]] = {}
        self._bodies = room
        self.objects: SharedObjects | None = None
        """Where bodies may be as well, for whom reading them there costs nothing."""
        self.host = ""
        """Key of the host, among the processes of Ray."""
        self._room = asyncio.Semaphore(PIECES_WAITING_MAX)
        """For pieces that are asked for and not answered."""

    def takes(self, frame: OfHandle) -> bool:
        """Whether a frame is a large delivery, or waits behind one; then it comes later."""
        waiting = self.behind.get(frame.handle)
        if waiting is not None:
            waiting.append(frame)
            return True
        if not isinstance(frame, wire.DeliverLargeFrame):
            return False
        self.behind[frame.handle] = deque((frame,))
        task = self._reading[frame.handle] = asyncio.get_running_loop().create_task(self._read_all(frame.handle))
        task.add_done_callback(self._ended)
        return True

    async def complete(self, handle: int) -> None:
        """Wait until everything that came for a handle has been delivered."""
        task = self._reading.get(handle)
        if task is not None:
            await asyncio.shield(task)

    def deliver_now(self, handle: int) -> None:
        """Everything that came for a handle is delivered as it is, bodies or not: it is void.

        What follows must not be overtaken by what was before.
        """
        task, waiting = self._reading.pop(handle, None), self.behind.pop(handle, ())
        if task is not None:
            task.cancel()
        for frame in waiting:
            self._deliver(_as_any_other(frame) if isinstance(frame, wire.DeliverLargeFrame) else frame)

    def lost(self) -> None:
        """The connection has ended: what is not complete never will be."""
        for task in self._reading.values():
            task.cancel()
        self._reading.clear()
        self.behind.clear()

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._broke(error)

    async def _read_all(self, handle: int) -> None:
        waiting = self.behind[handle]
        while waiting:
            frame = waiting[0]
            if isinstance(frame, wire.DeliverLargeFrame):
                await self._read_in_room(frame)
                frame = _as_any_other(frame)
            waiting.popleft()
            self._deliver(frame)
        del self.behind[handle], self._reading[handle]

    async def _read_in_room(self, frame: wire.DeliverLargeFrame) -> None:
        """Give the block its body; it stays without when the host does not have it any more."""
        bodies, block = self._bodies, frame.block
        shared = await shared_body(self.objects, block, self.host)
        if shared is not None:
            block.large = shared
            return
        if bodies is None or not frame.epoch:
            data = await self._read(frame)
            block.large = WholeBody(data) if data is not None else block.large
            return
        size = block.large.nbytes
        await bodies.take_room(size)
        data = None
        try:
            data = await self._read(frame)
        finally:
            if data is None:
                bodies.give_back(size)
        if data is not None:
            block.large = CountedBody(data, bodies)

    async def _read(self, frame: wire.DeliverLargeFrame) -> bytes | None:
        """The body; None when the host does not have it any more."""
        block: LargeBlock = frame.block
        size, body = block.large.nbytes, BytesIO()
        asked: deque[asyncio.Future[Any]] = deque()
        next_piece, pieces = 0, pieces_of(size)
        try:
            while asked or next_piece < pieces:
                while next_piece < pieces and len(asked) < AHEAD:
                    asked.append(await self._request_piece(frame, next_piece))
                    next_piece += 1
                body.write(await asked.popleft())
            if body.tell() != size:
                raise ProtocolError(f"a body of {size} bytes came as {body.tell()}")
        except BrokerError:
            for future in asked:
                future.add_done_callback(lambda done: done.cancelled() or done.exception())
            return None
        return body.getvalue()

    async def _request_piece(self, frame: wire.DeliverLargeFrame, piece: int) -> asyncio.Future[Any]:
        """The answer to come."""
        await self._room.acquire()
        args = {"handle": frame.handle, "epoch": frame.epoch, "ordinal": frame.ordinal, "piece": piece}
        try:
            future = self._request("read_body", args)
        except BaseException:
            self._room.release()
            raise
        future.add_done_callback(lambda _: self._room.release())
        return future


def _as_any_other(frame: wire.DeliverLargeFrame) -> wire.DeliverFrame:
    return wire.DeliverFrame(frame.handle, frame.epoch, frame.tag, frame.attempt, frame.block)
