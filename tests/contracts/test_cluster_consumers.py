"""Consumers in a cluster: members on every broker, one limit, active and backup over all of them (K-02 … K-19)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from raybroker.errors import IllegalStateError, ResourceAllocationError
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.handles import WAIT_S, bodies, buffered, nothing, take, until

pytestmark = pytest.mark.xdist_group("cluster_consumers")  # One worker makes what they share.

NAMES = ("b1", "b2", "b3")


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterRig]:
    """Three brokers, for tests that leave them alone."""
    with ClusterRig(tmp_path_factory.mktemp("rig"), 3, raybroker__store__segment_bytes="1m") as found:
        yield found


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ClusterRig]:
    """Three brokers of the test's own."""
    with ClusterRig(tmp_path, 3, raybroker__store__segment_bytes="1m") as found:
        yield found


def fill(rig: ClusterRig, name: str, count: int, *homes: str) -> list[str]:
    """So many messages from a producer at each broker; returns all bodies."""
    sent = []
    for home in homes or NAMES:
        some = [f"{home}-{n:04}" for n in range(count)]
        rig.connect(home).session().producer(name).send_many(some)
        sent += some
    return sent


def brokers_of(consumer: Any) -> list[str]:
    found: list[str] = consumer.info()["brokers"]
    return found


def coordinator(connection: Any) -> list[str]:
    return [row["broker"] for row in connection.admin().list_brokers() if row["seat"]]


def in_order(found: list[str]) -> bool:
    """What came from one broker is in the order of its producer."""
    return all((mine := [b for b in found if b.startswith(home)]) == sorted(mine) for home in NAMES)


# ---- one destination, all brokers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("home", NAMES)
def test_a_consumer_gets_what_was_sent_to_any_broker_in_the_order_of_each_producer(rig: ClusterRig, home: str) -> None:
    name = rig.name()
    consumer = rig.connect(home).session().consumer(name)
    assert brokers_of(consumer) == list(NAMES)
    sent = fill(rig, name, 50)
    found = bodies(take(consumer, 150))
    assert sorted(found) == sorted(sent)
    assert in_order(found)
    assert nothing(consumer)


@pytest.mark.parametrize(("prefetch", "threshold"), [(7, 50), (1, 50), (10, None), (1, None), (0, None), (-1, None)])
def test_every_rule_of_flow_control_gets_everything(rig: ClusterRig, prefetch: int, threshold: int | None) -> None:
    name = rig.name()
    sent = fill(rig, name, 40)
    consumer = rig.connect("b2").session().consumer(name, prefetch=prefetch, threshold=threshold)
    found = bodies(take(consumer, 120))
    assert sorted(found) == sorted(sent)
    assert in_order(found)


def test_a_limit_that_tunes_itself_is_one_over_all_brokers(rig: ClusterRig) -> None:
    name = rig.name()
    sent = fill(rig, name, 400)
    connection = rig.connect("b2")
    consumer = connection.session(ack="client").consumer(name, prefetch="auto:1-100")
    assert brokers_of(consumer) == list(NAMES)
    found = []
    while len(found) < 1_200:
        (message,) = take(consumer, 1)
        found.append(message.body)
        assert buffered(consumer) <= consumer.info()["limit"] + 100
    assert sorted(found) == sorted(sent)
    assert 16 < consumer.info()["limit"] <= 100
    until(lambda: [row["limit"] for row in connection.admin().list_consumers(name)] == [consumer.info()["limit"]])


def test_a_transaction_over_brokers_keeps_a_checkpoint_where_its_message_is(rig: ClusterRig) -> None:
    work, results = rig.name(), rig.name()
    for home in ("b2", "b3"):
        rig.connect(home).session().producer(work).send(home)
    connection = rig.connect("b1")
    session = connection.session(transacted=True)
    consumer, producer = session.consumer(work), session.producer(results)
    first, second = take(consumer, 2)
    producer.send("one")
    first.checkpoint({"done": first.body})
    with pytest.raises(IllegalStateError, match="another host"):
        second.checkpoint({"done": second.body})
    session.commit()
    assert bodies(take(connection.session().consumer(results), 1)) == ["one"]
    assert nothing(consumer)
    session.close()
    (again,) = take(connection.session().consumer(work), 1)
    assert (again.body, again.checkpoint_state) == (first.body, {"done": first.body})


@pytest.mark.parametrize("threshold", [50, None])
def test_what_is_buffered_and_granted_over_all_brokers_stays_within_the_limit(
    rig: ClusterRig, threshold: int | None
) -> None:
    name = rig.name()
    fill(rig, name, 100)
    connection = rig.connect("b1")
    consumer = connection.session(ack="client").consumer(name, prefetch=12, threshold=threshold)
    until(lambda: buffered(consumer) == 12)
    rows = connection.admin().list_consumers(name)
    assert [row["unacknowledged"] + row["granted"] for row in rows] == [12]
    assert brokers_of(consumer) == list(NAMES)
    held = 0
    while held < 300:
        message = consumer.receive(timeout=WAIT_S)
        held += 1
        assert buffered(consumer) <= 12
        message.acknowledge()
    assert nothing(consumer)


def test_two_consumers_with_different_homes_share_the_messages_of_all_brokers(rig: ClusterRig) -> None:
    name = rig.name()
    consumers = [rig.connect(home).session(ack="client").consumer(name, prefetch=5, threshold=50) for home in NAMES[:2]]
    sent = fill(rig, name, 30)
    found: list[list[str]] = [[], []]

    def drain(index: int) -> None:
        while len(found[0]) + len(found[1]) < 90:
            message = consumers[index].receive(timeout=0.1)
            if message is not None:
                found[index].append(message.body)
                message.acknowledge()

    threads = [threading.Thread(target=drain, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(found[0] + found[1]) == sorted(sent)
    assert all(found)


def test_credit_that_one_broker_does_not_need_goes_to_the_one_that_does(rig: ClusterRig) -> None:
    name = rig.name()
    consumer = rig.connect("b1").session(ack="client").consumer(name, prefetch=20, threshold=50)
    fill(rig, name, 200, "b3")
    until(lambda: buffered(consumer) == 20)
    assert len(take(consumer, 200)) == 200
    fill(rig, name, 5, "b2")
    assert len(take(consumer, 5)) == 5


def test_recover_gives_back_to_every_broker_and_starts_with_the_oldest_of_each(rig: ClusterRig) -> None:
    name = rig.name()
    session = rig.connect("b1").session(ack="client")
    consumer = session.consumer(name, prefetch=9, threshold=50)
    sent = fill(rig, name, 10)
    first = take(consumer, 12)
    session.recover()
    again = take(consumer, 30)
    assert sorted(bodies(again)) == sorted(sent)
    assert in_order(bodies(again))
    seen = set(bodies(first))
    assert all(message.redelivered for message in again if message.body in seen)
    again[-1].acknowledge()
    assert nothing(consumer)


def test_closing_a_consumer_gives_back_what_every_broker_had_sent_it(rig: ClusterRig) -> None:
    name = rig.name()
    sent = fill(rig, name, 10)
    first = rig.connect("b1").session(ack="client").consumer(name)
    until(lambda: buffered(first) == 30)
    take(first, 5)
    first.close()
    assert sorted(bodies(take(rig.connect("b2").session().consumer(name), 30))) == sorted(sent)


def test_a_selector_holds_on_every_broker(rig: ClusterRig) -> None:
    name = rig.name()
    consumer = rig.connect("b1").session().consumer(name, selector="n > 3")
    for home in NAMES:
        producer = rig.connect(home).session().producer(name)
        for n in range(6):
            producer.send(f"{home}-{n}", properties={"n": n})
    assert sorted(bodies(take(consumer, 6))) == sorted(f"{home}-{n}" for home in NAMES for n in (4, 5))
    assert nothing(consumer)


def test_a_listener_is_called_for_what_is_on_any_broker(rig: ClusterRig) -> None:
    name, found = rig.name(), list[str]()
    rig.connect("b3").session().consumer(name, prefetch=4).on_message(lambda message: found.append(message.body))
    sent = fill(rig, name, 20)
    until(lambda: len(found) == 60)
    assert sorted(found) == sorted(sent)


def test_a_stopped_connection_gets_nothing_from_any_broker(rig: ClusterRig) -> None:
    name = rig.name()
    connection = rig.connect("b1", started=False)
    consumer = connection.session().consumer(name, prefetch=4, threshold=50)
    sent = fill(rig, name, 10)
    assert nothing(consumer)
    connection.start()
    assert sorted(bodies(take(consumer, 15))) != []
    connection.stop()
    assert consumer.receive(timeout=0.05) is None
    connection.start()
    assert len(take(consumer, 15)) == 15
    assert len(sent) == 30


# ---- topics --------------------------------------------------------------------------------------------------------


def test_a_subscriber_gets_what_is_published_at_any_broker_once(rig: ClusterRig) -> None:
    name = rig.name()
    consumers = [(s := rig.connect(home).session()).consumer(s.topic(name)) for home in NAMES]
    for home in NAMES:
        session = rig.connect(home).session()
        session.producer(session.topic(name)).send_many([f"{home}-{n}" for n in range(10)])
    for consumer in consumers:
        assert sorted(bodies(take(consumer, 30))) == sorted(f"{home}-{n}" for home in NAMES for n in range(10))
        assert nothing(consumer)


def test_a_pattern_takes_in_the_topics_of_all_brokers_and_those_that_come(rig: ClusterRig) -> None:
    name = rig.name()
    session = rig.connect("b1").session()
    consumer = session.consumer(session.topic(f"{name}.*"), prefetch=5, threshold=50)
    publishers = {}
    for home in NAMES:
        other = rig.connect(home).session()
        publishers[home] = other.producer(other.topic(f"{name}.x{home}"))
    until(lambda: len(consumer.info()["topics"]) == 3)
    until(lambda: all((home, f"{name}.x{home}") in consumer._core.members for home in NAMES))
    for home, publisher in publishers.items():
        publisher.send_many([f"{home}-{n}" for n in range(20)])
    found = take(consumer, 60)
    assert len(set(bodies(found))) == 60
    assert {message.destination for message in found} == {f"{name}.x{home}" for home in NAMES}


def test_a_durable_subscription_is_one_over_all_brokers(rig: ClusterRig) -> None:  # D-27
    name, client = rig.name(), f"client-{rig.name()}"
    connection = rig.connect("b1", client_id=client)
    session = connection.session()
    topic = session.topic(name)
    session.durable_consumer(topic, "sub").close()
    for home in NAMES:
        other = rig.connect(home).session()
        other.producer(topic).send(home)
    connection.close()
    again = rig.connect("b3", client_id=client).session()
    consumer = again.durable_consumer(topic, "sub")
    assert sorted(bodies(take(consumer, 3))) == list(NAMES)
    with pytest.raises(IllegalStateError):
        again.durable_consumer(topic, "sub")
    consumer.close()
    again.unsubscribe("sub")


# ---- active and backup ---------------------------------------------------------------------------------------------


def test_a_backup_is_with_the_coordinator_alone_until_it_is_promoted(rig: ClusterRig) -> None:  # D-15, D-16
    admin = rig.connect("b1").admin()
    name = rig.name()
    admin.create_destination("queue", name, maxNumActiveConsumers=1, maxNumBackupConsumers=1)
    first = rig.connect("b2").session().consumer(name)
    second = rig.connect("b3").session().consumer(name)
    assert (first.active, second.active) == (True, False)
    assert (brokers_of(first), brokers_of(second)) == (list(NAMES), coordinator(rig.connect("b1")))
    with pytest.raises(ResourceAllocationError):
        rig.connect("b1").session().consumer(name)
    fill(rig, name, 5)
    assert len(take(first, 15)) == 15
    assert nothing(second)
    first.close()
    until(lambda: second.active)
    sent = fill(rig, name, 5)
    assert sorted(bodies(take(second, 15))) == sorted(sent)
    until(lambda: brokers_of(second) == list(NAMES))


def test_whoever_waits_while_a_backup_is_promoted_gets_what_comes_from_any_broker(rig: ClusterRig) -> None:  # D-16
    name = rig.name()
    rig.connect("b1").admin().create_destination("queue", name, maxNumActiveConsumers=1, maxNumBackupConsumers=1)
    first = rig.connect("b2").session().consumer(name)
    second = rig.connect("b3").session().consumer(name)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(second.receive, WAIT_S)
        until(lambda: second._core._notifier.has_waiters)
        first.close()
        until(lambda: brokers_of(second) == list(NAMES))
        other = next(broker for broker in NAMES if [broker] != coordinator(rig.connect("b1")))
        rig.connect(other).session().producer(name).send("now")
        message = found.result(WAIT_S)
    assert message is not None
    assert message.body == "now"


def test_when_the_active_consumer_dies_its_messages_go_to_the_backup(rig: ClusterRig) -> None:
    name = rig.name()
    rig.connect("b1").admin().create_destination("queue", name, maxNumActiveConsumers=1, maxNumBackupConsumers=1)
    connection = rig.connect("b2", imqReconnectEnabled=False)
    first = connection.session(ack="client").consumer(name)
    second = rig.connect("b3").session().consumer(name)
    sent = fill(rig, name, 10)
    take(first, 7)
    connection._core.io.run(_abort(connection._core))
    assert sorted(bodies(take(second, 30))) == sorted(sent)


async def _abort(core: Any) -> None:
    for channel in core.channels.all():
        channel.link.abort()


def test_a_new_coordinator_gets_the_backups_and_decides_from_then_on(own: ClusterRig) -> None:
    name = own.name()
    own.connect("b1").admin().create_destination("queue", name, maxNumActiveConsumers=1, maxNumBackupConsumers=1)
    first = own.connect("b2").session().consumer(name)
    second = own.connect("b3").session().consumer(name)
    assert brokers_of(second) == coordinator(own.connect("b2")) == ["b1"]
    own.kill("b1")
    until(lambda: brokers_of(second) == coordinator(own.connect("b2")))
    assert (first.active, second.active) == (True, False)
    sent = fill(own, name, 5, "b2", "b3")
    assert sorted(bodies(take(first, 10))) == sorted(sent)
    first.close()
    until(lambda: second.active)
    sent = fill(own, name, 5, "b2", "b3")
    assert sorted(bodies(take(second, 10))) == sorted(sent)


# ---- brokers that go and come --------------------------------------------------------------------------------------


def test_when_a_broker_is_lost_the_others_go_on_and_its_messages_come_when_it_is_back(own: ClusterRig) -> None:  # K-19
    name = own.name()
    consumer = own.connect("b1").session(ack="client").consumer(name, prefetch=6, threshold=50)
    sent = fill(own, name, 10)
    first = take(consumer, 5)
    own.kill("b3")
    until(lambda: brokers_of(consumer) == ["b1", "b2"])
    rest = [message.body for message in first if not message.body.startswith("b3")]
    while len(rest) < 20:
        body = consumer.receive(timeout=WAIT_S).body
        if not body.startswith("b3"):
            rest.append(body)
    assert sorted(rest) == [body for body in sent if not body.startswith("b3")]
    more = fill(own, name, 3, "b2")
    assert bodies(take(consumer, 3)) == more
    own.start("b3")
    found = bodies(take(consumer, 10))
    assert found == [body for body in sent if body.startswith("b3")]
    assert brokers_of(consumer) == list(NAMES)


def test_a_broker_that_comes_later_gets_a_member_of_every_consumer(tmp_path: Path) -> None:
    with ClusterRig(tmp_path, 3, start=("b1", "b2"), raybroker__store__segment_bytes="1m") as rig:
        until(lambda: len(rig.brokers["b1"].cluster.live()) == 2)
        name = rig.name()
        consumer = rig.connect("b2").session().consumer(name)
        assert brokers_of(consumer) == ["b1", "b2"]
        rig.start("b3")
        until(lambda: brokers_of(consumer) == list(NAMES))
        sent = fill(rig, name, 5)
        assert sorted(bodies(take(consumer, 15))) == sorted(sent)


def test_a_destination_that_is_destroyed_ends_the_consumer_once(rig: ClusterRig) -> None:
    connection, heard = rig.connect("b2"), list[Exception]()
    connection.on_exception(heard.append)
    name = rig.name()
    connection.admin().create_destination("queue", name)
    consumer = connection.session().consumer(name)
    rig.connect("b1").admin().destroy_destination("queue", name)
    until(lambda: heard)
    with pytest.raises(Exception, match=name):
        consumer.receive(timeout=WAIT_S)
    assert len(heard) == 1


def test_a_local_destination_has_one_member(rig: ClusterRig) -> None:  # D-14
    name = rig.name()
    connection = rig.connect("b2")
    connection.admin().create_destination("queue", name, isLocalOnly=True)
    consumer = connection.session().consumer(name)
    assert brokers_of(consumer) == ["b2"]
    connection.session().producer(name).send("here")
    assert bodies(take(consumer, 1)) == ["here"]


def test_recover_goes_on_with_the_others_when_a_broker_is_lost_meanwhile(own: ClusterRig) -> None:  # R-11, K-19
    name = own.name()
    session = own.connect("b1").session(ack="client")
    consumer = session.consumer(name)
    sent = fill(own, name, 5)
    take(consumer, 15)
    own.kill("b2")
    session.recover()
    assert sorted(bodies(take(consumer, 10))) == [body for body in sent if not body.startswith("b2")]
    own.start("b2")
    assert bodies(take(consumer, 5)) == [body for body in sent if body.startswith("b2")]
    session.recover()
    assert sorted(bodies(take(consumer, 15))) == sorted(sent)


def test_a_broker_that_comes_and_goes_quickly_has_one_member_of_a_consumer(own: ClusterRig) -> None:
    name = own.name()
    connection = own.connect("b1")
    consumer = connection.session(ack="client").consumer(name)
    for _ in range(4):
        own.kill("b3")
        own.start("b3")
    sent = fill(own, name, 20, "b3")
    assert sorted(bodies(take(consumer, 20))) == sent
    until(lambda: brokers_of(consumer) == list(NAMES))
    host = own.brokers["b3"].local
    rows = own.io.run(host.admin("list_consumers", {"destination": name}))
    assert len(rows) == 1
