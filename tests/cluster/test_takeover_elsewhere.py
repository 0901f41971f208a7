"""Takeovers as clients outside the Ray cluster see them, and of a broker that was only stopped for a while (K-21)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.actors import runtime
from raybroker.actors.stores.record_tables import TableManager
from raybroker.actors.stores.store_tables import StoreManager
from raybroker.config import Config
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.wire.scram import Verifier
from tests.cluster import rays
from tests.cluster.nodes import Nodes, running_nodes
from tests.contracts import postgres
from tests.contracts.handles import bodies, take, until

pytestmark = pytest.mark.timeout(300)
CLUSTER = "elsewhere"
STANDBY_S = 120
RECOVERED_S = 60
PATIENT: dict[str, Any] = {"raybroker.reconnect.timeout_ms": 90_000}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with running_nodes(3) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("store")
    users = folder / "security"
    users.mkdir()
    UserFile(users / "passwd").add("ann", UserEntry(str(Verifier.from_password("secret", b"s" * 16, 64)), "user"))
    with postgres.server() as server:
        config: dict[str, object] = {
            **rays.small_store(folder),
            **postgres.shared_store(server),
            "imq.service.activelist": "jms",
            "imq.hostname": "127.0.0.1",
            "imq.portmapper.port": 0,
            "raybroker.security.dir": str(users),
        }
        chosen = Config.from_values({**config, "imq.cluster.brokerlist": "b1,b2,b3"})
        TableManager(chosen, CLUSTER).create()
        StoreManager(chosen, CLUSTER).create(database=False)
        with rb.start(CLUSTER, brokers=3, config=config) as started:
            yield started


def stand_by(broker: str = "b1") -> None:
    """Wait until a broker has processes ready, and says so."""

    def ready() -> bool:
        with rb.connect(cluster=CLUSTER, broker=broker) as connection:
            row = next(row for row in connection.admin().list_brokers() if row["broker"] == broker)
        return (row.get("standby_brokers"), row.get("standby_hosts")) == (1, 1)

    until(ready, timeout_s=STANDBY_S)


def address(broker: str) -> str:
    actor: Any = runtime.find_broker(CLUSTER, broker)
    port = runtime.call_blocking(actor.peer, "doors", {})[2]["portmapper"]
    return f"mq://127.0.0.1:{port}/jms"


def is_standby(name: str) -> bool:
    """Whether the actor that is found by that name has become it."""
    return any(runtime.told(actor) is not None and name == of for of, actor in runtime._further_names(name))


def test_a_client_from_outside_goes_on_and_has_what_the_lost_broker_confirmed(nodes: Nodes, cluster: Any) -> None:
    stand_by()
    with rb.connect(cluster=CLUSTER, broker="b1") as survivor:
        survivor.admin().create_destination("queue", "orders", hosting="shared")
    addresses = f"{address('b2')},{address('b1')}"
    with rb.connect(addresses, username="ann", password="secret", **PATIENT) as connection:
        producer = connection.session().producer("orders")
        producer.send_many(range(50))
        consumer = connection.session(ack="client").consumer("orders", prefetch=100)
        take(consumer, 5)[-1].acknowledge()
        began = time.monotonic()
        nodes.kill(cluster.state("b2")["node"])
        producer.send("next")
        print(f"the next confirmed send from outside came {time.monotonic() - began:.1f} s after the loss")
        again = [consumer.receive(timeout=RECOVERED_S) for _ in range(46)]
        print(f"all that was stored had come {time.monotonic() - began:.1f} s after the loss")
        again[-1].acknowledge()
        assert sorted(map(str, bodies(again))) == sorted([*map(str, range(5, 50)), "next"])
    assert is_standby(runtime.broker_name(CLUSTER, "b2", 2))
    assert is_standby(runtime.host_name(CLUSTER, "b2", "h1", 2))
    with rb.connect(address("b2"), username="ann", password="secret") as direct:  # Its own services, at other ports.
        direct.session().producer("orders").send("to the successor")
        assert bodies(take(direct.session().consumer("orders"), 1)) == ["to the successor"]


@pytest.mark.long
def test_a_successor_whose_process_ends_is_started_again_as_itself(cluster: Any) -> None:
    with rb.connect(cluster=CLUSTER, broker="b2", **PATIENT) as connection:
        producer = connection.session().producer("again")
        producer.send("before")
        killed = cluster.pids("b2")
        for pid in killed.values():
            os.kill(pid, signal.SIGKILL)
        producer.send("after")
        assert bodies(take(connection.session().consumer("again"), 2)) == ["before", "after"]
    now = cluster.pids("b2")
    assert set(now) == set(killed)
    assert not set(now.values()) & set(killed.values())
    row = cluster.state("b2")
    assert row["broker"] == "b2"


@pytest.mark.long
def test_a_broker_that_was_stopped_for_a_while_ends_and_adds_nothing(nodes: Nodes, cluster: Any) -> None:
    """What it would have done with the send that reached it is refused by the database; all else is there once."""
    stand_by()
    with rb.connect(cluster=CLUSTER, broker="b3", **PATIENT) as pinned:
        producer = pinned.session().producer("paused")
        producer.send_many(range(50))
        node = cluster.state("b3")["node"]
        old = list(cluster.pids("b3").values())
        stopped = nodes.processes(node)
        began = time.monotonic()
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            producer.send("next")
            print(f"the next confirmed send came {time.monotonic() - began:.1f} s after the stop")
        finally:
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        until(lambda: not any(map(runs, old)), timeout_s=60)
        producer.send_many(["and", "more"])
        taken = take(pinned.session().consumer("paused"), 53)
        assert sorted(map(str, bodies(taken))) == sorted([*map(str, range(50)), "next", "and", "more"])

        def state() -> tuple[Any, ...]:
            row = next(row for row in pinned.admin().list_brokers() if row["broker"] == "b3")
            return row["tenure"], row["store_state"], row["state"]

        until(lambda: state() == (2, "OPERATING", "UP"))


@pytest.mark.long
def test_a_broker_that_is_drained_goes_on_elsewhere_and_its_clients_with_it(cluster: Any) -> None:
    """b3 runs beside b1 by now; b2 too, or beside b3 where it was taken over last."""
    stand_by()
    with rb.connect(cluster=CLUSTER, broker="b3", **PATIENT) as pinned, rb.connect(cluster=CLUSTER, broker="b1") as one:
        producer = pinned.session().producer("drained")
        producer.send_many(range(20))

        def row() -> dict[str, Any]:
            return next(row for row in one.admin().list_brokers() if row["broker"] == "b3")

        began, before = time.monotonic(), row()
        answer = one.admin().drain_broker("b3", "b1")
        assert (answer["taker"], answer["tenure"]) == ("b1", before["tenure"] + 1)
        producer.send("next")
        print(f"the next confirmed send came {time.monotonic() - began:.1f} s after the drain began")
        until(lambda: (row()["tenure"], row()["store_state"]) == (answer["tenure"], "OPERATING"), timeout_s=RECOVERED_S)
        taken = take(pinned.session().consumer("drained"), 21)
        assert sorted(map(str, bodies(taken))) == sorted([*map(str, range(20)), "next"])


def runs(pid: int) -> bool:
    """Whether the process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
