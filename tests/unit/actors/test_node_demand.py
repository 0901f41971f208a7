"""What pools tell Ray's autoscaler: the sum of all, renewed, bounded, and withdrawn."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.actors import runtime
from raybroker.actors.pools import node_demand
from raybroker.actors.pools.node_demand import BUNDLES_MAX, KEPT_S, RENEW_S, Bundle, NodeDemand, bundle_of
from raybroker.errors import ConfigError


class World:
    """A store of notes, a clock, and the autoscaler, which was asked for ``asked``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.notes: dict[str, str] = {}
        self.now_ms = 1_000_000
        self.asked: list[list[Bundle]] = []
        monkeypatch.setattr(runtime, "remember", self.notes.__setitem__)
        monkeypatch.setattr(runtime, "remembered", self.notes.get)
        monkeypatch.setattr(runtime, "forget", lambda key: self.notes.pop(key, None))
        monkeypatch.setattr(runtime, "remembered_under", lambda prefix: [k for k in self.notes if k.startswith(prefix)])
        monkeypatch.setattr(node_demand.SystemClock, "now_ms", lambda clock: self.now_ms)

    def pool(self, key: str, **options: Any) -> NodeDemand:
        return NodeDemand(key, options or {"num_cpus": 1}, self.asked.append)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_pools_ask_for_what_all_of_them_need(world: World) -> None:
    one, two = world.pool("a"), world.pool("b", num_gpus=1, resources={"spot": 2})
    one.need(2)
    two.need(1)
    assert world.asked[-1] == [{"CPU": 1.0}, {"CPU": 1.0}, {"GPU": 1.0, "spot": 2.0}]
    one.need(0)
    assert world.asked[-1] == [{"GPU": 1.0, "spot": 2.0}]
    two.need(0)
    assert world.asked[-1] == []
    assert world.notes == {}


def test_it_is_said_again_now_and_then_and_not_at_each_look(world: World) -> None:
    pool = world.pool("a")
    for _ in range(5):
        pool.need(2)
    assert len(world.asked) == 1
    world.now_ms += int(RENEW_S * 1000)
    pool.need(2)
    assert len(world.asked) == 2
    pool.need(0)
    pool.need(0)
    assert len(world.asked) == 3


def test_a_pool_that_has_ended_without_a_word_is_forgotten(world: World) -> None:
    world.pool("lost").need(5)
    world.now_ms += int(KEPT_S * 1000)
    world.pool("a").need(1)
    assert world.asked[-1] == [{"CPU": 1.0}]


def test_the_request_is_bounded(world: World) -> None:
    for key in "abc":
        world.pool(key).need(BUNDLES_MAX // 2)
    assert len(world.asked[-1]) == BUNDLES_MAX


def test_an_instance_that_takes_nothing_needs_no_node() -> None:
    with pytest.raises(ConfigError, match="request_nodes=True needs instances that take something"):
        bundle_of({"num_cpus": 0, "resources": {}})
