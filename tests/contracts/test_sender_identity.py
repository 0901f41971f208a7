"""Who a client is, is the broker's to say: nobody names another sender in a message, and no second client has the
client id of one that is there."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

import raybroker as rb
from raybroker import aio
from raybroker.content import headers
from raybroker.errors import BrokerError, InvalidClientIDError, MessageFormatError
from tests.contracts.stomp_socket import StompSocket
from tests.contracts.test_services import Outside

NAMES = ["JMSXUserID", "JMSXAppID"]


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    with ExitStack() as opened:
        made = Outside(tmp_path, opened, **{"imq.service.activelist": "jms,httpjms,stomp"})
        made.admin.create_destination("queue", "q")
        yield made


def stomp(outside: Outside) -> StompSocket:
    return StompSocket(socket.create_connection(("127.0.0.1", outside.ports["stomp"]), timeout=20))


def held(outside: Outside) -> int:
    return int(outside.admin.query_destination("queue", "q")["messages"])


@pytest.mark.parametrize("name", NAMES)
def test_no_client_says_who_has_sent_a_message(outside: Outside, name: str) -> None:
    for connection in (outside.inside, outside.connect()):
        with pytest.raises(MessageFormatError, match=f"{name}.*which no sender may say"):
            connection.session().producer("q").send("x", {name: "root"})
        with pytest.raises(MessageFormatError, match=name):
            connection.session().producer("q").send_many(["x"], properties={name: "root"})
    url = f"http://127.0.0.1:{outside.ports['httpjms']}/queues/q/messages"
    answer = httpx.post(url, json={"body": 1, "properties": {name: "root"}}, auth=("ann", "secret"), timeout=30)
    assert (answer.status_code, name in answer.json()["detail"]) == (400, True), answer.text
    with closing(stomp(outside)) as client:
        error = client.login().refused("SEND", {"destination": "/queue/q", name: "root"})
    assert error.headers["error-code"] == MessageFormatError.code
    assert held(outside) == 0


@pytest.mark.parametrize("way", ["send", "many", "transaction", "schedule", "large", "not persistent"])
def test_a_host_takes_no_such_message_from_a_client_that_makes_it_by_itself(
    outside: Outside, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = outside.connect("ann", **{"raybroker.reconnect.timeout_ms": 500})
    session = connection.session(transacted=way == "transaction")
    producer = session.producer("q")
    monkeypatch.setattr(headers, "check_properties", dict)
    options: dict[str, Any] = {"schedule": "* * * * *"} if way == "schedule" else {}

    def forge() -> None:
        if way == "many":
            producer.send_many(["x"] * 10, properties={"a": 1, "JMSXUserID": "root"})
        elif way == "not persistent":
            producer.send("x", {"JMSXUserID": "root"}, persistent=False)
            producer.send("y")
        else:
            producer.send("x" * (5 << 20 if way == "large" else 1), {"JMSXUserID": "root"}, **options)
            if way == "transaction":
                session.commit()

    with pytest.raises(BrokerError):
        forge()
    assert held(outside) == 0
    assert outside.admin.list_schedules() == []
    text = "JMSXUserID and JMSXAppID in a body, or as values, say nothing"
    outside.connect("ann").session().producer("q").send(text, {"a": text})
    assert held(outside) == 1


def test_a_second_client_with_a_client_id_is_refused_when_it_connects(outside: Outside) -> None:
    """By whichever service it comes."""

    def native() -> Any:
        return outside.connect("ann", client_id="me")

    def by_http() -> Any:
        url = f"http://127.0.0.1:{outside.ports['httpjms']}/"
        made = rb.connect(url, username="ann", password="secret", client_id="me")
        outside._opened.callback(made.close)
        return made

    def on_a_loop() -> None:
        async def whole() -> None:
            made = await aio.connect(outside.url(), username="ann", password="secret", client_id="me")
            await made.close()

        asyncio.run(whole())

    def by_stomp() -> None:
        with closing(stomp(outside)) as client:
            client.send("CONNECT", {"login": "bob", "passcode": "secret", "accept-version": "1.2", "client-id": "me"})
            found = client.receive()
            assert found is not None
            if found.command == "ERROR":
                assert found.headers["error-code"] == InvalidClientIDError.code
                raise InvalidClientIDError(found.headers["message"])

    for first in (native, by_http):
        connection = first()
        for second in (native, by_http, on_a_loop, by_stomp):
            with pytest.raises(InvalidClientIDError, match="'me' is in use"):
                second()
        outside.connect("ann", client_id="me", ClientIdPolicy="Unrestricted").close()
        connection.session().producer("q").send("it goes on")
        connection.close()
        for again in (native, on_a_loop, by_stomp):
            closing_ = again()
            if closing_ is not None:
                closing_.close()
    assert held(outside) == 2


def test_what_waits_in_a_temporary_queue_is_seen_by_its_connection_alone(outside: Outside) -> None:
    """By receiving and by browsing, whichever way the other comes; everybody may send to it."""
    owner, others = outside.connect("ann").session(), (outside.inside, outside.connect("bob"), outside.connect("ann"))
    replies = owner.temporary_queue()
    others[0].session().producer(replies).send("secret reply")
    for connection in others:
        session = connection.session()
        for attempt in (
            lambda: list(session.browser(replies)),  # noqa: B023 - called at once
            lambda: session.receive(replies, timeout=1),  # noqa: B023
        ):
            with pytest.raises(BrokerError, match=r"only the connection that made it may|may not"):
                attempt()
    base = f"http://127.0.0.1:{outside.ports['httpjms']}/queues/{replies.name}"
    for method, path in (("GET", "/messages"), ("POST", "/receive")):
        answer = httpx.request(method, base + path, auth=("ann", "secret"), timeout=30)
        assert (answer.status_code, "secret reply" in answer.text) == (404, False), answer.text
    with closing(stomp(outside)) as client:
        headers_ = {"destination": f"/queue/{replies.name}", "id": "1", "receipt": "r"}
        error = client.login().refused("SUBSCRIBE", headers_)
        assert "secret reply" not in str(error)
    assert [message.body for message in owner.browser(replies)] == ["secret reply"]
    assert owner.receive(replies, timeout=20).body == "secret reply"
