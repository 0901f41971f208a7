"""Export and import: what a broker has, and a plan that is carried out, stops, goes on or is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raybroker.broker.definition_transfer import TURN_S, OwnDefinitions, Transfer
from raybroker.cluster.change_record import RecordState
from raybroker.errors import ConfigError, ConnectionLostError, IllegalStateError, RequestTimeoutError
from raybroker.model.definitions import Definitions
from tests.unit.broker.worlds import DMQ, FakeHost, World, served, subscription

HEAD = {"raybroker": {"definitions": 1}}


class Hands:
    """Carries out nothing; ``failing``: name → the error that its verb raises."""

    def __init__(self, now: Definitions | None = None, own: Any = None) -> None:
        self.calls: list[tuple[str, str]] = []
        self.failing: dict[str, Exception] = {}
        self.time_s = 0.0
        self.each_s = 0.0
        self.answer: dict[str, Any] = {"down": [], "brokers": {}}
        self.now = now or Definitions()
        self.waiting: asyncio.Event | None = None
        world = World()
        self.transfer = Transfer(
            own or world.broker.own_definitions, self._now, self._carry, lambda: self.time_s, agents=True
        )

    async def _now(self) -> Definitions:
        return self.now

    async def _carry(self, verb: str, args: dict[str, Any]) -> Any:
        if self.waiting is not None:
            await self.waiting.wait()
        self.time_s += self.each_s
        self.calls.append((verb, args.get("name", "")))
        if error := self.failing.get(args.get("name", "")):
            raise error
        return self.answer

    def run(self, *, dry_run: bool = False, prune: bool = False, keep_going: bool = False, **sections: Any) -> Any:
        return asyncio.run(self.transfer.import_definitions({**HEAD, **sections}, dry_run, prune, keep_going))


THREE: dict[str, Any] = {"queues": {name: {} for name in "abc"}}


def states(report: Any) -> list[str]:
    return [row["state"] for row in report["steps"]]


def test_a_dry_run_carries_nothing_out() -> None:
    hands = Hands()
    report = hands.run(dry_run=True, **THREE)
    assert (states(report), hands.calls, report["complete"], report["more"]) == (["planned"] * 3, [], True, False)


def test_it_stops_at_the_first_step_that_fails_and_says_what_was_not_done() -> None:
    hands = Hands()
    hands.failing["b"] = ConfigError("no")
    report = hands.run(**THREE)
    assert (states(report), report["steps"][1]["reason"]) == (["done", "failed", "not done"], "no")
    assert (hands.calls, report["complete"], report["more"]) == (
        [("create_destination", "a"), ("create_destination", "b")], False, False,
    )  # fmt: skip


def test_it_goes_on_when_told_to() -> None:
    hands = Hands()
    hands.failing["b"] = RequestTimeoutError("no answer")
    report = hands.run(keep_going=True, **THREE)
    assert (states(report), report["complete"]) == (["done", "unknown", "done"], False)


def test_what_cannot_be_done_at_all_is_found_before_anything_is() -> None:
    now = Definitions(queues={"b": {"destinationKeys": "x"}})
    hands = Hands(now)
    report = hands.run(**THREE)
    assert (states(report), hands.calls, report["complete"]) == (["not done", "blocked", "not done"], [], False)
    assert states(hands.run(keep_going=True, **THREE)) == ["done", "blocked", "done"]
    assert states(hands.run(dry_run=True, **THREE)) == ["planned", "blocked", "planned"]


def test_one_call_takes_a_bounded_time_and_says_that_there_is_more() -> None:
    hands = Hands()
    hands.each_s = TURN_S * 0.6
    report = hands.run(**THREE)
    assert (states(report), report["complete"], report["more"]) == (["done", "done", "not done"], False, True)


def test_properties_that_some_brokers_do_not_have_are_not_done() -> None:
    hands = Hands()
    hands.answer = {"down": ["b2"], "brokers": {}}
    (row,) = hands.run(properties={"imq.log.level": "ERROR"})["steps"]
    assert (row["state"], "not up keep what they had: b2" in row["reason"]) == ("failed", True)


def test_only_one_import_is_made_at_a_time() -> None:
    async def work() -> None:
        hands = Hands()
        hands.waiting = asyncio.Event()
        first = asyncio.create_task(hands.transfer.import_definitions({**HEAD, **THREE}))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(IllegalStateError, match="another import is under way"):
            await hands.transfer.import_definitions({**HEAD, **THREE})
        hands.waiting.set()
        assert (await first)["complete"]

    asyncio.run(work())


def test_what_is_no_definitions_is_refused() -> None:
    with pytest.raises(ConfigError, match="these are no definitions"):
        asyncio.run(Hands().transfer.import_definitions({}))
    with pytest.raises(ConfigError, match="subscriptions, s: "):
        Hands().run(subscriptions=[{"name": "s", "topic": "t", "selector": "price >"}])


def own(world: World, *rows: Any, subscriptions: Any = ()) -> OwnDefinitions:
    host: Any = FakeHost("h1", served=rows)
    host.subscribed = list(subscriptions)
    registry = world.broker.registry
    registry.hosts.append(host)
    for row in rows:
        registry.where[row["type"], row["name"]] = host
    found: OwnDefinitions = world.broker.own_definitions
    return found


def test_what_administrators_made_is_exported_and_nothing_else() -> None:
    async def work() -> None:
        rows = [
            {**served("queue", "a"), "traits": {"maxNumMsgs": 5}}, served("queue", "auto", auto=True), served(*DMQ),
            served("queue", "mq.temp.q.x.1", temporary=True), served("topic", "orphan"), served("topic", "t"),
        ]  # fmt: skip
        world = World({"imq.log.level": ["ERROR", "INFO"]})
        definitions = own(world, *rows, subscriptions=[subscription("t", "s"), subscription("t", "now", durable=False)])
        world.broker.registry.orphans.add(("topic", "orphan"))
        found = await definitions.all()
        assert found.plain() == {
            **HEAD, "properties": {"imq.log.level": "ERROR"}, "queues": {"a": {"maxNumMsgs": 5}}, "topics": {"t": {}},
            "subscriptions": [{"name": "s", "client_id": "c", "topic": "t"}],
        }  # fmt: skip

    asyncio.run(work())


def test_a_cluster_exports_its_record_and_what_the_broker_has_alone() -> None:
    async def work() -> None:
        rows = [{**served("queue", "mine"), "traits": {"isLocalOnly": True}}, served("queue", "recorded"),
                {**served(*DMQ), "traits": {"maxNumMsgs": 7}}]  # fmt: skip
        record = RecordState()
        record.destinations["queue", "recorded"] = {"maxNumMsgs": 3}
        record.forwardings["f",] = {"queue": "recorded", "to": "c/q"}
        record.subscriptions["", "s"] = {"topic": "t", "shared": True, "selector": None, "no_local": False}
        found = await own(World(), *rows).of_cluster(record)
        assert found.queues == {
            "mine": {"isLocalOnly": True}, "recorded": {"maxNumMsgs": 3}, "mq.sys.dmq": {"maxNumMsgs": 7},
        }  # fmt: skip
        assert found.agents == {"f": {"queue": "recorded", "to": "c/q"}}
        assert found.subscriptions["", "s"]["shared"] is True

    asyncio.run(work())


def test_nothing_is_exported_while_a_host_cannot_be_asked() -> None:
    world = World()
    world.broker.registry.unasked["h9"] = "shared"
    with pytest.raises(ConnectionLostError):
        asyncio.run(world.broker.own_definitions.all())
