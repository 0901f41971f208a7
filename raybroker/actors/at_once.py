"""Coroutines that run at once, so many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable


async def in_parallel(most: int, work: Iterable[Callable[[], Awaitable[object]]]) -> None:
    """Run all of it, ``most`` at a time, in order as far as that goes; returns when all have ended, and raises the
    first error then."""
    room = asyncio.Semaphore(most)

    async def one(run: Callable[[], Awaitable[object]]) -> None:
        async with room:
            await run()

    for answer in await asyncio.gather(*map(one, work), return_exceptions=True):
        if isinstance(answer, BaseException):
            raise answer
