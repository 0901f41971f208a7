"""The path service as a broker asks it: one that starts is waited for, and one that is gone is said to be."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.actors import runtime
from raybroker.actors.broker_peers import RayPaths
from raybroker.client.io.tasks import StartProgress
from raybroker.model.errors import BrokerError, BrokerGoneError, OrderError, StartingError

WHERE = {"a": "b1"}


class Scene:
    """A path service: ``made`` once somebody has had it started, ``up`` once its process answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made, self.up = asyncio.Event(), asyncio.Event()
        self.failure: BrokerError | None = None
        self.started: list[bool] = []
        self.actor: Any = SimpleNamespace(path_row="row", routes="routes", renew="renew")
        monkeypatch.setattr(runtime, "find_actor", lambda name: self.actor)
        monkeypatch.setattr(runtime, "list_actors", lambda prefix: [])
        monkeypatch.setattr(runtime, "call", self.call)
        self.paths = RayPaths("c", self.ensure)

    async def ensure(self) -> None:
        self.started.append(True)
        await self.made.wait()

    async def call(self, method: str, *args: Any, gone: type[BrokerError], timeout_s: float = 30.0) -> Any:
        await asyncio.wait_for(self.up.wait(), timeout_s)
        if self.failure is not None:
            raise self.failure
        return {"routes": WHERE, "renew": True, "row": {}}[method]

    def routes(self) -> Coroutine[Any, Any, dict[str, str]]:
        return self.paths.routes("queue", "q", ["a"], "owner", ["b1"])

    async def is_starting(self, progress: StartProgress) -> None:
        """Whoever asks is told soon, and goes on to ask."""
        with pytest.raises(StartingError, match=r"the path service, .* is starting: for .* of at most 120 s") as told:
            await asyncio.wait_for(self.routes(), 20)
        assert progress.made(told.value)


def test_who_asks_while_it_starts_is_told_so_and_it_is_started_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        scene = Scene(monkeypatch)
        monkeypatch.setattr(RayPaths._call_paths, "__kwdefaults__", {"patience_s": 0.02})
        progress = StartProgress()
        await scene.is_starting(progress)
        await scene.is_starting(progress)
        scene.made.set()
        await scene.is_starting(progress)  # There is an actor of that name, and no process that answers.
        scene.up.set()
        monkeypatch.setattr(RayPaths._call_paths, "__kwdefaults__", {"patience_s": 20})
        assert await scene.routes() == WHERE
        assert scene.started == [True]

    asyncio.run(work())


def test_where_it_is_not_running_who_asks_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        scene = Scene(monkeypatch)
        scene.made.set()
        scene.up.set()
        scene.actor, actor = None, scene.actor
        with pytest.raises(OrderError, match="is not running"):
            await scene.routes()
        scene.actor = actor
        assert await scene.routes() == WHERE
        scene.failure = BrokerGoneError("the actor is gone")
        for _ in range(2):
            with pytest.raises(OrderError, match=r"cannot be asked .* the actor is gone"):
                await scene.routes()
        scene.failure = None
        assert await scene.routes() == WHERE

    asyncio.run(work())
