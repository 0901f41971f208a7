"""Draining: who is asked to take a broker over before maintenance, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raybroker.broker.cluster.draining import DRAIN, Draining
from raybroker.errors import BrokerGoneError, ConfigError, IllegalStateError


class World:
    """Broker b1 of those that are ``up``."""

    def __init__(self, *up: str) -> None:
        self.up = list(up)
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.ended: list[str] = []
        self.draining = Draining(self, self, self.shut_down, self, dict)  # type: ignore[arg-type]

    def live(self) -> list[str]:
        return self.up

    async def ask_at(self, broker: str, method: str, args: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        self.asked.append((broker, method, args))
        return {"broker": args["broker"], "taker": broker}

    async def shut_down(self, broker: str) -> None:
        self.ended.append(broker)

    async def take_drained(self, broker: str, stop: Callable[[], Awaitable[object]]) -> dict[str, Any]:
        await stop()
        return {"broker": broker}

    def drain(self, broker: str, to: str | None = None) -> dict[str, Any]:
        return asyncio.run(self.draining.drain_broker(broker, to))


def test_the_broker_that_is_asked_takes_it_or_whoever_is_named() -> None:
    world = World("b1", "b2", "b3")
    assert world.drain("b2") == {"broker": "b2", "taker": "b1"}
    assert world.drain("b2", "b3")["taker"] == "b3"
    assert world.drain("b1")["taker"] == "b2", "it cannot take itself"
    assert world.asked[0] == ("b1", DRAIN, {"broker": "b2"})


def test_the_taker_has_it_shut_down() -> None:
    world = World("b1", "b2")
    assert asyncio.run(world.draining.take_drained("b2")) == {"broker": "b2"}
    assert world.ended == ["b2"]


def test_a_broker_that_was_moved_is_not_drained_any_more_by_a_word() -> None:
    with pytest.raises(ConfigError, match="b2 was moved, and there is nothing to end"):
        asyncio.run(World("b1", "b2").draining.drain_broker("b2", off=True))


def test_what_cannot_be_drained_is_refused_with_the_reason() -> None:
    world = World("b1", "b2")
    with pytest.raises(BrokerGoneError, match="b9 is not up, and cannot be drained; up are b1, b2"):
        world.drain("b9")
    with pytest.raises(ConfigError, match="b2 cannot be drained to 'b9'; others that are up: b1"):
        world.drain("b2", "b9")
    with pytest.raises(ConfigError, match="b2 cannot be drained to 'b2'"):
        world.drain("b2", "b2")
    with pytest.raises(IllegalStateError, match="b1 is the only one that is up"):
        World("b1").drain("b1")
    assert world.asked == []
