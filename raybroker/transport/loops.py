"""The event loop of every thread that has sockets."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import uvloop

if TYPE_CHECKING:
    from contextvars import Context

SHORT_S: Final = 0.1
"""A timer of at most so long is waited for before a :class:`PausableLoop` stands still."""
READY_MAX: Final = 1_000
"""Calls that :meth:`PausableLoop.run_ready` makes at a time, before whoever leads looks at the sockets again."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new loop; uvloop's, which moves bytes with less work than the standard one."""
    return uvloop.new_event_loop()


call_running: Final = uvloop.Loop.call_soon_threadsafe
"""``call_running(loop, callback)`` is ``loop.call_soon_threadsafe`` while the loop runs, which is not noted."""
_call_soon = uvloop.Loop.call_soon
_call_soon_threadsafe = uvloop.Loop.call_soon_threadsafe
_call_later = uvloop.Loop.call_later


class PausableLoop(uvloop.Loop):
    """A loop that may stand still for a while, and says what it has to run for.

    While it takes notes, ``noted`` says that something was scheduled since; ``foreign`` is called after another thread
    has scheduled something, which does not wake a loop that stands still.  While it takes none it is as any other.

    A thread that leads in place of the loop (``leader``) runs what it schedules itself, by :meth:`run_ready`: steps of
    tasks and callbacks of futures, which is all that the answer to a request needs.  What only the loop can do, such as
    making a connection, is noted.
    """

    def __init__(self, foreign: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.noted = False
        self.leader = 0
        """The thread that leads; 0 when none does."""
        self.ready: deque[asyncio.Handle] = deque()
        """What the leader has scheduled."""
        self._foreign = foreign
        self._short_s = 0.0
        """When the last of these timers is over, by the loop's clock."""

    @property
    def is_timed(self) -> bool:
        """A short timer is not over yet, or one that somebody waits for."""
        return self._short_s > self.time()

    def take_notes(self) -> None:
        """From now on; nothing is noted yet. While notes are taken, what is noted stays so."""
        own = self.__dict__
        if "call_soon" not in own:
            self.noted = False
            own["call_soon"] = self._noted_call_soon
            own["call_soon_threadsafe"] = self._noted_call_soon_threadsafe

    def take_no_notes(self) -> None:
        """The loop runs again."""
        self.__dict__.pop("call_soon", None)
        self.__dict__.pop("call_soon_threadsafe", None)

    def run_ready(self) -> None:
        """Run what the leader has scheduled, and what comes of it."""
        ready = self.ready
        for _ in range(READY_MAX):
            if not ready:
                return
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def leave(self) -> None:
        """Nobody leads any more: what is left is the loop's."""
        self.leader = 0
        if self.ready:
            self.noted = True
            while self.ready:
                handle = self.ready.popleft()
                if not handle.cancelled():
                    _call_soon(self, _run_unless_cancelled, handle)

    def _noted_call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self.leader:
            handle = asyncio.Handle(callback, args, self, context)
            self.ready.append(handle)
            return handle
        self.noted = True
        return _call_soon(self, callback, *args, context=context)

    def _noted_call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self.leader and self.leader == threading.get_ident():
            return self._noted_call_soon(callback, *args, context=context)
        self.noted = True
        handle = _call_soon_threadsafe(self, callback, *args, context=context)
        self._foreign()
        return handle

    def call_later(  # type: ignore[override]  # without a context
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if delay <= SHORT_S:
            self.noted = True
            self._short_s = max(self._short_s, self.time() + delay)
        return _call_later(self, delay, callback, *args, context=context)

    def run_for(self, delay_s: float) -> None:
        """Somebody waits for a timer of that length: until it is over the loop does not stand still."""
        self.noted = True
        self._short_s = max(self._short_s, self.time() + delay_s)

    def call_lazily(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        """:meth:`call_later` for what may be late by as long as the loop stands still."""
        return _call_later(self, delay_s, callback, *args)

    async def create_connection(self, *args: Any, **options: Any) -> Any:
        self.noted = True
        return await super().create_connection(*args, **options)

    async def create_unix_connection(self, *args: Any, **options: Any) -> Any:
        self.noted = True
        return await super().create_unix_connection(*args, **options)

    async def start_tls(self, *args: Any, **options: Any) -> Any:
        self.noted = True
        return await super().start_tls(*args, **options)

    async def sock_connect(self, *args: Any, **options: Any) -> Any:
        self.noted = True
        return await super().sock_connect(*args, **options)


async def sleep_waited_for(delay_s: float) -> None:
    """``asyncio.sleep`` before something that threads may wait for, such as another attempt to reach a host.

    Timers are no reason for a :class:`PausableLoop` to run: most of them are limits, which matter to nobody until they
    are over.  A thread that led in its place would wait for this one in vain.
    """
    loop = asyncio.get_running_loop()
    if isinstance(loop, PausableLoop):
        loop.run_for(delay_s)
    await asyncio.sleep(delay_s)


def _run_unless_cancelled(handle: asyncio.Handle) -> None:
    if not handle.cancelled():
        handle._run()
