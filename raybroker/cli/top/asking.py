"""Looks at the brokers in a thread of their own: who does not answer holds up figures, and never the screen."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Any, Final

from raybroker.cli.patience import patience
from raybroker.cli.top.figures import ALARMS, ALWAYS, VERBS, Sight, TopFigures
from raybroker.model.errors import (
    BrokerError,
    ConfigError,
    ConnectionEndedError,
    ConnectionLostError,
    IllegalStateError,
    NoClusterError,
    NotSupportedError,
    RequestTimeoutError,
)
from raybroker.system.clock import SystemClock

ALARMS_S: Final = 5.0
"""Between two looks at what alarms alone are of; the interval, where that is longer."""
END_S: Final = 1.0
"""How long the end waits for an answer that is under way; then its connection ends with the program."""
_GONE: Final = (ConnectionLostError, ConnectionEndedError, IllegalStateError, NoClusterError, RequestTimeoutError)
"""Errors of who cannot be reached, or not any more; another connection is made then."""

Open = Callable[[], AbstractContextManager[Any]]


class Looking:
    """``open``: makes ``conn.admin()`` for one connection, which is closed with it."""

    def __init__(self, open: Open, clock: SystemClock | None = None) -> None:
        self._open = open
        self._clock = clock or SystemClock()
        self._figures = TopFigures()
        self._opened = ExitStack()
        self._admin: Any = None
        self._alarms_ns: int | None = None
        self._lock = threading.Lock()

    def first(self, view: str) -> Sight:
        """Do what :meth:`sample` does; raises what the first answer is, if that is an error."""
        self._admin = self._opened.enter_context(self._open())
        self._admin.list_destinations()
        return self.sample(view)

    def sample(self, view: str, alarms_s: float = 0.0) -> Sight:
        """Ask for what a view shows; raises nothing of what brokers say.

        ``alarms_s``: what alarms alone are of is not asked for again before so long.
        """
        with self._lock:
            now_ns = self._clock.monotonic_ns()
            due = self._alarms_ns is None or now_ns - self._alarms_ns >= alarms_s * 1e9
            for verb in dict.fromkeys((*ALWAYS, VERBS[view], *(ALARMS if due else ()))):
                if not self._ask_verb(verb):
                    break
            else:
                self._alarms_ns = now_ns if due else self._alarms_ns
            return self._figures.sight(self._clock.now_ms())

    def _ask_verb(self, verb: str) -> bool:
        """Whether others may be asked."""
        try:
            if self._admin is None:
                self._admin = self._opened.enter_context(self._open())
            answer = getattr(self._admin, verb)()
        except (ConfigError, NotSupportedError):
            return True  # A broker without services has nothing to tell of them.
        except _GONE as error:
            self._figures.fail(str(error), self._clock.monotonic_ns())
            self._admin = None
            with suppress(BrokerError):
                self._opened.close()
            return False
        except BrokerError as error:
            self._figures.refuse(verb, str(error), self._clock.monotonic_ns())
            return True
        self._figures.tell(verb, answer, self._clock.monotonic_ns(), getattr(answer, "missing", None))
        return True

    def close(self) -> None:
        """Close the connection, unless an answer is under way for longer than ``END_S``."""
        if self._lock.acquire(timeout=END_S):
            try:
                self._opened.close()
            finally:
                self._lock.release()


class Asker:
    """Looks again and again; ``told`` is called with each sight, in the thread that asks."""

    def __init__(self, looking: Looking, interval_s: float, told: Callable[[Sight], None], view: str) -> None:
        self._looking = looking
        self._interval_s = interval_s
        self._told = told
        self._view = view
        self._paused = self._ended = False
        self._changed = threading.Event()

    def start(self) -> None:
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._run,), name="raybroker-top", daemon=True).start()

    def show(self, view: str, *, paused: bool) -> None:
        """What is asked for from now on; nothing while it is paused."""
        if (view, paused) != (self._view, self._paused):
            self._view, self._paused = view, paused
            self._changed.set()

    def stop(self) -> None:
        self._ended = True
        self._changed.set()

    def _run(self) -> None:
        patience.set(None)  # It says on standard error that it waits, and the screen says so itself.
        while not self._ended:
            self._changed.wait(None if self._paused else self._interval_s)
            self._changed.clear()
            if not (self._paused or self._ended):
                self._told(self._looking.sample(self._view, max(ALARMS_S, self._interval_s)))
