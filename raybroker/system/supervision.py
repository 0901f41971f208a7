"""Supervision: what runs on and on, or by itself, is started here, so that nothing ends unseen.

A *loop* runs for as long as its owner lives. When it ends all the same, the log has a line with the traceback, the
checks of the broker name the loop for RECENT_S, and it is started again: after FIRST_S, and after twice as long each
time up to MOST_S while its runs stay shorter than that.  A *task* does one thing that nobody waits for; the log has the
traceback of one that fails.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

FIRST_S: Final = 0.1
MOST_S: Final = 30.0
RECENT_S: Final = 600.0
"""How long checks name a loop that has ended and runs again."""

LOG: Final = logging.getLogger("raybroker.loops")

Run = Callable[[], Coroutine[Any, Any, object]]
Row = dict[str, Any]


@dataclass
class _Failure:
    """``count``: how often the loop has ended since its owner began; ``at_s``: when it did last."""

    reason: str
    at_s: float
    count: int


class Supervisor:
    """The loops and tasks of ``owner``, as log and checks name it. ``now_s``: a clock that never goes back."""

    def __init__(self, owner: str, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self.owner = owner
        self._now_s = now_s
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failures: dict[str, _Failure] = {}
        self._closed = threading.Event()
        _ALL.add(self)

    # ---- on an event loop

    def keep(self, name: str, run: Run) -> asyncio.Task[None]:
        """Run a loop, which never returns by itself, on the running event loop until its task is cancelled or
        :meth:`close` is called."""
        return self._add(self._again(name, run, ends=False), name)

    def attempt(self, name: str, run: Run) -> asyncio.Task[None]:
        """Do what :meth:`keep` does, for work that is done when it returns: only what it raises has it started
        again."""
        return self._add(self._again(name, run, ends=True), name)

    def once(self, name: str, work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        """Run a task that nobody waits for, until it ends or :meth:`close` is called."""
        task = self._add(work, name)
        task.add_done_callback(self._over)
        return task

    def _add(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, name=f"{self.owner}: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _again(self, name: str, run: Run, *, ends: bool) -> None:
        pause_s = FIRST_S
        while True:
            began_s = self._now_s()
            try:
                await run()
                if ends:
                    return
                error = None
            except Exception as raised:  # noqa: BLE001 - whatever it is, the loop has to go on
                error = raised
            pause_s = self._pause_s(pause_s, began_s)
            self._failed(name, error, pause_s)
            del error  # Its traceback holds this frame.
            await asyncio.sleep(pause_s)
            pause_s *= 2

    def _over(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() or self._closed.is_set() else task.exception()
        if error is not None:
            LOG.error("[B3175] a task has failed: %s", task.get_name(), exc_info=error)

    # ---- in threads

    def thread(self, name: str, run: Callable[[], object], *, thread_name: str) -> threading.Thread:
        """Run a loop in a daemon thread of its own; it is over when ``run`` returns."""
        thread = threading.Thread(target=self._in_thread, args=(name, run), name=thread_name, daemon=True)
        thread.start()
        return thread

    def _in_thread(self, name: str, run: Callable[[], object]) -> None:
        pause_s = FIRST_S
        while not self._closed.is_set():
            began_s = self._now_s()
            try:
                run()
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, the loop has to go on
                if self._closed.is_set():
                    return
                pause_s = self._pause_s(pause_s, began_s)
                self._failed(name, error, pause_s)
            self._closed.wait(pause_s)
            pause_s *= 2

    # ---- what has ended

    def _pause_s(self, pause_s: float, began_s: float) -> float:
        return FIRST_S if self._now_s() - began_s >= MOST_S else min(pause_s, MOST_S)

    def _failed(self, name: str, error: Exception | None, pause_s: float) -> None:
        known = self._failures.get(name)
        reason = "it returned" if error is None else f"{type(error).__name__}: {error}"
        self._failures[name] = _Failure(reason, self._now_s(), 1 if known is None else known.count + 1)
        LOG.error(
            "[B3174] loop %r of %s has ended and starts again in %.1f s: %s",
            name,
            self.owner,
            pause_s,
            reason,
            exc_info=error,
        )

    def failing(self) -> list[Row]:
        """Loops that have ended in the last RECENT_S: ``owner``, ``loop``, ``reason``, ``ago_s`` and ``count``."""
        now_s = self._now_s()
        return [
            {
                "owner": self.owner,
                "loop": name,
                "reason": found.reason,
                "ago_s": round(now_s - found.at_s, 1),
                "count": found.count,
            }
            for name, found in list(self._failures.items())
            if now_s - found.at_s < RECENT_S
        ]

    # ---- the end

    def close(self) -> list[asyncio.Task[Any]]:
        """End all loops and tasks, those in threads when they fail next; the tasks that are ending."""
        self._closed.set()
        _ALL.discard(self)
        ending = list(self._tasks)
        for task in ending:
            task.cancel()
        return ending


_ALL: weakref.WeakSet[Supervisor] = weakref.WeakSet()


def failing() -> list[Row]:
    """Return the rows of all supervisors of this process: see :meth:`Supervisor.failing`."""
    return [row for one in list(_ALL) for row in one.failing()]
