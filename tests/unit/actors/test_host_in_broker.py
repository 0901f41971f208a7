"""A host in the broker's process: the real one, on a real loop of gateways, with a store of files; no Ray."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from raybroker.actors import runtime
from raybroker.actors.hosts.host import KeptState
from raybroker.actors.hosts.host_in_broker import HostInBroker, HostsInBroker
from raybroker.actors.hosts.host_spec import HostSpec
from raybroker.config import Config
from raybroker.config.live import LiveConfig
from raybroker.errors import BrokerError, InvalidDestinationError, StoreError
from raybroker.hosting.host_port import ROLES
from raybroker.logs.messages import MessagesLog
from raybroker.model.settings.settings import DestinationAttributes
from raybroker.transport.link import Link
from raybroker.wire.native.connection import TOKEN_BYTES, Native, preface
from raybroker.wire.native.receive_buffers import FrameBuffers

QUEUE = ("queue", "q")
Run = Callable[[Callable[["World"], Coroutine[Any, Any, None]]], None]


class Broker:
    """What the host tells it."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []

    async def forget(self, type: str, name: str) -> None:
        self.forgotten.append(name)

    async def forward(self, type: str, name: str, block: bytes) -> None:
        raise BrokerError("there is no other host")

    async def lease(self, host: str, row: dict[str, Any]) -> dict[str, Any]:
        return {"version": row["version"], "lease": (-1, -1), "ahead": (0, 0), "short": False}


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = Config.from_values()
        self.hosts = HostsInBroker(
            Broker(),
            lambda: KeptState(LiveConfig(self.config, {}), {}, {}),
            lambda spec, config: MessagesLog(folder / "log", config.__getitem__),
        )

    def host(self, name: str = "h1") -> HostInBroker:
        directory = self.folder / "b1" / "hosts" / name
        directory.parent.mkdir(parents=True, exist_ok=True)
        return self.hosts.host(HostSpec("c", "b1", name, "broker", str(directory), bytes(TOKEN_BYTES), self.config))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(runtime, "node_ip", lambda: "127.0.0.1")

    async def with_world(work: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        world = World(tmp_path)
        try:
            await work(world)
        finally:
            for host in world.hosts.hosts:
                await host.stop()

    return lambda work: asyncio.run(with_world(work))


def test_it_does_what_every_host_does(run: Run) -> None:
    async def work(world: World) -> None:
        host = world.host()
        await host.destinations.create(*QUEUE, DestinationAttributes(hosting="broker").as_dict("queue"), False)
        assert [row["name"] for row in await host.destinations.destination_rows()] == ["q"]
        with pytest.raises(InvalidDestinationError):
            await host.destinations.query("queue", "other")
        state = await host.process.state()
        assert state["address"][1] == (await host.where())[1]
        assert world.host() is host
        assert all(callable(getattr(getattr(host, role), name)) for role, names in ROLES.items() for name in names)

    run(work)


def test_the_process_is_not_its_own_to_tell_of(run: Run) -> None:
    async def work(world: World) -> None:
        told = await world.host().figures.metrics(None)
        assert not [name for name in told["host"] if name.startswith("process_")]

    run(work)


def test_the_garbage_collector_is_the_process_s_too(run: Run) -> None:
    before = gc.get_threshold(), gc.get_freeze_count()

    async def work(world: World) -> None:
        await world.host().where()
        assert (gc.get_threshold(), gc.get_freeze_count()) == before

    run(work)


def test_a_client_on_its_loop_joins_its_guests_with_a_secret_that_is_expected(run: Run) -> None:
    async def work(world: World) -> None:
        host = world.host()
        await host.where()
        secret = b"k" * TOKEN_BYTES
        claims = {"user": "ann", "groups": [], "service": "stomp", "connection": "x", "rules": "", "host": host.key}
        await host.guests.expect(secret, claims)
        first = await join(world, host, secret)
        await asyncio.wrap_future(world.hosts.io().submit(asyncio.sleep(0)))  # What it has written has come.
        assert [row["user"] for row in await host.guests.connection_rows()] == ["ann"]
        again, other = await join(world, host, secret), await join(world, host, b"?" * TOKEN_BYTES)
        await asyncio.wait_for(asyncio.gather(again, other), 30)  # A secret is good for one connection.
        assert not first.done()
        assert await host.guests.end_connections("x", "enough") == 1
        await asyncio.wait_for(first, 30)
        assert world.hosts.guests_of("b1/other") is None

    run(work)


async def join(world: World, host: HostInBroker, secret: bytes) -> asyncio.Future[None]:
    """A client shows this secret; done when its connection has ended."""
    lost: Future[None] = Future()

    async def on_the_loop() -> None:
        link = Link(
            Native(token=None, buffers=FrameBuffers()),
            on_frames=lambda frames: None,
            on_lost=lambda error: lost.set_result(None),
        )
        guests = world.hosts.guests_of(host.key)
        assert guests is not None
        guests.join(link)
        link.write(preface(secret))

    await asyncio.wrap_future(world.hosts.io().submit(on_the_loop()))
    return asyncio.wrap_future(lost)


def test_why_it_does_not_start_is_said_by_every_call(run: Run) -> None:
    async def work(world: World) -> None:
        first = world.host("h1")
        await first.where()
        directory = Path(first.spec.directory)
        taken = world.hosts.host(HostSpec("c", "b1", "h2", "broker", str(directory), bytes(TOKEN_BYTES), world.config))
        with pytest.raises(StoreError):
            await taken.where()
        with pytest.raises(StoreError):
            await taken.destinations.destination_rows()
        assert world.hosts.guests_of("b1/h2") is None

    run(work)
