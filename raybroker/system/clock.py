"""The real clock: the only place that reads the time."""

from __future__ import annotations

import time


class SystemClock:
    """Wall time for users, monotonic time for measuring (``raybroker.engine.ports.Clock``)."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01T00:00Z."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)

    monotonic_ns = staticmethod(time.monotonic_ns)
    """Nanoseconds from an arbitrary start, never going back; not wrapped, because it is read several times a block."""
