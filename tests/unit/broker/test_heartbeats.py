"""Beats go in datagrams as long as the other side says that they arrive; otherwise somebody else has to carry them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raybroker.broker.cluster.heartbeats import LEARN_APART_MS, UNANSWERED_MS, Beats, Place, decoded, encoded
from raybroker.cluster.member_messages import Beat, Envelope, Position
from raybroker.cluster.membership import DOWN_MS, HEARTBEAT_MS
from raybroker.cluster.term import Leadership
from raybroker.errors import BrokerError
from raybroker.transport.datagrams import PAYLOAD_BYTES_MAX, Address, Datagrams, Number

CLAIM = Leadership(3, "b1", "f00d")
POSITION = Position("f00d", 12, "cafe")


def beat(sender: str, incarnation: int = 1) -> Envelope:
    return Envelope(sender, incarnation, 0, Beat(CLAIM, POSITION, 7, True))


class World:
    """Brokers with datagrams that arrive at once, unless ``lost``; a clock that stands still."""

    def __init__(self, *names: str) -> None:
        self.ms = 10_000
        self.lost = False
        self.came: list[tuple[str, Envelope]] = []
        self.asked: list[tuple[str, str]] = []
        self.mute: set[str] = set()
        self.sides: dict[str, Side] = {}
        for name in names:
            self.sides[name] = Side(self, name, 1)

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ns(self) -> int:
        return self.ms * 1_000_000

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


class Side:
    """One broker, in one life."""

    def __init__(self, world: World, name: str, life: int) -> None:
        self.world = world
        self.name = name
        self.place: Place = (name, life, name.encode() + bytes([life]))
        self.datagrams = Datagrams(
            name,
            self.place[2],
            life,
            lambda sender, number, _, payload: self.beats.receive_beat(sender, number, payload),
        )
        self.datagrams._transport = self
        self.beats = Beats(self.datagrams, world, self.learn, lambda envelope: world.came.append((name, envelope)))

    async def learn(self, broker: str) -> Place | None:
        self.world.asked.append((self.name, broker))
        if broker in self.world.mute:
            raise BrokerError("no answer")
        return self.world.sides[broker].place

    def is_closing(self) -> bool:
        return False

    def sendto(self, data: bytes, to: Address) -> None:
        side = self.world.sides[to[0]]
        if not self.world.lost and side.place[:2] == to:
            side.datagrams.datagram_received(data, (self.name, 1))

    def beat(self, to: str) -> bool:
        return self.beats.send(to, beat(self.name))


async def turn(world: World) -> list[bool]:
    """Everybody beats; which of it needs no other way."""
    names = list(world.sides)
    found = [world.sides[name].beat(other) for name in names for other in names if other != name]
    for _ in range(3):
        await asyncio.sleep(0)
    world.ms += HEARTBEAT_MS
    return found


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scene())


def test_the_first_beats_go_another_way_and_no_more_once_they_are_answered() -> None:
    async def scene() -> None:
        world = World("b1", "b2", "b3")
        turns = [await turn(world) for _ in range(6)]
        assert turns[0] == [False] * 6, "nobody knows yet where the others listen"
        assert turns[-1] == turns[-2] == [True] * 6
        assert len(world.asked) == 6, "each asked each other once"
        world.came.clear()
        await turn(world)
        assert sorted((to, envelope.sender) for to, envelope in world.came) == [
            (a, b) for a in world.sides for b in world.sides if a != b
        ]
        assert world.came[0][1] == beat("b1")

    run(scene)


def test_what_is_lost_goes_another_way_before_anybody_is_given_up_and_it_comes_back() -> None:
    async def scene() -> None:
        world = World("b1", "b2")
        while not all(await turn(world)):
            pass
        world.lost, began_ms = True, world.ms
        while all(await turn(world)):
            assert world.ms - began_ms < UNANSWERED_MS + HEARTBEAT_MS
        assert world.ms - began_ms <= DOWN_MS, "the other way was taken in time"
        for _ in range(20):
            assert await turn(world) == [False, False], "that stays so for as long as nothing comes"
        world.lost = False
        await turn(world)
        await turn(world)
        assert all(await turn(world))

    run(scene)


def test_a_broker_that_came_back_elsewhere_is_asked_where_it_is() -> None:
    async def scene() -> None:
        world = World("b1", "b2")
        while not all(await turn(world)):
            pass
        world.sides["b2"] = Side(world, "b2", 2)
        for _ in range(LEARN_APART_MS // HEARTBEAT_MS + 4):
            found = await turn(world)
        assert found == [True, True]
        assert world.asked.count(("b1", "b2")) <= 3

    run(scene)


def test_a_broker_that_does_not_say_where_it_is_is_asked_now_and_then() -> None:
    async def scene() -> None:
        world = World("b1", "b2")
        world.mute = {"b1", "b2"}
        turns = 40
        for _ in range(turns):
            assert await turn(world) == [False, False]
        assert world.asked.count(("b1", "b2")) == turns * HEARTBEAT_MS // LEARN_APART_MS

    run(scene)


def test_one_that_hears_and_is_not_heard_is_not_believed() -> None:
    async def scene() -> None:
        world = World("b1", "b2")
        world.mute = {"b1"}  # b2 never learns where b1 is, so it cannot answer.
        assert [(await turn(world))[0] for _ in range(20)] == [False] * 20
        assert [to for to, _ in world.came] == ["b2"] * 19

    run(scene)


def test_what_somebody_says_in_the_name_of_another_is_not_taken() -> None:
    async def scene() -> None:
        world = World("b1", "b2")
        payload = encoded(beat("b3"), Number())
        world.sides["b1"].datagrams.send(world.sides["b2"].place[:2], world.sides["b2"].place[2], payload)
        assert not world.came

    run(scene)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"{}",
        b"[]",
        b"null",
        b"[1,2,3]",
        b'[[0,0],"b1",1,0,[3,"b1","f00d"],["f00d",12],7,true]',
        b'[[0,0],"b1","1",0,[3,"b1","f00d"],["f00d",12,"c"],7,true]',
        b'[[0,0],"b1",1,0,[3,"b1","f00d"],["f00d",12,"cafe"],7,1]',
        b'[[0],"b1",1,0,[3,"b1",4],["f00d",12,"cafe"],7,true]',
        b'[[0,0,0],"b1",1,0,[3,"b1","f00d"],["f00d",12,"cafe"],7,true]',
        b"[" * 1024,
    ],
)
def test_what_is_no_beat_is_refused_and_passed_over(payload: bytes) -> None:
    async def scene() -> None:
        world = World("b1", "b2")
        world.sides["b1"].datagrams.send(world.sides["b2"].place[:2], world.sides["b2"].place[2], payload)
        assert not world.came

    run(scene)


def test_a_beat_is_as_it_was_and_fits_into_a_datagram() -> None:
    said = Beat(Leadership(9, "b" * 64, "r" * 64), Position("r" * 64, 1 << 60, "d" * 64), 1, False)
    long = Envelope("b" * 64, 1 << 60, 5, said)
    for envelope in (beat("b1"), long):
        payload = encoded(envelope, Number(1 << 60, 5))
        assert decoded(payload) == (envelope, Number(1 << 60, 5))
        assert len(payload) < PAYLOAD_BYTES_MAX - 1
