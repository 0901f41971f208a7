"""Distributed destinations: members share the messages, consumers have one member each (W-109 … W-117)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raybroker.errors import ConfigError
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.handles import bodies, take, until

pytestmark = pytest.mark.xdist_group("distributed")  # One worker makes what they share.

NAMES = ("b1", "b2", "b3")
SMALL = {"raybroker__store__segment_bytes": "1m"}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterRig]:
    """Three brokers, for tests that leave them alone."""
    with ClusterRig(tmp_path_factory.mktemp("rig"), 3, **SMALL) as found:
        yield found


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ClusterRig]:
    """Three brokers of the test's own."""
    with ClusterRig(tmp_path, 3, **SMALL) as found:
        yield found


def make(rig: ClusterRig, kind: str = "queue", **attributes: Any) -> str:
    name = rig.name()
    rig.connect("b1").admin().create_destination(kind, name, distributed=True, **attributes)
    return name


def counts(rig: ClusterRig, name: str, kind: str = "queue", key: str = "messages") -> dict[str, int]:
    """Messages on each broker, or another count."""
    found = next(iter(rig.brokers))
    rows = rig.connect(found).admin().query_destination(kind, name)["members"]
    return {row["broker"]: row[key] for row in rows}


def apart(rig: ClusterRig, home: str = "b1", **attributes: Any) -> Any:
    """A connection that has no preference for its home broker."""
    return rig.connect(home, ServerAffinityEnabled=False, **attributes)


def place(consumer: Any) -> list[str]:
    found: list[str] = consumer._core.info()["brokers"]
    return found


# ---- producers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("persistent", [True, False])
def test_each_message_goes_to_the_next_member(rig: ClusterRig, persistent: bool) -> None:  # W-110, W-111
    name = make(rig)
    producer = apart(rig).session().producer(name, persistent=persistent)
    for n in range(9):
        producer.send(n)
    until(lambda: sum(counts(rig, name).values()) == 9)
    assert counts(rig, name) == dict.fromkeys(NAMES, 3)


def test_send_many_shares_out_message_by_message(rig: ClusterRig) -> None:  # W-110
    name = make(rig)
    apart(rig).session().producer(name).send_many(range(30), properties=[{"n": n} for n in range(30)])
    assert counts(rig, name) == dict.fromkeys(NAMES, 10)
    session = apart(rig).session()
    found = [m for _ in NAMES for m in take(session.consumer(name), 10)]
    assert sorted(m.body for m in found) == list(range(30))
    assert all(m.properties["n"] == m.body for m in found)


def test_without_load_balancing_a_producer_keeps_the_member_of_its_first_message(rig: ClusterRig) -> None:  # W-110
    name = make(rig)
    session = apart(rig, LoadBalancingEnabled=False).session()
    for _ in NAMES:
        session.producer(name).send_many(range(5))
    assert counts(rig, name) == dict.fromkeys(NAMES, 5), "their first messages take turns"


def test_random_uses_all_members(rig: ClusterRig) -> None:  # W-111
    name = make(rig, loadBalancingPolicy="Random")
    apart(rig).session().producer(name).send_many(range(300))
    found = counts(rig, name)
    assert sum(found.values()) == 300
    assert min(found.values()) > 40, "one in 10^12 runs fails"


@pytest.mark.parametrize("home", NAMES)
def test_with_affinity_messages_stay_with_the_home_broker(rig: ClusterRig, home: str) -> None:  # W-112
    name = make(rig)
    rig.connect(home).session().producer(name).send_many(range(6))
    assert {broker: count for broker, count in counts(rig, name).items() if count} == {home: 6}


def test_members_with_consumers_come_before_those_without(rig: ClusterRig) -> None:  # W-114
    name = make(rig)
    producer = rig.connect("b1").session().producer(name)
    producer.send("nobody is there: the local member")
    consumer = rig.connect("b3").session().consumer(name)
    assert place(consumer) == ["b3"]
    until(lambda: producer._core._balance._consuming.get("b3"))
    producer.send("for b3")
    assert take(consumer, 1)[0].body == "for b3"
    consumer.close()
    until(lambda: not producer._core._balance._consuming.get("b3"))
    producer.send("local again")
    assert counts(rig, name) == {"b1": 2, "b2": 0, "b3": 0}


def test_a_unit_of_order_still_goes_to_its_own_member(rig: ClusterRig) -> None:  # W-118
    name = make(rig)
    apart(rig).session().producer(name, unit_of_order="one").send_many(range(8))
    assert sorted(counts(rig, name).values()) == [0, 0, 8]


def test_a_transaction_may_send_to_all_members(rig: ClusterRig) -> None:
    name = make(rig)
    session = apart(rig).session(transacted=True)
    producer = session.producer(name)
    for n in range(6):
        producer.send(n)
    session.rollback()
    for n in range(9):
        producer.send(n)
    assert sum(counts(rig, name, key="messages_out").values()) == 0
    session.commit()
    assert counts(rig, name) == dict.fromkeys(NAMES, 3)


def test_a_lost_member_is_passed_over_and_comes_back(own: ClusterRig) -> None:  # W-110, W-117
    name = make(own)
    producer = apart(own).session().producer(name)
    producer.send_many(range(3))
    own.kill("b3")
    until(lambda: {c.broker for c in producer._core._balance._balancer._found[0]} == {"b1", "b2"})
    producer.send_many(range(10))
    assert counts(own, name) == {"b1": 6, "b2": 6}
    own.start("b3")
    until(lambda: {c.broker for c in producer._core._balance._balancer._found[0]} == set(NAMES))
    producer.send_many(range(6))
    assert sum(counts(own, name).values()) == 19
    assert counts(own, name)["b3"] == 3


def test_a_member_whose_producers_are_paused_is_passed_over(rig: ClusterRig) -> None:  # W-123
    name = make(rig)
    producer = apart(rig).session().producer(name)
    pause = {"type": "queue", "name": name, "which": "producers"}
    rig.io.run(rig.brokers["b2"].local.admin("pause_destination", pause))
    until(lambda: {c.broker for c in producer._core._balance._balancer._found[0]} == {"b1", "b3"})
    producer.send_many(range(4))
    assert counts(rig, name) == {"b1": 2, "b2": 0, "b3": 2}
    rig.io.run(rig.brokers["b2"].local.admin("resume_destination", {"type": "queue", "name": name}))
    until(lambda: {c.broker for c in producer._core._balance._balancer._found[0]} == set(NAMES))


def test_a_destroyed_destination_ends_the_producer_and_is_not_made_again(own: ClusterRig) -> None:
    name = make(own)
    producer = apart(own).session().producer(name)
    producer.send_many(range(3))
    own.connect("b1").admin().destroy_destination("queue", name)
    until(lambda: producer._core.failure is not None)
    with pytest.raises(type(producer._core.failure)):
        producer.send("x")
    assert all(("queue", name) not in broker.local.registry.where for broker in own.brokers.values())


# ---- consumers -------------------------------------------------------------------------------------------------------


def test_consumers_have_one_member_each_those_without_first(rig: ClusterRig) -> None:  # W-113
    name = make(rig)
    session = apart(rig).session()
    consumers = [session.consumer(name) for _ in range(6)]
    places = [place(consumer) for consumer in consumers]
    assert sorted(p[0] for p in places[:3]) == list(NAMES)
    assert Counter(p[0] for p in places) == dict.fromkeys(NAMES, 2)


def test_with_affinity_consumers_stay_local(rig: ClusterRig) -> None:  # W-113
    name = make(rig)
    session = rig.connect("b2").session()
    assert [place(session.consumer(name)) for _ in range(3)] == [["b2"]] * 3


def test_a_pinned_consumer_gets_nothing_of_other_members(rig: ClusterRig) -> None:  # W-113
    name = make(rig)
    consumer = rig.connect("b2").session().consumer(name)
    producers = {home: rig.connect(home, LoadBalancingEnabled=False).session().producer(name) for home in NAMES}
    rig.connect("b1").session().consumer(name).close()
    for home, producer in producers.items():
        until(lambda p=producer: p._core._balance._consuming.get("b2"))  # type: ignore[misc]
        producer.send(home)
    assert sorted(bodies(take(consumer, 3))) == list(NAMES), "messages go where the consumer is"
    elsewhere = apart(rig, "b3").session().consumer(name)
    assert place(elsewhere) != ["b2"], "there is a member without one"
    assert elsewhere.receive(timeout=0.05) is None


def test_a_consumer_moves_when_the_broker_of_its_member_is_gone(own: ClusterRig) -> None:  # W-113, K-19
    name = make(own)
    session = apart(own, "b1").session()
    consumers = [session.consumer(name) for _ in NAMES]
    (moved,) = [c for c in consumers if place(c) == ["b3"]]
    own.kill("b3")
    until(lambda: place(moved) in (["b1"], ["b2"]))
    apart(own).session().producer(name).send_many(range(8))
    found: list[Any] = []
    until(lambda: (found.extend(m.body for c in consumers for m in iter(c.receive_nowait, None)), len(found) == 8)[1])
    assert sorted(found) == list(range(8))


def test_members_enforce_their_own_limits_of_consumers(rig: ClusterRig) -> None:  # D-15
    name = make(rig, maxNumActiveConsumers=1, maxNumBackupConsumers=1)
    session = apart(rig).session()
    consumers = [session.consumer(name) for _ in range(6)]
    assert Counter(place(c)[0] for c in consumers) == dict.fromkeys(NAMES, 2)
    assert sum(c._core.active for c in consumers) == 3


def test_not_distributed_stays_as_it_was(rig: ClusterRig) -> None:  # K-05
    name = rig.name()
    consumer = rig.connect("b1", ServerAffinityEnabled=False).session().consumer(name)
    apart(rig, "b2").session().producer(name).send_many(range(4))
    assert place(consumer) == list(NAMES)
    assert counts(rig, name) == {"b1": 0, "b2": 4, "b3": 0}


def test_a_destination_of_one_broker_cannot_be_distributed(rig: ClusterRig) -> None:
    with pytest.raises(ConfigError, match="isLocalOnly"):
        rig.connect("b1").admin().create_destination("queue", rig.name(), distributed=True, isLocalOnly=True)


# ---- topics ----------------------------------------------------------------------------------------------------------


def test_replicated_every_subscriber_gets_what_any_member_got(rig: ClusterRig) -> None:  # W-116
    name = make(rig, "topic")
    subscribers = [rig.connect(home).session().consumer(f"topic:{name}") for home in NAMES]
    apart(rig).session().producer(f"topic:{name}").send_many(range(9))
    assert counts(rig, name, "topic", "messages_in") == dict.fromkeys(NAMES, 3)
    for subscriber in subscribers:
        assert sorted(bodies(take(subscriber, 9))) == list(range(9))


def test_partitioned_a_subscriber_gets_what_its_member_got(rig: ClusterRig) -> None:  # W-116
    name = make(rig, "topic", forwardingPolicy="Partitioned")
    subscribers = {home: rig.connect(home).session().consumer(f"topic:{name}") for home in NAMES}
    producer = apart(rig).session().producer(f"topic:{name}")
    until(lambda: sum(producer._core._balance._consuming.values()) == 3)
    producer.send_many(range(9))
    found = {home: bodies(take(subscriber, 3)) for home, subscriber in subscribers.items()}
    assert sorted(body for some in found.values() for body in some) == list(range(9))
    assert all(subscriber.receive(timeout=0.05) is None for subscriber in subscribers.values())


def test_partitioned_a_durable_subscription_of_one_consumer_is_whole(rig: ClusterRig) -> None:  # W-116, D-27
    name = make(rig, "topic", forwardingPolicy="Partitioned")
    with rig.connect("b2", client_id=f"c-{name}") as connection:
        connection.session().durable_consumer(name, "sub").close()
        apart(rig).session().producer(f"topic:{name}").send_many(range(6))
        consumer = connection.session().durable_consumer(name, "sub")
        assert place(consumer) == list(NAMES)
        assert sorted(bodies(take(consumer, 6))) == list(range(6))


def test_what_a_lost_member_has_comes_when_it_is_back(own: ClusterRig) -> None:  # W-117
    name = make(own, "topic")
    with own.connect("b1", client_id="c") as connection:
        subscriber = connection.session().durable_consumer(name, "sub")
        fill(own, f"topic:{name}", "b3", ["first"])
        assert take(subscriber, 1)[0].body == "first"
    fill(own, f"topic:{name}", "b3", ["kept on b3"])
    own.kill("b3")
    until(lambda: set(own.brokers["b1"].cluster.live()) == {"b1", "b2"})
    subscriber = own.connect("b2", client_id="c").session().durable_consumer(name, "sub")
    fill(own, f"topic:{name}", "b1", ["while b3 is away"])
    assert take(subscriber, 1)[0].body == "while b3 is away"
    own.start("b3")
    assert take(subscriber, 1)[0].body == "kept on b3"


def fill(rig: ClusterRig, name: str, home: str, messages: Any, **options: Any) -> None:
    """Messages for the member of one broker."""
    with rig.connect(home, pinned=True) as connection:
        connection.session().producer(name, **options).send_many(messages)


# ---- forwarding ------------------------------------------------------------------------------------------------------


def test_messages_without_consumers_go_to_a_member_that_has_some(rig: ClusterRig) -> None:  # W-115
    name = make(rig, forwardDelay=0)
    fill(rig, name, "b1", range(2500))
    consumer = rig.connect("b3").session().consumer(name)
    assert bodies(take(consumer, 2500)) == list(range(2500)), "in their order"
    assert consumer.receive_nowait() is None
    until(lambda: sum(counts(rig, name).values()) == 0)
    admin = rig.connect("b1").admin()
    assert admin.query_destination("queue", name)["dead"] == 0, "what was forwarded did not die"
    assert rig.brokers["b1"].cluster.forwarding.forwarded >= 2500
    until(lambda: not admin.list_transactions())


def test_messages_stay_without_forward_delay_and_where_there_are_consumers(rig: ClusterRig) -> None:  # W-115
    never, busy = make(rig), make(rig, forwardDelay=0)
    keeper = rig.connect("b1").session(ack="client").consumer(busy, prefetch=1)
    for name in (never, busy):
        fill(rig, name, "b1", range(5))
    elsewhere = [rig.connect("b2").session().consumer(name) for name in (never, busy)]
    rig.io.run(rig.brokers["b1"].cluster.forwarding.forward_overdue())
    assert counts(rig, never)["b1"] == 5
    assert counts(rig, busy)["b1"] == 5
    assert keeper.receive(timeout=60) is not None
    assert all(consumer.receive_nowait() is None for consumer in elsewhere)


@pytest.mark.parametrize(("reset", "counted"), [(True, 1), (False, 3)])
def test_the_delivery_count_of_a_forwarded_message_begins_anew_unless_that_is_switched_off(
    rig: ClusterRig, reset: bool, counted: int
) -> None:  # W-73
    name = make(rig, forwardDelay=0, resetDeliveryCountOnForward=reset)
    fill(rig, name, "b1", range(3))
    session = rig.connect("b1").session(ack="client")
    consumer = session.consumer(name)
    for expected in (1, 2):
        found = take(consumer, 3)
        assert [message.delivery_count for message in found] == [expected] * 3
        if expected == 1:
            session.recover()
    session.close()
    again = take(rig.connect("b3").session().consumer(name), 3)
    assert [message.delivery_count for message in again] == [counted] * 3
    assert [message.redelivered for message in again] == [counted > 1] * 3


def test_messages_of_units_stay(rig: ClusterRig) -> None:  # W-115, U12
    name = make(rig, forwardDelay=0)
    units = [f"u{n}" if n % 2 else None for n in range(40)]
    with rig.connect("b1") as connection:
        connection.session().producer(name).send_many(range(40), unit_of_order=units)
    here = counts(rig, name)["b1"]
    assert here > 20, "those without a unit, and some with one"
    consumer = rig.connect("b2").session().consumer(name)
    assert place(consumer) == ["b2"]
    until(lambda: counts(rig, name)["b1"] == here - 20)
    rig.io.run(rig.brokers["b1"].cluster.forwarding.forward_overdue())
    assert counts(rig, name)["b1"] == here - 20


def test_a_member_that_takes_nothing_is_passed_over(rig: ClusterRig) -> None:  # W-124
    name = make(rig, forwardDelay=0)
    fill(rig, name, "b1", range(20))
    pause = {"type": "queue", "name": name, "which": "insertion"}
    rig.io.run(rig.brokers["b2"].local.admin("pause_destination", pause))
    consumers = {home: rig.connect(home).session().consumer(name) for home in ("b2", "b3")}
    assert bodies(take(consumers["b3"], 20)) == list(range(20))
    assert consumers["b2"].receive_nowait() is None
    assert counts(rig, name, key="messages_in")["b2"] == 0


def test_a_member_with_paused_consumers_keeps_what_it_has(rig: ClusterRig) -> None:  # W-115, W-125
    name = make(rig, forwardDelay=0)
    fill(rig, name, "b1", range(5))
    pause = {"type": "queue", "name": name, "which": "consumers"}
    rig.io.run(rig.brokers["b1"].local.admin("pause_destination", pause))
    consumer = rig.connect("b2").session().consumer(name)
    rig.io.run(rig.brokers["b1"].cluster.forwarding.forward_overdue())
    assert counts(rig, name)["b1"] == 5
    rig.io.run(rig.brokers["b1"].local.admin("resume_destination", {"type": "queue", "name": name}))
    assert bodies(take(consumer, 5)) == list(range(5))


def test_nothing_is_forwarded_before_its_time(rig: ClusterRig) -> None:  # W-115
    name = make(rig, forwardDelay=3600)
    fill(rig, name, "b1", range(5))
    consumer = rig.connect("b2").session().consumer(name)
    for _ in range(3):
        rig.io.run(rig.brokers["b1"].cluster.forwarding.forward_overdue())
    assert counts(rig, name)["b1"] == 5
    rig.connect("b1").admin().update_destination("queue", name, forwardDelay=0)
    assert bodies(take(consumer, 5)) == list(range(5))
