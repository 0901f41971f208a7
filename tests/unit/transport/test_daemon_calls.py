"""Blocking calls that may never come back."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from raybroker.transport.daemon_calls import in_daemon_thread

NEVER_BACK = """
import asyncio, threading
from raybroker.transport.daemon_calls import in_daemon_thread

async def main():
    asyncio.get_running_loop().create_task(in_daemon_thread(threading.Event().wait))
    await asyncio.sleep(0.05)

loop = asyncio.new_event_loop()
loop.run_until_complete(main())
print("over")
"""


def test_what_a_call_returns_and_raises_reaches_whoever_waits() -> None:
    async def calls() -> tuple[int, str]:
        doubled = await in_daemon_thread(lambda number: number * 2, 21)
        return doubled, await in_daemon_thread(lambda: threading.current_thread().name)

    assert asyncio.run(calls()) == (42, "raybroker-call")
    with pytest.raises(ZeroDivisionError):
        asyncio.run(in_daemon_thread(lambda: 1 // 0))


def test_a_call_that_never_comes_back_does_not_keep_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", NEVER_BACK], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (0, "over\n")


def test_a_call_that_comes_back_after_its_caller_gave_up_is_dropped() -> None:
    back, returned = threading.Event(), threading.Event()

    def slow() -> int:
        back.wait(10)
        returned.set()
        return 1

    async def gives_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(in_daemon_thread(slow), 0.01)
        back.set()
        await asyncio.to_thread(returned.wait, 10)
        await asyncio.sleep(0)

    asyncio.run(gives_up())
    assert returned.is_set()
