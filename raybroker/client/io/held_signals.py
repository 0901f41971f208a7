"""Signals that are held back while the main thread does what must not be interrupted in the middle.

Handlers of signals run in the main thread between any two instructions, and may raise, as that of Ctrl-C does.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # Without the enumerations that the public functions make each time.
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, cast

SIGNALS: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGALRM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
"""Those whose handlers are likely to raise."""

_handler_of = cast(Callable[[int], Any], _signal.getsignal)
_set_handler = cast(Callable[[int, Any], Any], _signal.signal)


class HeldSignals:
    """The signals of the main thread: between :meth:`hold` and :meth:`release` handlers wait, except while
    ``interruptible``.

    ``interrupted`` is called before a handler runs while ``interruptible``.  The handler may hold signals itself, by
    another one of these.
    """

    __slots__ = ("_handlers", "_interrupted", "_pending", "interruptible")

    def __init__(self, interrupted: Callable[[], None]) -> None:
        self.interruptible = False
        self._interrupted = interrupted
        self._handlers: dict[int, Callable[[int, FrameType | None], object]] = {}
        self._pending: list[int] = []

    def hold(self) -> None:
        """Make handlers wait from now on; raises what a handler raises that ran before."""
        try:
            for number in SIGNALS:
                handler = _handler_of(number)
                # Nearly all of them are left to the system, which is a number.
                if handler.__class__ is not int and callable(handler):
                    self._handlers[number] = handler
                    _set_handler(number, self._arrived)
        except BaseException:
            self.release()
            raise

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        if self.interruptible:
            self._interrupted()
            self._handlers[number](number, frame)
        else:
            self._pending.append(number)

    def release(self) -> None:
        """Handlers run again as ever, and those that waited run now; raises what the first of them raises."""
        raised: BaseException | None = None
        handlers = dict(self._handlers)
        while self._handlers:
            try:
                for number, handler in self._handlers.items():
                    if _handler_of(number) == self._arrived:  # It may have set another one itself.
                        _set_handler(number, handler)
                self._handlers = {}
            except BaseException as error:  # noqa: BLE001 - one that is as ever again has run in between
                raised = raised or error
        while self._pending:
            try:
                number = self._pending.pop(0)
                handlers[number](number, None)
            except BaseException as error:  # noqa: BLE001 - the others run first
                raised = raised or error
        if raised is not None:
            raise raised
