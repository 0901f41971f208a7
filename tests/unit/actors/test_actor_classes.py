"""Actor classes of Ray, each of which a process and the cluster keep for good once an actor is made of it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from ray.actor import ActorClass

from raybroker.actors import runtime
from raybroker.actors.broker import BrokerShell
from raybroker.actors.broker_actor import METHODS, BrokerActor


class Worker:
    pass


def test_actors_of_one_class_are_of_one_class_of_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are made; without a cluster: what would be started is noted."""
    started: list[Any] = []
    monkeypatch.setattr(ActorClass, "_remote", lambda self, *args, **options: started.append(self))
    for number in range(5):
        runtime.create_actor(Worker, name=f"w{number}")
    first, *others = started
    assert len(others) == 4
    assert all(other is first for other in others)


def test_the_actor_of_a_broker_has_the_methods_of_what_carries_them_out() -> None:
    work = {name for name, found in vars(BrokerShell).items() if not name.startswith("_") and callable(found)}
    assert set(METHODS) == work
    assert all(inspect.iscoroutinefunction(getattr(BrokerActor, name)) for name in METHODS)
    assert BrokerActor.ready.__qualname__ == "BrokerActor.ready"  # type: ignore[attr-defined]
