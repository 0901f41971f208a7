"""Redelivery: when messages whose delivery has failed come again, and when they are dead."""

from __future__ import annotations

from typing import Final

from raybroker.core.delivery.dead_letters import Dead
from raybroker.core.delivery.run import Run
from raybroker.core.durable.records import REJECTED
from raybroker.model.settings.settings import DestinationAttributes

FAILURES_MAX: Final = 1_000_000
"""Failures are counted up to here."""


def with_failure(run: Run) -> Run:
    """The run after one more failure."""
    return run._replace(failures=min(run.failures + 1, FAILURES_MAX))


def delay_ms(attributes: DestinationAttributes, wanted_ms: int, failures: int) -> int:
    """How long messages rest: what their consumer wants, growing with every failure up to a cap."""
    most = max(attributes.redeliveryDelayMax, wanted_ms)
    percent = attributes.redeliveryBackoffPercent
    for _ in range(failures - 1):
        if wanted_ms >= most or percent <= 100:
            break
        wanted_ms = wanted_ms * percent // 100
    return min(wanted_ms, most)


def is_over(run: Run, failures_max: int) -> bool:
    """Whether messages are dead by their failures; ``failures_max`` -1: only those that were rejected."""
    return run.failures == REJECTED or 0 <= failures_max < run.failures


def dead_of(run: Run, failures_max: int, failure: str = "") -> Dead:
    """Messages that are dead by their failures, with the reason; a rejected one was rejected before a restart."""
    if run.failures == REJECTED:
        return Dead(run, "ERROR", "rejected before a restart")
    text = f"failed {run.failures} times, {failures_max} are allowed"
    return Dead(run, "UNDELIVERABLE", text, failure)
