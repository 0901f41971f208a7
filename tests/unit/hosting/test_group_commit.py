"""Senders that each wait for their own confirmation share commits; a lone one waits for nobody."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from raybroker.config import Config
from raybroker.hosting.host_service import HostService, HostStorage
from raybroker.model.settings.settings import destination_attributes
from raybroker.services.native.native import NativeConnection
from raybroker.store.memory import MemoryStore
from raybroker.system.clock import SystemClock
from raybroker.wire.native import frames as wire
from raybroker.wire.native.connection import preface
from tests.fuzz.rig import QUEUE, TOKEN, Peer, send

SENDERS: Final = 16
ROUNDS: Final = 20
TURNS_MAX: Final = 1_000
"""Turns of the loop in which a confirmation has to come when the commit's own thread has nothing to do with it."""


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long this machine takes for a commit: what decides here is who else has sent."""
    monkeypatch.setattr("raybroker.engine.path.committer.INLINE_NS_MAX", 1 << 62)
    monkeypatch.setattr("raybroker.engine.path.committer.INLINE_RUN_MAX", 1 << 62)


class Commits:
    """A host with a committer as it has in production, and its senders."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        config = Config.from_values({"imq.ping.interval": 0})
        self.service = HostService(HostStorage(self.store), SystemClock(), config, token=TOKEN)
        self.senders: list[Peer] = []

    async def open(self, senders: int) -> None:
        await self.service.start(threaded=True)
        await self.service.destinations.create("queue", QUEUE, destination_attributes().as_dict("queue"), False)
        for number in range(senders):
            peer = Peer(NativeConnection(self.service.service))
            peer.feed(preface(TOKEN))
            peer.feed(wire.call(1, "hello", {"started": True, "connection": f"c{number}"}))
            peer.feed(wire.call(2, "open_producer", {"handle": 1, "name": QUEUE, "type": "queue", "producer": number}))
            assert len(peer.frames()) == 2
            self.senders.append(peer)

    def done(self) -> int:
        return self.store.stats().commits

    def send(self, number: int, seq: int) -> None:
        self.senders[number].feed(send(1, producer=number, first_seq=seq, bodies=(b"x" * 1024,)))

    async def confirmed(self, number: int, seq: int) -> None:
        """Wait until that is confirmed."""
        for _ in range(TURNS_MAX):
            found = self.senders[number].frames()
            if found:
                assert found == [wire.SentFrame(1, seq, 1)]
                return
            await asyncio.sleep(0)
        raise AssertionError(f"the message of sender {number} was not confirmed")


def test_what_several_connections_send_in_one_turn_shares_a_commit() -> None:
    async def run() -> None:
        commits = Commits()
        await commits.open(SENDERS)
        before = commits.done()
        for seq in range(1, ROUNDS + 1):
            for number in range(SENDERS):
                commits.send(number, seq)
            for number in range(SENDERS):
                await commits.confirmed(number, seq)
        assert commits.done() - before == ROUNDS, f"{SENDERS} sends of a round share one commit"
        await commits.service.close()

    asyncio.run(run())


def test_a_lone_sender_is_confirmed_before_the_loop_turns() -> None:
    async def run() -> None:
        commits = Commits()
        await commits.open(2)
        commits.send(0, 1)
        await commits.confirmed(0, 1)
        before = commits.done()
        for seq in range(2, ROUNDS + 2):
            commits.send(0, seq)
            assert commits.senders[0].frames() == [wire.SentFrame(1, seq, 1)]
        assert commits.done() - before == ROUNDS
        commits.send(1, 1)
        assert commits.senders[1].frames() == [], "whoever sends after somebody else waits for more of them"
        await commits.confirmed(1, 1)
        await commits.service.close()

    asyncio.run(run())


def test_nothing_is_confirmed_that_could_not_be_stored() -> None:
    async def run() -> None:
        commits = Commits()
        await commits.open(1)
        commits.send(0, 1)
        await commits.confirmed(0, 1)
        commits.store.fail_next_commit = "the disk is gone"
        commits.send(0, 2)
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
        assert not [frame for frame in commits.senders[0].frames() if isinstance(frame, wire.SentFrame)]
        assert commits.service.host.failure is not None
        await commits.service.close()

    asyncio.run(run())
