"""Drains where brokers share no store: what the record says of a drained broker, and how far its leads have moved."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

import pytest

from raybroker.broker.cluster.draining import Draining
from raybroker.broker.cluster.drains import STAYING_MAX, Drains
from raybroker.broker.definitions.drained_nodes import NODES_MAX
from raybroker.broker.observing.alone import NotShared
from raybroker.cluster.change_record import Change, RecordState
from raybroker.errors import BrokerGoneError, ConfigError, IllegalStateError

T = TypeVar("T")


class World:
    """Brokers b1, b2 and b3, of which b1 is asked. ``copies``: what each says of its copies; ``held``: messages."""

    def __init__(self, *up: str) -> None:
        self.up = list(up or ("b1", "b2", "b3"))
        self.record = RecordState()
        for queue, leader in (("orders", "b2"), ("bills", "b3")):
            row = {"log": f"b1/{queue}", "brokers": ["b1", "b2", "b3"], "ids": [leader], "min_in_sync": 0}
            self.record.apply(Change("place_copies", ("queue", queue), row))
        self.copies = {
            name: {"b1/orders": row_of("orders"), "b1/bills": row_of("bills")} for name in ("b1", "b2", "b3")
        }
        self.copies["b2"]["b1/orders"] = row_of("orders", role="LEADER", heir="b3")
        self.held = {"orders": 9, "plain": 7, "more": 8, "none": 0}
        drains = Drains(self, lambda: self.record, self.propose)  # type: ignore[arg-type]
        self.nodes = {"b1": "n1", "b2": "n2", "b3": "n2"}
        self.draining = Draining(self, NotShared(), self.shut_down, drains, lambda: self.nodes)  # type: ignore[arg-type]

    async def shut_down(self, broker: str) -> None:
        raise AssertionError("nobody is shut down")

    async def propose(self, change: Change) -> None:
        self.record.apply(change)

    def live(self) -> list[str]:
        return self.up

    async def ask_at(self, broker: str, method: str, args: dict[str, Any], timeout_s: float) -> Any:
        if broker not in self.up:
            raise BrokerGoneError(f"broker {broker} is not there")
        return self.copies[broker]

    async def verb_at(self, broker: str, verb: str, args: dict[str, Any], timeout_s: float) -> Any:
        return [{"type": "queue", "name": name, "messages": count} for name, count in self.held.items()]

    def rows(self) -> dict[str, dict[str, Any]]:
        return run(self.draining.drains.drain_rows())


def row_of(name: str, **more: Any) -> dict[str, Any]:
    return {"role": "FOLLOWER", "led": True, "name": name, "heir": "", **more}


def run(work: Awaitable[T]) -> T:
    async def awaited() -> T:
        return await work

    return asyncio.run(awaited())


def test_a_drained_broker_stays_and_what_has_one_copy_is_named() -> None:
    world = World()
    begun = run(world.draining.drain_broker("b2"))
    assert (begun["drain"], begun["leads"], begun["stays"]) == ("DRAINING", 1, 2)
    assert [(row["name"], row["messages"]) for row in begun["staying"]] == [("more", 8), ("plain", 7)]
    assert list(world.record.drains) == [("broker", "b2")]
    since_ms = world.record.drains["broker", "b2"]["since_ms"]
    run(world.draining.drain_broker("b2"))
    assert world.record.drains["broker", "b2"]["since_ms"] == since_ms, "it goes on, and does not begin anew"


def test_it_is_drained_once_others_lead() -> None:
    world = World()
    run(world.draining.drain_broker("b2"))
    world.copies["b2"] = {"b1/bills": row_of("bills")}
    assert (world.rows()["b2"]["drain"], world.rows()["b2"]["unled"]) == ("DRAINING", 1), "its process starts again"
    world.copies["b2"]["b1/orders"] = row_of("orders", led=False)
    assert world.rows()["b2"]["drain"] == "DRAINING", "nobody is heard to lead yet"
    world.copies["b2"]["b1/orders"] = row_of("orders")
    assert world.rows() == {
        "b2": {
            "drain": "DRAINED",
            "drained_since_ms": world.record.drains["broker", "b2"]["since_ms"],
            "leads": 0,
            "unled": 0,
            "stuck": [],
        }
    }


def test_what_nobody_else_can_lead_is_named() -> None:
    world = World()
    world.copies["b2"]["b1/orders"] = row_of("orders", role="LEADER")
    begun = run(world.draining.drain_broker("b2"))
    assert (begun["drain"], begun["leads"], begun["stuck"]) == ("DRAINED", 1, ["orders"])


def test_one_that_cannot_be_asked_is_unknown() -> None:
    world = World()
    run(world.draining.drain_broker("b2"))
    world.up.remove("b2")
    assert world.rows()["b2"]["drain"] == "UNKNOWN"


def test_it_ends_when_it_is_said() -> None:
    world = World()
    assert run(world.draining.drain_broker("b2", off=True)) == {"broker": "b2", "was_drained": False}
    run(world.draining.drain_broker("b2"))
    assert run(world.draining.drain_broker("b2", off=True)) == {"broker": "b2", "was_drained": True}
    assert world.rows() == {}


def test_a_node_is_drained_with_its_brokers_and_stays_with_them() -> None:
    world = World()
    begun = run(world.draining.drain_node("n2", 60))
    assert (begun["brokers"], begun["trouble"], begun["was_drained"]) == (["b2", "b3"], {}, False)
    assert begun["until_ms"] - begun["since_ms"] == 60_000
    assert set(world.record.drains) == {("node", "n2"), ("broker", "b2"), ("broker", "b3")}
    (row,) = run(world.draining.list_drained_nodes())
    assert (row["node"], row["until_ms"]) == ("n2", begun["until_ms"])
    assert run(world.draining.drain_node("n2", off=True))["was_drained"]
    assert world.record.drains == {}


def test_a_broker_that_was_drained_before_stays_so_when_its_node_does_not_go() -> None:
    world = World()
    run(world.draining.drain_broker("b2"))
    run(world.draining.drain_node("n2"))
    run(world.draining.drain_node("n2", off=True))
    assert set(world.record.drains) == {("broker", "b2")}


def test_where_no_other_node_has_a_broker_consumers_leave_and_the_broker_is_named() -> None:
    world = World("b1")
    begun = run(world.draining.drain_node("n1"))
    assert "no broker is up on another node" in begun["trouble"]["b1"]
    assert set(world.record.drains) == {("node", "n1")}


def test_the_node_that_was_drained_first_is_forgotten_for_another() -> None:
    world = World()
    for number in range(NODES_MAX + 2):
        world.record.apply(Change("begin_drain", ("node", f"x{number}"), {"since_ms": number, "until_ms": 0}))
    run(world.draining.drain_node("n9"))
    nodes = [row["node"] for row in run(world.draining.list_drained_nodes())]
    assert len(nodes) == NODES_MAX
    assert not {"x0", "x1", "x2"}.intersection(nodes)


def test_only_some_are_named_and_all_are_counted() -> None:
    world = World()
    world.held = {f"q{number}": 1 for number in range(STAYING_MAX + 5)}
    begun = run(world.draining.drain_broker("b2"))
    assert (begun["stays"], len(begun["staying"])) == (STAYING_MAX + 5, STAYING_MAX)


def test_what_cannot_be_drained_is_refused_with_the_reason() -> None:
    with pytest.raises(BrokerGoneError, match="b9 is not up"):
        run(World().draining.drain_broker("b9"))
    with pytest.raises(ConfigError, match="each of its logs goes to one that has a copy"):
        run(World().draining.drain_broker("b2", "b1"))
    with pytest.raises(IllegalStateError, match="b2 is the only one"):
        run(World("b2").draining.drain_broker("b2"))
