"""The loop that may stand still: what it notes, and what a thread that leads runs in its place."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
import uvloop

from raybroker.transport.loops import (
    READY_MAX,
    SHORT_S,
    LedCall,
    PausableLoop,
    running_loop,
    set_running_loop,
    sleep_waited_for,
)


@pytest.fixture
def loop() -> Iterator[PausableLoop]:
    """One that stands still, and takes notes."""
    made = PausableLoop()
    made.take_notes()
    yield made
    made.take_no_notes()
    made.close()


@pytest.fixture
def led(loop: PausableLoop) -> Iterator[PausableLoop]:
    """One that this thread leads."""
    loop.leader = threading.get_ident()
    set_running_loop(loop)
    yield loop
    set_running_loop(None)
    loop.leave()


def run(loop: PausableLoop) -> None:
    """Turns of the loop itself, until it has nothing to do."""
    set_running_loop(None)
    loop.call_later(0.01, loop.stop)
    loop.run_forever()


def test_what_is_scheduled_while_it_stands_still_is_noted(loop: PausableLoop) -> None:
    called: list[int] = []
    assert not loop.noted
    loop.call_soon(called.append, 1)
    assert loop.noted
    loop.run_ready()
    assert not called
    run(loop)
    assert called == [1]


def test_who_asks_again_for_notes_loses_none(loop: PausableLoop) -> None:
    loop.call_soon(lambda: None)
    loop.take_notes()
    assert loop.noted
    loop.take_no_notes()
    loop.take_notes()
    assert not loop.noted


def test_a_leader_runs_a_task_to_its_end(led: PausableLoop) -> None:
    answer: asyncio.Future[int] = led.create_future()

    async def work() -> int:
        async with asyncio.timeout(60):
            return await answer + await asyncio.ensure_future(other())

    async def other() -> int:
        assert asyncio.current_task() is not task
        return 2

    task = led.create_task(work())
    led.run_ready()
    assert not task.done()
    answer.set_result(40)
    led.run_ready()
    assert task.result() == 42
    assert not led.noted


def test_what_a_leader_leaves_is_run_by_the_loop_in_its_order(led: PausableLoop) -> None:
    called: list[int] = []
    led.call_soon(called.append, 1)
    cancelled = led.call_soon(called.append, 2)
    late = led.call_soon(called.append, 3)
    led.call_soon(called.append, 4)
    cancelled.cancel()
    led.leave()
    late.cancel()
    assert led.noted
    led.run_ready()
    assert not called
    run(led)
    assert called == [1, 4]


def test_a_leader_that_leaves_nothing_needs_no_loop(led: PausableLoop) -> None:
    led.call_soon(lambda: None)
    led.run_ready()
    led.leave()
    assert not led.noted


def test_another_thread_calls_the_loop_and_not_the_leader(loop: PausableLoop) -> None:
    told: list[bool] = []
    loop._foreign = lambda: told.append(True)
    loop.leader = threading.get_ident()
    loop.call_soon_threadsafe(lambda: None)
    assert not told
    assert len(loop.ready) == 1
    thread = threading.Thread(target=loop.call_soon_threadsafe, args=(lambda: None,))
    thread.start()
    thread.join()
    assert told
    assert loop.noted
    assert len(loop.ready) == 1
    loop.leave()


def test_calls_without_end_let_the_leader_look_at_its_sockets(led: PausableLoop) -> None:
    calls = 0

    def again() -> None:
        nonlocal calls
        calls += 1
        led.call_soon(again)

    again()
    led.run_ready()
    assert calls == 1 + READY_MAX
    led.ready.clear()


def test_a_failing_call_is_told_and_harms_no_other(led: PausableLoop) -> None:
    told: list[BaseException] = []
    led.set_exception_handler(lambda loop, context: told.append(context["exception"]))
    called: list[int] = []
    led.call_soon(lambda: 1 // 0)
    led.call_soon(called.append, 2)
    led.run_ready()
    assert [type(error) for error in told] == [ZeroDivisionError]
    assert called == [2]


def test_a_connection_to_be_made_needs_the_loop(led: PausableLoop) -> None:
    task = led.create_task(led.create_connection(asyncio.Protocol, "127.0.0.1", 1))
    led.run_ready()
    assert led.noted
    task.cancel()
    led.leave()
    run(led)


def test_a_short_timer_is_noted_unless_it_may_be_late(loop: PausableLoop) -> None:
    loop.call_lazily(0.001, lambda: None)
    assert not loop.noted
    assert not loop.is_timed
    loop.call_later(0.05, lambda: None)
    assert loop.noted
    assert loop.is_timed


def test_a_pause_that_somebody_waits_for_is_a_reason_to_run_however_long(led: PausableLoop) -> None:
    led.call_later(60, lambda: None)
    assert not led.noted
    assert not led.is_timed
    pause = led.create_task(sleep_waited_for(3 * SHORT_S))
    led.run_ready()
    assert led.noted
    assert led.is_timed
    led.leave()
    led.take_no_notes()
    set_running_loop(None)
    led.run_until_complete(pause)
    assert not led.is_timed


def test_a_pause_that_is_given_up_is_no_reason_to_run(led: PausableLoop) -> None:
    """Its connection was closed: threads of others serve the sockets again, and not only when it would have ended."""
    pauses = [led.create_task(sleep_waited_for(60)) for _ in range(2)]
    led.run_ready()
    pauses[0].cancel()
    led.run_ready()
    assert led.is_timed
    pauses[1].cancel()
    led.run_ready()
    assert not led.is_timed


def test_what_is_leaned_on_of_libraries_is_there(led: PausableLoop) -> None:
    """asyncio gives two functions to makers of loops, and asks the loop of a thread for whatever it schedules; an
    object of uvloop's class may become one of another class, which only has other methods."""
    for name in ("_get_running_loop", "_set_running_loop"):
        assert name in asyncio.events.__all__
    assert running_loop() is asyncio.get_running_loop() is led
    assert type(led).__mro__[1:3] == (PausableLoop, uvloop.Loop)

    async def work() -> int:
        await asyncio.sleep(0)
        waiting: asyncio.Future[int] = led.create_future()
        led.call_soon(waiting.set_result, 7)
        return await waiting

    task = led.create_task(work())
    assert [type(call) for call in led.ready] == [LedCall], "a task begins by the loop's call_soon"
    led.run_ready()
    assert (task.result(), led.noted) == (7, False), "and goes on by it; nothing went past the leader"
    led.leave()
    led.take_no_notes()
    assert type(led) is PausableLoop
    assert type(led).call_soon is uvloop.Loop.call_soon, "a loop that runs schedules as fast as any"


def test_a_call_that_was_cancelled_is_not_made(led: PausableLoop) -> None:
    called: list[int] = []
    led.call_soon(called.append, 1).cancel()
    led.call_soon(called.append, 2)
    led.run_ready()
    led.call_soon(called.append, 3).cancel()
    led.leave()
    run(led)
    assert called == [2]
