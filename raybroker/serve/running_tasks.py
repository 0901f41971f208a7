"""The handlers of a replica, and the tasks that run: on threads, or as coroutines on a loop of their own.

A task that ends is put into ``ended``, and the loop of the consumer is told, once for all that have ended meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from raybroker.model.errors import ConfigError
from raybroker.serve.loop_thread import LoopThread
from raybroker.serve.tasks import FAILURE, REVOKED, SUCCESS, Task, TaskOutcome

TRACEBACK_CHARS_MAX: Final = 8_192
"""Of a result; the beginning of a longer one is left out."""
VALUE_CHARS_MAX: Final = 2_048
"""Of the text of an exception in a result."""

Handler = Callable[..., Any]


@dataclass(eq=False)
class Job:
    """A task that a replica has begun."""

    task: Task
    outcome: TaskOutcome | None = None
    final: bool = False
    """It was not run: no further attempt can mend that."""
    stored: bool = False
    """Its result, or its next attempt, is at the broker."""
    reason: str | None = None
    """Why it is dead; None: it is not."""
    stored_s: float = 0.0


def failure(error: BaseException) -> TaskOutcome:
    text = f"{type(error).__qualname__}: {error}"[:VALUE_CHARS_MAX]
    frames = "".join(traceback.format_exception(error))
    return TaskOutcome(FAILURE, text, frames[-TRACEBACK_CHARS_MAX:])


class RunningTasks:
    """What was given to ``on_ended`` is called on ``loop`` when tasks have ended."""

    def __init__(self, concurrency: int, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wake: Callable[[], object] = int
        self._handlers: dict[str, Handler] = {}
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="raybroker-task")
        self._coroutines: LoopThread | None = None
        self._running: dict[tuple[str, int], Future[Any]] = {}
        self._ended: list[Job] = []
        self._ending = threading.Lock()
        self.free = concurrency

    def register(self, function: Handler, name: str) -> None:
        if not callable(function):
            raise ConfigError(f"the handler {name!r} is {function!r:.80}, which cannot be called")
        self._handlers[name] = function

    def on_ended(self, wake: Callable[[], object]) -> None:
        self._wake = wake

    @property
    def names(self) -> list[str]:
        return sorted(self._handlers)

    def knows(self, name: str) -> bool:
        return name in self._handlers

    @property
    def count(self) -> int:
        return len(self._running)

    def run_job(self, job: Job) -> None:
        """Run a task whose handler is known; there is a place for it."""
        self.free -= 1
        task, function = job.task, self._handlers[job.task.name]
        if inspect.iscoroutinefunction(function):
            if self._coroutines is None:
                self._coroutines = LoopThread("raybroker-task-loop")
            future: Future[Any] = self._coroutines.submit(_called(function, task))
            self._running[task.attempt] = future
            future.add_done_callback(lambda done: self._tell(job, _outcome_of(done)))
        else:
            self._running[task.attempt] = Future()
            self._threads.submit(self._call, job, function)

    def _call(self, job: Job, function: Handler) -> None:
        try:
            outcome = TaskOutcome(SUCCESS, function(*job.task.args, **job.task.kwargs))
        except BaseException as error:  # noqa: BLE001 - whatever ends a handler is the failure of its task
            outcome = failure(error)
        self._tell(job, outcome)

    def _tell(self, job: Job, outcome: TaskOutcome) -> None:
        """A task has ended; called on any thread."""
        job.outcome = outcome
        with self._ending:
            first = not self._ended
            self._ended.append(job)
        if first:
            with contextlib.suppress(RuntimeError):  # The loop is closed: the message comes again elsewhere.
                self._loop.call_soon_threadsafe(self._wake)

    def take_ended(self) -> list[Job]:
        """The tasks that have ended since the last call; their places are free."""
        with self._ending:
            found, self._ended = self._ended, []
        for job in found:
            self._running.pop(job.task.attempt, None)
        self.free += len(found)
        return found

    def cancel(self, task_id: str) -> None:
        """End a task that runs as a coroutine; one on a thread goes on, and what it returns is not seen."""
        for (running, _), future in self._running.items():
            if running == task_id:
                future.cancel()

    def let_go(self) -> None:
        """What runs is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._coroutines is not None:
            self._coroutines.end_thread()


async def _called(function: Handler, task: Task) -> Any:
    return await function(*task.args, **task.kwargs)


def _outcome_of(done: Future[Any]) -> TaskOutcome:
    if done.cancelled():
        return TaskOutcome(REVOKED)
    error = done.exception()
    return TaskOutcome(SUCCESS, done.result()) if error is None else failure(error)
