"""Worker processes of a benchmark: fresh interpreters that say when they are ready, start together, and report.

A worker is a module-level function ``work(job, *args) -> result``.  It connects and warms up, calls
``job.ready(value)``, which blocks until the harness says go, does the timed part and returns its result.  Workers are
ended with the ``Team``, by process id, whatever happens.
"""

from __future__ import annotations

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

    def ready(self, value: Any = None) -> None:
        """Says that everything is prepared and waits until the harness lets all workers go.

        What was imported until here is taken out of the collector's sight, in every system's processes alike.
        """
        gc.collect()
        gc.freeze()
        self._pipe.send(("ready", value))
        self._pipe.recv()


def _main(pipe: Connection, env: Mapping[str, str], work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    os.environ.update(env)
    try:
        pipe.send(("result", work(Job(pipe), *args)))
    except BaseException:  # noqa: BLE001 - the harness raises it with this traceback
        pipe.send(("error", traceback.format_exc()))


class Worker:
    """The harness's side of one worker."""

    def __init__(self, work: Callable[..., Any], args: tuple[Any, ...], env: Mapping[str, str]) -> None:
        context = mp.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_main, args=(theirs, dict(env), work, args), daemon=False)
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

    def go(self) -> None:
        """Lets the worker run its timed part."""
        self._pipe.send("go")

    def result(self, seconds: float = RESULT_SECONDS) -> Any:
        """What the work function returned; WorkerError with its traceback if it raised."""
        return self._take("result", seconds)

    def end(self) -> None:
        """Ends the process: politely if it is done, by SIGTERM and SIGKILL otherwise."""
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

    def __enter__(self) -> Team:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self._workers:
            if kind is not None and worker.process.is_alive():
                worker.process.terminate()
            worker.end()
