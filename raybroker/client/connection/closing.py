"""Closing several objects: each is closed whatever the others raise, and then the first error is raised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from raybroker.model.errors import BrokerError


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
