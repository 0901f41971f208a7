"""What is taken away from a user holds soon for what he has open, by whichever service he comes."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

import raybroker as rb
from raybroker.errors import BrokerError, ConnectionEndedError, SecurityError
from raybroker.security.user_file import UserEntry
from raybroker.wire.scram import Verifier
from tests.contracts.stomp_socket import StompSocket
from tests.contracts.test_services import RULES, Outside

OTHER = str(Verifier.from_password("other", b"t" * 16, 64))


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    with ExitStack() as opened:
        made = Outside(tmp_path, opened, **{"imq.service.activelist": "jms,admin,stomp,httpjms,httpadmin"})
        made.admin.create_destination("queue", "q")
        made.admin.create_destination("queue", "other")
        yield made


def soon(condition: Callable[[], Any]) -> None:
    """It happens by itself; not within how long is asked here, but that it does not take for ever."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def raised(attempt: Callable[[], Any]) -> BrokerError | None:
    try:
        attempt()
    except BrokerError as error:
        return error
    return None


def stomp(outside: Outside, user: str = "ann") -> StompSocket:
    made = socket.create_connection(("127.0.0.1", outside.ports["stomp"]), timeout=20)
    outside._opened.callback(made.close)
    return StompSocket(made).login(user)


def http(outside: Outside, user: str, service: str = "httpjms", password: str = "secret") -> Callable[[], int]:
    client = httpx.Client(base_url=f"http://127.0.0.1:{outside.ports[service]}", auth=(user, password), timeout=60)
    outside._opened.callback(client.close)
    path = "/queues/q/messages" if service == "httpjms" else "/destinations"
    return lambda: client.get(path).status_code


@pytest.mark.parametrize(
    ("operation", "way"),
    [
        ("consume", "blocking"),
        ("consume", "listener"),
        ("produce", "blocking"),
        ("browse", "blocking"),
    ],
)
def test_a_right_that_is_taken_away_ends_what_is_open_by_it_and_nothing_else(
    outside: Outside, operation: str, way: str
) -> None:
    connection = outside.connect("ann")
    session, told = connection.session(), []
    consumer = session.consumer("q")
    producer, other, browser = session.producer("q"), session.consumer("other"), session.browser(session.queue("q"))
    if way == "listener":
        connection.on_event(told.append)
        consumer.on_exception = told.append
        consumer.listener = lambda message: None
    producer.send("before")
    outside.rules.write_text(f"{RULES}queue.q.{operation}.deny.user=ann\n")
    attempt: Callable[[], Any] = {
        "consume": lambda: consumer.receive(0.1) if way == "blocking" else None,
        "produce": lambda: producer.send("x"),
        "browse": lambda: list(browser),
    }[operation]
    if way == "blocking":
        soon(lambda: isinstance(raised(attempt), SecurityError))
    else:
        soon(lambda: not [row for row in outside.admin.list_consumers() if row["destination"] == "q"])
    for right, works in (
        ("consume", lambda: way == "listener" or consumer.receive(0.1)),
        ("produce", lambda: producer.send("more")),
    ):
        if right != operation:
            works()
    assert other.receive(0.1) is None, "what is allowed goes on"
    outside.inside.session().producer("q").send("after")
    waiting = outside.admin.query_destination("queue", "q")["messages"]
    if operation == "consume":
        assert waiting >= 1, "nothing is given to who may not have it"


@pytest.mark.parametrize("how", ["deleted", "inactive", "another password", "not admitted"])
def test_who_may_not_be_here_any_more_is_ended_whichever_way_he_comes(outside: Outside, how: str) -> None:
    native, by_stomp, by_http = outside.connect("ann"), stomp(outside), http(outside, "ann")
    bystander = outside.connect("bob")
    native.session().producer("q").send("x")
    assert by_http() == 200
    if how == "deleted":
        outside.users.delete("ann")
    elif how == "inactive":
        outside.users.update("ann", active=False)
    elif how == "another password":
        outside.users.update("ann", verifier=OTHER)
    else:
        outside.rules.write_text(RULES.replace("user=stranger", "user=stranger,ann"))
    soon(lambda: isinstance(raised(lambda: native.session().producer("q").send("x")), ConnectionEndedError))
    assert by_stomp.expect("ERROR").headers["error-code"] == ConnectionEndedError.code
    soon(lambda: by_http() == (403 if how == "not admitted" else 401))
    bystander.session().producer("q").send("goes on")
    assert {row["user"] for row in outside.admin.list_connections()} == {"bob"}
    if how == "another password":
        assert http(outside, "ann", password="other")() == 200


def test_an_administrator_who_is_none_any_more_is_ended_too(outside: Outside) -> None:
    admin, by_http = outside.connect("root", "admin").admin(), http(outside, "root", "httpadmin")
    assert admin.list_destinations()
    assert by_http() == 200
    outside.users.delete("root")
    soon(lambda: isinstance(raised(admin.list_destinations), ConnectionEndedError))
    soon(lambda: by_http() == 401)


def test_a_missing_file_of_rules_is_said_at_the_start_when_it_goes_and_by_check(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as opened, caplog.at_level(logging.WARNING):
        outside = Outside(tmp_path, opened)

        def grades() -> dict[str, str]:
            return {row["check"]: str(row["grade"]) for row in outside.admin.check_services()}

        assert grades()["access rules"] == "ok"
        assert "there is no file of access rules" not in caplog.text
        outside.rules.unlink()
        soon(lambda: "there is no file of access rules" in caplog.text)
        assert grades()["access rules"] == "warning"
        (row,) = [row for row in outside.admin.check_services() if row["check"] == "access rules"]
        assert "accesscontrol.properties" in row["text"]
    caplog.clear()
    with caplog.at_level(logging.WARNING), suppress(rb.errors.BrokerError):
        (tmp_path / "users").mkdir()
        broker = rb.loopback(
            properties={
                "imq.service.activelist": "jms",
                "imq.hostname": "127.0.0.1",
                "imq.portmapper.port": 0,
                "raybroker.security.dir": str(tmp_path / "users"),
            }
        )
        broker.close()
        assert "there is no file of access rules" in caplog.text


def test_a_user_who_is_made_again_is_not_the_one_before(outside: Outside) -> None:
    connection = outside.connect("ann")
    outside.users.delete("ann")
    outside.users.add("ann", UserEntry(OTHER))
    soon(lambda: isinstance(raised(lambda: connection.session().producer("q").send("x")), ConnectionEndedError))
