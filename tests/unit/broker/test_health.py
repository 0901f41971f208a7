"""Health asks each part for a bounded time, and says which does not answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

import pytest

from raybroker.admin.checks import worst
from raybroker.broker.observing import health
from raybroker.broker.observing.health import ClusterHealth, HealthChecks
from raybroker.errors import ConfigError, ConnectionLostError
from raybroker.model.errors import NotOpenError

OWN = {"broker": "b1", "state": "UP", "thresholds": {}}


class Host:
    """One that answers, fails or hangs."""

    def __init__(self, key: str, failure: BaseException | None = None, *, hangs: bool = False) -> None:
        self.key = key
        self.process = self
        self._failure = failure
        self._hangs = hangs

    async def state(self) -> dict[str, Any]:
        if self._hangs:
            await asyncio.Event().wait()
        if self._failure is not None:
            raise self._failure
        return {"memory_level": "GREEN", "memory_used_bytes": 1, "memory_limit_bytes": 10}


class Service:
    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address

    def service_row(self) -> dict[str, Any]:
        return {"service": "jms", "state": "RUNNING", "port": self.address[1], "connections": 0, "connections_max": 5}


class Services:
    def __init__(self, *active: tuple[str, int]) -> None:
        self.failure = ""
        self.probes: list[str] = []
        self._active = {f"s{number}": Service(address) for number, address in enumerate(active)}

    def active(self) -> Mapping[str, Service]:
        return self._active

    def rules_missing(self) -> str:
        return ""

    def certificate_days(self, service: str) -> int | None:
        return None

    async def unreached(self) -> str:
        return ""

    def probing(self, address: str) -> None:
        self.probes.append(address)


async def asked(verb: str, args: dict[str, Any]) -> Any:
    if verb == "metrics":
        row = {"type": "queue", "name": "q", "oldest_message_age_seconds": 7.25}
        return [{"destinations": [row]}, {"destinations": [{**row, "oldest_message_age_seconds": 3.0}]}]
    return {"type": "queue", "name": args["name"], "state": "RUNNING", "messages": 3, "bytes": 9, "attributes": {}}


def made(
    *hosts: Host, services: Services | None = None, unasked: tuple[str, ...] = (), closed: bool = False
) -> HealthChecks:
    def require_open() -> None:
        if closed:
            raise NotOpenError("it waits for the master")

    silent = dict.fromkeys(unasked, "its store is damaged")
    return HealthChecks(
        lambda: OWN, lambda: hosts, lambda: silent, services or Services(), asked, require_open, broker="b1"
    )


def grades(rows: list[dict[str, Any]], check: str) -> dict[str, str]:
    return {row["of"]: row["grade"] for row in rows if row["check"] == check}


def test_hosts_that_fail_or_hang_are_named_and_the_others_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "ASK_TIMEOUT_S", 0.05)
    one = made(Host("b1/h1"), Host("b1/h2", ConnectionLostError("gone")), Host("b1/h3", hangs=True), unasked=("b1/h4",))
    rows = asyncio.run(one.check_broker())
    assert grades(rows, "hosts") == dict.fromkeys(("b1/h2", "b1/h3", "b1/h4"), "critical")
    assert grades(rows, "memory") == {"b1/h1": "ok"}
    assert "its store is damaged" in next(row["text"] for row in rows if row["of"] == "b1/h4")
    assert {row["broker"] for row in rows} == {"b1"}


def test_ready_is_what_clients_need_and_no_more() -> None:
    one = made(Host("b1/h1"))
    assert (worst(asyncio.run(one.ready())), worst(asyncio.run(one.live()))) == ("ok", "ok")

    one = made(Host("b1/h1"), closed=True)
    rows = asyncio.run(one.ready())
    assert grades(rows, "open") == {"b1": "critical"}
    assert "memory" not in {row["check"] for row in rows}
    assert worst(asyncio.run(one.live())) == "ok"
    services = Services()
    services.failure = "the port is taken"
    assert grades(asyncio.run(made(services=services).ready()), "services") == {"b1": "critical"}


def test_a_port_that_accepts_is_told_from_one_that_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_server(("127.0.0.1", 0)) as gone:
        there, lost = listening.getsockname(), gone.getsockname()
        gone.close()
        services = Services(there, lost)
        rows = asyncio.run(made(services=services).check_services())
        listeners = [row["grade"] for row in rows if row["check"] == "listener"]
        assert listeners == ["ok", "critical"]
        came = listening.accept()[1]
        assert services.probes == [f"{came[0]}:{came[1]}"]
        with pytest.raises(ConfigError, match="'s7' is not active here"):
            asyncio.run(made(services=services).check_services("s7"))


def test_a_destination_is_looked_at_over_all_brokers() -> None:
    for one in (made(), ClusterHealth(asked)):
        rows = asyncio.run(one.check_destination("queue", "q", {"oldest_s": 5}))
        (oldest,) = [row for row in rows if row["check"] == "oldest_s"]
        assert (oldest["value"], oldest["grade"]) == (7.2, "warning")


def of_copies(rows: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(row["of"], row["grade"], row["text"]) for row in rows if row["check"] == "copies"]


def test_copies_are_checked_with_the_cluster() -> None:
    cluster = {"brokers": [], "broker": "b1", "state": "UP", "operating": True, "master": "b1"}

    async def ask(verb: str, args: dict[str, Any]) -> dict[str, Any]:
        if verb == "query_cluster":
            return cluster
        if args["name"] == "away":
            raise ConnectionLostError("nobody is there")
        known = {"voter": True, "connected": True, "index": 4, "behind": 0, "answered_ms_ago": 0, "trouble": ""}
        copies = [{"broker": name, **known} for name in ("b1", "b2")]
        return {"replication": {"leader": "b1", "index": 4, "copies": copies}}

    health_of = ClusterHealth(ask, lambda: [("queue", "orders"), ("queue", "away")])
    rows = asyncio.run(health_of.check_cluster())
    assert of_copies(rows) == [
        ("queue away", "critical", "no copy leads: nobody is there"),
        ("queue orders", "ok", "2 copies are there, led at broker b1"),
    ]
    assert of_copies(asyncio.run(ClusterHealth(ask).check_cluster())) == []
    assert asyncio.run(health_of.replication("queue", "plain")) == {}


def test_no_more_copies_are_asked_for_than_a_check_has_time_for() -> None:
    asked: list[str] = []

    async def ask(verb: str, args: dict[str, Any]) -> dict[str, Any]:
        if verb == "query_cluster":
            return {"brokers": [], "broker": "b1", "state": "UP", "operating": True, "master": "b1"}
        asked.append(args["name"])
        return {"replication": {}}

    many = [("queue", f"q{number:04}") for number in range(health.COPIED_MAX + 3)]
    rows = asyncio.run(ClusterHealth(ask, lambda: many).check_cluster())
    assert len(asked) == health.COPIED_MAX
    assert of_copies(rows)[-1] == ("others", "unknown", "3 more destinations have copies, and were not looked at")
