"""Sweeps: searches that are bounded by the time they may spend, not by how much they look at.

A slow machine looks at less in the same time, and no sweep fails for that.  Tests that sweep carry the marker ``sweep``
and are left out unless asked for:

    python -m pytest -m sweep --sweep-seconds 60

``--sweep-seconds`` is what each of them may spend (the default is SECONDS).  A sweep that is short of time still looks
at one case, so that it cannot pass by doing nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

SECONDS = 20.0
MUTANT_TIMES = 10
"""How many times ``--sweep-seconds`` a test that hunts many mutants may spend."""

T = TypeVar("T")


class Deadline:
    """The end of the time that a sweep may spend; ``None`` seconds: it never comes."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    @property
    def passed(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end


def until(deadline: Deadline, cases: Iterable[T]) -> Iterator[T]:
    """The first case, and the following ones as long as the deadline has not passed."""
    for case in cases:
        yield case
        if deadline.passed:
            return
