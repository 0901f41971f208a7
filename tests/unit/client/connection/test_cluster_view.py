"""A connection follows the brokers of its cluster, and asks those that are said to be down itself (K-19)."""

from __future__ import annotations

import asyncio
from typing import Any

from raybroker.client.cluster.directory import DestinationPlace, KnownBroker, View
from raybroker.errors import ConnectionLostError
from raybroker.transport.loops import PausableLoop
from raybroker.wire.native import frames as wire
from tests.unit.client.fakes import TOKEN, Scripted, ScriptedHost, run, turns


class Cluster:
    """The part of a directory that knows brokers; host ``h1`` is of broker b1, and so on."""

    def __init__(self, scripted: Scripted, *names: str) -> None:
        self.scripted = scripted
        self.rows = dict.fromkeys(names, "UP")
        self.version = 1
        self.faults = 0
        self.bell = asyncio.Event()
        directory: Any = scripted.directory
        directory.brokers, directory.brokers_changed = self.brokers, self.brokers_changed
        directory.home = "b1"

    async def brokers(self, broker: str | None = None) -> View:
        if self.faults:
            self.faults -= 1
            raise ConnectionLostError("away")
        rows = tuple(KnownBroker(name, state, name == "b1") for name, state in self.rows.items())
        return View(self.version, "b1", rows)

    async def brokers_changed(self, version: int, timeout_s: float, broker: str | None = None) -> int:
        while version == self.version:
            self.bell.clear()
            await self.bell.wait()
        return self.version

    def set(self, name: str, state: str) -> None:
        self.rows[name] = state
        self.version += 1
        self.bell.set()


class Answering(ScriptedHost):
    """Answers pings as a real host does."""

    def _take(self, frames: list[Any]) -> None:
        super()._take(frames)
        for frame in frames:
            if isinstance(frame, wire.PingFrame):
                self.link.write(wire.pong(frame.nonce))


class Endpoint:
    """A handle that says when its channel is gone."""

    name = "q"

    def __init__(self, told: asyncio.Event) -> None:
        self.on_lost = told.set

    def on_frame(self, frame: object) -> None:
        """Nothing comes for it."""

    def on_writable(self) -> None:
        """It writes nothing."""


def place(host: ScriptedHost, broker: str) -> DestinationPlace:
    return DestinationPlace(host.key, TOKEN, host.dial, broker)


def test_listeners_hear_of_brokers_that_go_and_come() -> None:
    async def work() -> None:
        scripted = Scripted(imqReconnectInterval=1)
        cluster, heard = Cluster(scripted, "b1", "b2"), list[dict[str, str]]()
        brokers = scripted.core.brokers
        view = await brokers.view()
        assert [row.name for row in view.members] == ["b1", "b2"]
        brokers.listeners.append(lambda view: heard.append({row.name: row.state for row in view.members}))
        cluster.set("b2", "DOWN")
        while not heard:
            await turns()
        cluster.faults = 2
        cluster.set("b3", "UP")
        while len(heard) < 2:
            await turns()
        assert heard == [{"b1": "UP", "b2": "DOWN"}, {"b1": "UP", "b2": "DOWN", "b3": "UP"}]
        assert (await brokers.view()).version == 3

    run(work)


def test_a_broker_that_is_said_to_be_down_is_given_up_when_it_is_silent() -> None:
    async def work() -> None:
        silent, speaking = ScriptedHost("h2"), Answering("h3")
        scripted = Scripted(ScriptedHost("h1"), silent, speaking)
        cluster = Cluster(scripted, "b1", "b2", "b3")
        await scripted.core.brokers.view()
        lost = await scripted.core.channels.to(place(silent, "b2"))
        kept = await scripted.core.channels.to(place(speaking, "b3"))
        told = asyncio.Event()
        lost.endpoints[7] = Endpoint(told)
        cluster.set("b2", "DOWN")
        cluster.set("b3", "DOWN")
        await told.wait()
        assert lost.lost
        assert not kept.lost

    run(work)


def test_a_connection_to_a_broker_alone_gives_its_loop_no_reason_to_run() -> None:
    """Nobody watches over the home broker where there is no other one; a loop that waited for one to come would never
    stand still, and so no thread could serve its sockets itself."""
    loop = PausableLoop()

    async def work() -> None:
        scripted = Scripted(imqReconnectInterval=60_000)
        Cluster(scripted, "b1")
        await scripted.core.brokers.view()
        await turns()
        assert not loop.is_timed
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(work())
