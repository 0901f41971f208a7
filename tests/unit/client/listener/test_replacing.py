"""Instances on drained nodes are replaced before they end, and what they have in hand goes on."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import raybroker as rb
from raybroker.client.listener import replacing
from raybroker.client.listener.instance import COUNTS
from raybroker.client.listener.pool import Pool
from raybroker.model.errors import ConnectionLostError
from tests.contracts.handles import until


class One:
    """An instance on a node; ``works``: so often it says that a call runs still."""

    def __init__(self, world: World) -> None:
        self.actor = self
        self.drained = False
        self.works = 0
        self.calls: list[str] = []
        self._world = world

    def ready(self) -> None:
        if self._world.no_room:
            raise ConnectionLostError("no node has room")
        self.calls.append("ready")

    def leaves(self) -> bool:
        return self.drained

    def leave(self) -> dict[str, Any]:
        self.calls.append("leave")
        self.works -= 1
        return {**self.stats(), "state": "running" if self.works > 0 else "stopped"}

    def stats(self) -> dict[str, Any]:
        return {**dict.fromkeys(COUNTS, 0), "messages": 3, "state": "running", "buffered": 0}

    def stop(self) -> dict[str, Any]:
        self.calls.append("stop")
        return self.stats()

    def discard(self) -> None:
        self.calls.append("end")


class World:
    def __init__(self) -> None:
        self.made: list[One] = []
        self.no_room = False
        self.pool = Pool(rb.listener(queue="q")(print), self._make, lambda: 0)

    def _make(self) -> One:
        self.made.append(One(self))
        return self.made[-1]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing, "LOOK_S", 0.01)
    monkeypatch.setattr(replacing, "AGAIN_S", 0.01)


def test_another_instance_begins_before_one_on_a_drained_node_ends() -> None:
    world = World()
    world.pool.begin_scaling(2, None)
    first, second = world.made
    first.works, first.drained = 3, True
    until(lambda: first.calls[-1:] == ["end"], "it has ended")
    assert first.calls == ["ready", "leave", "leave", "leave", "stop", "end"], "its call was waited for"
    assert world.made[2].calls == ["ready"]
    assert world.pool.actors == [world.made[2], second], "it has the place of the old one"
    assert world.pool.totals()["messages"] == 9, "what the old one has done counts"
    world.pool.stop()


def test_what_has_no_room_elsewhere_goes_on_where_it_is() -> None:
    world = World()
    world.pool.begin_scaling(1, None)
    (first,) = world.made
    world.no_room, first.drained = True, True
    until(lambda: len(world.made) > 2, "it is tried again")
    assert world.pool.actors == [first]
    assert first.calls == ["ready"]
    world.no_room = False
    until(lambda: first.calls[-1:] == ["end"], "there is room at last")
    assert world.pool.actors == [world.made[-1]]
    assert all(one.calls == ["end"] for one in world.made[1:-1]), "what found no room was given up"
    world.pool.stop()


def test_a_call_that_goes_on_ends_with_the_pool() -> None:
    world = World()
    world.pool.begin_scaling(1, None)
    (first,) = world.made
    first.works, first.drained = 1 << 60, True
    until(lambda: "leave" in first.calls, "it was replaced")
    world.pool.stop()
    until(lambda: first.calls[-2:] == ["stop", "end"], "it is not waited for any longer")
    until(lambda: "raybroker-replacing" not in {one.name for one in threading.enumerate()}, "its thread has ended")
