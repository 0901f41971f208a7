"""The scan for expired messages: which of them are due, block by block."""

from __future__ import annotations

from heapq import heappop, heappush

from raybroker.core.blocks.block_entry import NEVER
from raybroker.core.blocks.block_index import BlockIndex
from raybroker.core.step import Step


class ExpiryScan:
    """Finds what has expired although nobody asks for it. ``scan_ms``: how often; 0: never."""

    __slots__ = ("_index", "_soonest", "_step", "next_scan_ms", "scan_ms")

    def __init__(self, step: Step, block_index: BlockIndex) -> None:
        self._step = step
        self._index = block_index
        self._soonest: list[tuple[int, int]] = []
        """(when by the wall clock, block), the first first."""
        self.scan_ms = 0
        self.next_scan_ms = 0

    def expect(self, at_ms: int, ordinal: int) -> None:
        """A message of the block expires then, and none before."""
        heappush(self._soonest, (at_ms, ordinal))
        self.plan()

    def plan(self) -> None:
        """The next scan is when it is time to, if there may be anything to find."""
        if self.scan_ms and self._soonest:
            if not self.next_scan_ms:
                self.next_scan_ms = self._step.now_ms + self.scan_ms
            self._step.wake(self.next_scan_ms)

    def due(self) -> dict[int, int]:
        """Block → what of it has expired, if it is time to look; every block is looked at when its first message is
        due."""
        now_ms, wall_ms = self._step.now_ms, self._step.wall_ms
        chosen: dict[int, int] = {}
        if not self.scan_ms or not self.next_scan_ms or now_ms < self.next_scan_ms:
            return chosen
        self.next_scan_ms = 0
        again: list[tuple[int, int]] = []
        while self._soonest and self._soonest[0][0] <= wall_ms:
            _, ordinal = heappop(self._soonest)
            block = self._index.held.get(ordinal)
            if block is None or block.columns.expires is None:
                continue
            chosen[ordinal] = block.expired(block.everything & ~block.done, wall_ms)
            later = min((t for t in block.columns.expires if t > wall_ms), default=NEVER)
            if later < NEVER:
                again.append((later, ordinal))
        for item in again:
            heappush(self._soonest, item)
        return chosen

    def look_again(self, ordinal: int) -> None:
        """Something of the block has expired and was in nobody's reach: it may come back."""
        heappush(self._soonest, (self._step.wall_ms, ordinal))
