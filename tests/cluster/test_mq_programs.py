"""The programs of Message Queue in a Ray of their own: a life of an instance, by the command lines of the manuals."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.actors import runtime
from raybroker.security.user_file import UserEntry, UserFile
from tests import program
from tests.cluster import rays
from tests.cluster.test_cli import Shell, shell
from tests.contracts.handles import until
from tests.contracts.test_mq_commands import IN_RAY, SECTIONS, outcome
from tests.contracts.test_services import RULES, VERIFIER
from tests.ports import free_port

__all__ = ["shell"]
pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture
def mq(shell: Shell) -> Iterator[Shell]:
    yield shell
    shell.run("down", "--name", "prod")


def test_an_instance_from_its_start_to_its_removal(mq: Shell) -> None:
    port = free_port()
    (mq.folder / "pw").touch(0o600)
    (mq.folder / "pw").write_text("imq.imqcmd.password=secret\n")
    way = f"-b 127.0.0.1:{port} -u admin -passfile pw"
    start = f"imqbrokerd -name prod -port {port} -loglevel WARNING -Dimq.hostname=127.0.0.1"

    def does(line: str) -> str:
        return mq.output("mq", *shlex.split(line))

    def refused(line: str, status: int = 1) -> str:
        done = mq.run("mq", *shlex.split(line))
        assert done.returncode == status, done.stdout + done.stderr
        return done.stderr

    def held(name: str) -> list[int]:
        return [row["messages"] for row in mq.json("list", "dst", "--cluster", "prod") if row["name"] == name]

    does("imqusermgr add -u admin -p secret -g admin -i prod")
    assert "cluster prod runs: brokers b1" in does(start)
    does(f"imqcmd create dst -t q -n JMSQueue -o consumerFlowLimit=20 {way}")
    does("imqcmd create dst -t t -n prices --cluster prod")
    mq.output("send", "JMSQueue", "kept", "--cluster", "prod")
    mq.output("create", "dur", "-n", "audit", "-d", "prices", "-c", "billing", "--cluster", "prod")
    assert "imq.log.level=ERROR" in does(f"imqcmd update bkr -o imq.log.level=ERROR {way}")
    assert "MSGS_IN" in does(f"imqcmd metrics bkr -m ttl -int 1 -msp 1 {way}")
    assert "stop them first" in refused("imqbrokerd -name prod -reset messages", 2)
    assert "is down" in mq.output("down", "--name", "prod")

    told = does(f"{start} -reset messages -reset durables -reset props")
    assert "reset messages of broker b1: 1 messages" in told
    assert "imq.log.level as the configuration says" in told
    assert "1 durable subscription ended" in told
    assert held("JMSQueue") == [0]
    assert mq.json("list", "dur", "--cluster", "prod") == []
    mq.output("down", "--name", "prod")

    does(f"{start} -reset store")
    assert held("JMSQueue") == []
    assert "is down" in mq.output("down", "--name", "prod")
    does("imqbrokerd -name prod -remove instance -force")
    assert not (mq.folder / "state" / "raybroker" / "prod").exists()


OF_ALL = ("destinations", "the broker", "services, connections, subscriptions, transactions", "general options", IN_RAY)
"""Sections of mq_commands.txt."""
PORT_MAPPER = "the port of the port mapper"
ORDERS = 3


@pytest.fixture
def two(own_ray: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two brokers with services, in a Ray that commands of this process find."""
    monkeypatch.setenv("RAY_ADDRESS", own_ray)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    users = UserFile(tmp_path / "passwd")
    for name, group in (("ann", "user"), ("stranger", "user"), ("root", "admin")):
        users.add(name, UserEntry(VERIFIER, group))
    (tmp_path / "accesscontrol.properties").write_text(RULES)
    (tmp_path / "cluster.toml").write_text('imq.cluster.brokerlist = "b1,b2"\n')
    config = {
        **rays.small_store(tmp_path / "store"),
        "imq.service.activelist": "jms,admin",
        "imq.hostname": "127.0.0.1",
        "imq.portmapper.port": 0,
        "imq.cluster.dynamicChangeMasterBrokerEnabled": True,
        "raybroker.security.dir": str(tmp_path),
    }
    with rb.start(brokers=2, config=config) as started:
        yield started


def ports(broker: str) -> dict[str, int]:
    with rb.connect() as connection:
        rows = until(lambda: [row for row in connection.admin().list_services() if row["broker"] == broker])
        return {row["service"]: row["port"] for row in rows}


def made(address: str) -> tuple[dict[str, str], list[Any]]:
    """What the section in Ray is about: its words, and who is connected."""
    inside = rb.connect(client_id="myClientID")
    inside.admin().create_destination("topic", "SPQuotes", maxNumMsgs=1000)
    session = inside.session()
    session.durable_consumer("topic:SPQuotes", "myCommittedDur").close()
    session.producer("topic:SPQuotes").send_many(range(ORDERS))
    inside.close()
    branches = rb.connect_xa()
    known = {}
    for word in ("x", "y"):
        xid, work = rb.Xid(1, b"of the manual", word.encode()), branches.session()
        work.xa.start(xid)
        work.producer("orders").send("in a branch")
        work.xa.end(xid)
        work.xa.prepare(xid)
        with rb.connect() as connection:
            rows = connection.admin().list_transactions()
            (known[word],) = {str(row["id"]) for row in rows} - set(known.values())
    branches.close()
    ann = rb.connect(f"mq://{address}/jms", username="ann", password="secret")
    with rb.connect() as connection:
        (known["c"],) = [row["id"] for row in connection.admin().list_connections("jms")]
    return known, [ann]


def test_every_family_of_commands_in_a_cluster(two: Any, tmp_path: Path) -> None:
    (tmp_path / "passfile").touch(0o600)
    (tmp_path / "passfile").write_text("imq.imqcmd.password=secret\n")
    who = f"-u root -passfile {tmp_path}/passfile"
    address, port = f"127.0.0.1:{ports('b1')['portmapper']}", free_port()
    known = {"b": address, "w": f"-b {address} {who}", "d": str(tmp_path), "p": str(port), "n": "b1"}
    rows = [row for title in OF_ALL if title != IN_RAY for row in SECTIONS[title] if not row.becomes]
    wrong = outcome(rows, known)
    with rb.connect() as connection:
        connection.admin().update_broker(dict.fromkeys(("imq.autocreate.queue", "imq.autocreate.topic"), True))
    more, connected = made(address)
    wrong += outcome(SECTIONS[IN_RAY], {**known, **more})
    for one in connected:
        one.close()
    wrong += outcome(SECTIONS[PORT_MAPPER], known)
    assert not wrong, "\n\n".join(wrong)
    way = f"-b 127.0.0.1:{port} {who}"

    def does(line: str, status: int = 0) -> str:
        done = program.invoke("mq", *shlex.split(line))
        assert done.exit_code == status, done.output
        return done.output

    before = two.pids("b1")["broker"]
    does(f"imqcmd restart bkr -f {way}")
    assert until(lambda: program.invoke("mq", *shlex.split(f"imqcmd query bkr {way}")).exit_code == 0, timeout_s=60)
    assert two.pids("b1")["broker"] != before
    does(f"imqcmd shutdown bkr -f -time 1 {way}")
    assert until(lambda: "b1 is" in program.invoke("mq", "imqcmd", "list", "bkr").stderr)
    until(lambda: runtime.find_actor(runtime.broker_name("default", "b1")) is None, "its process does not end")
