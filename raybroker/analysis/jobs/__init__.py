"""One job for each question that the owner of a cluster has; ``JOBS`` is their order in the report.

A job is a function of the tables; it asks with SQL, so that only results come to the driver, and decides in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from raybroker.analysis.jobs.anomalies import what_is_unusual
from raybroker.analysis.jobs.backlog import what_piles_up
from raybroker.analysis.jobs.balance import who_waits_for_whom
from raybroker.analysis.jobs.copies import how_are_copies
from raybroker.analysis.jobs.episodes import when_was_it_tight
from raybroker.analysis.jobs.forecast import when_is_it_full
from raybroker.analysis.jobs.hot import who_is_hot
from raybroker.analysis.jobs.latency import how_long_does_it_take
from raybroker.analysis.jobs.paths import are_paths_even
from raybroker.analysis.jobs.prefetch import which_prefetch
from raybroker.analysis.jobs.quality import how_good_is_the_input
from raybroker.analysis.jobs.traffic import where_does_traffic_go
from raybroker.analysis.reports.answer import JobAnswer
from raybroker.analysis.tables import LakeTables

JOBS: Final[tuple[Callable[[LakeTables], JobAnswer], ...]] = (
    who_is_hot,
    what_piles_up,
    who_waits_for_whom,
    how_long_does_it_take,
    where_does_traffic_go,
    which_prefetch,
    when_was_it_tight,
    what_is_unusual,
    are_paths_even,
    how_are_copies,
    when_is_it_full,
    how_good_is_the_input,
)
