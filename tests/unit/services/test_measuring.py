"""A broker's metrics are put together from its hosts, also from those that are slow, silent, new or gone."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raybroker.config import Config
from raybroker.engine.metrics import Sum
from raybroker.errors import ConnectionLostError
from raybroker.services import measuring
from raybroker.services.measuring import Measuring
from raybroker.services.registry import Registry


def looped(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test on a loop of its own."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class Clock:
    ns = 0

    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_ns(self) -> int:
        return self.ns


class Host:
    """``messages``: its counter."""

    hosting = "shared"

    def __init__(self, key: str, messages: int = 0, age_s: float = 0.0) -> None:
        self.key = key
        self.messages = messages
        self.age_s = age_s
        self.incarnation = 1
        self.asked = 0
        self.failure: Exception | None = None
        self.gate: asyncio.Event | None = None

    async def metrics(self, names: str | None) -> dict[str, Any]:
        self.asked += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        total = Sum()
        total.add("queue", {"messages_in_total": self.messages, "messages": 2})
        rows = [{"name": self.key, "type": "queue", "messages": 2}] if names is not None else []
        own = {"connections": 1, "process_threads": {"host": 3}}
        return {
            "incarnation": self.incarnation, "age_s": self.age_s, "host": own, "types": total.done(),
            "destinations": rows,
        }  # fmt: skip


class World:
    def __init__(self, *hosts: Host) -> None:
        self.registry, self.clock = Registry(), Clock()
        self.registry.hosts = list(hosts)  # type: ignore[arg-type]
        self.measuring = Measuring(Config.of({}), self.registry, self.clock, broker="b1")

    async def total(self, pass_s: float = 2.0) -> int:
        self.clock.ns += int(pass_s * 1e9)
        return int((await self.measuring.snapshot()).types["queue"]["messages_in_total"])


@looped
async def test_hosts_are_added_up() -> None:
    world = World(Host("h1", 3), Host("h2", 4))
    assert await world.total() == 7
    found = await world.measuring.snapshot()
    assert (found.own["connections"], found.own["process_threads"]) == (2, {"host": 6})
    assert found.types["queue"]["messages"] == 4
    assert found.own["hosts"] == {"dedicated": 0, "shared": 2}


@looped
async def test_what_a_host_counted_before_the_broker_started_is_not_the_brokers() -> None:
    old = Host("h1", 1000, age_s=3600.0)
    world = World(old)
    assert await world.total() == 0
    old.messages, old.age_s = 1005, 3602.0
    assert await world.total() == 5


@looped
async def test_a_restarted_host_takes_nothing_away() -> None:
    host = Host("h1", 10)
    world = World(host, Host("h2", 1))
    assert await world.total() == 11
    host.messages, host.incarnation = 2, 2
    assert await world.total() == 13


@looped
async def test_a_host_that_is_gone_takes_nothing_away() -> None:
    world = World(Host("h1", 10), Host("h2", 1))
    assert await world.total() == 11
    world.registry.hosts.pop(0)
    assert await world.total() == 11
    assert (await world.measuring.snapshot()).types["queue"]["messages"] == 2


@looped
async def test_a_silent_host_is_counted_as_such_and_keeps_its_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "HOST_TIMEOUT_S", 0.01)
    broken, stuck = Host("h1", 10), Host("h2", 5)
    world = World(broken, stuck)
    assert await world.total() == 15
    broken.failure, stuck.gate = ConnectionLostError("gone"), asyncio.Event()
    assert await world.total() == 15
    assert (await world.measuring.snapshot()).own["unreachable_hosts"] == 2


@looped
async def test_scrapes_at_the_same_time_ask_the_hosts_once() -> None:
    host = Host("h1", 1)
    host.gate = asyncio.Event()
    world = World(host)
    both = asyncio.gather(world.measuring.snapshot(), world.measuring.snapshot())
    await asyncio.sleep(0)
    host.gate.set()
    first, second = await both
    assert first is second
    assert host.asked == 1
    await world.measuring.snapshot()
    assert host.asked == 1
    await world.total(pass_s=1.1)
    assert host.asked == 2


@looped
async def test_destinations_come_only_when_they_are_asked_for() -> None:
    world = World(Host("h2"), Host("h1"))
    assert (await world.measuring.snapshot()).destinations == []
    assert [row["name"] for row in (await world.measuring.snapshot("*")).destinations] == ["h1", "h2"]


@looped
async def test_a_page_has_an_end() -> None:
    world = World(Host("h2"), Host("h1"))
    world.measuring._most = 1
    assert [row["name"] for row in (await world.measuring.snapshot("*")).destinations] == ["h1"]
