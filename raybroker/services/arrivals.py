"""Sockets that have come and have not said what they want yet: how many there may be, in all and from one address."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final

ARRIVING_MAX: Final = 512
ARRIVING_OF_ADDRESS_MAX: Final = 64


class Arrivals:
    """Tasks of one event loop, one a socket."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, address: str, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Begin with one from that address; False when there are too many."""
        if len(self._tasks) >= ARRIVING_MAX or self._by_address[address] >= ARRIVING_OF_ADDRESS_MAX:
            if not self._by_address[address]:
                del self._by_address[address]
            return False
        self._by_address[address] += 1
        task = asyncio.get_running_loop().create_task(work())
        self._tasks.add(task)

        def left(done: asyncio.Task[None]) -> None:
            self._tasks.discard(done)
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

        task.add_done_callback(left)
        return True

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
