"""Answers of a gateway: how many bytes of messages one may have, and all of them that are being made or sent.

A message takes its memory when a gateway decompresses it and writes it in another protocol, several times over.  So it
is counted before that, decompressed or not.  Small ones cost nothing here.  For large ones there is room for so many
bytes together; the next one waits until another has been taken by its client, in the order in which they came.  One
user has at most half of the room, and may always have one answer: a client that does not read keeps no other waiting.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from raybroker.model.errors import ResourceAllocationError
from raybroker.model.settings.setting_listeners import ANSWER_BYTES_MAX, ANSWERS_BYTES_MAX
from raybroker.model.settings.settings import ConfigView

SMALL_BYTES: Final = 256 << 10
"""What is smaller needs no room."""
COPIES: Final = 4
"""The body, its text (base64 has a third more), the frame or JSON around it, and what the transport has of that."""
ROOM_TIMEOUT_S: Final = 20.0


class _Waiting(NamedTuple):
    user: Hashable
    size: int
    ready: asyncio.Future[None]


class Answers:
    """The answers of one gateway, on its loop. ``one``: bytes of the messages of one answer, which has one message at
    least; ``most``: bytes that all large ones take; ``timeout_s``: how long one waits for its room, None: as long as it
    takes."""

    def __init__(
        self, one: int = ANSWER_BYTES_MAX, most: int = ANSWERS_BYTES_MAX, timeout_s: float | None = ROOM_TIMEOUT_S
    ) -> None:
        self.one = one
        self._most = most
        self._timeout_s = timeout_s
        self.held = 0
        self._of_user: Counter[Hashable] = Counter()
        self._waiting: deque[_Waiting] = deque()

    @classmethod
    def from_config(cls, config: ConfigView, timeout_s: float | None = ROOM_TIMEOUT_S) -> Answers:
        return cls(
            config["raybroker.service.answer_bytes_max"], config["raybroker.service.answers_bytes_max"], timeout_s
        )

    @asynccontextmanager
    async def room(self, user: Hashable, size: int) -> AsyncIterator[None]:
        """Room for an answer with messages of so many bytes; raises ResourceAllocationError when there is none in
        time."""
        if size <= SMALL_BYTES:
            yield
            return
        taken = await self.take_room(user, size)
        try:
            yield
        finally:
            self.give_back(user, taken)

    async def take_room(self, user: Hashable, size: int) -> int:
        """Do what :meth:`room` does, for who gives it back with :meth:`give_back`; return how much it is."""
        if size <= SMALL_BYTES:
            return 0
        size = min(size * COPIES, self._most)
        if not self._waiting and self._fits(user, size):
            self._hold(user, size)
            return size
        waiting = _Waiting(user, size, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._next()  # Those before may wait for their own user's part.
        try:
            async with asyncio.timeout(self._timeout_s):
                await waiting.ready
        except BaseException as error:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            elif not waiting.ready.cancelled():
                self._release(user, size)
            self._next()
            if isinstance(error, TimeoutError):
                raise ResourceAllocationError(
                    f"large answers that take {self._most} bytes are being sent to other clients"
                    " (raybroker.service.answers_bytes_max); try again"
                ) from None
            raise
        return size

    def give_back(self, user: Hashable, taken: int) -> None:
        """The client has it."""
        if taken:
            self._release(user, taken)
            self._next()

    def _fits(self, user: Hashable, size: int) -> bool:
        of_user = self._of_user[user]
        return self.held + size <= self._most and (not of_user or of_user + size <= self._most // 2)

    def _hold(self, user: Hashable, size: int) -> None:
        self.held += size
        self._of_user[user] += size

    def _release(self, user: Hashable, size: int) -> None:
        self.held -= size
        self._of_user[user] -= size
        if not self._of_user[user]:
            del self._of_user[user]

    def _next(self) -> None:
        """Those that fit now go on; one whose user has his part is passed over, and any other one is not."""
        for waiting in list(self._waiting):
            if waiting.ready.cancelled():
                self._waiting.remove(waiting)
            elif self._fits(waiting.user, waiting.size):
                self._waiting.remove(waiting)
                self._hold(waiting.user, waiting.size)
                waiting.ready.set_result(None)
            elif self.held + waiting.size > self._most:
                return
