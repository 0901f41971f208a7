"""The low-water alarm of a host's disk: it is told before the disk is full, when messages would be refused.

The alarm changes nothing: it is a line in the log, a metric and a field for administrators.  It begins when less is
free than one of the two properties says, and ends when a tenth more than that is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from raybroker.engine.ports import Notice
from raybroker.model.settings.settings import ConfigView
from raybroker.model.sizes import MIB

LOOK_TICKS: Final = 5
"""The disk is looked at every so many seconds."""
END_PERCENT: Final = 110
"""The alarm ends when this part of what began it is free."""
CRITICAL_PERCENT: Final = 10
"""What is left is critical when it is less than this part of what began the alarm."""
PERCENT: Final = "raybroker.store.low_free_percent"
BYTES: Final = "raybroker.store.low_free_bytes"


def is_low(free: int, total: int, percent: int, least_bytes: int, *, before: bool) -> bool:
    """Whether less than ``percent`` of ``total``, or than ``least_bytes``, is free; ``before``: it was low already."""
    return _is_less(free, total, percent, least_bytes, END_PERCENT if before else 100)


def _is_less(free: int, total: int, percent: int, least_bytes: int, part: int) -> bool:
    """Whether less is free than ``part``, in hundredths, of what is low."""
    return free * 100 * 100 < percent * part * total or free * 100 < least_bytes * part


class DiskAlarm:
    """``space``: bytes that are free for the host, and bytes of the whole file system; raises OSError.

    low       the alarm is on
    critical  there is so little left that persistent messages will be refused soon, or are already
    """

    def __init__(
        self, space: Callable[[], tuple[int, int]], config: ConfigView, where: str, report: Callable[[str], None]
    ) -> None:
        self.low = self.critical = False
        self._space = space
        self._config = config
        self._where = where
        self._report = report
        self._free_bytes = self._total_bytes = self._ticks = 0

    def check_disk(self) -> None:
        """Look at the disk now and then; called about once a second."""
        if self._ticks % LOOK_TICKS == 0:
            self._measure_disk()
        self._ticks += 1

    def _measure_disk(self) -> None:
        try:
            self._free_bytes, self._total_bytes = self._space()
        except OSError:
            return  # The store itself says what is wrong with its disk.
        percent, least = self._config[PERCENT], self._config[BYTES]
        low = is_low(self._free_bytes, self._total_bytes, percent, least, before=self.low)
        self.critical = _is_less(self._free_bytes, self._total_bytes, percent, least, CRITICAL_PERCENT)
        if low == self.low:
            return
        self.low = low
        free = f"{self._free_bytes // MIB} of {self._total_bytes // MIB} MiB are free on the disk of {self._where}"
        if low:
            self._report(
                f"[B2159] the disk is nearly full: {free} ({PERCENT}={percent}, {BYTES}={least}); when it is full,"
                " persistent messages are refused: free space, or have messages consumed"
            )
        else:
            self._report(Notice(f"[B1159] the disk has room again: {free}"))

    def disk_row(self) -> dict[str, Any]:
        """Return the row for administrators."""
        return {
            "disk_low": self.low,
            "disk_critical": self.critical,
            "disk_free_bytes": self._free_bytes,
            "disk_total_bytes": self._total_bytes,
        }

    def figures(self) -> dict[str, Any]:
        """Return the figures for metrics."""
        return {"disk_low": int(self.low), "disk_free_bytes": self._free_bytes}
