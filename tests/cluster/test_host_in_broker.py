"""Destinations with ``hosting=broker`` in a real cluster: over STOMP, HTTP and inside Ray, with rules, a pause, a store
that fails and a broker that is killed."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import BrokerError, ConfigError
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.wire.scram import Verifier
from tests.cluster import rays
from tests.contracts.stomp_socket import StompSocket
from tests.ports import free_port

PATIENCE_S = 90.0
RULES = """version=JMQFileAccessControlModel/100
connection.NORMAL.allow.user=*
queue.*.produce.allow.user=*
queue.*.consume.allow.user=*
queue.*.produce.deny.user=mute
queue.create.allow.user=*
"""


def until(found: Callable[[], Any]) -> Any:
    """What it gives, as soon as it gives something without an error."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            if answer := found():
                return answer
        except (OSError, AssertionError, BrokerError):
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.05)


class Rig:
    """A broker with the services stomp and httpjms, and a connection inside Ray."""

    def __init__(self, folder: Path) -> None:
        security = folder / "security"
        security.mkdir()
        for name in ("ann", "mute"):
            UserFile(security / "passwd").add(
                name, UserEntry(str(Verifier.from_password("secret", b"s" * 16, 64)), "user")
            )
        (security / "accesscontrol.properties").write_text(RULES)
        self.stomp_port = free_port()
        config = {
            **rays.small_store(folder / "store"),
            "imq.service.activelist": "stomp,httpjms",
            "imq.hostname": "127.0.0.1",
            "imq.portmapper.port": 0,
            "imq.stomp.tcp.port": self.stomp_port,
            "raybroker.security.dir": str(security),
        }
        self.running = rb.start(config=config)
        self.inside = rb.connect()
        self.inside.start()
        self.admin = self.inside.admin()

    def stomp(self, user: str = "ann") -> StompSocket:
        return StompSocket(socket.create_connection(("127.0.0.1", self.stomp_port), 30)).login(user)

    def close(self) -> None:
        self.inside.close()
        self.running.stop()


@pytest.fixture
def rig(own_ray: str, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def send(client: StompSocket, queue: str, *bodies: str) -> None:
    for body in bodies:
        client.done("SEND", {"destination": f"/queue/{queue}"}, body.encode())


def taken(client: StompSocket, count: int) -> list[str]:
    found = []
    for _ in range(count):
        frame = client.expect("MESSAGE")
        found.append(frame.body.decode())
        client.send("ACK", {"id": frame.headers["ack"]})
    return found


@pytest.mark.timeout(300)
def test_messages_of_every_protocol_and_what_holds_for_their_clients(rig: Rig) -> None:
    rig.admin.create_destination("queue", "near", hosting="broker")
    rig.admin.create_destination("queue", "too", hosting="broker")
    rig.admin.create_destination("queue", "far", hosting="dedicated")
    pids = rig.running.pids()
    assert sorted(pids.values()).count(pids["broker"]) == 2
    client = rig.stomp()
    send(client, "near", "a", "b")
    send(client, "far", "c")
    port = next(row["port"] for row in rig.admin.list_services() if row["service"] == "httpjms")
    login = "Basic " + base64.b64encode(b"ann:secret").decode()
    http = HTTPConnection("127.0.0.1", port, 30)
    http.request(
        "POST",
        "/queues/near/messages",
        json.dumps({"body": "d"}),
        {"authorization": login, "content-type": "application/json"},
    )
    assert http.getresponse().status == 201
    http.close()
    session = rig.inside.session()
    session.producer("near").send("e")
    assert [session.receive("near", timeout=30).body for _ in range(4)] == [b"a", b"b", "d", "e"]
    assert session.receive("far", timeout=30).body == b"c"
    stomp = [row for row in rig.admin.list_connections() if row["service"] == "stomp"]
    assert [(row["user"], row["messages_in"]) for row in stomp] == [("ann", 3)]

    mute = rig.stomp("mute")
    assert (
        "user 'mute' may not produce with queue 'near'"
        in mute.refused("SEND", {"destination": "/queue/near", "receipt": "1"}, b"x").body.decode()
    )

    rig.admin.pause_service("stomp")
    client.send("SEND", {"destination": "/queue/near", "receipt": "waits"}, b"f")
    assert rig.admin.query_destination("queue", "near")["messages"] == 0
    rig.admin.resume_service("stomp")
    assert client.expect("RECEIPT").headers["receipt-id"] == "waits"
    rig.admin.destroy_connection(stomp[0]["id"], reason="enough of it")
    assert "enough of it" in client.expect("ERROR").body.decode()
    rig.admin.destroy_destination("queue", "too")
    assert session.receive("near", timeout=30).body == b"f"


@pytest.mark.timeout(300)
def test_a_broker_that_is_killed_comes_back_with_what_its_host_has_confirmed(rig: Rig) -> None:
    rig.admin.create_destination("queue", "near", hosting="broker")
    rig.admin.create_destination("queue", "far", hosting="dedicated")
    client = rig.stomp()
    bodies = [f"message {number}" for number in range(50)]
    send(client, "near", *bodies)
    before = rig.running.pids()
    os.kill(before["broker"], signal.SIGKILL)
    again = until(rig.stomp)
    again.send("SUBSCRIBE", {"destination": "/queue/near", "id": "s", "ack": "client-individual"})
    assert taken(again, len(bodies)) == bodies
    again.done("UNSUBSCRIBE", {"id": "s"})
    send(again, "near", "after")
    after = until(rig.running.pids)
    assert after["broker"] != before["broker"]
    assert sorted(after.values()).count(after["broker"]) == 2
    shared = [host for host, pid in before.items() if pid != before["broker"]]
    assert all(after[host] == before[host] for host in shared)
    session = rig.inside.session()
    session.producer("near").send("from inside")
    assert [session.receive("near", timeout=60).body for _ in range(2)] == [b"after", "from inside"]


@pytest.mark.timeout(300)
def test_a_store_in_sql_is_no_store_for_it(own_ray: str, tmp_path: Path) -> None:
    running = rb.start(config={**rays.small_store(tmp_path / "store"), "imq.persist.store": "sql"})
    try:
        with rb.connect() as connection, pytest.raises(ConfigError, match="choose hosting=shared or dedicated"):
            connection.admin().create_destination("queue", "near", hosting="broker")
    finally:
        running.stop()
