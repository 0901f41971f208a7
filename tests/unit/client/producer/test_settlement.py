"""What those who wait for a message are told when its block is settled."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

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
    return SimpleNamespace(first_seq=10, indexes=list(indexes), waiters=waiters), waiters


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
    refuse_all([one, other], ConnectionLostError("cut"))
    assert all(isinstance(waiter.exception(0), ConnectionLostError) for waiter in first + second)
