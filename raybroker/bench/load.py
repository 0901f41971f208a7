"""The run of a load plan: workers in processes (or threads), a common start, progress, one report.

Each worker is a fresh interpreter, so that producers and consumers do not share an interpreter lock with each other or
with the caller.  Threads are for the in-process loopback, which other processes cannot reach.
"""

from __future__ import annotations

import multiprocessing
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from raybroker.bench.plan import LoadPlan
from raybroker.bench.report import LoadReport
from raybroker.bench.work import Consumed, LoadRun, Produced, consume, produce
from raybroker.system.clock import SystemClock
from raybroker.system.entropy import token

Connect = Callable[[LoadPlan], Any]
"""Opens a connection for one worker; must be picklable when workers are processes."""

READY_SECONDS: Final = 60.0
HEAD_START_NS: Final = 300_000_000
"""Time between the message that starts a run and the start, so that the last worker has read it by then."""
GRACE_SECONDS: Final = 60.0
"""Time that a worker may take after its end for messages in flight."""


class LoadError(RuntimeError):
    """Failure of a worker; the text is its traceback, or the step that it did not reach in time."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Totals so far, reported about twice a second."""

    seconds: float
    sent: int
    received: int


def connect_by_plan(plan: LoadPlan) -> Any:
    """The connection that a plan names."""
    import raybroker as rb

    return rb.connect(plan.address) if plan.address else rb.connect(cluster=plan.cluster)


def _work(pipe: Connection, plan: LoadPlan, role: str, run_id: int, connect: Connect, close: bool) -> None:
    """The course of a worker: connect, wait for the start, work, report."""
    try:
        connection = connect(plan)
        connection.start()
        session = connection.session(ack="client")
        queue = session.queue(plan.queue)
        handle: Any = None
        if role == "producer":
            handle = session.producer(queue, persistent=plan.persistent)
        pipe.send(("ready", None))
        start_ns = pipe.recv()
        told: list[bool] = []

        def stopping() -> bool:
            if not told and pipe.poll(0):
                pipe.recv()
                told.append(True)
            return bool(told)

        run = LoadRun(plan, run_id, start_ns, SystemClock().monotonic_ns, lambda n: pipe.send(("count", n)), stopping)
        done: Produced | Consumed
        if role == "producer":
            done = produce(run, handle)
        else:
            done = consume(run, session.consumer(queue, prefetch=plan.prefetch))
        pipe.send(("done", done))
        session.close()
        if close:
            connection.close()
    except Exception:  # noqa: BLE001 - the caller raises it with this traceback
        try:
            pipe.send(("error", traceback.format_exc()))
        except OSError:
            pass  # the caller has gone: nobody is left to be told


class _LoadWorker:
    """The caller's side of one worker."""

    def __init__(self, plan: LoadPlan, role: str, run_id: int, connect: Connect, in_threads: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.role = role
        self.count = 0
        self.done: Any = None
        arguments = (theirs, plan, role, run_id, connect, not in_threads)
        self._process = None if in_threads else context.Process(target=_work, args=arguments, daemon=True)
        self._thread = threading.Thread(target=_work, args=arguments, daemon=True) if in_threads else None
        if self._process is not None:
            self._process.start()
            theirs.close()
        elif self._thread is not None:
            self._thread.start()

    def hear(self) -> str:
        """Receive one message of the worker; returns its kind."""
        try:
            kind, value = self.pipe.recv()
        except EOFError:
            raise LoadError(f"a {self.role} ended without a word") from None
        if kind == "error":
            raise LoadError(f"a {self.role} failed:\n{value}")
        if kind == "count":
            self.count = value
        elif kind == "done":
            self.done = value
        return str(kind)

    def say(self, value: Any) -> None:
        """Send a message to the worker, unless it has ended."""
        try:
            self.pipe.send(value)
        except OSError:
            pass  # its end is noticed where it is read

    def end_process(self) -> None:
        """End the process; a thread ends by itself after the message to stop, unless a call of the broker hangs."""
        if self.done is None:
            self.say("stop")
        if self._thread is not None:
            self._thread.join(5.0)
        if self._process is not None:
            self._process.join(5.0 if self.done is not None else 0.2)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()


def run_load(
    plan: LoadPlan,
    *,
    connect: Connect = connect_by_plan,
    in_threads: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> LoadReport:
    """Carry out a plan and return the report.

    ``connect`` opens each worker's connection; with ``in_threads`` it may return the same one every time, which then
    stays open.  Raises LoadError when a worker fails, with its traceback; the others are ended first.
    """
    run_id = int.from_bytes(token(4), "little")
    roles = ["consumer"] * plan.consumers + ["producer"] * plan.producers
    workers = [_LoadWorker(plan, role, run_id, connect, in_threads) for role in roles]
    try:
        for worker in workers:
            if not worker.pipe.poll(READY_SECONDS):
                raise LoadError(f"a {worker.role} was not ready within {READY_SECONDS:g} s")
            worker.hear()
        start_ns = SystemClock().monotonic_ns() + HEAD_START_NS
        for worker in workers:
            worker.say(start_ns)
        _watch(plan, workers, start_ns, progress)
    finally:
        for worker in workers:
            worker.end_process()
    made = [worker.done for worker in workers if worker.role == "producer"]
    got = [worker.done for worker in workers if worker.role == "consumer"]
    return LoadReport.from_results(plan, made, got)


def _watch(
    plan: LoadPlan, workers: list[_LoadWorker], start_ns: int, progress: Callable[[Progress], None] | None
) -> None:
    """Wait for all workers; stop the consumers once the producers are done, or at the end of the time without any."""
    now_ns = SystemClock().monotonic_ns
    ends_ns = start_ns + plan.ends_ns
    late_ns = ends_ns + int((plan.drain_seconds + GRACE_SECONDS) * 1e9)
    told = False
    while open_pipes := {worker.pipe: worker for worker in workers if worker.done is None}:
        for pipe in wait(list(open_pipes), timeout=0.2):
            open_pipes[pipe].hear()  # type: ignore[index]  # wait() returns the objects it was given
        now = now_ns()
        producing = any(worker.role == "producer" and worker.done is None for worker in workers)
        if not told and not producing and now >= (ends_ns if not plan.producers else start_ns):
            told = True
            for worker in open_pipes.values():
                worker.say("stop")
        if progress is not None and now >= start_ns:
            sent, received = (
                sum(_so_far(worker) for worker in workers if worker.role == role) for role in ("producer", "consumer")
            )
            progress(Progress((now - start_ns) / 1e9, sent, received))
        if now > late_ns:
            raise LoadError(f"{len(open_pipes)} workers are still busy {GRACE_SECONDS:g} s after the end")


def _so_far(worker: _LoadWorker) -> int:
    if worker.done is None:
        return worker.count
    done: int = worker.done.sent if worker.role == "producer" else worker.done.received
    return done
