"""The shell of takeovers over a table in memory: what it writes, and in which order it does things (K-21)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.broker.cluster import takeovers
from raybroker.broker.cluster.takeovers import STOPPED_LOOK_S, StoreWatch
from raybroker.broker.observing.alone import NotShared
from raybroker.cluster.membership import Membership
from raybroker.cluster.takeover import APART_MS
from raybroker.config import Config
from raybroker.errors import IllegalStateError, NotSupportedError, StoreError
from raybroker.model.shared_store import SharedRow, SharedView, StoreState

INTERVAL_MS = 1000
WAIT_S = 60.0
NOW_MS = 10 * APART_MS


class Table:
    """The rows; ``broken`` is raised by whatever asks for them."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.broken: Exception | None = None
        self.rows = {
            "b1": SharedRow("b1", tenure=1, beats=1),
            "b2": SharedRow("b2", StoreState.OPERATING, tenure=1, beats=1, node="n2"),
        }
        self.written: list[tuple[str, StoreState]] = []

    def view(self) -> SharedView:
        if self.broken is not None:
            raise self.broken
        return SharedView(self.now_ms, tuple(self.rows.values()))

    def beat(self, name: str, tenure: int) -> SharedView | None:
        self.view()
        row = self.rows[name]
        if row.tenure != tenure:
            return None
        self.rows[name] = replace(row, beats=row.beats + 1, beat_ms=self.now_ms)
        return self.view()

    def take(self, name: str, *, tenure: int, beats: int, node: str, taker: str = "") -> bool:
        row = self.rows[name]
        if (row.tenure, row.beats) != (tenure, beats):
            return False
        state = StoreState.TAKEOVER_STARTED
        self.rows[name] = replace(row, state=state, tenure=tenure + 1, node=node, taker=taker, takeovers=1)
        self.written.append((name, state))
        return True

    def set_state(self, name: str, tenure: int, state: StoreState, reason: str = "") -> bool:
        if self.rows[name].tenure != tenure:
            return False
        self.rows[name] = replace(self.rows[name], state=state, reason=reason)
        self.written.append((name, state))
        return True


class Hands:
    """Successors that are started; ``fails``: at which step; ``goes_on``: they begin when it is set."""

    node = "n1"

    def __init__(self, table: Table) -> None:
        self.table = table
        self.done: list[tuple[Any, ...]] = []
        self.fails = ""
        self.meanwhile: Callable[[], None] = lambda: None
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    def standing_by(self) -> dict[str, int]:
        return {"standby_brokers": 1, "standby_hosts": 2}

    async def hand_over(self, broker: str, tenure: int) -> None:
        self.done.append(("hand over", broker, tenure))
        self.meanwhile()
        await self.goes_on.wait()
        if self.fails == "hand over":
            raise StoreError("h1 still open")

    async def start(self, broker: str, tenure: int, after: int) -> None:
        self.done.append(("start", broker, tenure, after))
        if self.fails == "start":
            raise StoreError("no process")
        self.table.set_state(broker, tenure, StoreState.OPERATING)


class World:
    """Broker b1, which operates, and b2, which was heard in its incarnation 7 and is lost."""

    def __init__(self) -> None:
        self.table = Table()
        self.hands = Hands(self.table)
        self.ended: list[str] = []
        self.state: StoreState | None = StoreState.OPERATING
        self.membership = Membership("b1", 5, ["b1", "b2"])
        self.membership.operating(1)
        self.membership.heard("b2", 7, 0, operating=True)
        self.membership.find_silent(10**9)
        self.membership.find_silent(10**9)
        self.ms = 0
        clock = SimpleNamespace(now_ms=lambda: self.ms, monotonic_ns=lambda: self.ms * 1_000_000)
        member = SimpleNamespace(name="b1", membership=self.membership, opened=True)
        self.watch = StoreWatch(
            SimpleNamespace(member=member),  # type: ignore[arg-type]
            self.table,
            1,
            Config.from_values({"imq.cluster.monitor.threshold": 2}),
            clock,
            successors=self.hands,
            state=lambda: self.state,
            superseded=self.ended.append,
        )

    async def looks(self, count: int) -> None:
        for _ in range(count):
            self.ms += INTERVAL_MS
            self.table.now_ms += INTERVAL_MS
            await self.watch._look_at_store()
        await self.settled()

    async def settled(self) -> None:
        """A takeover that was begun has come to its end."""
        await asyncio.sleep(0.01)
        async with asyncio.timeout(WAIT_S):
            while self.watch._machine.work is not None:  # noqa: ASYNC110 - nothing tells its end
                await asyncio.sleep(0.005)


def run(work: Callable[[World], Coroutine[Any, Any, None]]) -> World:
    async def whole() -> World:
        world = World()
        try:
            await work(world)
        finally:
            world.watch.close()
        return world

    return asyncio.run(whole())


def test_a_lost_broker_is_fenced_and_then_started(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "raybroker.cluster")
    world = run(lambda world: world.looks(3))
    assert world.hands.done == [("hand over", "b2", 2), ("start", "b2", 2, 7)]
    assert world.table.written == [
        ("b1", StoreState.OPERATING),
        ("b2", StoreState.TAKEOVER_STARTED),
        ("b2", StoreState.TAKEOVER_COMPLETE),
        ("b2", StoreState.OPERATING),
    ]
    assert (world.watch.counts.completed, world.watch.counts.failed) == (1, 0)
    said = [record.message for record in caplog.records if "[B21" in record.message]
    assert [line[1:6] for line in said] == ["B2187", "B2189"]
    assert "broker b2 was taken over by b1 and takes clients, tenure 2, on node n1" in said[1]


def test_what_is_shown_of_the_store() -> None:
    world = run(lambda world: world.looks(1))
    assert world.watch.row("b2") == {
        "store_state": "OPERATING",
        "tenure": 1,
        "store_node": "n2",
        "taken_by": "",
        "takeovers": 0,
        "silent_ms": 0,
    }
    assert world.watch.row("b9") == {}
    assert world.watch.states() == {"UNKNOWN": 1, "OPERATING": 1}


@pytest.mark.parametrize("step", ["hand over", "start"])
def test_a_step_that_fails_is_said_and_the_broker_is_tried_again(step: str) -> None:
    async def work(world: World) -> None:
        world.hands.fails = step
        await world.looks(3)
        assert world.table.rows["b2"].state is StoreState.TAKEOVER_FAILED
        assert world.table.rows["b2"].reason.endswith({"hand over": "h1 still open", "start": "no process"}[step])
        assert world.watch.counts.failed == 1
        world.hands.fails = ""
        world.table.now_ms += APART_MS
        await world.looks(4)

    world = run(work)
    assert world.hands.done[-1] == ("start", "b2", 3, 7)
    assert world.watch.counts.completed == 1


def test_nothing_is_started_when_somebody_else_has_the_next_tenure() -> None:
    async def work(world: World) -> None:
        def taken() -> None:
            world.table.rows["b2"] = replace(world.table.rows["b2"], tenure=3, taker="b3")

        world.hands.meanwhile = taken
        await world.looks(3)

    world = run(work)
    assert world.hands.done == [("hand over", "b2", 2)]
    assert world.table.rows["b2"].state is StoreState.TAKEOVER_STARTED


def test_a_database_that_is_away_is_nobodys_end() -> None:
    async def work(world: World) -> None:
        await world.looks(2)
        world.table.broken = StoreError("the database is down")
        await world.looks(5)
        assert world.watch.row("b1")["store_reason"] == "the database is down"
        world.table.broken = None
        await world.looks(2)
        assert "store_reason" not in world.watch.row("b1")

    world = run(work)
    assert (world.ended, world.hands.done) == ([], [])


def test_a_broker_whose_tenure_is_over_ends() -> None:
    async def work(world: World) -> None:
        world.table.rows["b1"] = replace(world.table.rows["b1"], tenure=2)
        await world.looks(1)

    world = run(work)
    assert len(world.ended) == 1
    assert "its tenure 1 is over" in world.ended[0]
    assert world.table.written == []


def test_the_last_word_of_a_broker_is_the_last() -> None:
    async def work(world: World) -> None:
        await world.looks(1)
        await world.watch.leave(StoreState.BROKER_DOWN)
        world.watch._write_state(StoreState.OPERATING, False)

    assert run(work).table.rows["b1"].state is StoreState.BROKER_DOWN


def test_an_administrator_does_not_wait() -> None:
    async def work(world: World) -> None:
        world.hands.goes_on.clear()
        answer = await world.watch.takeover_broker("b2")
        assert answer == {"broker": "b2", "taker": "b1", "tenure": 2, "node": "n1"}
        with pytest.raises(IllegalStateError, match="b1 takes over b2 now"):
            await world.watch.takeover_broker("b2")
        world.hands.goes_on.set()
        await world.settled()
        with pytest.raises(IllegalStateError, match="b1 is up"):
            await world.watch.takeover_broker("b1")

    assert run(work).hands.done[-1] == ("start", "b2", 2, 7)


def test_without_a_shared_store_there_is_nothing_to_take() -> None:
    with pytest.raises(NotSupportedError, match=r"what it stores is its own.*imq.cluster.ha"):
        asyncio.run(NotShared().takeover_broker("b2"))
    assert NotShared().row("b2") == {}
    with pytest.raises(NotSupportedError, match=r"cannot be drained: what it stores is its own.*imq.cluster.ha"):
        asyncio.run(NotShared().drain_broker("b2"))


def test_a_broker_that_is_drained_is_started_here_once_it_has_stopped() -> None:
    async def work(world: World) -> None:
        stopped: list[str] = []

        async def stop() -> None:
            stopped.append("b2")

        answer = await world.watch.take_drained("b2", stop)
        assert answer == {"broker": "b2", "taker": "b1", "tenure": 2, "node": "n1"}
        assert stopped == ["b2"]
        await asyncio.sleep(2 * STOPPED_LOOK_S)
        assert world.hands.done == [], "it is not down yet"
        world.table.set_state("b2", 1, StoreState.BROKER_DOWN)
        async with asyncio.timeout(WAIT_S):
            while not world.watch.counts.completed:  # noqa: ASYNC110 - nothing tells its end
                await asyncio.sleep(0.005)

    world = run(work)
    assert world.hands.done == [("hand over", "b2", 2), ("start", "b2", 2, 7)]
    assert (world.table.rows["b2"].state, world.watch.counts.completed) == (StoreState.OPERATING, 1)


@pytest.mark.parametrize("state", [state for state in StoreState if state is not StoreState.OPERATING])
def test_only_what_operates_is_drained(state: StoreState) -> None:
    async def work(world: World) -> None:
        async def stop() -> None:
            raise AssertionError("it is not stopped")

        world.table.set_state("b2", 1, state)
        with pytest.raises(IllegalStateError, match=f"b2 is {state} in the shared store, and only what operates"):
            await world.watch.take_drained("b2", stop)

    run(work)


def test_a_drain_is_over_when_somebody_else_takes_the_broker_and_after_its_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def stop() -> None:
        return

    async def taken(world: World) -> None:
        await world.watch.take_drained("b2", stop)
        world.table.rows["b2"] = replace(world.table.rows["b2"], tenure=2, state=StoreState.BROKER_DOWN)
        await asyncio.sleep(3 * STOPPED_LOOK_S)

    assert run(taken).hands.done == []
    monkeypatch.setattr(takeovers, "STOPPED_S", 0.0)

    async def late(world: World) -> None:
        await world.watch.take_drained("b2", stop)
        await asyncio.sleep(3 * STOPPED_LOOK_S)

    with caplog.at_level(logging.ERROR, logger="raybroker.cluster"):
        run(late)
    assert "broker b2 is not drained: it is not stopped yet after 0 s" in caplog.text
