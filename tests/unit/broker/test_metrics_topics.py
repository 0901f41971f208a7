"""The publisher of metrics topics meets topics that come and go."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.broker.destinations.destination_registry import Registry
from raybroker.broker.observing.metrics_topics import Publishing
from raybroker.config import Config
from raybroker.errors import InvalidDestinationError
from raybroker.metrics.snapshot import Snapshot

FIRST, SECOND = "mq.metrics.broker", "mq.metrics.destination_list"


class Host:
    """Serves metrics topics; ``reaps``: the call at which it and the broker forget a topic."""

    def __init__(self, registry: Registry, reaps: str, topic: str, *, told: bool) -> None:
        self._registry = registry
        self._reaps = (reaps, topic)
        self._told = told
        self.destinations = self.messages = self
        self.gone: set[str] = set()
        self.published: list[str] = []
        for name in (FIRST, SECOND):
            registry.put(("topic", name), self, auto=True)  # type: ignore[arg-type]

    async def query(self, type: str, name: str) -> dict[str, Any]:
        self._reap("query", name)
        if name in self.gone:
            raise InvalidDestinationError(f"{type} {name!r} does not exist")
        return {"subscriptions": 1}

    async def put(self, type: str, name: str, blocks: list[bytes]) -> None:
        self._reap("import", name)
        if name in self.gone:
            raise InvalidDestinationError(f"{type} {name!r} does not exist")
        self.published.append(name)

    def _reap(self, call: str, name: str) -> None:
        when, topic = self._reaps
        if (call, name) == (when, FIRST):
            self.gone.add(topic)
            if self._told:
                self._registry.drop(("topic", topic))


class Measuring:
    broker = "b1"

    async def snapshot(self, names: str | None = None, *, oldest_s: float | None = None) -> Snapshot:
        return Snapshot("default", "b1", {}, {}, [])


@pytest.mark.parametrize("told", [True, False], ids=["the broker knows", "the broker does not know yet"])
@pytest.mark.parametrize(
    ("reaps", "topic", "published"),
    [("query", SECOND, [FIRST]), ("query", FIRST, [SECOND]), ("import", SECOND, [FIRST]), ("import", FIRST, [SECOND])],
)
def test_a_topic_that_is_reaped_meanwhile_keeps_no_other_from_its_message(
    reaps: str, topic: str, published: list[str], told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "raybroker.broker.observing.metrics_topics.messages.body", lambda name, snapshot: {"name": name}
    )
    registry = Registry("b1")
    host = Host(registry, reaps, topic, told=told)
    clock = SimpleNamespace(now_ms=lambda: 1_000, monotonic_ns=lambda: 0)
    publishing = Publishing(Config.from_values({}), registry, Measuring(), clock)  # type: ignore[arg-type]
    assert asyncio.run(publishing.publish()) == 1
    assert host.published == published
