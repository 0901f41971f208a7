"""A broker's part of a queue moves into a log with copies: once, in order, wherever an answer is lost."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raybroker.broker.copies.member_moves import (
    DECIDE,
    GONE_MS,
    HELD,
    MESSAGES_MAX,
    MOVED,
    REMEMBER,
    ROUND_PARTS,
    TAKE,
    MemberMoves,
    refuse_unmovable,
)
from raybroker.broker.copies.placed_log import PlacedLog
from raybroker.broker.destinations.destination_registry import Key
from raybroker.cluster.change_record import Change
from raybroker.cluster.replicas.member_move import LAST_MESSAGES
from raybroker.errors import ConfigError, ConnectionLostError, IllegalStateError

KEY: Key = ("queue", "orders")
LOG = "b1/r1"
BEFORE, AFTER = "before", "after"
"""A call that fails: nothing was done, or its answer is lost."""


class MemberHost:
    """The host of a member, as far as a move asks it; messages are texts of numbers."""

    hosting = "dedicated"

    def __init__(self, key: str, messages: list[bytes]) -> None:
        self.key = key
        self.waiting = messages
        self.aside: dict[str, list[bytes]] = {}
        self.outcomes: dict[str, bool] = {}
        self.held: dict[str, tuple[str, list[bytes]]] = {}
        """Transaction → its coordinator, and what is prepared."""
        self.unacknowledged = self.in_transaction = 0
        self.retired = self.ended = False
        self.most = 10
        this = SimpleNamespace
        self.destinations = this(query=self._query, pause=self._pause, destroy=self._destroy)
        self.ids: list[tuple[str, int, bool]] = []
        self.remembers = False
        self.handover = this(
            set_aside=self._set_aside,
            give=self._give,
            keep=self._keep,
            take_over=self._take_over,
            remembers_ids=self._remembers_ids,
            known_ids=self._known_ids,
            take_ids=self._take_ids,
        )
        self.transactions = this(outcome=self._outcome, forget_transaction=self._forget, decide=self._decide)
        self.clients = this(retire=self._retire)

    async def _query(self, *key: str) -> dict[str, Any]:
        left = len(self.waiting) + sum(map(len, self.aside.values())) + self.in_transaction
        return {
            "messages": left,
            "unacknowledged": self.unacknowledged,
            "in_transaction": self.in_transaction,
            "dying": 0,
        }

    async def _pause(self, *given: Any) -> None: ...

    async def _retire(self, why: str) -> int:
        self.retired, self.unacknowledged = True, 0
        return 0

    async def _destroy(self, kind: str, name: str, empty: bool) -> None:
        assert empty
        if self.waiting or self.aside:
            raise IllegalStateError("it has messages again")
        self.ended = True

    async def _set_aside(self, kind: str, name: str, txn: str, most: int, nbytes: int, whole: bool) -> list[bytes]:
        assert whole
        found, self.waiting = self.waiting[: self.most], self.waiting[self.most :]
        if found:
            self.aside[txn] = found
        return found

    async def _give(self, txn: str) -> None:
        del self.aside[txn]
        self.outcomes[txn] = True

    async def _keep(self, txn: str) -> None:
        if txn not in self.outcomes:
            self.waiting = [*self.aside.pop(txn, []), *self.waiting]
            self.outcomes[txn] = False

    async def _remembers_ids(self, *key: str) -> bool:
        return self.remembers

    async def _known_ids(self, kind: str, name: str, start: int, most: int) -> list[tuple[str, int, bool]]:
        return self.ids[start : start + min(most, self.most)]

    async def _take_ids(self, ids: list[tuple[str, int, bool]]) -> None:
        self.ids = sorted({*self.ids, *ids})

    async def _outcome(self, txn: str) -> str:
        return {True: "committed", False: "rolled_back"}.get(self.outcomes.get(txn), "unknown")  # type: ignore[call-overload]

    async def _forget(self, txn: str) -> None:
        self.outcomes.pop(txn, None)

    async def _take_over(self, txn: str, coordinator: str, blocks: list[bytes]) -> int:
        self.held[txn] = coordinator, blocks
        return len(blocks)

    async def _decide(self, txn: str, commit: bool) -> None:
        _, blocks = self.held.pop(txn, ("", []))
        self.waiting += blocks if commit else []


class World:
    """Brokers with a member each, and the log, which b1 leads. ``fail``: number of the call that fails → how."""

    def __init__(self, members: dict[str, list[bytes]], fail: dict[int, str] | None = None) -> None:
        self.led = MemberHost(LOG, [])
        self.hosts = {name: MemberHost(f"{name}/h1", list(found)) for name, found in members.items()}
        self.placed = PlacedLog(KEY, LOG, ("b1", "b2", "b3"), ("c1", "c2", "c3"), sources=tuple(members), opened=False)
        self.up = list(members)
        self.now_ms = 0
        self.fail = fail or {}
        self.calls = 0
        self.late = False
        self.moves = {name: self._moves(name) for name in members}

    def _moves(self, name: str) -> MemberMoves:
        logs = SimpleNamespace(
            maker=True,
            moving=lambda: [self.placed],
            host_here=lambda placed: self.led,
            led_host=lambda log: (self.placed, self.led),
            leader_of=self._leader,
        )
        brokers = SimpleNamespace(name=name, live=lambda: self.up, ask_at=self.ask)
        placement = SimpleNamespace(end_member=self._end_member, member=partial(self._member, name))
        given = cast(Any, (placement, logs, brokers))
        return MemberMoves(*given, self._propose, lambda: self.now_ms)

    async def _leader(self, placed: PlacedLog) -> str:
        return "b1"

    async def _member(self, name: str, key: Key, log: str) -> MemberHost | None:
        return None if self.hosts[name].ended else self.hosts[name]

    async def _end_member(self, key: Key, host: MemberHost) -> None:
        await host.destinations.destroy(*key, True)

    async def _propose(self, change: Change) -> None:
        self.placed = PlacedLog.of_record(KEY, change.attributes)

    async def ask(self, broker: str, method: str, args: dict[str, Any], timeout_s: float) -> Any:
        self.calls += 1
        how = self.fail.get(self.calls)
        if how == BEFORE:
            raise ConnectionLostError("nobody answers")
        found = await self._asked(broker, method, args)
        if how == AFTER:
            raise ConnectionLostError("the answer is lost")
        return found

    async def _asked(self, broker: str, method: str, args: dict[str, Any]) -> Any:
        if method == MOVED:
            return await self.moves[broker].moved_members()
        if method == TAKE:
            return await self.led.handover.take_over(args["txn"], args["coordinator"], args["blocks"])
        if method == DECIDE:
            return await self.led.transactions.decide(args["txn"], args["commit"])
        if method == REMEMBER:
            assert not self.placed.opened or self.late, "the log knows the ids before it is opened"
            return await self.led.handover.take_ids(args["ids"])
        assert method == HELD
        return [txn for txn, (coordinator, _) in self.led.held.items() if coordinator == args["coordinator"]]

    async def step(self) -> None:
        for name in self.up:
            await self.moves[name]._step(self.placed)
        self.now_ms += 200

    async def run(self) -> None:
        for _ in range(60):
            await self.step()
            if not self.placed.sources:
                return
        raise AssertionError(f"it does not end: {[move.shown(self.placed) for move in self.moves.values()]}")

    def moved(self, name: str, of: list[bytes]) -> list[bytes]:
        return [one for one in self.led.waiting if one in of]


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def test_all_members_move_and_the_last_one_opens_the_log() -> None:
    members = {"b1": numbers(0, 25), "b2": numbers(100, 130), "b3": []}
    world = World(members)
    asyncio.run(world.run())
    assert (world.placed.sources, world.placed.opened) == ((), True)
    assert sorted(world.led.waiting) == sorted(one for found in members.values() for one in found)
    assert all(world.moved(name, of) == of for name, of in members.items()), "each in its order"
    assert all(host.retired and host.ended for host in world.hosts.values())


@pytest.mark.parametrize("how", [BEFORE, AFTER])
@pytest.mark.parametrize("call", range(1, 16))
def test_whichever_answer_is_lost_each_message_is_there_once_and_in_order(call: int, how: str) -> None:
    of = numbers(0, 45)
    world = World({"b2": of}, {call: how, call + 3: how})
    ids = world.hosts["b2"].ids = [(f"id {number:02}", number, True) for number in range(25)]
    asyncio.run(world.run())
    assert world.led.waiting == of
    assert world.led.held == {}
    assert world.led.ids == ids


def test_clients_wait_from_when_they_are_ended_until_the_log_is_opened() -> None:
    world = World({"b1": [], "b2": []})
    move = world.moves["b1"]
    with pytest.raises(ConnectionLostError, match="the log is about to be led"):
        move.require_open(world.placed)
    world.hosts["b2"].unacknowledged = 1

    async def story() -> None:
        await world.step()
        move.require_open(world.placed)  # It is empty, and waits for the other one.
        assert move.shown(world.placed) == ["0 messages of broker b1 are to move: messages move, producers go on"]
        world.hosts["b2"].unacknowledged = 0
        await world.run()

    asyncio.run(story())
    move.require_open(world.placed)


def test_what_cannot_move_is_told_and_tried_again() -> None:
    world = World({"b2": [b"1"]})
    world.hosts["b2"].in_transaction = 1

    async def story() -> None:
        for _ in range(6):
            await world.step()
        assert "1 messages are in prepared transactions" in world.moves["b2"].shown(world.placed)[0]
        assert not world.placed.opened
        world.hosts["b2"].in_transaction = 0
        await world.run()

    asyncio.run(story())
    assert world.led.waiting == [b"1"]


def test_a_broker_that_is_lost_is_not_waited_for_and_comes_behind() -> None:
    world = World({"b1": [b"1"], "b2": [b"2"]})
    world.up = ["b1"]

    async def story() -> None:
        for _ in range(10):
            await world.step()
        assert (world.placed.sources, world.placed.opened) == (("b2",), False)
        world.now_ms += GONE_MS
        await world.step()
        assert world.placed.opened
        world.moves["b1"].require_open(world.placed)
        world.up = ["b1", "b2"]
        await world.run()

    asyncio.run(story())
    assert world.led.waiting == [b"1", b"2"]
    assert world.hosts["b2"].retired, "its clients are served from the log"


def test_a_lost_broker_that_remembers_ids_is_waited_for() -> None:
    world = World({"b1": [b"1"], "b2": [b"2"]})
    world.led.remembers, world.up = True, ["b1"]

    async def story() -> None:
        for _ in range(10):
            await world.step()
        world.now_ms += GONE_MS
        await world.step()
        assert not world.placed.opened
        (why,) = world.moves["b1"].shown(world.placed)
        assert why.startswith("broker b2 is down, and remembers deduplication ids: start it, or have")
        world.led.remembers = False  # The operator has said that messages may be taken twice.
        world.late = True
        await world.step()
        assert world.placed.opened
        world.up = ["b1", "b2"]
        await world.run()

    asyncio.run(story())


def test_the_rest_is_moved_in_one_go() -> None:
    """Clients wait for what is left when they are ended, and for nothing else."""
    assert LAST_MESSAGES <= MESSAGES_MAX * ROUND_PARTS


ROWS = {
    "b1": {"state": "RUNNING", "messages": 60, "bytes": 10},
    "b2": {"state": "RUNNING", "messages": 50, "bytes": 10},
}
PLAIN = {"hosting": "dedicated", "maxNumMsgs": 1000, "maxTotalMsgBytes": -1}


@pytest.mark.parametrize(
    ("attributes", "schedules", "why"),
    [
        ({"hosting": "shared"}, 0, "hosting=shared, and its host has other destinations"),
        ({}, 2, "2 recurring schedules"),
        ({"maxNumMsgs": 100}, 0, "have 110 messages together, and in one place it has maxNumMsgs=100"),
        ({"maxTotalMsgBytes": 10}, 0, "have 20 bytes together"),
    ],
)
def test_what_cannot_move_is_refused_before(attributes: dict[str, Any], schedules: int, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        refuse_unmovable(KEY, {**PLAIN, **attributes}, ROWS, schedules)
    refuse_unmovable(KEY, PLAIN, ROWS, 0)
    with pytest.raises(ConfigError, match="b1 are halted"):
        refuse_unmovable(KEY, PLAIN, {**ROWS, "b1": {**ROWS["b1"], "state": "HALTED"}}, 0)
