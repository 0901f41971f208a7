"""Actor classes of Ray, each of which a process and the cluster keep for good once an actor is made of it."""

from __future__ import annotations

from typing import Any

import pytest
from ray.actor import ActorClass

from raybroker.actors import runtime


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
