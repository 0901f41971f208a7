"""The event loop of every thread that has sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import uvloop

if TYPE_CHECKING:
    from contextvars import Context

SHORT_S: Final = 0.1
"""A timer of at most so long is waited for before a :class:`PausableLoop` stands still."""


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
    """

    def __init__(self, foreign: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.noted = False
        self._foreign = foreign
        self._short_s = 0.0
        """When the last of the short timers is over, by the loop's clock."""

    @property
    def is_timed(self) -> bool:
        """A short timer is not over yet."""
        return self._short_s > self.time()

    def take_notes(self) -> None:
        """From now on; nothing is noted yet."""
        self.noted = False
        own = self.__dict__
        if "call_soon" not in own:
            own["call_soon"] = self._noted_call_soon
            own["call_soon_threadsafe"] = self._noted_call_soon_threadsafe

    def take_no_notes(self) -> None:
        """The loop runs again."""
        self.__dict__.pop("call_soon", None)
        self.__dict__.pop("call_soon_threadsafe", None)

    def _noted_call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        self.noted = True
        return _call_soon(self, callback, *args, context=context)

    def _noted_call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        self.noted = True
        handle = _call_soon_threadsafe(self, callback, *args, context=context)
        self._foreign()
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if delay <= SHORT_S:
            self.noted = True
            self._short_s = max(self._short_s, self.time() + delay)
        return _call_later(self, delay, callback, *args, context=context)
