"""Connection services of a real cluster, from an administrator's shell and from a program that knows no Ray."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.test_cli import Shell, new_shell
from tests.ports import free_port

PROGRAM = """
import sys
import time
import raybroker as rb
from tests.ports import free_port
with rb.connect(sys.argv[1], username="ann", password="secret") as connection:
    session = connection.session()
    producer = session.producer("orders")
    producer.send_many(range(1000))
    consumer = session.consumer("orders")
    taken = []
    while len(taken) < 1000:
        taken += [message.body for message in consumer.receive_many(1000, timeout=30)]
    assert taken == list(range(1000)), taken[:10]
    print("done", flush=True)
    sys.stdin.readline()
    consumer.close()
    session.producer("second").send("made by a broker that was restarted")
    assert session.receive("second", timeout=60).body
    print("again", flush=True)
    sys.stdin.readline()
    try:
        session.producer("other").send("x")
    except rb.errors.SecurityError as error:
        print(error)
assert "ray" not in sys.modules
"""


@pytest.fixture
def shell() -> Iterator[Shell]:
    with new_shell() as made:
        yield made


def refused(shell: Shell, *arguments: str) -> str:
    done = shell.run(*arguments)
    assert done.returncode in (1, 2), done.stdout
    return done.stderr


def brokers(shell: Shell) -> list[int]:
    """Their processes."""
    return [row["pid"] for row in shell.json("list", "bkr")]


@pytest.mark.timeout(300)
def test_the_way_in_from_outside(shell: Shell) -> None:
    (shell.folder / "pw").touch(0o600)
    (shell.folder / "pw").write_text("secret\n")
    for name in ("ann", "bob"):
        shell.output("usermgr", "add", "-u", name, "-g", "user", "--passfile", "pw")
    shell.output("usermgr", "update", "-u", "bob", "--inactive")
    properties = ("imq.service.activelist=jms", f"imq.portmapper.port={free_port()}", "imq.hostname=127.0.0.1")
    shell.output("up", *(word for name in properties for word in ("-D", name)))
    services: dict[str, Any] = {row["service"]: row for row in shell.json("list", "svc")}
    states = {name: row["state"] for name, row in services.items()}
    assert {name for name, state in states.items() if state == "RUNNING"} == {"portmapper", "jms"}
    assert (states["admin"], states["ssljms"]) == ("UNKNOWN", "UNKNOWN")
    url = f"mq://127.0.0.1:{services['portmapper']['port']}/jms"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "RAYBROKER_"))}
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "done\n"
        (row,) = shell.json("list", "cxn")
        assert (row["user"], row["service"], row["producers"], row["consumers"]) == ("ann", "jms", 1, 1)
        assert "Python" in json.dumps(shell.json("query", "cxn", "-n", row["id"]))
        assert shell.json("why-denied", "bob", "produce", "orders")["allowed"] is False
        (killed,) = brokers(shell)
        os.kill(killed, signal.SIGKILL)
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.readline() == "again\n"
        (row,) = shell.json("list", "cxn")
        shell.output("pause", "svc", "-n", "jms")
        assert shell.json("query", "svc", "-n", "jms")[0]["state"] == "PAUSED"
        shell.output("resume", "svc", "-n", "jms")
        shell.output("destroy", "cxn", "-n", row["id"], "-f")
        told, _ = program.communicate("\n", timeout=60)
        assert told == "an administrator has closed the connection\n"
        assert program.returncode == 0
    finally:
        program.kill()
        program.wait()
    assert shell.json("list", "cxn") == []
    assert "is not in imq.service.activelist" in refused(shell, "quiesce", "svc", "-n", "admin")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_broker_is_restarted_and_shut_down_from_outside_and_from_inside(shell: Shell) -> None:
    (shell.folder / "pw").touch(0o600)
    (shell.folder / "pw").write_text("secret\n")
    shell.output("usermgr", "add", "-u", "root", "-g", "admin", "--passfile", "pw")
    port = free_port()
    properties = (
        "imq.service.activelist=admin",
        f"imq.portmapper.port={port}",
        "imq.hostname=127.0.0.1",
        "imq.log.level=WARNING",
    )
    shell.output("up", *(word for name in properties for word in ("-D", name)))
    way = ("-b", f"127.0.0.1:{port}", "-u", "root", "--passfile", "pw")
    shell.output("send", "orders", "kept")
    shell.output("update", "bkr", "-o", "imq.log.level=ERROR", *way)
    (before,) = brokers(shell)
    assert shell.output("restart", "bkr", "-f", *way) == "broker b1 was restarted\n"
    (after,) = brokers(shell)
    assert before != after
    options = {row["property"]: row["value"] for row in shell.json("query", "bkr", "--explain")}
    assert (options["imq.portmapper.port"], options["imq.log.level"]) == (port, "ERROR")
    assert shell.output("restart", "bkr", "-f") == "broker b1 was restarted\n"
    assert before not in brokers(shell)
    assert after not in brokers(shell)
    (row,) = [row for row in shell.json("list", "dst") if row["name"] == "orders"]
    assert row["messages"] == 1
    assert shell.output("shutdown", "bkr", "-f", *way) == "broker b1 has closed its services, and ends\n"
    assert "no connection service answers" in shell.run("query", "bkr", *way).stderr
    shell.output("up", *(word for name in properties for word in ("-D", name)))
    assert "kept" in shell.output("receive", "orders")
    assert shell.output("shutdown", "bkr", "-f") == "broker b1 is down\n"
    assert shell.run("list", "dst").returncode == 3


SECURE = """
import sys
import time
import raybroker as rb
with rb.connect(sys.argv[1], username="ann", password="secret", trust=sys.argv[2]) as connection:
    session = connection.session()
    producer, consumer = session.producer("orders"), session.consumer("orders")
    for round in range(2):
        producer.send_many(range(1000))
        taken = set()
        while len(taken) < 1000:
            taken |= {message.body for message in consumer.receive_many(1000, timeout=60)}
        assert taken == set(range(1000)), len(taken)
        session.producer(f"made.{round}").send("x")
        print("done", flush=True)
        sys.stdin.readline()
assert "ray" not in sys.modules and "cryptography" not in sys.modules
"""


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_way_in_from_outside_over_tls(shell: Shell) -> None:
    """Hosts are processes of their own, which read the keystore with the password of the passfile."""
    (shell.folder / "pw").touch(0o600)
    (shell.folder / "pw").write_text("secret\n")
    security = shell.folder / "security"
    security.mkdir(mode=0o700)
    (security / "passfile").touch(0o600)
    (security / "passfile").write_text("imq.keystore.password=open sesame\n")
    shell.output("usermgr", "add", "-u", "ann", "--passfile", "pw", "--file", str(security / "passwd"))
    keystore = ("--file", str(security / "keystore"))
    shell.output("keytool", "make", "-n", "127.0.0.1", "--passfile", str(security / "passfile"), *keystore)
    shell.output("keytool", "export", "-o", "broker.pem", *keystore)
    properties = (
        "imq.service.activelist=ssljms",
        f"imq.portmapper.port={free_port()}",
        "imq.hostname=127.0.0.1",
        f"raybroker.security.dir={security}",
        "imq.passfile.enabled=true",
    )
    shell.output("up", *(word for name in properties for word in ("-D", name)))
    services = {row["service"]: row for row in shell.json("list", "svc")}
    assert (services["ssljms"]["state"], services["jms"]["state"]) == ("RUNNING", "UNKNOWN")
    url = f"mqs://127.0.0.1:{services['portmapper']['port']}"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "RAYBROKER_"))}
    program = subprocess.Popen(
        [sys.executable, "-c", SECURE, url, str(shell.folder / "broker.pem")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert program.stdout is not None
        assert program.stdin is not None
        assert program.stdout.readline() == "done\n"
        (killed,) = brokers(shell)
        os.kill(killed, signal.SIGKILL)
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.readline() == "done\n"
        program.communicate("\n", timeout=60)
        assert program.returncode == 0
    finally:
        program.kill()
        program.wait()
    shown = json.dumps([shell.json("list", "svc"), shell.json("query", "bkr", "--explain")])
    assert "sesame" not in shown


@pytest.mark.timeout(300)
def test_up_fails_for_a_port_that_is_taken_and_the_service_comes_when_it_is_free(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as owner:
        port = owner.getsockname()[1]
        properties = (
            "imq.service.activelist=jms,stomp",
            "imq.portmapper.port=0",
            "imq.hostname=127.0.0.1",
            f"imq.stomp.tcp.port={port}",
            "raybroker.authentication.unencrypted=true",
        )
        done = shell.run("up", *(word for name in properties for word in ("-D", name)))
        assert done.returncode == 1, done.stdout
        assert f"service stomp does not listen: no free port imq.stomp.tcp.port={port}" in done.stderr
        check = shell.run("check", "bkr")
        assert (check.returncode, "service stomp does not listen" in check.stdout) == (2, True), check.stdout
    deadline_s = time.monotonic() + 60
    while shell.run("check", "bkr").returncode != 0:  # until then a list of services is not whole, and says so
        assert time.monotonic() < deadline_s
    assert "RUNNING" in {row["service"]: row["state"] for row in shell.json("list", "svc")}["stomp"]
