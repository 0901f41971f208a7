"""Queues whose log has three copies, at brokers on three Ray nodes: a node is lost with its disk, and they go on."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.actors import runtime
from raybroker.errors import BrokerError, ConfigError, ConnectionLostError, RequestTimeoutError
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.wire.scram import Verifier
from tests.cluster import rays
from tests.cluster.nodes import Nodes, running_nodes
from tests.contracts.handles import bodies, take, until

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]
CLUSTER = "copied"
QUEUE = "orders"
COPIED: dict[str, Any] = {"replicas": 3, "useDMQ": False}
PATIENT: dict[str, Any] = {"raybroker.reconnect.timeout_ms": 90_000}
RECOVERED_S = 90


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with running_nodes(3) as found:
        yield found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


def settings(store: Path) -> dict[str, object]:
    """Those of brokers that also take clients from outside; ann is one."""
    users = store / "security"
    if not users.exists():
        users.mkdir()
        UserFile(users / "passwd").add("ann", UserEntry(str(Verifier.from_password("secret", b"s" * 16, 64)), "user"))
    return {
        **rays.small_store(store),
        "imq.service.activelist": "jms",
        "imq.hostname": "127.0.0.1",
        "imq.portmapper.port": 0,
        "raybroker.security.dir": str(users),
    }


def address(broker: str) -> str:
    actor: Any = runtime.find_broker(CLUSTER, broker)
    port = runtime.call_blocking(actor.peer, "doors", {})[2]["portmapper"]
    return f"mq://127.0.0.1:{port}/jms"


@pytest.fixture(scope="module")
def cluster(nodes: Nodes, store: Path) -> Iterator[Any]:
    started = rb.start(CLUSTER, brokers=3, config=settings(store))
    yield started
    with contextlib.suppress(ConnectionLostError):  # Of the node that is lost.
        started.stop()


def led_by(connection: Any, name: str) -> str:
    """The one broker that serves a queue."""
    (member,) = connection.admin().query_destination("queue", name)["members"]
    return str(member["broker"])


class Sending:
    """A program that sends one number after the other, and waits for each; ``gaps_s``: how long each took."""

    def __init__(self, name: str) -> None:
        self.sent = 0
        self.gaps_s: list[float] = []
        self._name = name
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def _send(self) -> None:
        with rb.connect(cluster=CLUSTER, broker="b3", **PATIENT) as connection:
            producer = connection.session().producer(self._name)
            while not self._over.is_set():
                began = time.monotonic()
                producer.send(self.sent)
                self.sent += 1
                self.gaps_s.append(time.monotonic() - began)

    def __enter__(self) -> Sending:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()


def until_empty(consumer: Any) -> Iterator[Any]:
    """What comes, until nothing comes for a while; nothing of it is acknowledged."""
    while (message := consumer.receive(timeout=3)) is not None:
        yield message


def leader_now(connection: Any, name: str) -> str:
    """The broker that serves a queue; "" while none does."""
    try:
        return led_by(connection, name)
    except BrokerError:
        return ""


def drain_row(admin: Any, broker: str) -> dict[str, Any]:
    return next(row for row in admin.list_brokers() if row["broker"] == broker)


def test_a_drained_broker_hands_its_queues_over_under_load(cluster: Any) -> None:
    name, plain = "drained", "plain"
    with rb.connect(cluster=CLUSTER, broker="b2", **PATIENT) as connection:
        admin = connection.admin()
        create(admin, name, **COPIED)
        create(admin, plain)
        connection.session().producer(plain).send("stays")
        leader = led_by(connection, name)
        with Sending(name) as sending:
            until(lambda: sending.sent > 50, "it sends", RECOVERED_S)
            began = time.monotonic()
            begun = admin.drain_broker(leader)
            until(lambda: drain_row(admin, leader)["drain"] == "DRAINED", "others lead", RECOVERED_S)
            drained_s = time.monotonic() - began
            until(lambda: leader_now(connection, name) not in ("", leader), "another one leads", RECOVERED_S)
            so_far = sending.sent
            until(lambda: sending.sent > so_far + 50, "it goes on sending", RECOVERED_S)
        print(f"drained after {drained_s:.2f} s; the longest send took {max(sending.gaps_s):.2f} s")
        assert begun["leads"] >= 1
        assert {row["name"] for row in begun["staying"]} <= {plain}
        consumer = connection.session(ack="client").consumer(name)
        found = [(message.body, message.redelivered) for message in until_empty(consumer)]
        once = [body for body, again in found if not again]
        assert len(set(once)) == len(once), "what comes twice is flagged"
        assert {body for body, _ in found} == set(range(sending.sent)), "nothing that was confirmed is lost"
        assert [row["grade"] for row in admin.check_cluster() if row["check"] == "drain"] == ["warning"]
        assert admin.drain_broker(leader, off=True)["was_drained"]
        assert "drain" not in drain_row(admin, leader)


def test_what_is_confirmed_outlives_the_leaders_node_and_disk(nodes: Nodes, cluster: Any, store: Path) -> None:
    with rb.connect(cluster=CLUSTER, broker="b2", **PATIENT) as connection:  # The master is another one.
        admin = connection.admin()
        with pytest.raises(ConfigError, match=r"its dead messages would be in mq\.sys\.dmq"):
            admin.create_destination("queue", QUEUE, replicas=3)
        with pytest.raises(ConfigError, match=r"5 copies of what broker b. stores need 5 nodes"):
            admin.create_destination("queue", QUEUE, **{**COPIED, "replicas": 5})
        admin.create_destination("queue", QUEUE, **COPIED)
        lost = led_by(connection, QUEUE)
        others = [name for name in ("b1", "b2", "b3") if name != lost]
        with rb.connect(cluster=CLUSTER, broker=others[0], **PATIENT) as far:
            producer = far.session().producer(QUEUE)
            producer.send_many(range(1000))
            began = time.monotonic()
            nodes.kill(cluster.state(lost)["node"])
            shutil.rmtree(store / CLUSTER / lost)
            producer.send("next")
            print(f"the next confirmed send came {time.monotonic() - began:.1f} s after the loss")
            consumer = far.session().consumer(QUEUE)
            assert bodies(take(consumer, 1001)) == [*range(1000), "next"]
            assert led_by(far, QUEUE) in others
            assert replication(far, QUEUE)["leader_changes"] == 1
            nodes.add()
            until(lambda: is_back(store), "the broker is back, with an empty disk", RECOVERED_S)
            producer.send("with two copies")
            until(lambda: is_complete(far, QUEUE), "the new disk has a copy with a vote", RECOVERED_S)


def is_back(store: Path) -> bool:
    """Ray makes no actor of a name that one on a lost node had, until it has noticed that."""
    try:
        rb.start(CLUSTER, brokers=3, config=settings(store))
    except BrokerError:
        return False
    return True


def create(admin: Any, name: str, **attributes: Any) -> None:
    """A busy machine makes three processes for longer than a client waits for an answer."""

    def made() -> bool:
        try:
            admin.create_destination("queue", name, if_exists="keep", **attributes)
        except (ConnectionLostError, RequestTimeoutError):
            return False
        return True

    until(made, f"{name} is made", RECOVERED_S)


def replication(connection: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = connection.admin().query_destination("queue", name)["replication"]
    return found


def is_complete(connection: Any, name: str) -> bool:
    copies = replication(connection, name)["copies"]
    return sorted(one["broker"] for one in copies if one["voter"] and not one["behind"]) == ["b1", "b2", "b3"]


def test_all_copies_come_back_after_a_stop_and_serve_who_is_outside(cluster: Any, store: Path) -> None:
    with rb.connect(cluster=CLUSTER, broker="b1", **PATIENT) as connection:
        admin = connection.admin()
        create(admin, "dead", **COPIED)
        create(admin, "work", replicas=3, errorDestination="dead", redeliveryLimit=1)
        connection.session().producer("work").send_many(range(100))
    with rb.connect(cluster=CLUSTER, broker="b3", **PATIENT) as connection:
        create(connection.admin(), "far", **COPIED)
    cluster.stop()
    until(lambda: is_back(store), "all brokers are back", RECOVERED_S)
    until(lambda: address("b2"), "broker b2 takes clients from outside", RECOVERED_S)
    with rb.connect(address("b2"), username="ann", password="secret", **PATIENT) as outside:
        consumer = outside.session(ack="client").consumer("work")
        first = take(consumer, 100)
        assert bodies(first) == list(range(100))
        first[0].reject()
        first[-1].acknowledge()
        assert bodies(take(outside.session().consumer("dead"), 1)) == [0]
        outside.session().producer("far").send("from outside")
        assert bodies(take(outside.session().consumer("far"), 1)) == ["from outside"]
    with rb.connect(cluster=CLUSTER, broker="b1", **PATIENT) as connection:
        folders = "*/*/copies/" + str(replication(connection, "far")["log"]).replace("/", ".")
        assert len(list(store.glob(folders))) == 3
        connection.admin().destroy_destination("queue", "far")
        until(lambda: not list(store.glob(folders)), "the copies of what was destroyed are gone")
