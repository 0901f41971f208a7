"""The pace of a run: its time, its steps with the progress that they show, and what has gone wrong with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from raybroker.actors import runtime
from raybroker.system.clock import SystemClock
from raybroker.verify.display import VerifyDisplay

STEP_S: Final = 0.2


class RunPace:
    """``recorder``: the actor that clients tell; ``troubles``: why not everything could be looked at, in words."""

    def __init__(self, recorder: Any, display: VerifyDisplay) -> None:
        self.recorder = recorder
        self.troubles: list[str] = []
        self.note = display.note
        self._display = display
        self._clock = SystemClock()
        self._began_ns = self._clock.monotonic_ns()

    @property
    def seconds(self) -> float:
        """Return how long the run has taken so far."""
        return (self._clock.monotonic_ns() - self._began_ns) / 1e9

    def add_trouble(self, text: str) -> None:
        if text not in self.troubles:
            self.troubles.append(text)
            self.note(text)

    def progress(self) -> dict[str, Any]:
        found: dict[str, Any] = runtime.call_blocking(self.recorder.progress)
        return found

    def step(self) -> None:
        """Wait a moment, and show what has come of it."""
        threading.Event().wait(STEP_S)
        self._display.update(self.seconds, self.progress())

    def wait(self, holds: Callable[[], bool], most_s: float) -> bool:
        """Step until something holds, or the time is over; whether it holds."""
        until_s = self.seconds + most_s
        while not (held := holds()) and self.seconds < until_s:
            self.step()
        return held
