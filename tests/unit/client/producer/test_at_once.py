"""Who waits for a message on the IO loop is told once."""

from __future__ import annotations

import logging
from concurrent.futures import InvalidStateError

import pytest

from raybroker.client.io.io_thread import fulfil, refuse
from raybroker.client.producer.at_once import HandleWaiter
from raybroker.errors import BrokerError


def test_who_waits_is_told_once() -> None:
    told: list[tuple[str, BaseException | None]] = []
    waiter = HandleWaiter(lambda sent, error: told.append((sent, error)))
    assert (waiter.done(), waiter.cancel(), waiter.cancelled()) == (False, False, False)
    fulfil(waiter, "id")
    fulfil(waiter, "other")
    refuse(waiter, BrokerError("late"))
    assert waiter.done()
    assert told == [("id", None)]
    with pytest.raises(InvalidStateError):
        waiter.set_result("again")
    error = BrokerError("full")
    refuse(HandleWaiter(lambda sent, error: told.append((sent, error))), error)
    assert told[1:] == [("", error)]


def test_a_fault_of_who_waits_is_logged_and_keeps_nobody_else_waiting(caplog: pytest.LogCaptureFixture) -> None:
    def fails(sent: str, error: BaseException | None) -> None:
        raise ValueError(sent)

    with caplog.at_level(logging.ERROR, "raybroker.client"):
        fulfil(HandleWaiter(fails), "id")
    assert "could not be passed on" in caplog.text
