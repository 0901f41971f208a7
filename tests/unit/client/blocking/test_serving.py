"""The thread that calls listeners: it sleeps until it is woken, and runs coroutines to their end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from raybroker.client.blocking.serving import Serving
from raybroker.client.listener.handler import Handler, Retries


def handler(function: Callable[..., object]) -> Handler:
    return Handler(function, Retries.checked((), (), None))


MESSAGE: Any = "message"


def test_it_serves_in_a_thread_of_its_own_each_time_it_is_woken() -> None:
    serving, rounds, threads = Serving(), threading.Semaphore(0), []

    def serve() -> None:
        for _ in range(2):
            serving.woken()
            threads.append(threading.current_thread())
            rounds.release()

    serving.start(serve)
    assert not rounds.acquire(timeout=0.02), "nobody has woken it"
    for _ in range(2):
        serving.wake()
        assert rounds.acquire(timeout=5)
    serving.ended()
    assert len(set(threads)) == 1
    assert not threads[0].is_alive()
    assert threads[0] is not threading.current_thread()


def test_its_own_thread_does_not_wait_for_its_end() -> None:
    serving, over = Serving(), threading.Event()

    def serve() -> None:
        serving.ended()
        over.set()

    serving.start(serve)
    assert over.wait(60)


def test_coroutines_of_listeners_run_to_their_end_on_one_loop() -> None:
    serving, loops = Serving(), []

    async def listener(message: object) -> None:
        await asyncio.sleep(0)
        loops.append((message, asyncio.get_running_loop()))

    def serve() -> None:
        serving.call(handler(listener), MESSAGE)
        serving.call(handler(lambda message: loops.append((message, None))), MESSAGE)
        serving.call(handler(listener), MESSAGE)

    serving.start(serve)
    serving.ended()
    assert [message for message, _ in loops] == [MESSAGE] * 3
    assert loops[0][1] is loops[2][1]
    assert loops[0][1].is_closed(), "its loop ends with it"


def test_a_failure_is_the_message_s_and_ends_no_thread() -> None:
    def failing(message: object) -> None:
        raise ValueError(message)

    serving = Serving()
    with pytest.raises(ValueError, match="message"):
        serving.call(handler(failing), MESSAGE)
    assert not any(serving.is_ended_by(error) for error in (ValueError(), KeyboardInterrupt(), SystemExit()))
