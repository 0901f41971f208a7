"""So many coroutines at a time, and all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raybroker.actors.at_once import in_parallel


def test_no_more_run_at_a_time_than_may_and_all_run_though_one_fails() -> None:
    running, most, ended = 0, 0, []

    def work(number: int) -> Callable[[], Coroutine[Any, Any, None]]:
        async def run() -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            ended.append(number)
            if number == 3:
                raise ValueError("the third")

        return run

    with pytest.raises(ValueError, match="the third"):
        asyncio.run(in_parallel(4, map(work, range(20))))
    assert (most, sorted(ended)) == (4, list(range(20)))
