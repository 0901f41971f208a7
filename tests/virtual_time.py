"""An event loop of asyncio whose time passes only when nothing else is left to do: seconds take no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any


class _Waiting(selectors.SelectSelector):
    """Goes on at once from a wait, and says how long that would have been."""

    def __init__(self, passed: Callable[[float], None]) -> None:
        super().__init__()
        self._passed = passed

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found:
            assert timeout is not None, "nobody will ever do anything again"
            self._passed(timeout)
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """``count``: how often it has waited."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.count = 0
        super().__init__(_Waiting(self._pass))

    def _pass(self, seconds: float) -> None:
        self.now_s += seconds
        self.count += 1

    def time(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def call_in_executor(self, *given: Any) -> None:
        """Threads have a time of their own."""
        raise AssertionError("nothing here may use a thread")
