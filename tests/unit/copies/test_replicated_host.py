"""A host whose log has copies: what it confirms a majority has, and what it hands out nobody else can."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from raybroker.config import Config
from raybroker.copies.replicated_store import ReplicatedStore
from raybroker.engine.ports import Store
from raybroker.hosting.host_service import HostService, HostStorage
from raybroker.model.errors import BrokerError
from raybroker.model.settings.settings import destination_attributes
from raybroker.replication.leading import LEASE_MS, LEASE_WAIT_MS
from raybroker.replication.replica import HEARD_MS
from raybroker.services.native.native import NativeConnection
from raybroker.system.clock import SystemClock
from raybroker.wire.native import frames as wire
from raybroker.wire.native.connection import preface
from tests.fuzz.rig import QUEUE, TOKEN, Peer, consumer_args, send
from tests.unit.copies.rig import Group, Node

WAIT_S = 20.0


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    yield made
    made.close()


class Served:
    """A host on a node's copy, with a producer and a consumer."""

    def __init__(self, node: Node) -> None:
        self.failed: list[BrokerError] = []
        store = ReplicatedStore(node.runs)
        self.service = HostService(
            HostStorage(cast(Store, store), store.incarnation, copies=store),
            SystemClock(),
            Config.from_values({"imq.ping.interval": 0}),
            token=TOKEN,
        )
        self.seen: list[Any] = []

    async def open(self, *, make: bool = True) -> None:
        await self.service.start(threaded=True)
        if make:
            attributes = destination_attributes().as_dict("queue")
            await self.service.destinations.create("queue", QUEUE, attributes, False)
        self.peer = Peer(NativeConnection(self.service.service))
        self.peer.feed(preface(TOKEN))
        self.peer.feed(wire.call(1, "hello", {"started": True, "connection": "c"}))
        self.peer.feed(wire.call(2, "open_producer", {"handle": 1, "name": QUEUE, "type": "queue", "producer": 1}))
        await self.until(lambda: len(self.seen) >= 2)

    def consume(self) -> None:
        self.peer.feed(wire.call(3, "open_consumer", consumer_args(handle=2)))

    def confirmed(self) -> int:
        return sum(isinstance(frame, wire.SentFrame) for frame in self.seen)

    async def until(self, true: Callable[[], object], seconds: float = WAIT_S) -> None:
        for _ in range(int(seconds / 0.01)):
            self.seen += self.peer.frames()
            if true():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"not within {seconds} s; seen: {self.seen}")

    async def stays(self, true: Callable[[], bool], seconds: float = 0.7) -> None:
        for _ in range(int(seconds / 0.01)):
            self.seen += self.peer.frames()
            assert true()
            await asyncio.sleep(0.01)


def test_a_send_is_confirmed_once_a_majority_has_it(group: Group) -> None:
    async def run() -> None:
        leader = group.led()
        host = Served(leader)
        await host.open()
        host.peer.feed(send(1, producer=1, first_seq=1, bodies=(b"one",)))
        await host.until(lambda: host.confirmed() == 1)
        for node in group.nodes:
            if node is not leader:
                node.kill()
        host.peer.feed(send(1, producer=1, first_seq=2, bodies=(b"two",)))
        await host.stays(lambda: host.confirmed() == 1)
        next(node for node in group.nodes if node is not leader).begin()
        await host.until(lambda: host.confirmed() == 2)
        await host.service.close()

    asyncio.run(run())


def test_the_next_leader_has_what_was_confirmed(group: Group) -> None:
    async def run() -> None:
        leader = group.led()
        host = Served(leader)
        await host.open()
        for seq in range(1, 21):
            host.peer.feed(send(1, producer=1, first_seq=seq, bodies=(b"x" * 500,)))
        await host.until(lambda: host.confirmed() == 20)
        first = host.service.host.incarnation
        await host.service.close()
        leader.kill()
        group.pass_time(HEARD_MS + 100)
        new = group.led([node.number for node in group.nodes if node is not leader])
        host = Served(new)
        await host.open(make=False)
        assert host.service.host.incarnation > first
        rows = await host.service.destinations.query("queue", QUEUE)
        assert rows["nMsgs"] == 20 if "nMsgs" in rows else "20" in str(rows)
        await host.service.close()

    asyncio.run(run())


def test_a_leader_that_lost_its_majority_hands_nothing_out(group: Group) -> None:
    async def run() -> None:
        leader = group.led()
        group.pass_time(LEASE_WAIT_MS)
        host = Served(leader)
        await host.open()
        host.peer.feed(send(1, producer=1, first_seq=1, bodies=(b"one",)))
        await host.until(lambda: host.confirmed() == 1)
        await host.until(leader.runs.may_dispatch)
        group.isolate(leader.number)
        group.pass_time(LEASE_MS)
        await host.until(lambda: not leader.runs.may_dispatch())
        host.seen.clear()
        host.consume()

        def delivered() -> bool:
            return any(isinstance(frame, wire.DeliverFrame) for frame in host.seen)

        await host.stays(lambda: not delivered())
        group.mend()
        await host.until(delivered)
        await host.service.close()

    asyncio.run(run())
