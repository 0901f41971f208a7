"""Which destinations a host has: kinds, changes, pauses, temporary ones, what a restart brings back (D-03, D-21 …)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.core import command as cmd
from raybroker.core.durable import records
from raybroker.engine.checkpoint import Definition
from raybroker.engine.destinations.destination_administration import DestinationAdministration
from raybroker.engine.destinations.policies import own_attributes
from raybroker.engine.destinations.temporary_destinations import ORPHAN_MS
from raybroker.engine.sessions.attachments import Attachments, Outbox
from raybroker.model.blocks.record import LogEntry
from raybroker.model.errors import ConfigError, IllegalStateError, InvalidDestinationError, StoreDamagedError
from raybroker.model.settings.settings import destination_attributes
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import DMQ, Client, RecordingPeer, Rig

OWN = {"name": "d", "durable": True, "shared": False}


def nobody() -> None:
    """Nobody waits for it."""


def described(rig: Rig, name: str = "q", kind: str = "queue") -> dict[str, Any]:
    return rig.host.inspection.describe(kind, name)


# ---- queues and topics ---------------------------------------------------------------------------------------------


def test_a_queue_and_a_topic_may_have_one_name() -> None:
    rig = Rig()
    queue, topic = rig.create("a"), rig.create("a", "topic")
    assert queue.number != topic.number
    client = Client(rig)
    consumers = client.consumer("a"), client.consumer("a", "topic")
    client.send(client.producer("a"), "to the queue")
    client.send(client.producer("a", "topic", number=8), "to the topic", first=1)
    assert client.got() == ["to the queue", "to the topic"]
    assert set(consumers) == {handle for handle, _ in client.tags}
    rig.host.removal.destroy("a", nobody)
    rig.sync()
    assert list(rig.host.registry.destinations) == [("topic", "a")]


def test_creating_what_is_there_changes_nothing() -> None:
    rig = Rig()
    first = rig.create(maxNumMsgs=5)
    assert rig.create(maxNumMsgs=9) is first
    assert first.attributes.maxNumMsgs == 5


def test_changes_are_all_or_none_and_survive() -> None:  # D-03
    rig = Rig()
    rig.create()
    rig.host.administration.update("q", {"maxNumMsgs": 5}, nobody)
    with pytest.raises(ConfigError):
        rig.host.administration.update("q", {"maxNumMsgs": 9, "isLocalOnly": True}, nobody)
    rig.sync()
    for again in (rig, rig.restart()):
        assert again.destination().attributes.maxNumMsgs == 5


def test_a_topic_takes_attributes_of_topics_only() -> None:
    rig = Rig()
    rig.create("t", "topic")
    rig.host.administration.update("t", {"sharedConsumerFlowLimit": 7}, nobody, "topic")
    assert rig.destination("t", "topic").attributes.sharedConsumerFlowLimit == 7
    with pytest.raises(ConfigError, match="attribute of queues"):
        rig.host.administration.update("t", {"maxNumActiveConsumers": 1}, nobody, "topic")


def test_the_dead_message_queue_keeps_its_rules() -> None:  # D-24
    rig = Rig()
    rig.create(DMQ)
    with pytest.raises(ConfigError, match="limitBehavior"):
        rig.host.administration.update(DMQ, {"limitBehavior": "FLOW_CONTROL"}, nobody)
    with pytest.raises(IllegalStateError, match="cannot be paused"):
        rig.host.administration.pause(DMQ, "all", 0)


def test_what_does_not_exist_is_named() -> None:
    host = Rig().host
    for act in (
        lambda: host.removal.destroy("x", nobody),
        lambda: host.administration.purge("x", nobody),
        lambda: host.administration.update("x", {}, nobody),
        lambda: host.administration.pause("x", "all", 0),
        lambda: host.subscriptions.unsubscribe("x", "c", "d", nobody),
    ):
        with pytest.raises(InvalidDestinationError, match="'x' does not exist"):
            act()


def test_destroying_tells_who_was_attached_and_frees_the_store() -> None:
    rig = Rig()
    rig.create()
    client = Client(rig)
    producer, consumer = client.producer(), client.consumer()
    client.send(producer, "a")
    client.got()
    rig.host.removal.destroy("q", nobody)
    rig.sync()
    events = client.peer.take("event")
    assert [(name, data["handle"]) for _, name, data in events] == [("destroyed", producer), ("destroyed", consumer)]
    again = rig.restart()
    assert not again.host.registry.destinations
    assert again.create().number > 1, "numbers are never used again"


# ---- pauses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("which", "state"),
    [
        ("producers", "PRODUCERS_PAUSED"),
        ("consumers", "CONSUMERS_PAUSED"),
        ("all", "PAUSED"),
        ("insertion", "PRODUCERS_PAUSED"),
    ],
)
def test_a_pause_has_a_state_and_ends(which: str, state: str) -> None:  # D-26
    rig = Rig()
    rig.create()
    rig.host.administration.pause("q", which, 0)
    assert described(rig)["state"] == state
    rig.host.administration.resume("q", "all")
    assert described(rig)["state"] == "RUNNING"
    assert rig.reports == [f"queue q paused: {which}", "queue q resumed: all"]


def test_an_unknown_pause_is_refused() -> None:
    rig = Rig()
    rig.create()
    with pytest.raises(IllegalStateError, match="choose one of"):
        rig.host.administration.pause("q", "everything", 0)


def test_a_pause_until_a_time_ends_then() -> None:
    rig = Rig()
    rig.create()
    client = Client(rig)
    client.send(client.producer(), "a")
    rig.host.administration.pause("q", "consumers", rig.clock.ms + 100)
    client.consumer()
    assert client.got() == []
    rig.tick(99)
    assert client.got() == []
    rig.tick(1)
    assert client.got() == ["a"]


def test_what_is_hidden_is_counted_as_waiting() -> None:  # W-124
    rig = Rig()
    rig.create()
    client = Client(rig)
    client.send(client.producer(), "a", "b", txn=1)
    rig.host.administration.pause("q", "insertion", 0)
    assert described(rig)["in_transaction"] == 2
    client.ok("txn_commit", txn=1, key=b"k", acks=[])
    assert described(rig)["waiting"] == 2
    assert rig.bodies("q") == []
    rig.host.administration.resume("q", "insertion")
    assert rig.bodies("q") == ["a", "b"]


@pytest.mark.parametrize("which", ["production", "insertion", "consumption"])
def test_a_destination_may_be_paused_from_the_start_of_its_host(which: str) -> None:  # W-123 … W-125
    rig = Rig()
    assert not rig.create(**{f"{which}PausedAtStartup": True}).paused
    again = rig.restart()
    assert list(again.destination().paused) == [which]
    again.host.administration.resume("q", "all")
    assert not again.destination().paused


def test_a_pause_of_an_administrator_ends_with_the_host() -> None:
    rig = Rig()
    rig.create()
    rig.host.administration.pause("q", "all", 0)
    assert not rig.restart().destination().paused


# ---- restart -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_a_restart_brings_back(checkpoint: bool) -> None:  # B-20, D-22
    rig = Rig()
    rig.create("admin")
    rig.create("admin topic", "topic", maxNumMsgs=3)
    rig.create("auto", auto_created=True)
    rig.create("auto with a message", auto_created=True)
    rig.create("auto topic", "topic", auto_created=True)
    rig.create("auto topic with a subscription", "topic", auto_created=True)
    client = Client(rig, "c")
    client.send(client.producer("auto with a message"), "m")
    client.consumer("auto topic with a subscription", "topic", subscription=OWN)
    client.consumer("auto topic", "topic")
    if checkpoint:
        rig.store.checkpoint_after_entries = 1
        client.send(client.producer("admin", number=8), "m", first=1)
    rig.sync()
    again = rig.restart()
    assert {name for _, name in again.host.registry.destinations} == {
        "admin",
        "admin topic",
        "auto with a message",
        "auto topic with a subscription",
    }
    assert again.destination("admin topic", "topic").attributes.maxNumMsgs == 3
    assert again.destination("auto with a message").reap_ms == 120_000
    (row,) = again.host.inspection.subscriptions()
    assert (row["topic"], row["name"], row["active"]) == ("auto topic with a subscription", "d", False)


def test_an_unused_auto_created_queue_says_so() -> None:  # D-22
    rig = Rig(imq__autocreate__reaptime=5)
    rig.create(auto_created=True)
    rig.tick(4999)
    assert rig.idle == []
    rig.tick(1)
    assert rig.idle == [("queue", "q")]
    assert not rig.host.registry.destinations


def test_a_definition_is_read_as_it_was_written() -> None:
    rig = Rig()
    for definition in (
        rig.host.registry.definition(rig.create(maxNumMsgs=5)),
        rig.host.registry.definition(rig.create("t", "topic", sharedConsumerFlowLimit=2, expirationPolicy="Discard")),
    ):
        assert Definition.decode(definition.encode()) == definition
    for data in (b"", b"{}", b"7"):
        with pytest.raises(StoreDamagedError):
            Definition.decode(data)


# ---- temporary destinations (D-23) ---------------------------------------------------------------------------------


def test_only_its_own_connection_consumes_and_everybody_sends() -> None:
    rig = Rig()
    rig.create("tmp", owner="me")
    owner, other = Client(rig, connection="me"), Client(rig, connection="you")
    args = {"handle": 1, "name": "tmp", "flow": "credit", "limit": 1, "no_ack": False}
    assert other.fails("open_consumer", **args) == "invalid_destination"
    owner.consumer("tmp")
    other.send(other.producer("tmp"), "a")
    assert owner.got() == ["a"]
    assert len(other.peer.take("sent")) == 1


def test_a_temporary_destination_is_never_stored() -> None:
    rig = Rig()
    rig.create("tmp", owner="me")
    sender = Client(rig)
    sender.send(sender.producer("tmp"), "a")
    rig.store.checkpoint_after_entries = 0
    rig.create()
    assert rig.held("tmp") == 1
    again = rig.restart()
    assert list(again.host.registry.destinations) == [("queue", "q")]


def test_it_waits_a_while_for_its_connection_to_come_back() -> None:
    rig = Rig()
    rig.create("tmp", owner="me")
    rig.create("tmp", "topic", owner="me")
    rig.create("other", owner="you")
    first, second = Client(rig, connection="me"), Client(rig, connection="me")
    first.session.close()
    rig.tick(ORPHAN_MS)
    assert len(rig.host.registry.destinations) == 3, "one of its sessions is still there"
    second.session.close()
    rig.tick(ORPHAN_MS - 1)
    third = Client(rig, connection="me")
    rig.tick(ORPHAN_MS)
    assert len(rig.host.registry.destinations) == 3
    third.session.close()
    rig.tick(ORPHAN_MS)
    assert list(rig.host.registry.destinations) == [("queue", "other")]


def test_it_waits_for_the_end_of_a_prepared_transaction() -> None:
    rig = Rig()
    rig.create("tmp", owner="me")
    owner, other = Client(rig, connection="me"), Client(rig)
    other.send(other.producer("tmp"), "a", txn=1)
    other.ok("txn_prepare", txn=1, key=b"k", coordinator="", acks=[])
    owner.session.close()
    rig.tick(ORPHAN_MS)
    assert rig.held("tmp") == 1
    other.ok("txn_decide", key=b"k", commit=True)
    rig.tick(ORPHAN_MS)
    assert not rig.host.registry.destinations


# ---- subscriptions -------------------------------------------------------------------------------------------------


def test_subscriptions_are_shown_purged_and_ended() -> None:
    rig = Rig()
    rig.create("t", "topic")
    client = Client(rig, "c")
    consumer = client.consumer("t", "topic", subscription=OWN, selector="n > 1", no_local=True)
    client.consumer("t", "topic")
    sender = Client(rig)
    sender.send(sender.producer("t", "topic"), "a", properties={"n": 2})
    (row,) = rig.host.inspection.subscriptions("t")
    assert row == {
        "topic": "t",
        "client_id": "c",
        "name": "d",
        "durable": True,
        "shared": False,
        "selector": "n > 1",
        "no_local": True,
        "active": True,
        "messages": 1,
        "consumers": 1,
    }
    with pytest.raises(IllegalStateError):
        rig.host.subscriptions.unsubscribe("t", "c", "d", nobody)
    client.ok("close_consumer", handle=consumer)
    rig.host.subscriptions.purge("t", "c", "d", nobody)
    assert rig.host.inspection.subscriptions("t")[0]["messages"] == 0
    rig.host.subscriptions.unsubscribe("t", "c", "d", nobody)
    assert rig.host.inspection.subscriptions() == []
    with pytest.raises(InvalidDestinationError):
        rig.host.subscriptions.purge("t", "c", "d", nobody)


def test_purging_revives_a_halted_destination() -> None:
    rig = Rig(raybroker__memory__block_cache_bytes=0)
    rig.create()
    client = Client(rig)
    client.send(client.producer(), "a")
    rig.sync()
    rig.store.read = _damaged  # type: ignore[method-assign]
    receiver = Client(rig)
    receiver.consumer()
    assert receiver.got() == []
    assert described(rig)["state"] == "HALTED"
    assert [name for _, name, _ in receiver.peer.take("event")] == ["halted"]
    assert Client(rig).fails("open_producer", handle=1, name="q", producer=1) == "store_damaged"
    rig.host.administration.purge("q", nobody)
    assert described(rig)["state"] == "RUNNING"
    assert rig.held() == 0


def _damaged(destination: int, ordinal: int) -> bytes:
    raise StoreDamagedError(f"block {ordinal} is damaged")


def test_a_temporary_destination_that_was_updated_does_not_outlive_a_restart() -> None:
    rig, durable = Rig(), list[str]()
    rig.create("tmp", owner="me")
    rig.host.administration.update("tmp", {"maxNumMsgs": 7}, lambda: durable.append("updated"))
    assert durable == ["updated"]
    assert ("queue", "tmp") in rig.host.registry.destinations
    assert ("queue", "tmp") not in rig.restart().host.registry.destinations


# ---- the part alone --------------------------------------------------------------------------------------------------


GONE = records.encode(records.GONE, 0)


class Administered(Desk):
    """``told``: what other parts heard; ``done``: how often something was said to be durable."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        self.done = 0
        self.attachments = Attachments(1)
        self.dormant: set[int] = set()
        installation: Any = SimpleNamespace(
            make=self._make, forget_dormant=lambda number: number in self.dormant, hold=own_attributes
        )
        meters: Any = SimpleNamespace(
            thresholds=SimpleNamespace(apply_attributes=lambda destination: self.told.append("thresholds")),
            life=SimpleNamespace(
                wanted=lambda destination: True,
                removed=lambda destination, ordinal, mask: self.told.append(f"removed {mask:b}"),
            ),
        )
        quarantine: Any = SimpleNamespace(forget_destination=lambda destination: self.told.append("quarantine"))
        self.verbs = DestinationAdministration(
            self.executor,
            self.registry,
            installation,
            self.attachments,
            quarantine,
            meters,
            self.lines.append,
            lambda destination: self.told.append("pool"),
        )

    def _make(self, definition: Definition) -> Any:
        return self.add(
            definition.name,
            definition.kind,
            owner=definition.owner,
            auto_created=definition.auto_created,
            maxNumMsgs=definition.attributes.maxNumMsgs,
        )

    def durable(self) -> None:
        self.done += 1

    def create(self, name: str = "q", *, auto_created: bool = False, owner: str | None = None, **more: Any) -> Any:
        attributes = destination_attributes(more, type="queue")
        self.verbs.create(name, attributes, auto_created=auto_created, done=self.durable, owner=owner)
        return self.registry.named("queue", name)

    def written(self) -> list[LogEntry]:
        return [one for batch in self.executor.batches for one in batch if isinstance(one, LogEntry)]


def test_a_new_destination_is_written_and_a_temporary_one_is_not() -> None:
    world = Administered()
    destination = world.create(maxNumMsgs=5)
    entry, totals = world.written()
    assert entry.destination == totals.destination == destination.number
    assert world.registry.definition(destination).encode() in entry.meta
    assert records.decode_counts(records.decode(totals.meta).rest).since_ms == destination.counters.since_ms
    world.create("tmp", owner="me")
    assert len(world.written()) == 2
    assert world.done == 2


def test_what_an_administrator_creates_again_keeps_its_attributes() -> None:
    world = Administered()
    destination = world.create(maxNumMsgs=5)
    assert world.create(maxNumMsgs=9) is destination
    assert (destination.attributes.maxNumMsgs, len(world.written()), world.done) == (5, 2, 2)


def test_an_auto_created_one_becomes_the_administrators() -> None:
    world = Administered()
    destination = world.create(auto_created=True)
    destination.reap_ms = 1000
    world.create(maxNumMsgs=9)
    assert (destination.attributes.maxNumMsgs, destination.reap_ms) == (9, None)
    assert not world.registry.definition(destination).auto_created
    assert world.told == ["thresholds", "pool"]


def test_an_update_is_all_or_nothing_and_producers_hear_of_new_credit() -> None:
    world = Administered()
    destination = world.create()
    peer = RecordingPeer()
    number = world.attachments.attach(destination, peer, 3, Outbox()).number
    world.executor.perform(destination, cmd.AttachProducer(number, 7))
    before = world.registry.definition(destination)
    with pytest.raises(ConfigError):
        world.verbs.update("q", {"maxNumMsgs": 9, "isLocalOnly": True}, world.durable)
    assert world.registry.definition(destination) is before
    world.verbs.update("q", {"maxNumMsgs": 9}, world.durable)
    assert (destination.attributes.maxNumMsgs, peer.told) == (9, [])
    world.verbs.update("q", {"limitBehavior": "FLOW_CONTROL"}, world.durable)
    ((_, name, data),) = peer.told
    assert (name, data["handle"]) == ("credit", 3)


def test_a_purge_discards_what_waits_and_ends_a_quarantine() -> None:
    world = Administered()
    destination = world.create()
    world.put(destination, "a", "b")
    world.verbs.purge("q", world.durable)
    assert destination.block_index.messages == 0
    assert world.told == ["removed 11", "quarantine"]


def test_a_pause_is_written_once_and_ends_with_a_resume() -> None:
    world = Administered()
    destination = world.create()
    world.verbs.pause("q", "all", 0, done=world.durable)
    assert set(destination.paused) == {"production", "consumption"}
    assert world.registry.definition(destination).paused == destination.paused
    written = len(world.written())
    world.verbs.pause("q", "producers", 0, done=world.durable)
    assert len(world.written()) == written, "nothing has changed"
    world.verbs.resume("q", "all", done=world.durable)
    assert (destination.paused, len(world.written()), world.done) == ({}, written + 1, 4)
    assert world.lines == ["queue q paused: all", "queue q paused: producers", "queue q resumed: all"]


def test_what_cannot_be_paused_is_refused() -> None:
    world = Administered()
    world.create()
    with pytest.raises(IllegalStateError, match="cannot be paused; choose one of"):
        world.verbs.pause("q", "everything", 0)
    with pytest.raises(IllegalStateError, match="cannot be paused"):
        world.verbs.pause(DMQ, "all", 0)
    assert world.lines == []


def test_the_end_of_a_dormant_one_is_written_if_there_was_one() -> None:
    world = Administered()
    world.dormant = {4}
    world.verbs.forget_dormant(3)
    world.verbs.forget_dormant(4)
    assert [(entry.destination, entry.meta) for entry in world.written()] == [(4, GONE)]
