"""Lines for the log while the disk is slow: commits that take long, and producers that are not read meanwhile.

A commit that takes longer than ``SLOW_S`` counts as slow.  The first one is told within a second, also while it has not
ended; later ones are told together, at most every ``TOLD_EVERY_S``.

The disk as a whole is called slow when the 99th percentile of commits is above ``SLOW_P99_S`` in a window of
``WINDOW_S``, until a window in which it is not; a window with few commits says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from raybroker.engine.path.committer import SLOW_S, CommitMeter
from raybroker.engine.ports import Committer, Notice

TOLD_EVERY_S: Final = 60.0
"""Least time between two lines about slow commits that have ended."""
WINDOW_S: Final = 60.0
WINDOW_COMMITS_MIN: Final = 10
"""With fewer commits in it a window says nothing."""
SLOW_P99_S: Final = 0.1
"""An edge of the buckets that commits are counted in."""
NS: Final = 1e-9


class SlowStoreLog:
    """``report`` takes a line for the log. ``slow``: the disk is, by the last window that says something."""

    def __init__(
        self, committer: Committer, meter: CommitMeter, monotonic_ns: Callable[[], int], report: Callable[[str], None]
    ) -> None:
        self._committer = committer
        self._meter = meter
        self._now_ns = monotonic_ns
        self._report = report
        self._told_ns = monotonic_ns() - int(TOLD_EVERY_S * 1e9)
        self._heard = (0, 0)
        """Slow commits and all commits that the log knows of."""
        self._hanging_ns = 0
        """When the commit began that the log knows as not ended."""
        self.slow = False
        self._window_ns = monotonic_ns()
        """When the window began."""
        self._window_counts = self._counts()
        self._behind_ns = 0
        """Since when producers are not read."""

    def tell_due(self) -> None:
        """Tell about once a second when the disk is slow."""
        now_ns, meter = self._now_ns(), self._meter
        began_ns = meter.began_ns
        if began_ns and began_ns != self._hanging_ns and (now_ns - began_ns) * NS > SLOW_S:
            self._hanging_ns = began_ns
            self._report(
                f"[B2161] the disk is slow: a commit has been under way for {(now_ns - began_ns) * NS:.1f} s; confirmed"
                " sends and acknowledgements wait for it"
            )
        slow, total = meter.slow, meter.seconds.count
        if slow != self._heard[0] and (now_ns - self._told_ns) * NS >= TOLD_EVERY_S:
            of = f"{slow - self._heard[0]} of the last {total - self._heard[1]} commits"
            longest_s, meter.slowest_ns = meter.slowest_ns * NS, 0
            self._heard, self._told_ns = (slow, total), now_ns
            self._report(f"[B2162] the disk is slow: {of} took longer than {SLOW_S:g} s, the longest {longest_s:.1f} s")
        if self._committer.overloaded != bool(self._behind_ns):
            self._told_behind(now_ns)
        if (now_ns - self._window_ns) * NS >= WINDOW_S:
            self._end_window(now_ns)

    def _counts(self) -> tuple[int, int]:
        """Commits above SLOW_P99_S, and all."""
        seconds = self._meter.seconds
        return sum(seconds.counts[seconds.edges.index(SLOW_P99_S) + 1 :]), seconds.count

    def _end_window(self, now_ns: int) -> None:
        over, total = (now - before for now, before in zip(self._counts(), self._window_counts, strict=True))
        if total < WINDOW_COMMITS_MIN:
            return  # It goes on until it has them.
        took_s = (now_ns - self._window_ns) * NS
        self._window_ns, self._window_counts = now_ns, self._counts()
        slow = over * 100 > total
        if slow == self.slow:
            return
        self.slow = slow
        of = f"{over} of {total} commits of the last {took_s:.0f} s took longer than {SLOW_P99_S * 1000:.0f} ms"
        if slow:
            self._report(f"[B2164] the disk is slow: {of}, which is more than one of a hundred; sends wait for it")
        else:
            self._report(Notice(f"[B1164] the disk is quick again: {of}"))

    def _told_behind(self, now_ns: int) -> None:
        if self._committer.overloaded:
            self._behind_ns = now_ns
            waiting = f"{self._committer.pending_bytes >> 20} MiB wait for it"
            self._report(f"[B2163] the disk is behind: {waiting}, and producers are not read until less do")
        else:
            took_s, self._behind_ns = (now_ns - self._behind_ns) * NS, 0
            self._report(Notice(f"[B1163] the disk has caught up after {took_s:.0f} s: producers are read again"))
