"""Losses of a producer: what is counted, and what the application is told."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from raybroker.client.producer.pacing.losses import Losses
from raybroker.client.producer.producer_state import ProducerState, SendBatch, Shared
from raybroker.errors import ConnectionLostError, QuotaExceededError

FULL, AGAIN = (0, 2, "quota_exceeded", "it is full"), (2, 5, "duplicate", "")


def losses(*, told: bool = False) -> tuple[Losses, list[tuple[int, type[Exception]]]]:
    heard: list[tuple[int, type[Exception]]] = []
    return Losses(lambda count, error: heard.append((count, type(error))), told=told), heard


def batch(*waiters: Future[str] | None) -> SendBatch:
    """One block, with somebody who waits for each message that has a future."""
    state, shared = ProducerState(1), Shared(True, 4)
    for waiter in waiters:
        state.add(0, b"x", b"", shared, 0, waiter, 0)
    return state.abandon()[0]


def test_what_was_taken_before_is_counted_apart_from_what_was_refused() -> None:
    made, heard = losses()
    made.refuse([FULL, AGAIN])
    made.know([FULL, AGAIN])
    assert (made.refused, made.duplicates, heard) == (2, 3, [(2, QuotaExceededError)])
    made.refuse([AGAIN])
    assert (made.refused, heard) == (2, [(2, QuotaExceededError)]), "nothing was lost"


@pytest.mark.parametrize(("told", "count"), [(False, 2), (True, 0)])
def test_of_what_is_given_up_only_that_counts_which_nobody_hears_of(told: bool, count: int) -> None:
    made, heard = losses(told=told)
    made.give_up([batch(None, Future(), None)], ConnectionLostError("gone"))
    assert (made.refused, heard) == (count, [(count, ConnectionLostError)] if count else [])
