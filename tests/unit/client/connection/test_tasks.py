"""Tasks of a connection, and how work is tried again while its broker cannot be reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from raybroker.client.io.tasks import Tasks
from raybroker.config import Config
from raybroker.model.errors import BrokerError, ConnectionLostError, IllegalStateError, NotOpenError, StartingError
from tests.unit.client.fakes import run


def tasks(**attributes: object) -> Tasks:
    return Tasks(
        Config.from_values({"imqReconnectInterval": 1, "raybroker.reconnect.timeout_ms": 10_000, **attributes})
    )


def failing(*errors: BrokerError) -> Callable[[], Any]:
    """Work that fails with each of these, and then has a result."""
    left = list(errors)

    async def work() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return work


def test_work_that_lost_its_broker_is_tried_again_and_each_failure_is_told() -> None:
    async def work() -> None:
        seen: list[BrokerError] = []
        errors = (ConnectionLostError("gone"), NotOpenError("starting"))
        assert await tasks().with_retry("q", failing(*errors), seen.append) == "done"
        assert tuple(seen) == errors

    run(work)


def test_any_other_error_is_raised_at_once() -> None:
    async def work() -> None:
        seen: list[BrokerError] = []
        with pytest.raises(IllegalStateError, match="no"):
            await tasks().with_retry("q", failing(IllegalStateError("no")), seen.append)
        assert seen == []

    run(work)


def test_the_attempts_end_with_an_error_that_says_what_was_tried() -> None:
    async def work() -> None:
        few = tasks(imqReconnectAttempts=2)
        with pytest.raises(ConnectionLostError, match=r"q cannot be reached; gave up after 2 attempts.*third"):
            await few.with_retry("q", failing(*map(ConnectionLostError, ("first", "second", "third"))))
        with pytest.raises(NotOpenError, match="starting"):
            await tasks(imqReconnectEnabled=False).with_retry("q", failing(NotOpenError("starting")))

    run(work)


def test_a_broker_that_gets_on_with_its_start_is_waited_for_and_one_that_does_not_is_given_up() -> None:
    def told(*serving: int) -> Callable[[], Any]:
        return failing(*(StartingError(f"{count} of 9 hosts serve") for count in serving))

    async def work() -> None:
        few = tasks(imqReconnectAttempts=2)
        assert await few.with_retry("q", told(0, 0, 1, 1, 2, 2, 3, 3, 4, 4)) == "done"
        with pytest.raises(StartingError, match="0 of 9"):
            await few.with_retry("q", told(0, 0, 0))
        with pytest.raises(StartingError, match="1 of 9"):  # A broker that starts again and again does not get on.
            await few.with_retry("q", told(0, 1, 0, 1, 0, 1, 0, 1))
        brief = tasks(**{"raybroker.reconnect.timeout_ms": 0})
        with pytest.raises(NotOpenError, match="waits"):
            await brief.with_retry("q", failing(NotOpenError("waits for the master")))

    run(work)


def test_a_closed_connection_tries_nothing_again_and_cancels_what_runs() -> None:
    async def work() -> None:
        some = tasks()
        forever = some.spawn(asyncio.Event().wait())  # type: ignore[arg-type]
        some.cancel_all()
        with pytest.raises(ConnectionLostError, match=r"^gone$"):
            await some.with_retry("q", failing(ConnectionLostError("gone")))
        await asyncio.wait([forever])
        assert forever.cancelled()

    run(work)


def test_work_goes_to_its_end_when_whoever_waits_for_it_gives_up() -> None:
    async def work() -> None:
        some, go, ended = tasks(), asyncio.Event(), asyncio.Event()

        async def whole() -> None:
            await go.wait()
            ended.set()

        waiting = asyncio.ensure_future(some.to_the_end(whole()))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert not ended.is_set()
        go.set()
        await ended.wait()

    run(work)


def test_a_task_that_fails_is_logged_unless_the_connection_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> None:
        raise RuntimeError("by itself")

    async def work() -> None:
        some = tasks()
        await asyncio.wait([some.spawn(broken())])
        await asyncio.sleep(0)
        assert "by itself" in caplog.text
        caplog.clear()
        some.closed = True
        await asyncio.wait([some.spawn(broken())])
        await asyncio.sleep(0)
        assert caplog.text == ""

    run(work)


def test_a_loop_that_fails_runs_again_until_the_connection_is_closed() -> None:
    async def work() -> None:
        some, runs, again = tasks(), 0, asyncio.Event()

        async def loop() -> None:
            nonlocal runs
            runs += 1
            if runs == 1:
                raise KeyError("a fault")
            again.set()
            await asyncio.Event().wait()

        kept = some.keep("view of the brokers", loop)
        await again.wait()
        some.cancel_all()
        with pytest.raises(asyncio.CancelledError):
            await kept

    run(work)
