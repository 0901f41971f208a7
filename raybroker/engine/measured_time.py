"""The time of a process: measured, and by the wall clock.

Everything that takes a while is by measured time, which goes on evenly from what the wall clock said when the process
began: leases, delays, windows and waits are as long as they are, however the machine's clock is set meanwhile.  What is
to happen at a point in time (expirations, deliveries later, schedules, the end of a pause) follows the wall clock.
What is written down is by the wall clock too, since another process goes on with it.
"""

from __future__ import annotations

from typing import Final

from raybroker.engine.ports import Clock

STEP_MS: Final = 100
"""A wall clock that is off by less has not been set: the two clocks are never read at one instant."""
READS: Final = 3
"""How often both are read again before that is believed,"""
READ_MS: Final = 5
"""in a time no longer than that: the thread may have been stopped between the two."""


class MeasuredTime:
    """``ahead_ms``: how far the wall clock is ahead of measured time, as of the last look; 0 until it is set.
    ``read_ns``: when :meth:`read` was called last, for those who come right behind it."""

    def __init__(self, clock: Clock) -> None:
        self.ahead_ms = self.read_ns = 0
        self.monotonic_ns = clock.monotonic_ns
        self._read_wall_ms = clock.now_ms
        self._base_ms = clock.now_ms() - clock.monotonic_ns() // 1_000_000
        self._stepped_ms = 0

    def now_ms(self) -> int:
        """Measured milliseconds, since 1970 as the wall clock said in the beginning."""
        return self._base_ms + self.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01T00:00Z."""
        return self.read() + self.ahead_ms

    def read(self) -> int:
        """:meth:`now_ms`; and ``ahead_ms`` is up to date."""
        read_ns = self.read_ns = self.monotonic_ns()
        now_ms = self._base_ms + read_ns // 1_000_000
        if not -STEP_MS < self._read_wall_ms() - now_ms - self.ahead_ms < STEP_MS:
            self._step()
        return now_ms

    def measured(self, wall_ms: int) -> int:
        """Return when, by measured time, the wall clock will say that."""
        return wall_ms - self.ahead_ms

    def take_step(self) -> int:
        """Return by how much the wall clock was set since that was asked for the last time; below 0: back."""
        stepped_ms, self._stepped_ms = self._stepped_ms, 0
        return stepped_ms

    def _step(self) -> None:
        for _ in range(READS):
            before_ms = self.now_ms()
            ahead_ms = self._read_wall_ms() - before_ms
            if self.now_ms() - before_ms <= READ_MS:
                if abs(ahead_ms - self.ahead_ms) >= STEP_MS:
                    self._stepped_ms += ahead_ms - self.ahead_ms
                    self.ahead_ms = ahead_ms
                return
