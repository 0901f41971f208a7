"""A broker without others, as its services ask it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.broker.services import opening_services
from raybroker.broker.services.opening_services import CHANGED_WAIT_S_MAX, Alone
from raybroker.model.errors import ConfigError


class Lone:
    name = "lone"

    async def create_temporary(self, *args: Any) -> tuple[Any, ...]:
        return args


def _alone() -> Alone:
    return Alone(Lone(), lambda kind, name: False, list, dict, lambda: None)  # type: ignore[arg-type, return-value]


def test_a_view_that_never_changes_is_answered_when_the_wait_is_over_and_not_before() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def run() -> None:
        alone = _alone()
        version, name, rows = await alone.answer_service("brokers", [])
        assert (name, rows) == ("lone", [("lone", "UP", True, "")])
        for timeout_s, waited in ((15.0, 15.0), (1e9, CHANGED_WAIT_S_MAX), (float("nan"), None), (0, None), (-1, None)):
            waits.clear()
            assert await alone.answer_service("brokers_changed", [version, timeout_s]) == version
            assert waits == ([] if waited is None else [waited])
        assert await alone.answer_service("brokers_changed", [version + 1, 15.0]) == version
        assert waits == []

    with pytest.MonkeyPatch.context() as patch:
        # For this module alone: loops of other brokers in this process sleep too.
        patch.setattr(opening_services, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
        asyncio.run(run())


def test_what_is_the_same_for_any_broker_goes_to_it() -> None:
    assert asyncio.run(_alone().answer_service("create_temporary", ["queue"])) == ("queue",)
    assert asyncio.run(_alone().answer_service("routes", ["queue", "q", ["a", "b"]])) == {"a": "lone", "b": "lone"}


@pytest.mark.parametrize("frees", [True, False], ids=["the port becomes free", "another fault"])
def test_a_service_is_tried_again_while_its_port_is_taken(frees: bool, caplog: pytest.LogCaptureFixture) -> None:
    taken = ConfigError("service stomp does not listen: no free port imq.stomp.tcp.port=7672 on 0.0.0.0: in use")
    answers = [taken, taken, taken, *([] if frees else [ConfigError("there is no service stamp")])]
    pauses: list[float] = []
    failures: list[str] = []

    async def open_() -> None:
        if answers:
            raise answers.pop(0)
        failures.append("")

    async def sleep(seconds: float) -> None:
        assert opening.tried.is_set(), "who waits is told at once"
        pauses.append(seconds)

    with pytest.MonkeyPatch.context() as patch, caplog.at_level("INFO", logger="raybroker.services"):
        # For this module alone: loops of other brokers in this process sleep too.
        patch.setattr(opening_services, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
        opening = opening_services.Opening("b1", open_, failures.append)
        asyncio.run(opening.run())
    assert pauses == [0.5, 1.0, 2.0]
    assert failures[:3] == [str(taken)] * 3
    assert failures[-1] == ("" if frees else "there is no service stamp")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2, "the same fault is one line"
    assert "tried again until the port is free" in lines[0]
    assert ("listen now" in lines[1]) is frees
