"""Messages of a delivery queue that are dead or set aside, until it is settled what becomes of them."""

from __future__ import annotations

from typing import NamedTuple

from raybroker.core.blocks.block_index import BlockIndex
from raybroker.core.delivery.run import Run


class Dead(NamedTuple):
    """A run that is dead, and why. For ``reason`` and what follows see ``outcome.DeadLetter``."""

    run: Run
    reason: str
    comment: str = ""
    failure: str = ""
    cause: str = ""


class DeadLetterRules:
    """``masks``: block → its messages that are dead here; the block index counts them as such."""

    __slots__ = ("_index", "_runs", "masks")

    def __init__(self, block_index: BlockIndex) -> None:
        self._index = block_index
        self._runs: dict[int, list[Run]] = {}
        self.masks: dict[int, int] = {}

    def add(self, run: Run) -> None:
        """Hold messages, which are nowhere else, for whoever decides where they go."""
        ordinal, mask = run.ordinal, run.mask
        self.masks[ordinal] = self.masks.get(ordinal, 0) | mask
        self._runs.setdefault(ordinal, []).append(run)
        self._index.count_dead(ordinal, mask)

    def take_dead(self, ordinal: int, mask: int) -> list[Run]:
        """Hold those of a block's messages no longer; returns them as they were."""
        mask &= self.masks.get(ordinal, 0)
        if not mask:
            return []
        self.masks[ordinal] &= ~mask
        if not self.masks[ordinal]:
            del self.masks[ordinal]
        self._index.count_dead(ordinal, mask, -1)
        runs = self._runs.pop(ordinal)
        left = [run._replace(mask=run.mask & ~mask) for run in runs if run.mask & ~mask]
        if left:
            self._runs[ordinal] = left
        return [run._replace(mask=run.mask & mask) for run in runs if run.mask & mask]

    def runs(self) -> list[Run]:
        """Return all of them as they were, for a restart; a rejected one has REJECTED failures."""
        return [run for runs in self._runs.values() for run in runs]
