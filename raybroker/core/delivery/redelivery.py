"""Redelivery: when messages whose delivery has failed come again, and when they are dead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raybroker.core.delivery.dead_letters import Dead
from raybroker.core.delivery.run import Run
from raybroker.core.durable.records import REJECTED
from raybroker.model.causes import APART, COUNT_MAX, ERROR
from raybroker.model.settings.settings import DestinationAttributes

FAILURES_MAX: Final = 1_000_000
"""Failures of the application are counted up to here."""
OWN_BITS: Final = 32
OWN_MASK: Final = (1 << OWN_BITS) - 1
NO_LIMITS: Final[Mapping[str, int]] = {}
_SHIFTS: Final = {cause: OWN_BITS + 8 * place for place, cause in enumerate(APART)}


def with_failure(run: Run, cause: str = ERROR) -> Run:
    """The run after one more failure. Those of the application are the lower 32 bits of ``failures``, and those that
    are counted apart a byte each above them; so it only ever grows."""
    failures = run.failures
    if cause == ERROR:
        return run._replace(failures=failures + ((failures & OWN_MASK) < FAILURES_MAX))
    shift = _SHIFTS[cause]
    return run._replace(failures=failures + (((failures >> shift & COUNT_MAX) < COUNT_MAX) << shift))


def as_rejected(run: Run) -> Run:
    """The run after its consumer has said that it wants it never again."""
    return run._replace(failures=run.failures & ~OWN_MASK | REJECTED)


def own_failures(failures: int) -> int:
    """Failures of the application, or REJECTED."""
    return failures & OWN_MASK


def failures_apart(failures: int) -> dict[str, int]:
    """Cause → failures, of those that are counted apart and have any."""
    rest = failures >> OWN_BITS
    return {cause: count for cause, shift in _SHIFTS.items() if (count := rest >> shift - OWN_BITS & COUNT_MAX)}


def failures_in_all(failures: int) -> int:
    """Failures of any cause."""
    return own_failures(failures) + sum(failures_apart(failures).values())


def delay_ms(attributes: DestinationAttributes, wanted_ms: int, failures: int) -> int:
    """How long messages rest: what their consumer wants, growing with every failure up to a cap."""
    most = max(attributes.redeliveryDelayMax, wanted_ms)
    percent = attributes.redeliveryBackoffPercent
    for _ in range(failures - 1):
        if wanted_ms >= most or percent <= 100:
            break
        wanted_ms = wanted_ms * percent // 100
    return min(wanted_ms, most)


def is_over(run: Run, failures_max: int, apart: Mapping[str, int] = NO_LIMITS) -> bool:
    """Whether messages are dead by their failures; ``failures_max`` -1: only those that were rejected. ``apart``: the
    limits of causes that are counted apart."""
    failures = run.failures
    if failures <= OWN_MASK:
        return failures == REJECTED or 0 <= failures_max < failures
    return own_failures(failures) == REJECTED or cause_over(failures, failures_max, apart) is not None


def cause_over(failures: int, failures_max: int, apart: Mapping[str, int]) -> str | None:
    """The cause by which messages have failed too often."""
    if 0 <= failures_max < own_failures(failures):
        return ERROR
    counts = failures_apart(failures)
    return next((cause for cause, count in counts.items() if 0 <= apart.get(cause, -1) < count), None)


def dead_of(run: Run, failures_max: int, failure: str = "", apart: Mapping[str, int] = NO_LIMITS) -> Dead:
    """Messages that are dead by their failures, with the reason; a rejected one was rejected before a restart."""
    own = own_failures(run.failures)
    if own == REJECTED:
        return Dead(run, "ERROR", "rejected before a restart")
    counts = failures_apart(run.failures)
    cause = cause_over(run.failures, failures_max, apart) or ERROR
    if cause == ERROR:
        text, cause = f"failed {own} times, {failures_max} are allowed", ""
    else:
        text = f"failed {counts[cause]} times by the cause {cause}, {apart[cause]} are allowed"
    others = ", ".join(f"{name} {count}" for name, count in {ERROR: own, **counts}.items() if count and name != cause)
    if counts and others:
        text += f"; in all: {others}" if not cause else f"; others: {others}"
    return Dead(run, "UNDELIVERABLE", text, failure, cause)
