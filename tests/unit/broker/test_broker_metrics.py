"""A broker's metrics are put together from its hosts, also from those that are slow, silent, new or gone."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raybroker.broker.destinations.destination_registry import Registry
from raybroker.broker.observing import broker_metrics
from raybroker.broker.observing.broker_metrics import Measuring
from raybroker.config import Config
from raybroker.engine.measuring.metrics import Sum
from raybroker.errors import ConnectionLostError
from raybroker.metrics.exposition import page
from raybroker.metrics.messages import broker_body


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
        self.figures = self
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
        row = {"name": self.key, "type": "queue", "messages": 2, "messages_in_total": self.messages}
        rows = [row] if names is not None else []
        own = {"connections": 1, "process_threads": {"host": 3}}
        return {
            "incarnation": self.incarnation,
            "age_s": self.age_s,
            "host": own,
            "types": total.done(),
            "destinations": rows,
        }


class World:
    def __init__(self, *hosts: Host) -> None:
        self.registry, self.clock = Registry(), Clock()
        self.registry.hosts = list(hosts)  # type: ignore[arg-type]
        self.spares: list[Any] = []
        self.measuring = Measuring(
            Config.from_values({}), self.registry, self.clock, broker="b1", spares=lambda: self.spares
        )

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
    assert found.own["hosts"] == {"dedicated": 0, "shared": 2, "broker": 0}


@looped
async def test_a_spare_host_counts_as_a_process_and_as_no_dedicated_host() -> None:
    world = World(Host("h1", 3))
    spare = Host("h2", 0)
    spare.hosting = "dedicated"
    world.spares = [spare]
    found = (await world.measuring.snapshot()).own
    assert found["hosts"] == {"dedicated": 0, "shared": 1, "broker": 0, "spare": 1}
    assert found["process_threads"] == {"host": 6}


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
    monkeypatch.setattr(broker_metrics, "HOST_TIMEOUT_S", 0.01)
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
async def test_who_tells_each_second_is_not_told_the_second_before() -> None:
    """A timer of a second may end a little early, within raybroker.metrics.cache_ms of the last look."""
    host = Host("h1", messages=1)
    world = World(host)
    assert await world.total() == 1
    host.messages = 5
    world.clock.ns += 999_000_000
    assert (await world.measuring.snapshot()).types["queue"]["messages_in_total"] == 1
    assert (await world.measuring.snapshot(oldest_s=0.5)).types["queue"]["messages_in_total"] == 5
    host.messages = 6
    world.clock.ns += 400_000_000
    assert (await world.measuring.snapshot(oldest_s=0.5)).types["queue"]["messages_in_total"] == 5
    assert (await world.measuring.snapshot(oldest_s=60.0)).types["queue"]["messages_in_total"] == 5
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


@looped
async def test_what_a_silent_host_holds_is_left_out_and_not_zero() -> None:
    broken, topics = Host("h1", 10), Host("h2", 5)
    world = World(broken, topics)
    world.registry.where = {("queue", "q"): broken, ("topic", "t"): topics}  # type: ignore[dict-item]
    await world.total()
    broken.failure = ConnectionLostError("gone")
    assert await world.total() == 15
    found = await world.measuring.snapshot()
    assert "messages" not in found.types["queue"]
    assert found.types["topic"]["messages"] == 0
    lines = re.findall(r"^raybroker_messages\{.*$", page(found).decode(), re.MULTILINE)
    assert lines
    assert 'type="queue"' not in "".join(lines)
    assert {"numMsgs", "totalMsgBytes"} & broker_body(found).keys() == set()
    broken.failure, broken.incarnation, broken.messages = None, 2, 0
    assert await world.total() == 15
    found = await world.measuring.snapshot()
    assert (found.types["queue"]["messages"], broker_body(found)["numMsgs"]) == (4, 4)


@looped
async def test_hosts_that_were_not_asked_yet_make_all_sums_unknown() -> None:
    world = World(Host("h1", 10))
    world.registry.unasked = {"h2": "shared"}
    await world.total()
    found = await world.measuring.snapshot()
    assert ["messages" in row for row in found.types.values()] == [False, False]
    assert found.own["unreachable_hosts"] == 1


@looped
async def test_the_counters_of_a_destination_outlive_its_host() -> None:
    host = Host("h1", 10)
    world = World(host)
    world.registry.where = {("queue", "h1"): host}  # type: ignore[dict-item]

    async def row() -> dict[str, Any]:
        world.clock.ns += 2 * 10**9
        (found,) = (await world.measuring.snapshot("*")).destinations
        return found

    assert (await row())["messages_in_total"] == 10
    host.messages, host.incarnation = 2, 2
    assert (await row())["messages_in_total"] == 12
    host.messages, host.incarnation = 0, 3
    found = await row()
    assert (found["messages_in_total"], found["messages"]) == (12, 2)
    host.messages = 5
    assert (await row())["messages_in_total"] == 17
    host.messages = 1  # It was destroyed and made again.
    assert (await row())["messages_in_total"] == 1


@looped
async def test_metrics_topics_are_no_destinations_of_anybody() -> None:
    world = World()
    world.registry.where = dict.fromkeys([("topic", "mq.metrics.broker"), ("topic", "t"), ("queue", "q")])  # type: ignore[arg-type]
    assert (await world.measuring.snapshot()).own["destinations"] == {"queue": 1, "topic": 1}
