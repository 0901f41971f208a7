"""A pool of instances, over handles that only remember what they are asked."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import raybroker as rb
from raybroker.client.listener.autoscaling import Autoscaler
from raybroker.client.listener.instance import COUNTS
from raybroker.client.listener.pool import INSTANCES_MAX, Pool, check_scaling
from raybroker.model.errors import ConfigError, ConnectionLostError, IllegalStateError


def handle(message: Any) -> None: ...


QUEUE = rb.listener(queue="q")(handle)
ALONE = rb.listener(topic="t", subscription="s", client_id="c")(handle)
SHARED = rb.listener(topic="t", subscription="s", shared=True)(handle)


class One:
    """An instance that has handled 3 messages. ``refuses``: why it cannot attach or answer."""

    def __init__(self, refuses: Exception | None = None) -> None:
        self.actor = self
        self.refuses = refuses
        self.calls: list[str] = []

    def ready(self) -> None:
        self.calls.append("ready")
        if self.refuses is not None:
            raise self.refuses

    def stats(self) -> dict[str, Any]:
        if self.refuses is not None:
            raise self.refuses
        return {**dict.fromkeys(COUNTS, 0), "messages": 3, "state": "running", "buffered": 2}

    def leaves(self) -> bool:
        return False

    def leave(self) -> dict[str, Any]:
        return self.stats()

    def stop(self) -> dict[str, Any]:
        self.calls.append("stop")
        return self.stats()

    def discard(self) -> None:
        self.calls.append("end")


class World:
    def __init__(self, listener: Any = QUEUE) -> None:
        self.made: list[One] = []
        self.refuses: Exception | None = None
        self.backlog = 0
        self.closed = 0
        self.pool = Pool(listener, self._make, lambda: self.backlog, self._close)

    def _make(self) -> One:
        self.made.append(One(self.refuses))
        return self.made[-1]

    def _close(self) -> None:
        self.closed += 1


def test_a_pool_grows_by_attached_instances_and_shrinks_from_the_end() -> None:
    world = World()
    assert (world.pool.scale(3), world.pool.scale(1)) == (0, 3)
    assert [one.calls for one in world.made] == [["ready"], ["ready", "stop", "end"], ["ready", "stop", "end"]]
    assert world.pool.actors == world.made[:1]


def test_when_one_cannot_attach_the_number_is_what_it_was() -> None:
    world = World()
    world.pool.scale(1)
    world.refuses = ConnectionLostError("no broker")
    with pytest.raises(ConnectionLostError, match="no broker"):
        world.pool.scale(3)
    assert world.pool.actors == world.made[:1]
    assert [one.calls for one in world.made[1:]] == [["ready", "end"], ["end"]]


def test_totals_hold_what_stopped_instances_have_done() -> None:
    world = World()
    world.pool.scale(3)
    world.pool.scale(2)
    world.made[1].refuses = ConnectionLostError("restarting")
    assert world.pool.stats()[1] == {"error": "restarting"}
    totals = world.pool.totals()
    assert (totals["messages"], totals["instances"], totals["running"], totals["buffered"]) == (6, 2, 1, 2)


def test_a_stopped_pool_has_no_instances_and_gets_none() -> None:
    world = World()
    world.pool.scale(2)
    with world.pool:
        pass
    assert (world.pool.actors, world.closed) == ([], 1)
    with pytest.raises(IllegalStateError, match="the pool has stopped"):
        world.pool.scale(1)


@pytest.mark.parametrize("instances", [0, -1, INSTANCES_MAX + 1, True, 1.5, "2"])
def test_a_number_of_instances_is_whole_and_bounded(instances: Any) -> None:
    with pytest.raises(ConfigError, match=f"from 1 to {INSTANCES_MAX}"):
        World().pool.scale(instances)


def test_a_subscription_that_is_not_shared_has_one_instance() -> None:
    world = World(ALONE)
    world.pool.scale(1)
    with pytest.raises(ConfigError, match="add shared=True"):
        world.pool.scale(2)
    World(SHARED).pool.scale(2)


def test_a_pool_follows_its_backlog_until_it_is_stopped() -> None:
    world, attached = World(), threading.Event()
    world.backlog, ready = 30, One.ready

    class Signalling(One):
        def ready(self) -> None:
            ready(self)
            if len(world.made) == 3:
                attached.set()

    world._make = lambda: world.made.append(Signalling()) or world.made[-1]  # type: ignore[method-assign, func-returns-value]
    world.pool = Pool(QUEUE, world._make, lambda: world.backlog)
    world.pool.follow(Autoscaler(1, 5, 10), look_s=0.001)
    assert attached.wait(20)
    world.pool.stop()
    assert len(world.made) == 3
    assert all(one.calls[-2:] == ["stop", "end"] for one in world.made)


def test_scaling_is_checked_before_anything_is_made() -> None:
    assert check_scaling(QUEUE, None, None, None, None) == (1, None)
    first, scaler = check_scaling(SHARED, None, None, 4, None)
    assert scaler is not None
    assert (first, scaler.low, scaler.high, scaler.target) == (1, 1, 4, 1000)
    assert check_scaling(QUEUE, 3, 2, 4, 7)[0] == 3


@pytest.mark.parametrize(
    ("listener", "args", "why"),
    [
        (QUEUE, (None, 1, None, None), "max= is needed"),
        (QUEUE, (None, None, None, 5), "max= is needed"),
        (QUEUE, (5, 1, 4, None), "they are to ascend"),
        (QUEUE, (None, 5, 4, None), "they are to ascend"),
        (QUEUE, (None, None, 4, 0), "target_backlog=0"),
        (QUEUE, (None, None, 4, True), "target_backlog=True"),
        (QUEUE, (None, None, 0, None), "max=0"),
        (ALONE, (None, None, 4, None), "for a queue, or for a shared durable"),
    ],
)
def test_what_does_not_go_together_is_refused(listener: Any, args: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        check_scaling(listener, *args)
