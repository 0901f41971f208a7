"""The audit log of a real cluster: what hosts and the broker refuse is written down, and the connections go on."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import pytest

import raybroker as rb
from raybroker.errors import BrokerError, SecurityError
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.wire.scram import Verifier
from tests.cluster import rays
from tests.contracts.stomp_socket import StompSocket

HOSTINGS: Final = ("shared", "dedicated", "broker")
RULES: Final = """version=JMQFileAccessControlModel/100
connection.NORMAL.allow.user=*
queue.*.consume.allow.user=*
queue.*.produce.deny.user=mute
queue.*.browse.deny.user=mute
queue.create.deny.user=mute
"""


class Rig:
    """A broker with services and the audit log, whose user "mute" may consume alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "security"
        self.folder.mkdir()
        UserFile(self.folder / "passwd").add(
            "mute", UserEntry(str(Verifier.from_password("secret", b"s" * 16, 64)), "user")
        )
        (self.folder / "accesscontrol.properties").write_text(RULES)
        self.running = rb.start(
            config={
                **rays.small_store(folder / "store"),
                "imq.service.activelist": "jms,stomp,httpjms",
                "imq.hostname": "127.0.0.1",
                "imq.portmapper.port": 0,
                "raybroker.security.dir": str(self.folder),
                "imq.audit.enabled": True,
            }
        )
        self.inside = rb.connect()
        self.inside.start()
        self.admin = self.inside.admin()
        self.ports: dict[str, int] = {row["service"]: row["port"] for row in self.admin.list_services()}

    def denied(self) -> list[dict[str, Any]]:
        """Lines of the audit logs about what was refused."""
        files = (self.folder / "audit").glob("*.log")
        rows = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        return [row for row in rows if row["event"] == "denied"]

    def close(self) -> None:
        self.inside.close()
        self.running.stop()


@pytest.fixture
def rig(own_ray: str, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


@pytest.mark.timeout(300)
def test_denials_are_written_down_and_connections_go_on(rig: Rig) -> None:
    for hosting in HOSTINGS:
        rig.admin.create_destination("queue", hosting, hosting=hosting)
    kept: list[str] = []
    with rb.connect(f"mq://127.0.0.1:{rig.ports['portmapper']}", username="mute", password="secret") as mute:
        mute.on_event(lambda event: kept.append(f"{event.kind}: {event.text}"))
        session = mute.session()
        consumers = {name: session.consumer(name) for name in HOSTINGS}
        (before,) = [row["id"] for row in rig.admin.list_connections() if row["user"] == "mute"]
        for number in range(3):
            for name in HOSTINGS:
                with pytest.raises(SecurityError, match=f"user 'mute' may not produce with queue '{name}'"):
                    session.producer(name).send("refused")
                with pytest.raises(SecurityError, match=f"user 'mute' may not browse with queue '{name}'"):
                    list(session.browser(name))
                rig.inside.session().producer(name).send(number)
                assert consumers[name].receive(30).body == number
        with pytest.raises(SecurityError, match="may not create"):
            session.producer("new").send("refused")
        with pytest.raises(BrokerError):
            mute.admin().purge_destination("queue", "shared")
        (after,) = [row["id"] for row in rig.admin.list_connections() if row["user"] == "mute"]
    assert (before, kept) == (after, []), "the connection has stayed"

    by_stomp = StompSocket(socket.create_connection(("127.0.0.1", rig.ports["stomp"]), 30)).login("mute")
    by_http = HTTPConnection("127.0.0.1", rig.ports["httpjms"], 30)
    login = {"authorization": "Basic " + base64.b64encode(b"mute:secret").decode(), "content-type": "application/json"}
    for name in HOSTINGS:
        by_http.request("POST", f"/queues/{name}/messages", json.dumps({"body": "refused"}), login)
        answer = by_http.getresponse()
        assert (answer.status, "may not produce" in answer.read().decode()) == (403, True)
    by_http.close()
    error = by_stomp.refused("SEND", {"destination": "/queue/dedicated", "receipt": "1"}, b"refused")
    assert "may not produce" in error.body.decode()
    by_stomp.close()

    rows = rig.denied()
    in_hosts = [row for row in rows if "host" in row]
    hosts = {row["host"] for row in in_hosts}
    assert len(hosts) == len(HOSTINGS), hosts
    assert all(row["host"].startswith(f"{row['broker']}/") for row in in_hosts)
    by_jms = [(row["host"], row["what"]) for row in in_hosts if row["service"] == "jms"]
    wanted = {(host, what) for host in hosts for what in ("open_producer", "open_browser")}
    assert {what: by_jms.count(what) for what in set(by_jms)} == dict.fromkeys(wanted, 3)
    services = [row["service"] for row in in_hosts]
    assert (services.count("httpjms"), services.count("stomp")) == (len(HOSTINGS), 1)
    in_broker = [row for row in rows if "host" not in row]
    refusals = [(row["what"], row["reason"]) for row in in_broker]
    (creating,) = [reason for what, reason in refusals if what == "locate"]
    (administering,) = [reason for what, reason in refusals if what == "admin"]
    assert "may not create queues" in creating
    assert "goes through an admin service" in administering
    assert all((row["user"], row["result"]) == ("mute", "refused") for row in rows)
    assert all(row["address"].startswith("127.0.0.1") for row in rows), rows
