"""The event loop of every thread that has sockets.

What is leaned on of libraries beside their documentation stands here alone, and ``tests/unit/transport/test_loops.py``
fails when it changes: asyncio's two functions for makers of event loops, by which a thread that leads is on the loop
(``running_loop``, ``set_running_loop``); and that an object of a subclass of uvloop's loop may become one of another.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio.events import _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import Context, copy_context
from typing import Any, Final

import uvloop

running_loop: Final = _get_running_loop
"""The loop that this thread is on, or None; ``asyncio.get_running_loop`` would raise, which takes longer."""
set_running_loop: Final = _set_running_loop
"""From now on this thread is on that loop, or on none."""
SHORT_S: Final = 0.1
"""A timer of at most so long is waited for before a :class:`PausableLoop` stands still."""
READY_MAX: Final = 1_000
"""Calls that :meth:`PausableLoop.run_ready` makes at a time, before whoever leads looks at the sockets again."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new loop; uvloop's, which moves bytes with less work than the standard one."""
    return uvloop.new_event_loop()


def run_until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop in this thread until it is stopped; what is left there is cancelled then, and the loop closed."""
    with asyncio.Runner(loop_factory=lambda: loop):
        loop.run_forever()


call_running: Final = uvloop.Loop.call_soon_threadsafe
"""``call_running(loop, callback)`` is ``loop.call_soon_threadsafe`` while the loop runs, which is not noted."""
_call_soon = uvloop.Loop.call_soon
_call_soon_threadsafe = uvloop.Loop.call_soon_threadsafe
_call_later = uvloop.Loop.call_later


class LedCall(asyncio.Handle):
    """A call that the thread which leads a loop makes in its place."""

    __slots__ = ("_call", "_on", "_within", "_words")

    def __init__(
        self, call: Callable[..., Any], words: tuple[Any, ...], on: asyncio.AbstractEventLoop, context: Context | None
    ) -> None:
        within = copy_context() if context is None else context
        super().__init__(call, words, on, within)
        self._call = call
        self._words = words
        self._on = on
        self._within = within

    def make(self) -> None:
        """Make it, unless it was cancelled; what it raises is told as the loop tells it."""
        if self.cancelled():
            return
        try:
            self._within.run(self._call, *self._words)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as the loop does
            self._on.call_exception_handler({"message": f"{self!r} failed", "exception": error, "handle": self})


class PausableLoop(uvloop.Loop):
    """A loop that may stand still for a while, and says what it has to run for.

    While it takes notes it is a :class:`NotingLoop`: ``noted`` says that something was scheduled since; ``foreign`` is
    called after another thread has scheduled something, which does not wake a loop that stands still.  While it takes
    none it schedules as any other, and as fast.

    A thread that leads in place of the loop (``leader``) runs what it schedules itself, by :meth:`run_ready`: steps of
    tasks and callbacks of futures, which is all that the answer to a request needs.  What only the loop can do, such as
    making a connection, is noted.
    """

    def __init__(self, foreign: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.noted = False
        self.leader = 0
        """The thread that leads; 0 when none does."""
        self.ready: deque[LedCall] = deque()
        """What the leader has scheduled."""
        self._foreign = foreign
        self._short_s = 0.0
        """When the last of the short timers is over, by the loop's clock."""
        self._pauses = 0
        """Pauses, under way, whose end somebody waits for."""

    @property
    def is_timed(self) -> bool:
        """A short timer is not over yet, or a pause that somebody waits for."""
        return self._pauses > 0 or self._short_s > self.time()

    def take_notes(self) -> None:
        """Begin to take notes; nothing is noted yet. While notes are taken, what is noted stays so."""
        if self.__class__ is not NotingLoop:
            self.noted = False
            self.__class__ = NotingLoop

    def take_no_notes(self) -> None:
        """The loop runs again."""
        self.__class__ = PausableLoop

    def run_ready(self) -> None:
        """Run what the leader has scheduled, and what comes of it."""
        ready = self.ready
        for _ in range(READY_MAX):
            if not ready:
                return
            ready.popleft().make()

    def leave(self) -> None:
        """Nobody leads any more: what is left is the loop's."""
        self.leader = 0
        if self.ready:
            self.noted = True
            while self.ready:
                _call_soon(self, self.ready.popleft().make)

    def call_later(  # type: ignore[override]  # without a context
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if delay <= SHORT_S:
            self.noted = True
            self._short_s = max(self._short_s, self.time() + delay)
        return _call_later(self, delay, callback, *args, context=context)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Somebody waits for the end of what is awaited within: until then, also if it is given up, the loop does not
        stand still."""
        self.noted = True
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1

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


class NotingLoop(PausableLoop):
    """A loop that stands still, while it takes notes."""

    def call_soon(  # type: ignore[override]  # any arguments
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self.leader:
            handle = LedCall(callback, args, self, context)
            self.ready.append(handle)
            return handle
        self.noted = True
        return _call_soon(self, callback, *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]  # any arguments
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self.leader and self.leader == threading.get_ident():
            return self.call_soon(callback, *args, context=context)
        self.noted = True
        handle = _call_soon_threadsafe(self, callback, *args, context=context)
        self._foreign()
        return handle


async def sleep_waited_for(delay_s: float) -> None:
    """``asyncio.sleep`` before something that threads may wait for, such as another attempt to reach a host.

    Timers are no reason for a :class:`PausableLoop` to run: most of them are limits, which matter to nobody until they
    are over.  A thread that led in its place would wait for this one in vain.
    """
    loop = asyncio.get_running_loop()
    with loop.running() if isinstance(loop, PausableLoop) else nullcontext():
        await asyncio.sleep(delay_s)
