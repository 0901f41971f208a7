"""Closing several objects: each is closed whatever the others raise, and then the first error is raised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from raybroker.model.errors import BrokerError

AGAIN_S: Final = 1.0
"""How often to look, after the deadline, whether a destination that still has to answer says that it is full."""


class Deadline:
    """The time when closing gives up on destinations that are full: one for everything that is closed together.

    limit_s  raybroker.reconnect.timeout_ms, in seconds
    """

    def __init__(self, monotonic_ns: Callable[[], int], limit_s: float) -> None:
        self._now_ns = monotonic_ns
        self._until_ns = monotonic_ns() + int(limit_s * 1e9)

    @property
    def left_s(self) -> float:
        """What is left of the time; 0 when it is over."""
        return max(self._until_ns - self._now_ns(), 0) / 1e9


@contextmanager
def collected(faults: list[BrokerError]) -> Iterator[None]:
    """Note an error of the body instead of raising it."""
    try:
        yield
    except BrokerError as error:
        faults.append(error)


def raise_first(faults: list[BrokerError]) -> None:
    """Raise the first of the errors; the others are notes of it."""
    if faults:
        for other in faults[1:]:
            faults[0].add_note(f"and: {other}")
        raise faults[0]


@contextmanager
def noted_on(error: BaseException | None) -> Iterator[None]:
    """Closing at the end of a ``with`` that ``error`` ends: that one goes on, and has errors of closing as a note."""
    try:
        yield
    except BrokerError as fault:
        if error is None:
            raise
        error.add_note(f"while closing: {fault}")
