"""Worker processes of a benchmark: fresh interpreters that say when they are ready, start together, and report.

A worker is a module-level function ``work(job, *args) -> result``.  It connects and warms up, calls
``job.ready(value)``, which blocks until the harness says go, does the timed part and returns its result.  Workers are
ended with the ``Team``, by process id, whatever happens.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing as mp
import os
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

READY_SECONDS = 120.0
RESULT_SECONDS = 600.0


class WorkerError(RuntimeError):
    """A worker failed; the text is its traceback."""


class Job:
    """What a worker function holds of its harness."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def ready(self, value: Any = None) -> Any:
        """Says that everything is prepared and waits until the harness lets all workers go; what it says with that.

        What was imported until here is taken out of the collector's sight, in every system's processes alike.
        """
        gc.collect()
        gc.freeze()
        self._pipe.send(("ready", value))
        return self._pipe.recv()


def _main(pipe: Connection, env: Mapping[str, str], work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    os.environ.update(env)
    try:
        pipe.send(("result", work(Job(pipe), *args)))
    except BaseException:  # noqa: BLE001 - the harness raises it with this traceback
        pipe.send(("error", traceback.format_exc()))


def _stand(job: Job, pipe: Connection) -> None:
    """One work function after another, until None comes: imports, and what a process joins, stay."""
    while (order := pipe.recv()) is not None:
        work, args = order
        try:
            pipe.send(("result", work(job, *args)))
        except Exception:  # noqa: BLE001 - the harness raises it with this traceback; the next order may fare better
            pipe.send(("error", traceback.format_exc()))


def _main_standing(pipe: Connection, env: Mapping[str, str]) -> None:
    os.environ.update(env)
    try:
        _stand(Job(pipe), pipe)
    except EOFError:
        return  # The harness has gone.


class Worker:
    """The harness's side of one worker."""

    def __init__(
        self, work: Callable[..., Any], args: tuple[Any, ...], env: Mapping[str, str], *, stands: bool = False
    ) -> None:
        context = mp.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._stands = stands
        target, given = (_main_standing, (theirs, dict(env))) if stands else (_main, (theirs, dict(env), work, args))
        self.process = context.Process(target=target, args=given, daemon=False)
        self.process.start()
        theirs.close()
        self.name = f"{work.__module__}.{work.__name__}"

    @property
    def pid(self) -> int:
        return self.process.pid or 0

    def _take(self, kind: str, seconds: float) -> Any:
        if not self._pipe.poll(seconds):
            raise WorkerError(f"{self.name}: nothing came within {seconds:.0f} s")
        try:
            said, value = self._pipe.recv()
        except EOFError:
            raise WorkerError(f"{self.name}: the process ended without a word") from None
        if said == "error":
            raise WorkerError(f"{self.name}:\n{value}")
        if said != kind:
            raise WorkerError(f"{self.name}: expected {kind}, got {said}")
        return value

    def wait_ready(self, seconds: float = READY_SECONDS) -> Any:
        """Blocks until the worker is ready; its value (a port, say)."""
        return self._take("ready", seconds)

    def go(self, value: Any = "go") -> None:
        """Lets the worker run its timed part; ``value`` is what ``job.ready`` returns there."""
        self._pipe.send(value)

    def give(self, work: Callable[..., Any], *args: Any) -> None:
        """The next work function of a standing worker."""
        self.name = f"{work.__module__}.{work.__name__}"
        self._pipe.send((work, args))

    def result(self, seconds: float = RESULT_SECONDS) -> Any:
        """What the work function returned; WorkerError with its traceback if it raised."""
        return self._take("result", seconds)

    def end(self) -> None:
        """Ends the process: politely if it is done, by SIGTERM and SIGKILL otherwise."""
        if self._stands:
            with contextlib.suppress(OSError):
                self._pipe.send(None)
        self._pipe.close()
        self.process.join(2.0)
        for stop in (self.process.terminate, self.process.kill):
            if self.process.is_alive():
                stop()
                self.process.join(5.0)


class Team:
    """Workers that end together."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self._env = env or {}
        self._workers: list[Worker] = []

    def start(self, work: Callable[..., Any], *args: Any) -> Worker:
        """A fresh interpreter that runs ``work(job, *args)``."""
        worker = Worker(work, args, self._env)
        self._workers.append(worker)
        return worker

    def stand(self) -> Worker:
        """A fresh interpreter that carries out what ``give`` gives it, one after another."""
        worker = Worker(_stand, (), self._env, stands=True)
        self._workers.append(worker)
        return worker

    def __enter__(self) -> Team:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self._workers:
            if kind is not None and worker.process.is_alive():
                worker.process.terminate()
            worker.end()
