"""Where the dead go, that they get there with their death on record, and that they are never lost on the way."""

from __future__ import annotations

import re
from typing import Any

import pytest

from raybroker.core import command as cmd
from raybroker.core.outcome import DeadLetter
from raybroker.engine.dead_letters.dead_letters import DeadLetters
from raybroker.engine.path.wakeups import AGAIN_MS, Durations, WakeupRetries, Wakeups
from raybroker.model.blocks.record import BLOCK
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import DMQ, Client, Rig

REASON = "JMS_SUN_DMQ_UNDELIVERED_REASON"


def dying(rig: Rig, *bodies: str, **more: Any) -> None:
    """Messages that every delivery fails until they are dead, in a queue with redeliveryLimit 0."""
    client = Client(rig)
    producer, consumer = client.producer(), client.consumer()
    client.send(producer, *bodies, **more)
    client.got()
    for body in bodies:
        client.settle(consumer, "fail", body)
    client.session.close()


def rig_with(*, dmq: bool = True, forwards: bool = False, config: dict[str, Any] | None = None, **more: Any) -> Rig:
    rig = Rig(forwards=forwards, **config or {})
    if dmq:
        rig.create(DMQ)
    rig.create(**{"redeliveryLimit": 0} | more)
    return rig


# ---- on the same host ----------------------------------------------------------------------------------------------


def test_a_dead_message_goes_to_the_dead_message_queue_with_its_death_on_record() -> None:  # D-24, D-25, B12, B14
    rig = rig_with()
    dying(rig, "a", properties={"mine": 1})
    rig.sync()
    ((body, properties),) = rig.waiting(DMQ)
    assert body == "a"
    assert properties["mine"] == 1
    assert properties[REASON] == "UNDELIVERABLE"
    assert properties["JMS_SUN_DMQ_UNDELIVERED_TIMESTAMP"] == rig.clock.ms
    assert properties["JMS_SUN_DMQ_DELIVERY_COUNT"] == 1
    assert properties["JMS_SUN_DMQ_DEAD_BROKER"] == "b1"
    assert properties["RAYBROKER_ORIGIN"] == "queue:q"
    assert rig.held() == 0
    assert rig.destination().counters.dead == 1


def test_leaving_and_arriving_are_one_batch() -> None:
    rig = rig_with()
    dying(rig, "a")
    moves = [batch for batch in rig.commits() if any(e.destination == rig.destination(DMQ).number for e in batch)]
    assert len(moves) == 1
    assert {(e.destination, e.kind == BLOCK) for e in moves[0]} == {
        (rig.destination(DMQ).number, True),
        (rig.destination().number, False),
    }


def test_a_crash_before_that_batch_loses_nothing() -> None:  # B13
    rig = rig_with()
    client = Client(rig)
    producer, consumer = client.producer(), client.consumer()
    client.send(producer, "a")
    client.got()
    client.settle(consumer, "fail", "a")
    for synced, expected in ((False, (1, 0)), (True, (0, 1))):
        if synced:
            rig.sync()
        again = rig.survivor()
        assert (again.held(), again.held(DMQ)) == expected


def test_volatile_messages_are_buried_as_well() -> None:
    rig = rig_with()
    dying(rig, "v", persistent=False)
    assert rig.bodies(DMQ) == ["v"]


@pytest.mark.parametrize("outcome", ["reject", "expired"])
def test_the_reason_is_on_the_message(outcome: str) -> None:
    rig = rig_with()
    client = Client(rig)
    producer, consumer = client.producer(), client.consumer()
    client.send(producer, "a")
    client.got()
    client.settle(consumer, outcome, "a", reason="no such order")
    ((_, properties),) = rig.waiting(DMQ)
    assert properties[REASON] == {"reject": "ERROR", "expired": "EXPIRED"}[outcome]
    assert properties["JMS_SUN_DMQ_UNDELIVERED_COMMENT"] == "no such order"


def test_what_was_discarded_at_a_limit_is_dead_too() -> None:  # D-11
    rig = rig_with(maxNumMsgs=1, limitBehavior="REMOVE_OLDEST")
    client = Client(rig)
    client.send(client.producer(), "a", "b")
    ((body, properties),) = rig.waiting(DMQ)
    assert (body, properties[REASON]) == ("a", "OLDEST")


def test_without_a_dead_message_queue_the_dead_are_gone() -> None:
    for rig in (rig_with(useDMQ=False), rig_with(dmq=False)):
        dying(rig, "a")
        rig.sync()
        assert rig.held() == 0
    assert rig_with().bodies(DMQ) == []


def test_the_dead_of_the_dead_message_queue_are_gone() -> None:
    rig = rig_with()
    client = Client(rig)
    producer, consumer = client.producer(DMQ), client.consumer(DMQ)
    client.send(producer, "a")
    client.got()
    client.settle(consumer, "reject", "a")
    rig.sync()
    assert rig.held(DMQ) == 0


def test_a_full_dead_message_queue_drops_its_oldest() -> None:  # D-24
    rig = rig_with()
    rig.host.administration.update(DMQ, {"maxNumMsgs": 2}, lambda: None)
    dying(rig, "a", "b", "c")
    assert rig.bodies(DMQ) == ["b", "c"]


# ---- error destinations and policies -------------------------------------------------------------------------------


def test_the_error_destination_beats_the_dead_message_queue() -> None:  # W-70
    rig = rig_with(errorDestination="errors")
    rig.create("errors")
    dying(rig, "a")
    assert rig.bodies("errors") == ["a"]
    assert rig.held(DMQ) == 0


EXPIRIES = [
    ({"expirationPolicy": "Default"}, DMQ),
    ({"expirationPolicy": "Default", "errorDestination": "errors"}, DMQ),
    ({"expirationPolicy": "Discard"}, None),
    ({"expirationPolicy": "Log"}, None),
    ({"expirationPolicy": "Redirect", "errorDestination": "errors"}, "errors"),
    ({"expirationPolicy": "Redirect"}, None),
    ({"expirationPolicy": "Default", "useDMQ": False}, None),
]


@pytest.mark.parametrize(("attributes", "target"), EXPIRIES, ids=[str(row) for row in EXPIRIES])
def test_an_expired_message_goes_where_its_policy_says(attributes: dict[str, Any], target: str | None) -> None:  # W-57
    rig = rig_with(config={"imq__message__expiration__interval": 1}, **attributes)
    rig.create("errors")
    client = Client(rig)
    client.send(client.producer(), "a", ttl=10, properties={"x": 1})
    rig.tick(1000)
    assert rig.held() == 0
    assert [name for name in (DMQ, "errors") if rig.held(name)] == ([target] if target else [])
    assert rig.destination().counters.expired == 1
    assert len(rig.reports) == (attributes["expirationPolicy"] == "Log")


def test_the_log_policy_writes_what_it_is_told_to() -> None:  # W-61
    rig = rig_with(expirationPolicy="Log", expirationLoggingPolicy="JMSPriority,x")
    client = Client(rig)
    client.send(client.producer(), "a", ttl=10, priority=7, properties={"x": "y"})
    rig.clock.ms += 10
    client.consumer()
    (line,) = rig.reports
    assert "<ExpiredJMSMessage" in line
    assert "JMSPriority='7'" in line
    assert "x='y'" in line


WISHES = [
    ({"JMS_SUN_PRESERVE_UNDELIVERED": True}, {"useDMQ": False}, ["a"]),
    ({"JMS_SUN_PRESERVE_UNDELIVERED": False}, {"useDMQ": True}, []),
    ({"JMS_SUN_PRESERVE_UNDELIVERED": "true"}, {"useDMQ": False}, ["a"]),
]


@pytest.mark.parametrize(("properties", "attributes", "expected"), WISHES)
def test_a_message_may_say_whether_it_is_kept(
    properties: dict[str, Any], attributes: dict[str, Any], expected: list[str]
) -> None:  # D-25
    rig = rig_with(**attributes)
    dying(rig, "a", properties=properties)
    assert rig.bodies(DMQ) == expected


@pytest.mark.parametrize(("wish", "setting", "expected"), [(None, True, ""), (False, True, "a"), (True, False, "")])
def test_bodies_are_cut_when_they_are_to_be(wish: bool | None, setting: bool, expected: str) -> None:  # D-24, D-25
    rig = rig_with(config={"imq__destination__DMQ__truncateBody": setting})
    dying(rig, "a", properties={"JMS_SUN_TRUNCATE_MSG_BODY": wish} if wish is not None else {"x": 1})
    ((body, properties),) = rig.waiting(DMQ)
    assert body == expected
    assert properties["JMS_SUN_DMQ_BODY_TRUNCATED"] == (expected == "")


@pytest.mark.parametrize(("wish", "setting", "lines"), [(None, True, 1), (False, True, 0), (True, False, 1)])
def test_deaths_are_logged_when_they_are_to_be(wish: bool | None, setting: bool, lines: int) -> None:  # D-25
    rig = rig_with(config={"imq__destination__logDeadMsgs": setting})
    dying(rig, "a", properties={"JMS_SUN_LOG_DEAD_MESSAGES": wish} if wish is not None else {"x": 1})
    rig.sync()
    assert len(rig.reports) == lines
    assert all(re.search(r"message ID:\S+ of queue q is dead: UNDELIVERABLE", line) for line in rig.reports)


# ---- targets that do not take them ---------------------------------------------------------------------------------


def test_a_full_error_destination_gets_them_later() -> None:  # W-71
    rig = rig_with(errorDestination="errors")
    rig.create("errors", maxNumMsgs=1)
    dying(rig, "a", "b", "c")
    rig.sync()
    assert rig.bodies("errors") == ["a"], "as many as fit"
    assert rig.held() == 2
    rig.tick(5000)
    assert rig.held() == 2
    assert sum("[B2175] 2 dead messages of queue q cannot be moved" in line for line in rig.reports) == 1
    rig.host.administration.update("errors", {"maxNumMsgs": 9}, lambda: None)
    rig.tick(5000)
    assert rig.bodies("errors") == ["a", "b", "c"]
    assert rig.held() == 0


def test_a_full_error_destination_loses_volatile_messages_only() -> None:  # W-71
    rig = rig_with(errorDestination="errors")
    rig.create("errors", maxNumMsgs=0)
    dying(rig, "a")
    dying(rig, "v", persistent=False)
    rig.sync()
    assert rig.held() == 1


def test_what_was_not_taken_is_offered_again_after_a_restart() -> None:  # W-71
    rig = rig_with(errorDestination="errors")
    rig.create("errors", maxNumMsgs=0)
    dying(rig, "a")
    rig.sync()
    again = rig.restart()
    again.host.administration.update("errors", {"maxNumMsgs": 9}, lambda: None)
    Client(again).consumer()
    assert again.bodies("errors") == ["a"]
    assert again.held() == 0


def test_a_missing_error_destination_keeps_them_until_it_is_there() -> None:
    rig = rig_with(errorDestination="errors")
    dying(rig, "a")
    rig.sync()
    assert rig.held() == 1
    rig.create("errors")
    rig.tick(5000)
    assert rig.bodies("errors") == ["a"]


def test_dead_messages_of_a_subscription_that_has_ended_are_forgotten() -> None:
    rig = Rig()
    rig.create("t", "topic", redeliveryLimit=0, errorDestination="errors")
    client = Client(rig, "c")
    own = {"name": "d", "durable": True, "shared": False}
    producer, consumer = client.producer("t", "topic"), client.consumer("t", "topic", subscription=own)
    client.send(producer, "a")
    client.got()
    client.settle(consumer, "fail", "a")
    rig.sync()
    client.ok("close_consumer", handle=consumer)
    rig.host.subscriptions.unsubscribe("t", "c", "d", lambda: None)
    rig.sync()
    rig.create("errors")
    rig.tick(5000)
    assert rig.held("errors") == rig.held("t", "topic") == 0
    assert not rig.host.registry.halted


def test_a_queue_that_is_destroyed_takes_its_dead_along() -> None:
    rig = rig_with(errorDestination="errors")
    dying(rig, "a")
    rig.sync()
    rig.host.removal.destroy("q", lambda: None)
    rig.create("errors")
    rig.tick(5000)
    assert rig.held("errors") == 0


# ---- to another host -----------------------------------------------------------------------------------------------


def test_to_another_host_a_message_is_sent_first_and_settled_after() -> None:  # B13
    rig = rig_with(dmq=False, forwards=True)
    dying(rig, "a")
    rig.sync()
    ((kind, name, block, done),) = rig.away
    assert (kind, name, bytes(block.body(0))) == ("queue", DMQ, b"a")
    assert rig.held() == 1
    assert rig.survivor().held() == 1, "it is doubled rather than lost"
    done(True)
    rig.sync()
    assert rig.held() == 0


def test_another_host_that_does_not_take_it_is_asked_again() -> None:  # B13
    rig = rig_with(dmq=False, forwards=True)
    dying(rig, "a")
    rig.sync()
    rig.away.pop()[3](False)
    assert rig.held() == 1
    assert rig.alarms[-1] == rig.clock.ms + 5000
    rig.tick(4999)
    assert not rig.away
    rig.tick(1)
    rig.away.pop()[3](True)
    rig.sync()
    assert rig.held() == 0


# ---- topics --------------------------------------------------------------------------------------------------------


def test_every_subscription_buries_its_own_failures() -> None:  # W-72
    rig = Rig()
    rig.create(DMQ)
    rig.create("t", "topic", redeliveryLimit=0)
    clients = [Client(rig), Client(rig)]
    consumers = [client.consumer("t", "topic") for client in clients]
    sender = Client(rig)
    sender.send(sender.producer("t", "topic"), "a")
    for client, consumer in zip(clients, consumers, strict=True):
        client.got()
        client.settle(consumer, "fail", "a")
    assert rig.bodies(DMQ) == ["a", "a"]
    assert rig.held("t", "topic") == 0


def test_a_purge_takes_the_dying_along() -> None:
    rig = rig_with(errorDestination="errors")
    dying(rig, "a")
    rig.host.executor.perform(rig.destination(), cmd.Purge())
    rig.sync()
    assert (rig.held(), rig.destination().block_index.dead) == (0, 0)
    rig.create("errors")
    rig.tick(5000)
    assert rig.held("errors") == 0


# ---- the part alone --------------------------------------------------------------------------------------------------


class Dying(Desk):
    """Stands in for the policy, the moves and the log. ``targets``: what the policy says; ``takes``: whether the
    targets take them."""

    def __init__(self) -> None:
        super().__init__()
        self.destination = self.add()
        self.targets: list[tuple[str | None, int, bool]] = [("e", 1, False)]
        self.takes = True
        self.told: list[str] = []
        self.sent: list[tuple[str, int, bool]] = []
        self.settled: list[int] = []
        retries: WakeupRetries[Any] = WakeupRetries(Durations(Wakeups(), self.time))
        me: Any = self
        self.dead = DeadLetters(self.executor, self.registry, self.executor, me, me, me, retries)

    def sort(self, destination: Any, effect: DeadLetter, block: Any) -> list[tuple[str | None, int, bool]]:
        return self.targets

    def settle_moved(self, destination: Any, effect: DeadLetter) -> None:
        self.settled.append(effect.mask)

    def send(
        self, destination: Any, effect: DeadLetter, block: Any, name: str, refused: Any, *, truncate: bool
    ) -> None:
        self.sent.append((name, effect.mask, truncate))
        if not self.takes:
            refused(effect, "it is full")

    def died(self, destination: Any, effect: DeadLetter, block: Any) -> None:
        self.told.append(effect.reason)

    def count_refused(self, destination: Any, count: int, why: str, *, kept: bool) -> None:
        self.told += [why] * count

    def die(self, *bodies: str, reason: str = "ERROR", persistent: bool = True) -> None:
        ordinal, mask = self.put(self.destination, *bodies, persistent=persistent), (1 << len(bodies)) - 1
        self.kill(self.destination, ordinal, mask)
        self.dead.died(self.destination, DeadLetter(0, ordinal, mask, 1, reason, ""))


def test_each_goes_where_the_policy_says() -> None:
    world = Dying()
    world.targets = [("e", 0b001, True), (None, 0b010, False), ("f", 0b100, False)]
    world.die("a", "b", "c")
    assert (world.sent, world.settled) == ([("e", 0b001, True), ("f", 0b100, False)], [0b010])


@pytest.mark.parametrize(("reason", "expired"), [("EXPIRED", 1), ("ERROR", 0)])
def test_only_expiries_are_counted_as_such(reason: str, expired: int) -> None:
    world = Dying()
    world.die("a", reason=reason)
    assert world.destination.counters.expired == expired


def test_what_is_not_taken_is_offered_again_and_told_once() -> None:
    world = Dying()
    world.takes = False
    world.die("a")
    assert world.told == ["ERROR", "it is full"]
    world.clock.ms += AGAIN_MS - 1
    world.dead.offer_again()
    assert len(world.sent) == 1
    world.takes = True
    world.clock.ms += AGAIN_MS
    world.dead.offer_again()
    assert world.sent == [("e", 1, False)] * 2
    assert world.told == ["ERROR", "it is full"], "its death is not news"


def test_a_volatile_message_that_is_not_taken_is_gone() -> None:
    world = Dying()
    world.takes = False
    world.die("a", persistent=False)
    assert world.settled == [1]
    world.clock.ms += AGAIN_MS
    world.dead.offer_again()
    assert len(world.sent) == 1


def test_a_destroyed_destination_takes_its_dead_along() -> None:
    world = Dying()
    del world.registry.destinations["queue", "q"]
    world.die("a")
    assert (world.told, world.sent, world.settled) == ([], [], [])
