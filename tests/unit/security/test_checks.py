"""Threads for checks that take time: how many run and wait, and who is told to come later."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raybroker.errors import ConnectionLostError, ResourceAllocationError
from raybroker.security.checks import CHECKS_MAX, CHECKS_OF_ADDRESS_MAX, CheckThreads


def run(work: Callable[[CheckThreads], Coroutine[Any, Any, None]], threads: int = 2) -> None:
    checks = CheckThreads(threads)
    try:
        asyncio.run(work(checks))
    finally:
        checks.close()


def test_a_check_runs_in_a_thread_of_its_own_and_its_error_comes_back() -> None:
    async def work(checks: CheckThreads) -> None:
        assert await checks.run("a", lambda x: (x, threading.current_thread().name), 7) == (7, "raybroker-login_0")
        with pytest.raises(ZeroDivisionError):
            await checks.run("a", lambda: 1 // 0)

    run(work, threads=1)


async def begun(checks: CheckThreads, address: str, gate: threading.Event, count: int) -> list[asyncio.Task[bool]]:
    tasks = [asyncio.create_task(checks.run(address, gate.wait, 60)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


def test_one_address_has_few_places_and_others_have_theirs() -> None:
    async def work(checks: CheckThreads) -> None:
        gate = threading.Event()
        try:
            tasks = await begun(checks, "a", gate, CHECKS_OF_ADDRESS_MAX)
            with pytest.raises(ResourceAllocationError, match="16 logins are being checked, 16 of them of yours"):
                await checks.run("a", lambda: 1)
            tasks += await begun(checks, "b", gate, 1)
        finally:
            gate.set()
        assert all(await asyncio.gather(*tasks))
        assert await checks.run("a", lambda: 1) == 1, "places are given back"

    run(work)


def test_all_addresses_together_have_a_bound_and_nothing_stays_of_who_was_refused() -> None:
    async def work(checks: CheckThreads) -> None:
        gate = threading.Event()
        tasks = []
        try:
            for number in range(CHECKS_MAX // CHECKS_OF_ADDRESS_MAX):
                tasks += await begun(checks, f"a{number}", gate, CHECKS_OF_ADDRESS_MAX)
            for number in range(1000):
                with pytest.raises(ResourceAllocationError, match="64 logins are being checked, 0 of them of yours"):
                    await checks.run(f"other{number}", lambda: 1)
            assert len(checks._under_way) == CHECKS_MAX // CHECKS_OF_ADDRESS_MAX
        finally:
            gate.set()
        assert all(await asyncio.gather(*tasks))

    run(work, threads=8)


def test_what_comes_after_the_end_is_told_so_and_does_not_count() -> None:
    async def work(checks: CheckThreads) -> None:
        checks.close()
        for _ in range(2 * CHECKS_OF_ADDRESS_MAX):
            with pytest.raises(ConnectionLostError, match="shuts down"):
                await checks.run("a", lambda: 1)

    run(work)


def test_closing_gives_up_those_that_wait() -> None:
    async def work(checks: CheckThreads) -> None:
        gate, running = threading.Event(), threading.Event()

        def wait() -> bool:
            running.set()
            return gate.wait(60)

        first = asyncio.create_task(checks.run("a", wait))
        assert await asyncio.to_thread(running.wait, 60), "a thread has it; only what none has is given up"
        (second,) = await begun(checks, "a", gate, 1)
        checks.close()
        gate.set()
        assert await first
        with pytest.raises(asyncio.CancelledError):
            await second

    run(work, threads=1)
