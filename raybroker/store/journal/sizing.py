"""The sizing of a log: how much room it has allocated ahead of its end. Pure decisions, no files.

Ahead of the end there is always a *step* of room, because a commit into room that was allocated and written before is
cheaper, and whoever waits for it should not wait for the file system.  A step is an eighth of what is stored or was
written lately, so that room which is not used stays a small part of what is.

A *busy* log uses its segment files again as they are, with all the room that they have.  One that is not keeps the
least step and gives everything else back to the file system, and so does every log on a disk that is nearly full.
"""

from __future__ import annotations

from typing import Final

from raybroker.store.journal.format import SECTOR_BYTES, padded

WINDOW_NS: Final = 10_000_000_000
"""*Lately*: what was written in the present window and in the one before."""
LEAST_SHIFT: Final = 6
"""The least step, of a segment: 1 MiB of 64."""
STEP_SHIFT: Final = 3
BUSY_SHIFT: Final = 2
"""A log is busy while it wrote that part of a segment lately: a quarter."""


class Sizing:
    """What a log of segments of that size wrote lately, and the room that it should have.

    ``written`` is counted up by whoever writes.
    """

    __slots__ = ("_before", "_began_ns", "_crowded", "_windows", "least_bytes", "segment_bytes", "written")

    def __init__(self, segment_bytes: int) -> None:
        self.segment_bytes = segment_bytes
        self.least_bytes = max(padded(segment_bytes >> LEAST_SHIFT), SECTOR_BYTES)
        self.written = 0
        self._before = 0
        self._began_ns = -1
        self._windows = 0
        self._crowded = False

    def follow_time(self, now_ns: int, *, crowded: bool = False) -> None:
        """The time is now; a window that is over becomes the one before.  ``crowded``: the disk is nearly full."""
        self._crowded = crowded
        if self._began_ns < 0:
            self._began_ns = now_ns
        elif now_ns - self._began_ns >= WINDOW_NS:
            self._before, self.written, self._began_ns = self.written, 0, now_ns
            self._windows += 1

    @property
    def lately(self) -> int:
        """Bytes written."""
        return self._before + self.written

    @property
    def busy(self) -> bool:
        """Return whether the log is busy; it is within the first two windows: what was before is not known.  Never on a
        crowded disk, where room that one log keeps may be what another one lacks."""
        return not self._crowded and (self._windows < 2 or self.lately >= self.segment_bytes >> BUSY_SHIFT)

    def calm(self) -> None:
        """Nothing is to be written for a while: an administrator says so."""
        self.written = self._before = 0
        self._windows = 2

    def step_bytes(self, live_bytes: int) -> int:
        """Room to have ahead, of a log with so many bytes of live blocks."""
        wanted = max(live_bytes, self.lately) >> STEP_SHIFT if self.busy else 0
        return padded(min(max(wanted, self.least_bytes), self.segment_bytes))

    def excess(self, room_end: int, data_end: int) -> bool:
        """Whether a file that is allocated up to ``room_end`` has room worth giving back behind ``data_end``."""
        return room_end - data_end >= self.least_bytes
