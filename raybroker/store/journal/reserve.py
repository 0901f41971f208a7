"""The reserve: room that keeps acknowledgements durable when the disk is full.

The reserve is ``RESERVE_FILES`` allocated files.  They are used only when no other file can be had, and what may be
written says how many of them must stay (``Use``):

    BLOCKS       stored messages, and copies of them, leave two files: they keep the file that they are in
    NOTES        acknowledgements and the like leave one file, so that a checkpoint finds room
    CHECKPOINT   may take the last one

A file with only notes and checkpoints is free again as soon as the next checkpoint is durable in another one.  So with
two files of which neither holds a message, acknowledging never ends for lack of room: notes fill one file, then a
checkpoint goes into the other.  To keep those two free of messages, blocks do not enter a segment without live blocks
while fewer than two files are in the reserve.

For that, a file of the reserve must hold a whole checkpoint, and notes besides.  How large the next checkpoint will be
is an estimate: the last one, and what has been written since.  The reserve grows with it before more messages are
taken; when it cannot grow, producers are refused.
"""

from __future__ import annotations

import enum
import errno
from typing import Final

from raybroker.store.journal.format import SECTOR_BYTES

FULL_ERRNOS: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
RESERVE_FILES: Final = 3
NOTES_BYTES: Final = 1 << 20
"""Room for notes in a file of the reserve, beside the checkpoint; a smaller segment bounds it."""


class Use(enum.Enum):
    """Kind of a batch; ``leaves``: number of files that it leaves in the reserve."""

    BLOCKS = 2
    NOTES = 1
    CHECKPOINT = 0

    @property
    def leaves(self) -> int:
        return self.value


class CheckpointEstimate:
    """Upper estimate of the size of the next checkpoint, in bytes."""

    __slots__ = ("_last", "_notes", "notes_bytes")

    def __init__(self, segment_bytes: int) -> None:
        self.notes_bytes = min(NOTES_BYTES, segment_bytes)
        self._last = 0
        self._notes = 0

    def written(self, meta_bytes: int, *, blocks: bool) -> None:
        """Count the rows and metas of a batch; those without blocks for a quarter, as acknowledgements shorten more."""
        self._notes += meta_bytes if blocks else meta_bytes >> 2

    def checkpoint(self, nbytes: int) -> None:
        """Begin again with a checkpoint of that size, which was written or found."""
        self._last = nbytes
        self._notes = 0

    @property
    def nbytes(self) -> int:
        return self._last + self._notes

    def reserve_bytes(self, more: int = 0) -> int:
        """Least size of a file of the reserve, with ``more`` bytes of metas to come."""
        needed = self._last + self._notes + more
        needed += (needed >> 2) + SECTOR_BYTES + self.notes_bytes
        return -(-needed // SECTOR_BYTES) * SECTOR_BYTES  # padded(needed), for every message

    def roomy_bytes(self) -> int:
        """Size that a file of the reserve is given: larger than the least size, so that it seldom grows."""
        return self.reserve_bytes((self.nbytes >> 1) + (self.notes_bytes >> 2))
