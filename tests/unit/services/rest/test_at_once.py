"""Small messages that the application sends at once: what is checked before, what is counted meanwhile, and answers."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from raybroker.client.aio.fitting import receive_fitting
from raybroker.errors import BrokerError, DestinationPausedError, SecurityError
from raybroker.services.http.http_at_once import Head, Request
from raybroker.services.rest.application import Application, Terms
from raybroker.services.rest.at_once import SendsAtOnce
from raybroker.services.rest.user_connection import UserConnection
from raybroker.services.web.users import Users
from tests.unit.services.web.rig import Broker, until

TERMS = Terms("b1", "1.0", 1000, unencrypted=False, requests_max=2)
ANN = b"Basic " + base64.b64encode(b"ann:secret")
HEADERS = {b"authorization": ANN, b"content-type": b"application/json"}
Told = Callable[[str, BaseException | None], object]


class Answer:
    """What a client is answered."""

    def __init__(self) -> None:
        self.status = 0
        self.headers = b""
        self.body: Any = None

    def send(self, status: int, headers: bytes, body: bytes) -> None:
        assert self.status == 0, "it is answered once"
        self.status, self.headers, self.body = status, headers, json.loads(body)
        assert f"content-length: {len(body)}\r\n".encode() in headers


class Rig:
    """The application, and a producer that takes what ``takes`` and tells nothing by itself."""

    def __init__(self, name: str) -> None:
        self.state = "RUNNING"
        self.takes = True
        self.sent: list[tuple[Any, str, Told, dict[str, Any]]] = []
        self.broker = Broker(name)
        self.users = Users(
            self.broker.connect,
            lambda: UserConnection(lambda: 0.0, receive_fitting, self.hand_over),
            most=4,
            now_s=lambda: 0.0,
        )
        self.application = Application(self.users, TERMS, lambda: self.state)
        self.answer = Answer()

    def hand_over(self, producer: Any, body: Any, destination: str, told: Told, **options: Any) -> bool:
        if self.takes:
            self.sent.append((body, destination, told, options))
        return self.takes

    async def log_in(self) -> None:
        """The first send goes by the ASGI side."""
        given = self.users.offer.given(ANN.decode())
        async with self.users.of(given, "127.0.0.1:9") as user:
            await user.send("queue:q", {"body": "first"})

    def take(
        self,
        body: Any = None,
        *,
        url: bytes = b"/queues/q/messages",
        more: dict[bytes, bytes] | None = None,
        scheme: str = "http",
        address: str = "127.0.0.1",
        way: SendsAtOnce | None = None,
    ) -> bool:
        self.answer = Answer()
        data = body if isinstance(body, bytes) else json.dumps(body or {"body": "x"}).encode()
        request = Request(Head(url, {**HEADERS, **(more or {})}, scheme, (address, 9)), data)
        return (self.application.at_once if way is None else way).take(request, self.answer)

    @property
    def load(self) -> dict[str, int]:
        return self.application.load


IDLE = {"requests": 0, "receives": 0, "bodies_bytes": 0}


def run(work: Callable[[Rig], Any]) -> None:
    async def whole() -> None:
        from raybroker import aio

        async with await aio.loopback(broker="at-once"):
            rig = Rig("at-once")
            try:
                await rig.log_in()
                await work(rig)
            finally:
                await rig.application.close()
            assert rig.load == IDLE

    asyncio.run(whole())


def test_a_message_is_answered_when_it_is_stored() -> None:
    async def work(rig: Rig) -> None:
        message = {"body": {"a": 1}, "priority": 7, "properties": {"p": 1}}
        assert rig.take(message)
        ((body, destination, told, options),) = rig.sent
        assert (body, destination, options) == ({"a": 1}, "queue:q", {"priority": 7, "properties": {"p": 1}})
        assert rig.load == {"requests": 1, "receives": 0, "bodies_bytes": len(json.dumps(message))}
        assert rig.answer.status == 0
        told("id-1", None)
        assert (rig.answer.status, rig.answer.body) == (201, {"ids": ["id-1"]})
        assert b"cache-control: no-store\r\n" in rig.answer.headers
        assert rig.load == IDLE
        assert rig.take({"body": "aGk=", "encoding": "base64"}, url=b"/topics/t/messages")
        assert rig.sent[1][:2] == (b"hi", "topic:t")
        rig.sent[1][2]("id-2", None)

    run(work)


@pytest.mark.parametrize(
    "given",
    [
        {"url": b"/queues/q/messages?x=1"},
        {"url": b"/queues/q/receive"},
        {"url": b"/queues/%20/messages"},
        {"url": b"/queues/q%FF/messages"},
        {"url": b"http://broker/queues/q/messages"},
        {"url": b"/nothing"},
        {"more": {b"content-type": b"text/plain"}},
        {"more": {b"content-encoding": b"gzip"}},
        {"more": {b"authorization": b"Basic " + base64.b64encode(b"ann:wrong")}},
        {"more": {b"authorization": b"Basic " + base64.b64encode(b"bob:secret")}},
        {"more": {b"authorization": b"Basic !"}},
        {"address": "10.0.0.1"},
        {"body": b"{"},
        {"body": [{"body": 1}]},
        {"body": {"body": 1, "priority": 10}},
        {"body": {"body": 1, "persistent": False}},
        {"body": {"body": 1, "encoding": "base64"}},
        {"body": {"body": "x" * 1000}},
    ],
)
def test_what_is_wrong_or_different_is_left_to_the_others(given: dict[str, Any]) -> None:
    async def work(rig: Rig) -> None:
        assert not rig.take(**given)
        assert (rig.sent, rig.load, rig.answer.status) == ([], IDLE, 0)

    run(work)


def test_so_is_what_comes_to_a_service_that_is_paused_or_full_or_to_a_producer_that_has_to_wait() -> None:
    async def work(rig: Rig) -> None:
        rig.state = "PAUSED"
        assert not rig.take()
        rig.state, rig.takes = "RUNNING", False
        assert not rig.take()
        assert rig.load == IDLE
        rig.takes = True
        assert rig.take()
        assert rig.take()
        assert not rig.take()
        for row in rig.sent:
            row[2]("id", None)

    run(work)


def test_a_refusal_is_answered_as_every_one_is() -> None:
    async def work(rig: Rig) -> None:
        assert rig.take()
        rig.sent[-1][2]("", DestinationPausedError("its producers are paused"))
        assert (rig.answer.status, rig.answer.body["detail"]) == (503, "its producers are paused")
        assert b"content-type: application/problem+json\r\n" in rig.answer.headers
        assert rig.take()
        rig.sent[-1][2]("", SecurityError("not this queue"))
        assert rig.answer.status == 403
        assert rig.take()
        rig.sent[-1][2]("", ValueError("a fault"))
        assert (rig.answer.status, "a fault" in rig.answer.body["detail"]) == (500, True)
        assert rig.take()
        rig.broker.ended["ann"](BrokerError("closed by an administrator"))
        rig.sent[-1][2]("", SecurityError("it is over"))
        assert (rig.answer.status, "opened again" in rig.answer.body["detail"]) == (503, True)
        assert not rig.take()

    run(work)


def test_who_waits_too_long_is_told_that_nothing_is_known() -> None:
    async def work(rig: Rig) -> None:
        way = SendsAtOnce(rig.application, lambda url: "queue:q", timeout_s=0.05)
        assert rig.take(way=way)
        first = rig.answer
        assert rig.take(way=way)
        second = rig.answer
        await until(lambda: second.status != 0)
        assert (first.status, second.status, len(way), rig.load) == (504, 504, 0, IDLE)
        assert "queue:q has not taken the message" in first.body["detail"]
        rig.sent[0][2]("late", None)  # The client is not answered twice.
        assert rig.take(way=way)
        rig.sent[-1][2]("id", None)
        assert rig.answer.status == 201
        way.close()

    run(work)


def test_what_is_known_of_a_head_does_not_outlast_its_user_or_the_state_of_the_service() -> None:
    async def work(rig: Rig) -> None:
        head = Head(b"/queues/q/messages", HEADERS, "http", ("127.0.0.1", 9))

        def take() -> bool:
            return rig.application.at_once.take(Request(head, b'{"body": 1}'), Answer())

        assert take()
        meant = head.meaning
        assert take()
        assert (head.meaning, rig.load["requests"]) == (meant, 2)
        assert not take(), "there is no room for a third"
        for row in rig.sent:
            row[2]("id", None)
        rig.state = "PAUSED"
        assert not take()
        rig.state = "RUNNING"
        assert take()
        rig.sent[-1][2]("id", None)
        rig.broker.ended["ann"](BrokerError("closed by an administrator"))
        assert not take()
        other = Head(head.url, {**HEADERS, b"authorization": b"Basic " + base64.b64encode(b"ann:other")}, "http", None)
        await rig.log_in()
        for _ in range(2):
            assert not rig.application.at_once.take(Request(other, b'{"body": 1}'), Answer())
        assert take()
        rig.sent[-1][2]("id", None)

    run(work)
