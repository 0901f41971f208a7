"""Reports: a copy's word on itself, for whoever asks, and which of those that answered should lead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from raybroker.replication.positions import LogPosition


class CopyReport(NamedTuple):
    """One copy, whose log ends at ``last``.  ``fit``: it has a vote and lacks nothing."""

    copy: str
    fit: bool
    last: LogPosition


def best_copy(reports: Iterable[CopyReport]) -> str:
    """Return the copy whose log no other one's vote speaks against; "" when none of them can lead."""
    fit = [report for report in reports if report.fit]
    best = max(fit, key=lambda report: (report.last.term, report.last.index, report.copy), default=None)
    return best.copy if best is not None else ""
