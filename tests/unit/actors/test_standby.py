"""Standby processes: kept beside a broker, told to become a lost one, found by a further name, replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.actors import runtime
from raybroker.actors.broker_spec import BrokerSpec
from raybroker.actors.standby import assignment, processes
from raybroker.actors.standby.processes import HOSTS, STANDBY, StandbyProcesses
from raybroker.config import Config
from raybroker.config.brokers import BrokerPlan, plan_of
from raybroker.model.errors import BrokerError, ConnectionLostError

CLUSTER = "c"
PLAIN = Config.from_values({})


def spec_of(broker: str, tenure: int) -> BrokerSpec:
    plan: BrokerPlan = plan_of(PLAIN, 2)
    return BrokerSpec(CLUSTER, broker, f"/stores/{broker}", PLAIN, plan, tenure)


class Ray:
    """Actors and further names in memory; ``mute``: names of actors that do not answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.actors: dict[str, Any] = {}
        self.kept: dict[str, str] = {}
        self.mute: set[str] = set()
        self.became: list[tuple[str, str]] = []
        self.made: list[str] = []
        inside = runtime.ray_inside
        monkeypatch.setattr(inside, "remember", lambda key, value, namespace: self.kept.update({key: value}))
        monkeypatch.setattr(inside, "remembered", lambda key, namespace: self.kept.get(key))
        monkeypatch.setattr(inside, "forget", lambda key, namespace: self.kept.pop(key, None))
        monkeypatch.setattr(
            inside, "remembered_keys", lambda prefix, namespace: [key for key in self.kept if key.startswith(prefix)]
        )
        monkeypatch.setattr(runtime, "_made_as", self.actors.get)
        monkeypatch.setattr(
            runtime.ray.util,
            "list_named_actors",
            lambda all_namespaces: [{"namespace": runtime.NAMESPACE, "name": name} for name in self.actors],
        )
        monkeypatch.setattr(runtime, "create_actor", self.create)
        monkeypatch.setattr(runtime, "kill", self.kill)
        monkeypatch.setattr(runtime, "call", self.call)

    def create(self, cls: type, *args: Any, name: str, node: str) -> Any:
        self.made.append(name)
        return self.add(name)

    def add(self, name: str) -> Any:
        actor = SimpleNamespace(name=name, stand_by=(name, "stand_by"), become=(name, "become"))
        self.actors[name] = actor
        return actor

    def kill(self, actor: Any) -> None:
        self.actors.pop(actor.name, None)

    async def call(self, method: tuple[str, str], *args: str, timeout_s: float) -> None:
        name, what = method
        if name in self.mute or name not in self.actors:
            raise ConnectionLostError("no answer")
        if what == "become":
            runtime.also_name(args[0], name, args[1])
            self.became.append((name, args[0]))


class World:
    def __init__(self, ray: Ray) -> None:
        self.ray = ray
        self.config: dict[str, Any] = {STANDBY: 1, HOSTS: 2}
        self.standbys = self.again()

    def again(self) -> StandbyProcesses:
        """As a new process of the broker has them."""
        return StandbyProcesses(
            spec_of("b1", 1),
            "node",
            self.config,  # type: ignore[arg-type]
            broker=SimpleNamespace,
            host=dict,
            serving=lambda: True,
        )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(Ray(monkeypatch))


def run(story: Callable[[], Any]) -> None:
    asyncio.run(story())


def test_as_many_as_the_properties_say_are_kept(world: World) -> None:
    async def story() -> None:
        await world.standbys.keep()
        await world.standbys.keep()
        assert world.standbys.ready() == {"broker": 1, "host": 2}
        assert len(world.ray.made) == 3
        world.config[HOSTS] = 1
        await world.standbys.keep()
        assert world.standbys.ready() == {"broker": 1, "host": 1}
        assert len(world.ray.actors) == 2
        world.config[STANDBY] = 0
        await world.standbys.keep()
        assert world.ray.actors == {}

    run(story)


def test_one_becomes_a_lost_broker_and_is_found_by_its_name(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its host is found before it has begun: its broker would start another one."""

    async def story() -> None:
        await world.standbys.keep()
        lost = replace(spec_of("b2", 2), moved=True)
        host = lost.of_host("h1", "shared", b"\x07token")
        standby = await world.standbys.take_host(host)
        assert standby is not None
        assert runtime.find_actor(runtime.host_name(CLUSTER, "b2", "h1", 2)) is standby.actor
        assert await world.standbys.become_host(standby, host)
        found = await world.standbys.become_broker(lost)
        assert found is not None
        assert runtime.find_broker(CLUSTER, "b2") is found
        assert runtime.brokers_of(CLUSTER) == {"b2": "c/broker/b2@2"}
        assert runtime.list_actors("c/host/b2@2/") == ["c/host/b2@2/h1"]
        told = assignment.told(found.name)
        assert told is not None
        assert assignment.broker_spec(spec_of("b1", 1), told) == lost
        told_host = assignment.told(standby.name)
        assert told_host is not None
        assert assignment.host_spec(spec_of("b1", 1).of_host("", "", b""), told_host) == host
        assert await world.standbys.become_broker(spec_of("b3", 2)) is None  # There was one.
        assert world.standbys.ready() == {"broker": 0, "host": 1}
        await world.standbys.keep()
        assert len(world.ray.made) == 3, "who comes back has the processors first"
        monkeypatch.setattr(processes, "AGAIN_S", 0.0)
        assert await world.standbys.become_broker(spec_of("b3", 2)) is None
        await world.standbys.keep()
        assert world.standbys.ready() == {"broker": 1, "host": 2}

    run(story)


def test_one_that_does_not_answer_is_not_counted_and_one_that_fails_is_ended(world: World) -> None:
    async def story() -> None:
        await world.standbys.keep()
        broker = next(name for name in world.ray.actors if "/broker-" in name)
        world.ray.mute.add(broker)
        assert await world.standbys.become_broker(spec_of("b2", 2)) is None
        assert broker not in world.ray.actors
        assert runtime.find_broker(CLUSTER, "b2") is None
        host = next(name for name in world.ray.actors if "/host-" in name)
        world.ray.mute.add(host)
        await world.standbys.keep()
        assert world.standbys.ready()["host"] == 1
        other = await world.standbys.take_host(spec_of("b2", 2).of_host("h1", "shared", b""))
        assert other is not None
        assert other.name != host

    run(story)


def test_a_broker_that_starts_again_has_those_that_stand_by_still(world: World) -> None:
    async def story() -> None:
        await world.standbys.keep()
        assert await world.standbys.become_broker(spec_of("b2", 2)) is not None
        again = world.again()
        await again.keep()
        assert again.ready() == {"broker": 1, "host": 2}
        assert len(world.ray.made) == 4, "the one in place of that which became b2"
        again.end_all()
        assert list(world.ray.actors) == [name for name, _ in world.ray.became]

    run(story)


def test_the_next_tenure_ends_what_stood_by_for_the_one_before(world: World) -> None:
    async def story() -> None:
        await world.standbys.keep()
        assert await world.standbys.become_broker(spec_of("b2", 2)) is not None
        world.ray.add("c/broker/b1@1")
        world.ray.add("c/host/b1@1/h1")
        runtime.end_older(CLUSTER, "b1", 2)
        assert runtime.brokers_of(CLUSTER) == {"b2": "c/broker/b2@2"}
        assert len(world.ray.actors) == 1
        runtime.end_older(CLUSTER, "b2", 3)
        assert world.ray.actors == {}
        assert world.ray.kept == {}

    run(story)


def test_a_standby_says_that_it_is_nobody_yet() -> None:
    from raybroker.actors.hosts.host import DestinationHost

    host = DestinationHost.__new__(DestinationHost)
    host._plane = None

    async def story() -> None:
        with pytest.raises(BrokerError, match="stands by, and is no host yet"):
            await host.where()

    run(story)
