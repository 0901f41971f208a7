"""The real clock: the only place that reads the time."""

from __future__ import annotations

import hashlib
import time
from functools import cache
from pathlib import Path
from typing import Final

from raybroker.system.entropy import token

_OF_MACHINE: Final = (Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/timens_offsets"))
"""What tells one monotonic clock from another: the start of the system, and the time namespace of the process."""


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


@cache
def monotonic_clock() -> int:
    """Return which monotonic clock this process reads, as 64 bits: processes with the same number read the same one.

    Where that cannot be known it is a number that no other process has.
    """
    try:
        known = b"".join(path.read_bytes() for path in _OF_MACHINE)
    except OSError:
        known = token(16)
    return int.from_bytes(hashlib.blake2b(known, digest_size=8).digest(), "little")
