"""Shutting a broker down from outside: who is let in meanwhile, what consumers finish, and what cannot be shut down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import TimeoutError as NotYet
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from raybroker.errors import ConfigError, IllegalStateError, NotSupportedError, RequestTimeoutError
from tests.contracts.test_cli_outside import Shell
from tests.contracts.test_services import Outside

FINISH_S = 30


class Ends:
    """Stands in for the process of a broker: what was asked of it, and when."""

    def __init__(self, outside: Outside) -> None:
        self.restarts: list[bool] = []
        self.ended = Event()
        outside.inside._core.directory._broker.ending._end = self._end

    async def _end(self, restart: bool) -> None:
        self.restarts.append(restart)
        self.ended.set()


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    with ExitStack() as opened:
        yield Outside(tmp_path, opened, **{"raybroker.shutdown.delivery": FINISH_S, "imq.audit.enabled": True})


def test_consumers_finish_what_they_have_while_producers_wait(outside: Outside) -> None:
    ends = Ends(outside)
    root = outside.connect("root", "admin").admin()
    client = outside.connect("ann", **{"raybroker.reconnect.timeout_ms": 300})
    session = client.session(ack="client")
    producer, consumer = session.producer("orders"), session.consumer("orders")
    producer.send_many(range(10))
    first = consumer.receive(20)
    assert first.body == 0
    row = root.shutdown_broker()
    assert (row["broker"], row["state"], row["delivery_s"]) == ("loopback", "STOPPING", FINISH_S)
    with pytest.raises(IllegalStateError, match="QUIESCED"):
        outside.connect("ann")
    late = producer.send_async("too late")
    assert not ends.ended.wait(0.5), "what consumers have is not acknowledged yet"
    rest = [consumer.receive(20) for _ in range(9)]
    assert [message.body for message in rest] == list(range(1, 10))
    rest[-1].acknowledge()
    assert ends.ended.wait(FINISH_S)
    assert ends.restarts == [False]
    with pytest.raises(NotYet):
        late.result(0.1)
    assert outside.admin.query_destination("queue", "orders")["messages"] == 0
    with pytest.raises(IllegalStateError, match="what it had not taken by then is lost"):
        client.close()


def test_who_waits_too_long_is_told_why(outside: Outside) -> None:
    ends = Ends(outside)
    client = outside.connect("ann", imqAckTimeout=300, **{"raybroker.reconnect.timeout_ms": 3000})
    producer = client.session().producer("orders")
    producer.send("in time")
    outside.admin.shutdown_broker()
    assert ends.ended.wait(FINISH_S)

    def fill() -> None:
        for _ in range(10_000):
            producer.send_async("x" * 4096)

    with pytest.raises(RequestTimeoutError, match="its broker is being shut down"):
        fill()


def test_until_the_time_comes_clients_go_on_and_administrators_may_change_their_mind(outside: Outside) -> None:
    ends = Ends(outside)
    session = outside.connect("ann").session()
    session.producer("orders").send("before")
    root = outside.connect("root", "admin").admin()
    assert root.shutdown_broker(time_s=3600)["time_s"] == 3600
    states = {row["service"]: row["state"] for row in root.list_services()}
    assert (states["jms"], states["admin"]) == ("QUIESCED", "RUNNING")
    with pytest.raises(IllegalStateError, match="QUIESCED"):
        outside.connect("ann")
    outside.connect("root", "admin")
    session.producer("orders").send("meanwhile")
    assert [session.receive("orders", timeout=20).body for _ in range(2)] == ["before", "meanwhile"]
    assert (root.query_broker()["state"], ends.restarts) == ("STOPPING", [])
    session.close()
    assert root.restart_broker()["state"] == "RESTARTING"
    assert ends.ended.wait(FINISH_S)
    assert ends.restarts == [True]


def test_a_broker_of_a_program_says_that_it_ends_with_it(outside: Outside, tmp_path: Path) -> None:
    shell = Shell(outside, tmp_path)
    for verb in ("shutdown", "restart"):
        done = shell.run("root", verb, "bkr", "-f")
        assert done.exit_code == 1
        assert "was started by a program, inside of its process, and ends with its last connection there" in done.stderr
        asked = shell.run("root", verb, "bkr")
        assert (asked.exit_code, "say yes with --force" in asked.stderr) == (2, True), asked.stderr
    assert outside.admin.query_broker()["state"] == "UP"
    outside.connect("ann").session().producer("orders").send("goes on")
    with pytest.raises(NotSupportedError):
        outside.admin.shutdown_broker()
    for wrong in (-1, 86_401, True):
        with pytest.raises(ConfigError, match="a whole number of seconds from 0 to 86400"):
            outside.admin.shutdown_broker(time_s=wrong)


def test_a_shell_asks_for_it_and_it_is_in_the_audit_log(outside: Outside, tmp_path: Path) -> None:
    ends, shell = Ends(outside), Shell(outside, tmp_path)
    told = shell.output("root", "shutdown", "bkr", "-f", "--time", "3600")
    assert told == "broker loopback ends in 3600 s and takes no new clients\n"
    assert ends.restarts == []
    assert "may not connect to ADMIN services" in shell.run("bob", "restart", "bkr", "-f").stderr
    (audit,) = (tmp_path / "audit").glob("*.log")
    (line,) = [line for line in audit.read_text().splitlines() if "shutdown_broker" in line]
    assert '"user":"root"' in line
    assert "time_s" in line


def test_a_shell_waits_for_the_end(outside: Outside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The services of the broker are closed as those of a process that ends."""
    shell = Shell(outside, tmp_path)
    directory: Any = outside.inside._core.directory

    async def end(restart: bool) -> None:
        directory._services.close()

    directory._broker.ending._end = end
    began = time.monotonic()
    assert shell.output("root", "shutdown", "bkr", "-f") == "broker loopback has closed its services, and ends\n"
    assert time.monotonic() - began < 2 * FINISH_S
    done = shell.run("root", "shutdown", "bkr", "-f")
    assert (done.exit_code, "no connection service answers" in done.stderr) == (3, True), done.stderr
