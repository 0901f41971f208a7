"""Export and import: what a broker has, and a plan that is carried out, stops, goes on or is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raybroker.broker.definitions.definition_transfer import TURN_S, OwnDefinitions, Transfer, TransferBrokers
from raybroker.cluster.change_record import RecordState
from raybroker.errors import ConfigError, ConnectionLostError, IllegalStateError, RequestTimeoutError
from raybroker.model.definitions.definitions import plain
from raybroker.model.definitions.values import Definitions
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
        self.users: list[dict[str, Any]] = []
        self.at: dict[str, dict[str, Any]] = {"b1": {}}
        """Broker → properties that were changed there."""
        self.down: tuple[str, ...] = ()
        world = World()
        self.transfer = Transfer(
            own or world.broker.own_definitions,
            self._now,
            self._brokers,
            self._carry,
            lambda: self.time_s,
            agents=True,
        )

    async def _now(self) -> Definitions:
        return self.now

    async def _brokers(self) -> TransferBrokers:
        configured = {"imq.log.level": "INFO", "imq.autocreate.queue": True}
        return TransferBrokers(
            {name: {"changed": own, "configured": configured} for name, own in self.at.items()}, self.down
        )

    async def _carry(self, verb: str, args: dict[str, Any]) -> Any:
        if verb == "list_users":
            return self.users
        if self.waiting is not None:
            await self.waiting.wait()
        self.time_s += self.each_s
        self.calls.append((verb, args.get("name", "")))
        if error := self.failing.get(args.get("name", "")):
            raise error
        return self.answer

    def run(
        self,
        *,
        dry_run: bool = False,
        prune: bool = False,
        keep_going: bool = False,
        taking_users: bool = False,
        **sections: Any,
    ) -> Any:
        given = {**HEAD, **sections}
        return asyncio.run(self.transfer.import_definitions(given, dry_run, prune, keep_going, taking_users))

    def exported(self, *, users: bool = False) -> Any:
        return asyncio.run(self.transfer.export_definitions(users))


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
        [("create_destination", "a"), ("create_destination", "b")],
        False,
        False,
    )


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
            {**served("queue", "a"), "traits": {"maxNumMsgs": 5}},
            served("queue", "auto", auto=True),
            served(*DMQ),
            served("queue", "mq.temp.q.x.1", temporary=True),
            served("topic", "orphan"),
            served("topic", "t"),
        ]
        world = World({"imq.log.level": ["ERROR", "INFO"]})
        definitions = own(world, *rows, subscriptions=[subscription("t", "s"), subscription("t", "now", durable=False)])
        world.broker.registry.orphans.add(("topic", "orphan"))
        found = await definitions.all()
        assert plain(found) == {
            **HEAD,
            "properties": {"imq.log.level": "ERROR"},
            "queues": {"a": {"maxNumMsgs": 5}},
            "topics": {"t": {}},
            "subscriptions": [{"name": "s", "client_id": "c", "topic": "t"}],
        }

    asyncio.run(work())


def test_a_cluster_exports_its_record_and_what_the_broker_has_alone() -> None:
    async def work() -> None:
        rows = [
            {**served("queue", "mine"), "traits": {"isLocalOnly": True}},
            served("queue", "recorded"),
            {**served(*DMQ), "traits": {"maxNumMsgs": 7}},
        ]
        record = RecordState()
        record.destinations["queue", "recorded"] = {"maxNumMsgs": 3}
        record.forwardings["f",] = {"queue": "recorded", "to": "c/q"}
        record.subscriptions["", "s"] = {"topic": "t", "shared": True, "selector": None, "no_local": False}
        found = await own(World(), *rows).of_cluster(record)
        assert found.queues == {
            "mine": {"isLocalOnly": True},
            "recorded": {"maxNumMsgs": 3},
            "mq.sys.dmq": {"maxNumMsgs": 7},
        }
        assert found.agents == {"f": {"queue": "recorded", "to": "c/q"}}
        assert found.subscriptions["", "s"]["shared"] is True

    asyncio.run(work())


def test_nothing_is_exported_while_a_host_cannot_be_asked() -> None:
    world = World()
    world.broker.registry.unasked["h9"] = "shared"
    with pytest.raises(ConnectionLostError):
        asyncio.run(world.broker.own_definitions.all())


SCRAM = "SCRAM-SHA-256$600000:c2FsdA==$a2V5:a2V5"


def user(broker: str, name: str, verifier: str = SCRAM) -> dict[str, Any]:
    return {"broker": broker, "user": name, "group": "user", "active": True, "verifier": verifier}


def test_users_are_exported_and_imported_only_when_they_are_asked_for() -> None:
    hands = Hands()
    hands.users = [user("b1", "ann")]
    assert hands.exported() == HEAD
    assert hands.exported(users=True) == {**HEAD, "users": {"ann": {"verifier": SCRAM}}}
    users = {"bob": {"verifier": SCRAM}}
    with pytest.raises(ConfigError, match="users: there are some among these definitions; import them with users"):
        hands.run(users=users)
    with pytest.raises(ConfigError, match="prune would delete all there are"):
        hands.run(taking_users=True, prune=True)
    assert hands.calls == []
    report = hands.run(users=users, taking_users=True, prune=True)
    assert hands.calls == [("set_user", "bob"), ("destroy_user", "ann")]
    assert SCRAM not in str(report)


def test_users_that_brokers_have_differently_are_no_export_and_are_made_alike() -> None:
    hands = Hands()
    hands.at = {"b1": {}, "b2": {}}
    hands.users = [user("b1", "ann"), user("b2", "ann"), user("b1", "bob")]
    with pytest.raises(IllegalStateError, match="user 'bob' is not the same on all brokers"):
        hands.exported(users=True)
    hands.run(users={name: {"verifier": SCRAM} for name in ("ann", "bob")}, taking_users=True)
    assert hands.calls == [("set_user", "bob")]


def test_a_user_whom_some_brokers_do_not_have_is_not_done() -> None:
    hands = Hands()
    hands.answer = {"brokers": ["b1"], "down": ["b2"]}
    report = hands.run(users={"ann": {"verifier": SCRAM}}, taking_users=True)
    assert (states(report), report["complete"]) == (["failed"], False)
    assert "not up keep what they had: b2" in report["steps"][0]["reason"]


def test_what_one_broker_has_alone_is_exported_apart_and_what_cannot_be_asked_is_named() -> None:
    hands = Hands()
    hands.at = {"b1": {"imq.log.level": "ERROR", "imq.autocreate.queue": False}, "b2": {"imq.autocreate.queue": False}}
    hands.down = ("b3",)
    assert hands.exported() == {
        "raybroker": {"definitions": 1, "missing": ["b3"]},
        "properties": {"imq.autocreate.queue": False},
        "brokers": {"b1": {"imq.log.level": "ERROR"}},
    }
    report = hands.run(brokers={"b2": {"imq.log.level": "WARNING"}, "b3": {"imq.log.level": "WARNING"}})
    assert ([row["name"] for row in report["steps"]], states(report)) == (["b2", "b3"], ["not done", "blocked"])
    with pytest.raises(ConfigError, match=r"imq.autocreate.queue has to be the same on all brokers"):
        hands.run(brokers={"b1": {"imq.autocreate.queue": True}})


def test_pauses_of_what_was_made_automatically_and_those_that_end_are_not_exported() -> None:
    async def work() -> None:
        rows = [
            {**served("queue", "a"), "paused": {"consumption": 0, "production": 5}},
            {**served("queue", "auto", auto=True), "paused": {"consumption": 0}},
        ]
        world = World()
        hands = Hands(own=own(world, *rows))
        hands.now = await world.broker.own_definitions.all()
        assert set(hands.now.pauses) == {("queue", "a", "consumers"), ("queue", "auto", "consumers")}
        found = await hands.transfer.export_definitions()
        assert found["pauses"] == [{"type": "queue", "name": "a", "which": "consumers"}]
        report = await hands.transfer.import_definitions(found, prune=True)
        assert (report["steps"], report["left"]) == ([], [])
        record = RecordState()
        record.pauses["queue", "a"] = {"consumers": 0, "producers": 9}
        assert set((await own(World()).of_cluster(record)).pauses) == {("queue", "a", "consumers")}

    asyncio.run(work())
