"""The spin of a host: after the frame of a lone sender its event loop looks at the sockets again for a moment, instead
of sleeping until the next one comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raybroker.transport.spin import Spin


class LoopSpin:
    """Keeps an event loop awake: a callback that is always due has it look at its sockets without waiting."""

    __slots__ = ("_began_ns", "_looking", "_now_ns", "_until_ns", "spin")

    def __init__(self, spin: Spin, monotonic_ns: Callable[[], int]) -> None:
        self.spin = spin
        self._now_ns = monotonic_ns
        self._began_ns = self._until_ns = 0
        """When the spin began that is under way, and when it is to end; 0 without one."""
        self._looking = False

    def frames_handled(self, *, alone: bool) -> None:
        """Frames have come and were handled; ``alone``: nobody else has sent any meanwhile, so more may come soon."""
        if self._until_ns:
            self._finish_spin(came=True)
        most_ns = self.spin.start_spin() if alone else 0
        if most_ns:
            self._began_ns = self._now_ns()
            self._until_ns = self._began_ns + most_ns
            if not self._looking:
                self._looking = True
                asyncio.get_running_loop().call_soon(self._look_again)

    def _look_again(self) -> None:
        if self._until_ns and self._now_ns() >= self._until_ns:
            self._finish_spin(came=False)
        self._looking = self._until_ns > 0
        if self._looking:
            asyncio.get_running_loop().call_soon(self._look_again)

    def _finish_spin(self, *, came: bool) -> None:
        self._until_ns = 0
        self.spin.count_spin(self._now_ns() - self._began_ns, came=came)
