"""What those who wait for a message are told when its block is settled."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.client.producer.producer_state import Refusal, SentRun
from raybroker.client.producer.settlement import (
    DUPLICATE,
    complete,
    duplicates_in,
    first_fault,
    refuse_all,
    unheard,
    unknown_outcome,
)
from raybroker.content.headers import message_id
from raybroker.model.errors import ConnectionLostError, InvalidDestinationError, ResourceAllocationError

FULL = ResourceAllocationError.code


def batch(*indexes: int) -> tuple[Any, list[Future[str]]]:
    waiters: list[Future[str]] = [Future() for _ in indexes]
    return SimpleNamespace(first_seq=10, indexes=list(indexes), waiters=waiters, runs=[]), waiters


class Told:
    """What the sender of a run is told."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, list[tuple[int, int, str]]]] = []

    def __call__(self, start: int, end: int, refusals: Sequence[Refusal]) -> None:
        self.rows.append((start, end, [(a, b, type(error).__name__) for a, b, error in refusals]))


def test_everybody_gets_the_id_of_its_message() -> None:
    found, waiters = batch(0, 2, -1)
    complete(found, 7, ())
    assert [waiter.result(0) for waiter in waiters] == [message_id(7, 10), message_id(7, 12), message_id(7, 10)]


def test_a_refusal_is_for_its_messages_and_for_who_waits_for_all() -> None:
    found, waiters = batch(0, 1, 2, -1)
    complete(found, 7, [(1, 2, FULL, "no room")])
    assert [waiter.exception(0) is None for waiter in waiters] == [True, False, True, False]
    assert isinstance(waiters[1].exception(0), ResourceAllocationError)


def test_a_duplicate_counts_and_is_no_refusal() -> None:
    rows = [(0, 2, DUPLICATE, ""), (3, 4, FULL, "no room"), (4, 7, DUPLICATE, "")]
    found, (waiter,) = batch(1)
    complete(found, 7, rows[:1])
    assert waiter.result(0) == message_id(7, 11)
    assert duplicates_in(rows) == 5
    assert isinstance(first_fault(rows), ResourceAllocationError)
    assert first_fault(rows[:1]) is None


@pytest.mark.parametrize(
    ("error", "unknown"),
    [
        (ResourceAllocationError("full"), True),
        (InvalidDestinationError("destroyed"), False),
        (ConnectionLostError("cut"), False),
    ],
)
def test_what_was_under_way_has_an_unknown_outcome_unless_its_destination_is_gone(error: Any, unknown: bool) -> None:
    told = unknown_outcome(error)
    assert (told is not error) is unknown
    if unknown:
        assert isinstance(told, ConnectionLostError)
        assert "whether the message was stored is not known" in str(told)


def test_what_nobody_hears_of_are_the_refusals_of_messages_without_a_waiter() -> None:
    found, _ = batch(0, 2)
    found.unawaited = 2
    rows = [(0, 2, FULL, "no room"), (3, 4, DUPLICATE, ""), (4, 5, FULL, "no room")]
    assert unheard(found, rows) == [(1, 2, FULL, "no room"), (4, 5, FULL, "no room")]
    found.unawaited = 0
    assert unheard(found, rows) == []


def test_all_waiters_of_some_batches_are_refused() -> None:
    one, first = batch(0, 1)
    other, second = batch(-1)
    told = Told()
    other.runs.append(SentRun(told, 5, 1, 3))
    refuse_all([one, other], ConnectionLostError("cut"))
    assert all(isinstance(waiter.exception(0), ConnectionLostError) for waiter in first + second)
    assert told.rows == [(5, 8, [(5, 8, "ConnectionLostError")])]


def test_the_sender_of_a_run_is_told_once_and_of_its_own_messages() -> None:
    found, (waiter,) = batch(0)
    first, second = Told(), Told()
    found.runs += [SentRun(first, 0, 1, 2), SentRun(second, 10, 3, 4)]  # Messages 1 and 2, and 3 to 6.
    complete(found, 7, [(0, 1, DUPLICATE, ""), (2, 4, FULL, "no room"), (6, 9, FULL, "no room")])
    refuse_all([found], ConnectionLostError("cut"))
    assert waiter.result(0)
    full = "ResourceAllocationError"
    assert first.rows == [(0, 2, [(1, 2, full)])]
    assert second.rows == [(10, 14, [(10, 11, full), (13, 14, full)])]


def test_a_sender_that_fails_keeps_nobody_from_being_told() -> None:
    found, _ = batch()
    told = Told()

    def fails(start: int, end: int, refusals: Sequence[Refusal]) -> None:
        raise ValueError

    found.runs += [SentRun(fails, 0, 0, 1), SentRun(told, 0, 1, 1)]
    complete(found, 7, ())
    assert told.rows == [(0, 1, [])]


def test_what_a_run_hears_of_nobody_else_does() -> None:
    found, _ = batch(0)
    found.unawaited = 1
    found.runs.append(SentRun(Told(), 0, 1, 2))
    assert unheard(found, [(0, 4, FULL, "no room")]) == [(3, 4, FULL, "no room")]
