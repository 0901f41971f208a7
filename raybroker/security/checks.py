"""Threads for checks that take time: of password hashes, and of passwords at a directory server.

Few threads of a lower priority check; few more checks wait, and of them few of one address, so that a flood of logins
from one place keeps nobody else out and leaves the processor to messages.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from raybroker.model.errors import ConnectionLostError, ResourceAllocationError

CHECKS_MAX: Final = 64
"""Checks that run or wait."""
CHECKS_OF_ADDRESS_MAX: Final = 16
NICENESS: Final = 10

R = TypeVar("R")


class CheckThreads:
    """``threads``: how many checks run at once."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, "raybroker-login", initializer=_be_nice)
        self._lock = threading.Lock()
        self._under_way: Counter[str] = Counter()

    async def run(self, address: str, function: Callable[..., R], *args: object) -> R:
        """Call it in a thread. Raises ResourceAllocationError when too many checks are under way, ConnectionLostError
        once they are closed."""
        with self._lock:
            total, of_address = self._under_way.total(), self._under_way[address]
            if total >= CHECKS_MAX or of_address >= CHECKS_OF_ADDRESS_MAX:
                if not of_address:
                    del self._under_way[address]
                raise ResourceAllocationError(
                    f"{total} logins are being checked, {of_address} of them of yours; try again later"
                )
            self._under_way[address] += 1
        try:
            future = self._pool.submit(function, *args)
        except RuntimeError:
            self._left(address)
            raise ConnectionLostError("the broker shuts down") from None
        future.add_done_callback(lambda done: self._left(address))
        return await asyncio.wrap_future(future)

    def _left(self, address: str) -> None:
        with self._lock:
            self._under_way[address] -= 1
            if not self._under_way[address]:
                del self._under_way[address]

    def close(self) -> None:
        """Those that wait are given up."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _be_nice() -> None:
    with suppress(OSError):  # Linux has a priority for each thread; elsewhere it stays as it is.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
