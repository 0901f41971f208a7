"""A service that is given another port while it runs: it listens there first, and its clients stay."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

import raybroker as rb
from raybroker.errors import BrokerError, ConfigError, InvalidDestinationError, StoreError
from raybroker.wire.port_map import read_map
from tests.contracts.stomp_rig import Bare
from tests.contracts.test_cli_outside import Shell
from tests.contracts.test_services import Outside, until
from tests.ports import free_port


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def listens(port: int) -> bool:
    with socket.socket() as tried:
        tried.settimeout(10)
        return tried.connect_ex(("127.0.0.1", port)) == 0


def port_of(outside: Outside, service: str) -> int:
    return next(int(row["port"]) for row in outside.admin.list_services() if row["service"] == service)


def moved(outside: Outside, service: str, port: int = 0) -> int:
    """To that port, or to any; the port mapper's map tells it."""
    before = outside.ports[service]
    outside.admin.update_service(service, port=port)
    now = outside.ports[service] = port_of(outside, service)
    assert now != before
    assert port in (0, now)
    assert listens(now)
    until(lambda: not listens(before))
    return now


def test_clients_stay_and_new_ones_find_the_new_port(tmp_path: Path, opened: ExitStack) -> None:
    outside = Outside(tmp_path, opened)
    old = outside.connect("ann")
    session = old.session()
    consumer = session.consumer("first")
    moved(outside, "jms", free_port())
    session.producer("first").send("here")
    assert consumer.receive(30).body == "here"
    session.producer("second").send("a new connection to a host finds its way")
    assert session.receive("second", timeout=30).body.startswith("a new")
    fresh = outside.connect("ann").session()
    fresh.producer("first").send("there")
    assert consumer.receive(30).body == "there"
    assert [row["user"] for row in outside.admin.list_connections("jms")] == ["ann", "ann"]


def test_a_taken_port_is_refused_and_the_old_one_goes_on(tmp_path: Path, opened: ExitStack) -> None:
    outside = Outside(tmp_path, opened)
    before = outside.admin.list_services()
    for taken in (outside.ports["admin"], outside.ports["portmapper"]):
        with pytest.raises(ConfigError, match=rf"broker loopback: no free port imq\.jms\.tcp\.port={taken} on"):
            outside.admin.update_service("jms", port=taken, maxThreads=20)
    for wrong in (65_536, -1, "x"):
        with pytest.raises(ConfigError, match=r"imq\.jms\.tcp\.port"):
            outside.admin.update_service("jms", port=wrong)
    with pytest.raises(ConfigError, match="is more than"):
        outside.admin.update_service("jms", port=free_port(), minThreads=9, maxThreads=8)
    with pytest.raises(InvalidDestinationError, match="no broker 'b7' is up"):
        outside.admin.update_service("jms", "b7", port=free_port())
    assert outside.admin.list_services() == before
    outside.connect("ann")
    outside.admin.update_service("jms", port=outside.ports["jms"])
    assert port_of(outside, "jms") == outside.ports["jms"], "the port that it has is no change"


def test_who_had_connected_at_the_old_port_is_served(tmp_path: Path, opened: ExitStack) -> None:
    outside = Outside(tmp_path, opened, **{"raybroker.handshake.timeout_ms": 30_000})
    waiting = [outside.socket() for _ in range(5)]
    moved(outside, "jms")
    for sock in waiting:
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(1) == b"", "it was taken, and refused because it says nothing"
    until(lambda: next(row for row in outside.admin.list_services() if row["service"] == "jms")["refused"] >= 5)


MAPPER = "imq.portmapper.port"


def moved_mapper(outside: Outside, port: int) -> None:
    before = outside.ports["portmapper"]
    outside.admin.update_broker({MAPPER: port})
    assert port_of(outside, "portmapper") == port
    assert listens(port)
    until(lambda: not listens(before))
    outside.ports["portmapper"] = port


def test_the_port_mapper_moves_while_clients_stay(tmp_path: Path, opened: ExitStack) -> None:
    outside = Outside(tmp_path, opened)
    client = outside.connect("ann")
    with outside.socket("portmapper") as waiting:
        moved_mapper(outside, free_port())
        assert waiting.recv(100).startswith(b"101"), "who had connected is answered"
    client.session().producer("q").send("by the old connection")
    assert outside.connect("ann").session().receive("q", timeout=30).body == "by the old connection"
    assert read_map(outside.socket("portmapper").makefile("rb").read())["portmapper"].port == port_of(
        outside, "portmapper"
    )
    moved_mapper(outside, free_port())
    assert outside.admin.query_broker()["changed"] == {MAPPER: outside.ports["portmapper"]}
    outside.admin.update_broker({MAPPER: outside.ports["portmapper"], "imq.message.max_size": "1m"})
    outside.connect("ann")


def test_who_asks_a_port_mapper_that_moves_is_answered(tmp_path: Path, opened: ExitStack) -> None:
    """But for one now and then whom the system has connected to a port as it is closed."""
    outside, over, answers = Outside(tmp_path, opened), threading.Event(), list[bytes]()

    def ask() -> None:
        while not over.is_set():
            with (
                suppress(ConnectionError),
                socket.create_connection(("127.0.0.1", outside.ports["portmapper"]), timeout=10) as asked,
            ):
                answers.append(asked.makefile("rb").read())

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        moved_mapper(outside, free_port())
    over.set()
    for thread in threads:
        thread.join(20)
    assert answers
    assert all(answer.endswith(b".\n") for answer in answers)


def test_a_port_mapper_that_cannot_move_stays_and_nothing_else_changes(tmp_path: Path, opened: ExitStack) -> None:
    outside = Outside(tmp_path, opened)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        for wrong in (port, outside.ports["admin"]):
            with pytest.raises(ConfigError, match=rf"no free port imq\.portmapper\.port={wrong} on 127\.0\.0\.1"):
                outside.admin.update_broker({"imq.log.level": "ERROR", MAPPER: wrong})
    for wrong in (65_536, -1, "x"):
        with pytest.raises(ConfigError, match=r"imq\.portmapper\.port"):
            outside.admin.update_broker({MAPPER: wrong})
    assert outside.admin.query_broker()["changed"] == {}
    outside.connect("ann")
    moved_mapper(outside, port)


def test_a_port_mapper_whose_move_cannot_be_written_down_stays(tmp_path: Path) -> None:
    port, services = free_port(), {"imq.service.activelist": "jms", "imq.hostname": "127.0.0.1", MAPPER: 0}

    async def fails(saved: Any) -> None:
        raise StoreError("the disk is full")

    with rb.loopback(tmp_path, properties=services) as inside:
        admin, directory = inside.admin(), inside._core.directory
        before = admin.list_services()
        properties = directory._broker.properties  # type: ignore[attr-defined]
        kept, properties._keep = properties._keep, fails
        with pytest.raises(StoreError):
            admin.update_broker({MAPPER: port})
        assert not listens(port)
        assert admin.list_services() == before
        properties._keep = kept
        admin.update_broker({MAPPER: port})
    assert not listens(port)
    with rb.loopback(tmp_path, properties=services):
        assert listens(port), "it holds after a restart"


def test_the_port_mapper_by_the_command_line_that_comes_through_it(tmp_path: Path, opened: ExitStack) -> None:
    outside = Outside(tmp_path, opened)
    port = free_port()
    told = Shell(outside, tmp_path).output("root", "update", "bkr", "-o", f"{MAPPER}={port}")
    assert told == f"updated broker loopback: {MAPPER}={port}\n"
    outside.ports["portmapper"] = port
    assert f"{port}" in Shell(outside, tmp_path).output("root", "query", "svc", "-n", "portmapper")


@pytest.mark.parametrize("state", ["PAUSED", "QUIESCED"])
def test_a_paused_service_moves_paused(tmp_path: Path, opened: ExitStack, state: str) -> None:
    outside = Outside(tmp_path, opened)
    (outside.admin.pause_service if state == "PAUSED" else outside.admin.quiesce_service)("jms")
    moved(outside, "jms")
    assert next(row["state"] for row in outside.admin.list_services() if row["service"] == "jms") == state
    with pytest.raises(BrokerError, match=state):
        outside.connect("ann")
    outside.admin.resume_service("jms")
    outside.connect("ann")


def test_stomp_and_http_move_with_their_clients(tmp_path: Path, opened: ExitStack) -> None:
    outside = Outside(tmp_path, opened, **{"imq.service.activelist": "jms,admin,httpjms,stomp"})
    stomp = Bare(outside.ports["stomp"])
    opened.callback(stomp.close)
    stomp.login("ann")
    web = rb.connect(f"http://127.0.0.1:{outside.ports['httpjms']}/", username="ann", password="secret")
    opened.callback(web.close)
    web.start()
    session = web.session()
    session.producer("q").send("before")
    for service in ("stomp", "httpjms"):
        moved(outside, service, free_port())
    stomp.send("SEND", {"destination": "/queue/q", "receipt": "r"}, b"by the old connection")
    assert stomp.receive().command == "RECEIPT"
    assert [session.receive("q", timeout=30).body for _ in range(2)] == ["before", b"by the old connection"]
    address = f"http://127.0.0.1:{outside.ports['httpjms']}/queues/q/messages"
    sent = httpx.post(address, json={"body": "by the new port"}, auth=("ann", "secret"), timeout=30)
    assert sent.status_code < 300, sent.text
    assert session.receive("q", timeout=30).body == "by the new port"


def test_by_the_command_line_also_of_the_service_that_it_comes_by(tmp_path: Path, opened: ExitStack) -> None:
    outside = Outside(tmp_path, opened)
    shell, port = Shell(outside, tmp_path), free_port()
    told = shell.output("root", "update", "svc", "-n", "admin", "-o", f"port={port}", "-o", "maxThreads=40")
    assert told == f"updated service admin, port {port}\n"
    rows: list[dict[str, Any]] = outside.admin.list_services()
    (row,) = [row for row in rows if row["service"] == "admin"]
    assert (row["port"], row["connections_max"]) == (port, 20)
    assert f"{port}" in shell.output("root", "query", "svc", "-n", "admin", "--json")
    taken = shell.run("root", "update", "svc", "-n", "jms", "-o", f"port={port}")
    assert (taken.exit_code, "no free port" in taken.stderr) == (1, True), taken.stderr
    denied = shell.run("bob", "update", "svc", "-n", "jms", "-o", "port=0")
    assert (denied.exit_code, port_of(outside, "jms")) == (1, outside.ports["jms"])
