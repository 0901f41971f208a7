"""Wake-ups of a host's destinations, and retries of what was put off until there is room for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from raybroker.engine.measured_time import MeasuredTime

Item = TypeVar("Item")
AGAIN_MS: Final = 5_000
"""How long to wait before something is tried again that was not taken."""


class Wakeups:
    """The earliest time, measured milliseconds, at which each destination wants a Tick; number 0 is the host itself.

    ``alarm``: called with a time at which somebody has to look at :meth:`due` at the latest.
    """

    def __init__(self, alarm: Callable[[int], None] | None = None) -> None:
        self._at: dict[int, int] = {}
        self._alarm = alarm

    def wake(self, number: int, at_ms: int) -> None:
        """Destination ``number`` wants a Tick then."""
        before = self._at.get(number)
        if before is None or at_ms < before:
            self._at[number] = at_ms
            if self._alarm is not None:
                self._alarm(at_ms)

    def cancel(self, number: int) -> None:
        self._at.pop(number, None)

    def due(self, now_ms: int) -> list[int]:
        """The numbers whose time has come. A number is to be forgotten right before its Tick, which may ask for another
        one."""
        return [number for number, at_ms in self._at.items() if at_ms <= now_ms]

    def remind(self) -> None:
        """Ask for the alarm of what is left."""
        if self._alarm is not None and self._at:
            self._alarm(min(self._at.values()))


class Durations:
    """Measured time, for what the host itself waits for.  Nothing of it is written down."""

    def __init__(self, wakeups: Wakeups, time: MeasuredTime) -> None:
        self._wakeups = wakeups
        self.now_ms = time.now_ms

    def wake(self, at_ms: int) -> None:
        """The host is to look again then, by this time."""
        self._wakeups.wake(0, at_ms)


class WakeupRetries(Generic[Item]):
    """What was not taken, and is to be tried again some seconds after the first of it came."""

    def __init__(self, durations: Durations) -> None:
        self.waiting: list[Item] = []
        self._durations = durations
        self._again_at_ms: int | None = None

    def add(self, item: Item) -> None:
        self.waiting.append(item)
        if self._again_at_ms is None:
            self._again_at_ms = self._durations.now_ms() + AGAIN_MS
            self._durations.wake(self._again_at_ms)

    def due(self) -> list[Item]:
        """Everything that waits, if its time has come."""
        if self._again_at_ms is None or self._durations.now_ms() < self._again_at_ms:
            return []
        self._again_at_ms = None
        waiting, self.waiting = self.waiting, []
        return waiting
