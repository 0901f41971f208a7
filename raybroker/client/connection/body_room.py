"""Memory for the large bodies of one connection, for programs that pass messages on and have little for each client.

A body is read from its host when there is room for it, and counts as long as somebody has it; one alone is read
whatever it has.  Bodies wait in the order in which they came.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from raybroker.client.connection.whole_body import WholeBody


class BodyRoom:
    """``most``: bytes. Made and asked on the loop of the connection; given back in any thread."""

    def __init__(self, most: int) -> None:
        self.held = 0
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take_room(self, nbytes: int) -> None:
        """Room for one body."""
        if not self._waiting and self._fits(nbytes):
            self.held += nbytes
            return
        ready: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((nbytes, ready))
        try:
            await ready
        except BaseException:
            self._release(0 if ready.cancelled() else nbytes)
            raise

    def give_back(self, nbytes: int) -> None:
        """Nobody has the body any more."""
        with contextlib.suppress(RuntimeError):  # The loop has ended, and everybody who waited on it.
            self._loop.call_soon_threadsafe(self._release, nbytes)

    def _release(self, nbytes: int) -> None:
        self.held -= nbytes
        while self._waiting:
            size, ready = self._waiting[0]
            if not ready.done():
                if not self._fits(size):
                    return
                self.held += size
                ready.set_result(None)
            self._waiting.popleft()

    def _fits(self, nbytes: int) -> bool:
        return not self.held or self.held + nbytes <= self._most


class CountedBody(WholeBody):
    """A body that has its size of a room until nobody refers to it."""

    __slots__ = ("_room",)

    def __init__(self, data: bytes, room: BodyRoom) -> None:
        super().__init__(data)
        self._room = room

    def __del__(self) -> None:
        self._room.give_back(len(self.data))
