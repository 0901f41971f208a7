"""Awaiting durability: waits until a change is on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raybroker.model.errors import BrokerError


class Durable:
    """Changes that administrators wait for; when the store dies all of them fail."""

    def __init__(self) -> None:
        self._awaited: set[asyncio.Future[None]] = set()

    async def durable(self, start: Callable[[Callable[[], None]], None]) -> None:
        """Call ``start`` with what it has to call once the change is durable, and wait for that."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited.add(future)
        try:
            start(lambda: None if future.done() else future.set_result(None))
            await future
        finally:
            self._awaited.discard(future)

    def fail_waiting(self, error: BrokerError) -> None:
        for future in self._awaited:
            if not future.done():
                future.set_exception(error)
