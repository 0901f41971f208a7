"""Whatever ends is logged with its traceback, named, and started again."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest

from raybroker.system import supervision
from raybroker.system.supervision import FIRST_S, MOST_S, RECENT_S, Supervisor


class Clock:
    """One that a test sets, and the pauses slept in its thread; brokers of other tests may sleep elsewhere."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []
        self._thread, self._sleep = threading.get_ident(), asyncio.sleep

    async def sleep(self, seconds: float) -> None:
        if threading.get_ident() != self._thread:
            await self._sleep(seconds)
            return
        self.slept.append(seconds)
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(supervision.asyncio, "sleep", made.sleep)
    return made


@pytest.fixture
def loops(clock: Clock) -> Iterator[Supervisor]:
    made = Supervisor("broker b1", now_s=lambda: clock.now_s)
    yield made
    made.close()


async def _until_cancelled(task: asyncio.Task[None]) -> None:
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("ends", ["raises", "returns"])
def test_a_loop_that_ends_is_logged_named_and_started_again(
    ends: str, clock: Clock, loops: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    runs = 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        if runs > 3:
            raise asyncio.CancelledError
        if ends == "raises":
            raise KeyError("mq.metrics.broker")

    asyncio.run(_kept(loops, run))
    assert runs == 4
    assert clock.slept == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    lines = [record for record in caplog.records if "[B3174]" in record.getMessage()]
    assert len(lines) == 3
    assert all("'metrics topics' of broker b1" in line.getMessage() for line in lines)
    assert all(bool(line.exc_info) is (ends == "raises") for line in lines)
    (row,) = loops.failing()
    reason = "KeyError: 'mq.metrics.broker'" if ends == "raises" else "it returned"
    assert (row["loop"], row["count"], row["reason"]) == ("metrics topics", 3, reason)
    assert row in supervision.failing()
    clock.now_s += RECENT_S
    assert loops.failing() == []


async def _kept(loops: Supervisor, run: supervision.Run) -> None:
    await _until_cancelled(loops.keep("metrics topics", run))


def test_pauses_grow_up_to_a_bound_and_begin_anew_after_a_long_run(clock: Clock, loops: Supervisor) -> None:
    runs = 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        if runs == 12:
            clock.now_s += MOST_S
        if runs == 14:
            raise asyncio.CancelledError
        raise RuntimeError("again")

    asyncio.run(_kept(loops, run))
    assert max(clock.slept) == clock.slept[10] == MOST_S
    assert clock.slept[11:] == [FIRST_S, 2 * FIRST_S]


def test_work_that_is_done_when_it_returns_is_tried_again_only_when_it_fails(loops: Supervisor) -> None:
    runs = 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise OSError("not yet")

    async def whole() -> None:
        await loops.attempt("bootstrap", run)

    asyncio.run(whole())
    assert runs == 2


def test_a_task_that_fails_is_logged_with_its_traceback(loops: Supervisor, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        raise ValueError("nobody waits for this")

    async def whole() -> None:
        with pytest.raises(ValueError, match="nobody waits"):
            await loops.once("a lease of a pool", work())

    asyncio.run(whole())
    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "broker b1: a lease of a pool" in line.getMessage()
    assert line.exc_info is not None


def test_what_is_closed_ends_and_is_named_no_more(loops: Supervisor, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        await asyncio.Event().wait()

    async def whole() -> None:
        kept, once = loops.keep("metrics topics", run), loops.once("a task", run())
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)
        assert set(loops.close()) == {kept, once}
        await _until_cancelled(kept)
        await _until_cancelled(once)

    asyncio.run(whole())
    assert not caplog.records
    assert loops.failing() == []


def test_a_loop_in_a_thread_is_started_again_until_it_returns(caplog: pytest.LogCaptureFixture) -> None:
    loops, over, runs = Supervisor("the pool p"), threading.Event(), []

    def run() -> None:
        runs.append(threading.current_thread().name)
        if len(runs) == 1:
            raise KeyError("backlog")
        over.set()

    thread = loops.thread("scaling by backlog", run, thread_name="raybroker-autoscaling")
    assert over.wait(10)
    thread.join(10)
    assert not thread.is_alive()
    assert runs == ["raybroker-autoscaling"] * 2
    assert [row["loop"] for row in loops.failing()] == ["scaling by backlog"]
    assert any(record.exc_info for record in caplog.records)
    loops.close()
