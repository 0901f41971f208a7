"""A broker without others, as its services ask it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raybroker.broker import opening_services
from raybroker.broker.opening_services import CHANGED_WAIT_S_MAX, Alone


class Lone:
    name = "lone"

    async def create_temporary(self, *args: Any) -> tuple[Any, ...]:
        return args


def _alone() -> Alone:
    return Alone(Lone(), lambda kind, name: False)  # type: ignore[arg-type]


def test_a_view_that_never_changes_is_answered_when_the_wait_is_over_and_not_before() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def run() -> None:
        alone = _alone()
        version, name, rows = await alone.ask("brokers", [])
        assert (name, rows) == ("lone", [("lone", "UP", True, "")])
        for timeout_s, waited in ((15.0, 15.0), (1e9, CHANGED_WAIT_S_MAX), (float("nan"), None), (0, None), (-1, None)):
            waits.clear()
            assert await alone.ask("brokers_changed", [version, timeout_s]) == version
            assert waits == ([] if waited is None else [waited])
        assert await alone.ask("brokers_changed", [version + 1, 15.0]) == version
        assert waits == []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening_services.asyncio, "sleep", sleep)
        asyncio.run(run())


def test_what_is_the_same_for_any_broker_goes_to_it() -> None:
    assert asyncio.run(_alone().ask("create_temporary", ["queue"])) == ("queue",)
    assert asyncio.run(_alone().ask("routes", ["queue", "q", ["a", "b"]])) == {"a": "lone", "b": "lone"}
