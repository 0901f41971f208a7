"""The load generator behind ``raybroker bench`` and ``benchmarks/load.py``: :func:`run_load` of a :class:`LoadPlan`.

It uses the public names of raybroker only and measures from outside, as any program would see it; a trace alone
(``timeline``) asks the producer and its host.
"""

from __future__ import annotations

from raybroker.bench.load import LoadError, Progress, run_load
from raybroker.bench.plan import LoadPlan
from raybroker.bench.report import LoadReport

__all__ = ["LoadError", "LoadPlan", "LoadReport", "Progress", "run_load"]
