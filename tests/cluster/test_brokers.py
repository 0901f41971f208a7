"""Three brokers on three nodes of a Ray: what is made on one is on all, and messages go from any to any."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import ConfigError, InvalidClientIDError, NoClusterError
from tests.cluster import rays
from tests.cluster.nodes import Nodes, running_nodes
from tests.contracts.handles import bodies, take, until

NAMES = ["b1", "b2", "b3"]
CLUSTER = "three"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with running_nodes(4) as found:
        yield found


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return rays.small_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def three(nodes: Nodes, config: dict[str, object]) -> Iterator[Any]:
    with rb.start(CLUSTER, brokers=3, config=config) as started:
        yield started


@pytest.fixture
def at(three: Any) -> Iterator[Any]:
    """One connection to each broker that is asked for, closed after the test."""
    opened: dict[str, Any] = {}

    def connect(broker: str) -> Any:
        if broker not in opened:
            opened[broker] = rb.connect(cluster=CLUSTER, broker=broker)
            opened[broker].start()
        return opened[broker]

    yield connect
    for connection in opened.values():
        connection.close()


def states(connection: Any) -> dict[str, str]:
    return {row["broker"]: row["state"] for row in connection.admin().list_brokers()}


def members(connection: Any, queue: str) -> dict[str, int]:
    """Broker → messages there."""
    rows = connection.admin().query_destination("queue", queue)["members"]
    return {row["broker"]: row["messages"] for row in rows}


# ---- the cluster -----------------------------------------------------------------------------------------------------


def test_each_broker_has_a_node_of_its_own_and_sees_all_up(three: Any, at: Any) -> None:
    found = [three.state(name) for name in NAMES]
    assert three.brokers == NAMES
    assert len({row["node"] for row in found}) == 3
    assert [row["is_master"] for row in found] == [True, False, False]
    nodes = {row["broker"]: row["node"] for row in found}

    def seen_by(name: str) -> dict[str, str]:
        return {row["broker"]: row["node"] for row in at(name).admin().list_brokers()}

    for name in NAMES:
        until(lambda name=name: states(at(name)) == dict.fromkeys(NAMES, "UP"))
        until(lambda name=name: seen_by(name) == nodes)


def test_a_queue_that_is_created_at_one_broker_is_on_all(at: Any) -> None:
    at("b1").admin().create_destination("queue", "orders", maxNumMsgs=77)
    for name in NAMES:
        row = at(name).admin().query_destination("queue", "orders")
        assert (row["attributes"]["maxNumMsgs"], sorted(m["broker"] for m in row["members"])) == (77, NAMES)
    at("b3").admin().destroy_destination("queue", "orders")
    assert "orders" not in {row["name"] for row in at("b2").admin().list_destinations("queue")}


def test_what_is_sent_at_one_broker_is_received_at_the_others(at: Any) -> None:
    at("b1").admin().create_destination("queue", "hello")
    sent = [f"m{n}" for n in range(20)]
    at("b1").session().producer("hello").send_many(sent[:10])
    assert members(at("b2"), "hello") == {"b1": 10, "b2": 0, "b3": 0}
    second = at("b2").session().consumer("hello", prefetch=5)
    assert bodies(take(second, 10)) == sent[:10]
    second.close()
    third = at("b3").session().consumer("hello")
    at("b1").session().producer("hello").send_many(sent[10:])
    assert bodies(take(third, 10)) == sent[10:]


def test_a_consumer_is_one_in_the_view_of_every_broker(at: Any) -> None:
    at("b1").admin().create_destination("queue", "counted")
    consumer = at("b2").session().consumer("counted")
    other = at("b3").session().consumer("counted")
    for name in NAMES:
        admin = at(name).admin()
        assert admin.query_destination("queue", "counted")["active_consumers"] == 2
        assert len(admin.list_consumers("counted")) == 2
    consumer.close()
    until(lambda: at("b3").admin().query_destination("queue", "counted")["active_consumers"] == 1)
    other.close()


def test_batches_are_formed_by_each_broker_and_go_to_who_asks(at: Any) -> None:  # N11
    at("b1").admin().create_destination("queue", "batched")
    rule = rb.Batch(max_messages=3, deadline_s=60.0)
    consumer = at("b1").session(ack="client").consumer("batched", batch=rule)
    for name in NAMES:
        at(name).session().producer("batched").send_many([f"{name}-{number}" for number in range(3)])
    found = []
    for _ in NAMES:
        batch = consumer.receive_batch(timeout=30)
        found.append([message.body for message in batch])
        batch[-1].acknowledge()
    assert sorted(found) == [[f"{name}-{number}" for number in range(3)] for name in NAMES]
    until(lambda: not any(members(at("b2"), "batched").values()))


def test_a_version_is_published_at_all_brokers(at: Any) -> None:  # N9
    admin = at("b2").admin()
    admin.create_destination("queue", "versions", versionKey="version", stalenessPolicy="Discard")
    for name in NAMES:
        producer = at(name).session().producer("versions")
        for version in (1, 2):
            producer.send(f"{name}-{version}", {"version": version})
    admin.publish_version("queue", "versions", 2)
    assert sorted(bodies(take(at("b3").session().consumer("versions"), 3))) == [f"{name}-2" for name in NAMES]
    assert admin.query_destination("queue", "versions")["stale"] == 3


def test_a_reply_comes_back_to_a_temporary_queue_of_another_broker(at: Any) -> None:
    at("b1").admin().create_destination("queue", "questions")
    asking, answering = at("b1").session(), at("b3").session()
    replies = asking.temporary_queue()
    inbox = asking.consumer(replies)
    asking.producer("questions").send("how many?", reply_to=replies)
    question = take(answering.consumer("questions"), 1)[0]
    answering.producer(question.reply_to).send("three")
    assert take(inbox, 1)[0].body == "three"


def test_a_transaction_over_members_of_two_brokers_happens_whole_or_not_at_all(at: Any) -> None:
    for name in ("from", "to"):
        at("b1").admin().create_destination("queue", name)
    at("b2").session().producer("from").send_many([1, 2])
    session = at("b3").session(transacted=True)
    consumer, producer = session.consumer("from"), session.producer("to")
    for decide, left in ((session.rollback, {"b1": 0, "b2": 2, "b3": 0}), (session.commit, dict.fromkeys(NAMES, 0))):
        found = bodies(take(consumer, 2))
        producer.send_many([body * 10 for body in found])
        decide()
        until(lambda left=left: members(at("b1"), "from") == left)
    assert members(at("b1"), "to") == {"b1": 0, "b2": 0, "b3": 2}
    assert bodies(take(at("b2").session().consumer("to"), 2)) == [10, 20]


def test_while_a_local_consumer_is_there_nothing_goes_to_a_remote_one(at: Any) -> None:  # D-19
    at("b1").admin().create_destination("queue", "near", localDeliveryPreferred=True)
    remote = at("b2").session().consumer("near")
    local = at("b1").session().consumer("near")
    producer = at("b1").session().producer("near")
    producer.send_many(list(range(50)))
    assert bodies(take(local, 50)) == list(range(50))
    assert remote.receive_nowait() is None
    local.close()
    producer.send_many([50, 51])
    assert bodies(take(remote, 2)) == [50, 51]


def test_an_active_consumer_is_followed_by_a_backup_of_another_broker(at: Any) -> None:  # D-15, D-16
    at("b1").admin().create_destination("queue", "single", maxNumActiveConsumers=1, maxNumBackupConsumers=1)
    first = at("b2").session().consumer("single")
    backup = at("b3").session().consumer("single")
    at("b2").session().producer("single").send("one")
    assert bodies(take(first, 1)) == ["one"]
    assert backup.receive_nowait() is None
    first.close()
    at("b2").session().producer("single").send("two")
    assert bodies(take(backup, 1)) == ["two"]


def test_units_that_the_path_service_routes_stay_at_one_member(at: Any) -> None:  # U12, W-120
    at("b1").admin().create_destination("queue", "paths", unitOfOrderRouting="PathService")
    for home in NAMES:
        producer = at(home).session().producer("paths")
        for unit in ("u1", "u2", "u3"):
            producer.send(f"{unit}@{home}", unit_of_order=unit)
    assert sorted(members(at("b1"), "paths").values()) == [3, 3, 3]
    found = bodies(take(at("b2").session().consumer("paths"), 9))
    for unit in ("u1", "u2", "u3"):
        assert [body for body in found if body.startswith(unit)] == [f"{unit}@{home}" for home in NAMES]


# ---- brokers that come and go ----------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_broker_joins_a_running_cluster_and_leaves_it(three: Any, at: Any, config: dict[str, object]) -> None:
    at("b1").admin().create_destination("queue", "growing")
    consumer = at("b1").session().consumer("growing")
    grown = rb.start(CLUSTER, brokers=4, config=config)
    assert grown.brokers == [*NAMES, "b4"]
    assert len({grown.state(name)["node"] for name in grown.brokers}) == 4
    until(lambda: states(at("b2")) == dict.fromkeys(grown.brokers, "UP"))
    at("b4").session().producer("growing").send("from the new one")
    assert bodies(take(consumer, 1)) == ["from the new one"]
    with pytest.raises(ConfigError, match=r"b4 are up"):
        at("b1").admin().reload_cluster(NAMES)
    grown.stop_broker("b4")
    until(lambda: states(at("b2")).get("b4") == "LEFT")
    assert sorted(at("b1").admin().reload_cluster(NAMES)) == NAMES  # Who was up first comes first.
    until(lambda: all(states(at(name)) == dict.fromkeys(NAMES, "UP") for name in NAMES))
    at("b3").session().producer("growing").send("still there")
    assert bodies(take(consumer, 1)) == ["still there"]
    with pytest.raises(NoClusterError, match="b4"):
        rb.connect(cluster=CLUSTER, broker="b4")


def test_what_a_stopped_broker_stores_comes_when_it_is_back(three: Any, at: Any, config: dict[str, object]) -> None:
    at("b1").admin().create_destination("queue", "kept")
    at("b3").session().producer("kept").send("at b3")
    consumer = at("b1").session().consumer("kept")
    assert bodies(take(consumer, 1)) == ["at b3"]
    consumer.close()
    at("b3").session().producer("kept").send("later")
    three.stop_broker("b3")
    until(lambda: states(at("b1"))["b3"] == "LEFT")
    consumer = at("b1").session().consumer("kept")
    assert consumer.receive_nowait() is None
    at("b2").session().producer("kept").send("meanwhile")
    assert bodies(take(consumer, 1)) == ["meanwhile"]
    at("b1").admin().create_destination("queue", "missed")
    rb.start(CLUSTER, brokers=3, config=config)
    assert bodies(take(consumer, 1)) == ["later"]
    until(lambda: "missed" in {row["name"] for row in at("b3").admin().list_destinations("queue")})


@pytest.mark.long
def test_a_cluster_that_is_stopped_and_started_has_its_messages(nodes: Nodes, tmp_path: Any) -> None:
    config = rays.small_store(tmp_path)
    for turn in range(2):
        with rb.start("again", brokers=3, config=config):
            connections = [rb.connect(cluster="again", broker=name) for name in NAMES]
            if turn == 0:
                connections[0].admin().create_destination("queue", "kept")
                for connection, name in zip(connections, NAMES, strict=True):
                    connection.session().producer("kept").send(name)
            else:
                connections[1].start()
                found = bodies(take(connections[1].session().consumer("kept"), 3))
                assert sorted(found) == NAMES
            for connection in connections:
                connection.close()


# ---- clients of several brokers


PROGRAM = """
import sys
import raybroker as rb
told = []
with rb.connect(cluster=sys.argv[1], broker="b1", client_id="billing") as connection:
    connection.on_event(lambda event: told.append(event.kind))
    session = connection.session(ack="client")
    consumer = session.consumer("ended")
    assert consumer.receive(timeout=60).body == "held"
    print("ready", flush=True)
    try:
        while True:
            consumer.receive(timeout=60)
    except rb.errors.ConnectionEndedError as error:
        print(error, flush=True)
    try:
        session.producer("ended").send("x")
    except rb.errors.ConnectionEndedError as error:
        print(error, flush=True)
print("reconnected" in told, flush=True)
"""


HOLDER = """
import sys, time
import raybroker as rb
with rb.connect(cluster=sys.argv[1], broker="b1", client_id="holder"):
    print("ready", flush=True)
    time.sleep(600)
"""


def test_a_client_id_is_refused_at_another_broker_until_its_process_is_dead(three: Any, nodes: Nodes) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", HOLDER, CLUSTER],
        stdout=subprocess.PIPE,
        text=True,
        cwd=rays.ROOT,
        env={**os.environ, "RAY_ADDRESS": nodes.address},
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        for broker in NAMES:
            with pytest.raises(InvalidClientIDError, match="'holder' is in use by another connection"):
                rb.connect(cluster=CLUSTER, broker=broker, client_id="holder").close()
    finally:
        program.kill()
        program.wait()
    rb.connect(cluster=CLUSTER, broker="b2", client_id="holder").close()


def test_a_client_in_another_process_is_ended_at_all_brokers_and_told_why(three: Any, at: Any, nodes: Nodes) -> None:
    admin = at("b3").admin()
    admin.create_destination("queue", "ended")
    at("b3").session().producer("ended").send("held")
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, CLUSTER],
        stdout=subprocess.PIPE,
        text=True,
        cwd=rays.ROOT,
        env={**os.environ, "RAY_ADDRESS": nodes.address},
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"

        def brokers() -> set[str]:
            rows = admin.list_connections(client_id="billing")
            return {host.partition("/")[0] for row in rows for host in row["hosts"]}

        until(lambda: brokers() == set(NAMES))
        (row,) = admin.list_connections("inside", client_id="billing")
        assert (row["pid"], row["consumers"], row["destinations"]) == (str(program.pid), 1, ["queue ended"])
        assert row["host"].rpartition(":")[0] not in ("", "in-process")
        admin.destroy_connection(row["id"], "call 4711")
        out, _ = program.communicate(timeout=60)
        assert out.splitlines() == ["an administrator has closed the connection: call 4711"] * 2 + ["False"]
    finally:
        program.kill()
        program.wait()
    until(lambda: not admin.list_connections(client_id="billing"))
    (again,) = take(at("b2").session().consumer("ended"), 1)
    assert (again.body, again.redelivered) == ("held", True)
