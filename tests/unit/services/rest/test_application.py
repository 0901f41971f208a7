"""The application alone, over a loopback broker: what each operation does, and how it says what it does not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from raybroker import aio
from raybroker.client.aio import fitting
from raybroker.client.aio.fitting import receive_fitting
from raybroker.errors import QuotaExceededError, SecurityError, StoreError
from raybroker.services.rest.application import Application, Terms
from raybroker.services.rest.user_connection import UserConnection
from raybroker.services.web.problems import CONTENT_TYPE, problem
from raybroker.services.web.users import WebUsers
from tests.unit.services.web.rig import Broker, until

TERMS = Terms("b1", "1.0", 100_000, unencrypted=False)
JSON = {"content-type": "application/json"}


class Rig:
    def __init__(self, name: str, terms: Terms) -> None:
        self.state = "RUNNING"
        self.now_s = 0.0
        self.broker = Broker(name)
        self.users = WebUsers(
            self.broker.connect,
            lambda: UserConnection(lambda: self.now_s, receive_fitting),
            most=4,
            now_s=lambda: self.now_s,
        )
        self.application = Application(self.users, terms, lambda: self.state)
        self.inside: Any = None
        self.ann = self.client()

    def client(self, user: str = "ann", password: str = "secret", address: str = "127.0.0.1") -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.application.app, client=(address, 99))
        return httpx.AsyncClient(transport=transport, base_url="http://broker", auth=(user, password))

    async def send(self, *bodies: Any, queue: str = "q") -> list[str]:
        answer = await self.ann.post(f"/queues/{queue}/messages", json=[{"body": body} for body in bodies])
        assert answer.status_code == 201, answer.text
        ids: list[str] = answer.json()["ids"]
        return ids

    async def receive(self, queue: str = "q", **query: int) -> list[dict[str, Any]]:
        answer = await self.ann.post(f"/queues/{queue}/receive", params=query)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["messages"]
        return found

    async def settle(self, verb: str, *receipts: str, queue: str = "q", **more: int) -> httpx.Response:
        return await self.ann.post(f"/queues/{queue}/{verb}", json={"receipts": receipts, **more})

    async def waiting(self, queue: str = "q") -> list[Any]:
        answer = await self.ann.get(f"/queues/{queue}/messages")
        return [row["body"] for row in answer.json()["messages"]]


def run(work: Callable[[Rig], Awaitable[None]], name: str, terms: Terms = TERMS) -> None:
    async def whole() -> None:
        async with await aio.loopback(broker=name) as inside:
            rig = Rig(name, terms)
            rig.inside = inside
            try:
                await work(rig)
            finally:
                await rig.users.close()
                assert rig.application.load == {"requests": 0, "receives": 0, "bodies_bytes": 0}

    asyncio.run(whole())


def told(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == CONTENT_TYPE
    body = answer.json()
    assert body["status"] == status
    return str(body["detail"])


def test_a_message_is_stored_with_all_that_was_said_of_it() -> None:
    async def work(rig: Rig) -> None:
        sent = {
            "body": {"a": [1, None]},
            "properties": {"temp": -3},
            "correlation_id": "c",
            "reply_to": "answers",
            "type": "order",
            "priority": 7,
            "ttl_ms": 60_000,
        }
        answer = await rig.ann.post("/queues/q/messages", json=sent)
        assert answer.status_code == 201
        (id,) = answer.json()["ids"]  # noqa: A001
        session = await rig.inside.session()
        message = await session.receive("q", timeout=10)
        assert (message.id, message.body, message.properties) == (id, sent["body"], {"temp": -3})
        assert (message.correlation_id, message.reply_to, message.type) == ("c", "answers", "order")
        assert (message.priority, message.expiration > message.timestamp) == (7, True)

    run(work, "rest-one")


def test_of_an_array_all_is_stored_or_nothing() -> None:
    async def work(rig: Rig) -> None:
        ids = await rig.send(1, 2, 3)
        assert len(set(ids)) == 3
        await rig.inside.admin().update_destination("queue", "q", maxNumMsgs=4, limitBehavior="REJECT_NEWEST")
        answer = await rig.ann.post("/queues/q/messages", json=[{"body": 4}, {"body": 5}])
        assert answer.status_code in (409, 507), answer.text
        assert await rig.waiting() == [1, 2, 3]
        await rig.send(4)
        assert await rig.waiting() == [1, 2, 3, 4]

    run(work, "rest-array")


def test_a_message_that_is_not_stored_before_it_is_handed_over_is_confirmed_all_the_same() -> None:
    async def work(rig: Rig) -> None:
        await rig.send("x")
        await rig.inside.admin().update_destination("queue", "q", maxNumMsgs=1, limitBehavior="REJECT_NEWEST")
        answer = await rig.ann.post("/queues/q/messages", json={"body": 1, "persistent": False})
        assert answer.status_code in (409, 507), answer.text
        assert await rig.waiting() == ["x"]

    run(work, "rest-transient")


def test_subscribers_get_what_is_sent_to_a_topic() -> None:
    async def work(rig: Rig) -> None:
        session = await rig.inside.session()
        consumer = await session.consumer(session.topic("news"))
        answer = await rig.ann.post("/topics/news/messages", json={"body": "snow"})
        assert answer.status_code == 201
        assert (await consumer.receive(10)).body == "snow"

    run(work, "rest-topic")


def test_what_was_received_is_held_and_ends_by_its_receipt() -> None:
    async def work(rig: Rig) -> None:
        await rig.send("a", "b", "c")
        held = await rig.receive(max=2)
        assert [row["body"] for row in held] == ["a", "b"]
        assert await rig.waiting() == ["c"]
        answer = await rig.settle("acknowledge", held[0]["receipt"])
        assert answer.status_code == 200
        assert answer.json() == {"results": [{"receipt": held[0]["receipt"], "outcome": "acknowledged", "detail": ""}]}
        assert (await rig.settle("release", held[1]["receipt"])).status_code == 200
        again = await rig.receive(max=10)
        assert [row["body"] for row in again] == ["b", "c"]

    run(work, "rest-held")


def test_a_second_an_unknown_and_a_strangers_receipt_are_told_so() -> None:
    async def work(rig: Rig) -> None:
        await rig.send("a", "b")
        one, other = (row["receipt"] for row in await rig.receive(max=2))
        await rig.settle("acknowledge", one)
        answer = await rig.settle("acknowledge", one, other, "nobody's")
        assert "2 of 3 messages were not acknowledged" in told(answer, 409)
        assert [row["outcome"] for row in answer.json()["results"]] == ["settled before", "acknowledged", "unknown"]
        await rig.send("mine")
        (mine,) = await rig.receive()
        answer = await rig.client("bob").post("/queues/q/acknowledge", json={"receipts": [mine["receipt"]]})
        assert answer.json()["results"][0]["outcome"] == "unknown"
        answer = await rig.settle("acknowledge", mine["receipt"], queue="other")
        assert answer.json()["results"][0]["outcome"] == "unknown"
        assert (await rig.settle("acknowledge", mine["receipt"])).status_code == 200

    run(work, "rest-second")


def test_when_the_lease_is_over_the_message_comes_again_as_failed_and_a_late_receipt_is_told_so() -> None:
    async def work(rig: Rig) -> None:
        await rig.send("a")
        (first,) = await rig.receive(lease_ms=1000)
        rig.now_s += 1.001
        (second,) = await rig.receive(wait_ms=20_000)
        assert (first["delivery_count"], second["delivery_count"]) == (1, 2)
        answer = await rig.settle("acknowledge", first["receipt"])
        assert "its lease was over" in told(answer, 409)
        assert (await rig.settle("acknowledge", second["receipt"])).status_code == 200

    run(work, "rest-lease")


def test_without_a_wait_an_empty_queue_is_said_to_be_empty_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "COMING_S", 30.0)

    async def work(rig: Rig) -> None:
        async with asyncio.timeout(10):
            assert await rig.receive() == []
            await rig.send("a")
            (held,) = await rig.receive()
            assert await rig.receive() == []
            await rig.settle("release", held["receipt"])
            (again,) = await rig.receive(wait_ms=0)
            assert (await rig.settle("acknowledge", again["receipt"])).status_code == 200
            await rig.send("b")
            await rig.inside.admin().pause_destination("queue", "q", "consumers")
            assert await rig.receive() == []

    run(work, "rest-no-wait")


def test_a_delay_says_that_the_attempt_failed() -> None:
    async def work(rig: Rig) -> None:
        await rig.send("a")
        (held,) = await rig.receive()
        assert (await rig.settle("release", held["receipt"], delay_ms=300)).status_code == 200
        (again,) = await rig.receive(wait_ms=20_000)
        assert (again["body"], again["delivery_count"]) == ("a", 2)

    run(work, "rest-delay")


def test_an_empty_queue_answers_with_nothing_and_a_wait_ends_when_something_comes() -> None:
    async def work(rig: Rig) -> None:
        assert await rig.receive() == []
        waiting = asyncio.create_task(rig.receive(wait_ms=20_000))
        await asyncio.sleep(0.1)
        await rig.send("late")
        assert [row["body"] for row in await waiting] == ["late"]

    run(work, "rest-wait")


def test_browsing_takes_nothing_and_has_an_end() -> None:
    async def work(rig: Rig) -> None:
        await rig.send(*range(5))
        answer = await rig.ann.get("/queues/q/messages", params={"max": 3})
        assert ([row["body"] for row in answer.json()["messages"]], answer.json()["more"]) == ([0, 1, 2], True)
        assert len(await rig.waiting()) == 5
        assert "selector" in told(await rig.ann.get("/queues/q/messages", params={"selector": "a ="}), 400).lower()

    run(work, "rest-browse")


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "text"),
    [
        ("POST", "/queues/q/messages", {"content": b"{", "headers": JSON}, 400, "no JSON"),
        ("POST", "/queues/q/messages", {"content": b"x"}, 415, "application/json"),
        ("POST", "/queues/q/messages", {"json": {"body": "x" * 100_001}}, 413, "100000 bytes (raybroker.http.body"),
        ("POST", "/queues/q/messages", {"json": {"body": 1, "encoding": "base64"}}, 400, "base64"),
        ("POST", "/queues/9q/messages", {"json": {"body": 1}}, 400, "'9q'"),
        ("POST", "/topics/a.*/messages", {"json": {"body": 1}}, 400, "pattern"),
        ("POST", "/queues/q/receive?max=1&max=2", {}, 400, "twice"),
        ("POST", "/queues/q/receive?maxx=1", {}, 400, "maxx"),
        ("POST", "/queues/q/acknowledge", {"json": {"receipts": []}}, 400, "at least 1"),
        ("DELETE", "/queues/q/messages", {}, 405, "there is GET, HEAD, POST"),
        ("HEAD", "/queues/q/receive", {}, 405, ""),
        ("GET", "/queues/q", {}, 404, "/queues/{name}/messages"),
        ("GET", "/queues/a%2Fb/messages", {}, 400, "'a/b'"),
    ],
)
def test_what_is_wrong_is_said_and_changes_nothing(
    method: str, path: str, options: dict[str, Any], status: int, text: str
) -> None:
    async def work(rig: Rig) -> None:
        answer = await rig.ann.request(method, path, **options)
        if method == "HEAD":
            assert answer.status_code == status
        else:
            assert text in told(answer, status)
        assert [row for row in await rig.inside.admin().list_destinations() if row["messages"]] == []

    run(work, "rest-wrong")


def test_who_does_not_say_who_he_is_is_asked_and_nothing_is_read() -> None:
    async def work(rig: Rig) -> None:
        for client in (rig.client("ann", "wrong"), rig.client("eve")):
            answer = await client.post("/queues/q/messages", content=b"{", headers=JSON)
            told(answer, 401)
            assert answer.headers["www-authenticate"].startswith("Basic")
        far = await rig.client(address="192.0.2.1").post("/queues/q/messages", json={"body": 1})
        assert "httpsjms" in told(far, 403)
        assert rig.broker.logins == [("ann", "127.0.0.1:99"), ("eve", "127.0.0.1:99")]

    run(work, "rest-who")


def test_a_paused_service_says_so_and_its_health_too() -> None:
    async def work(rig: Rig) -> None:
        assert (await rig.ann.get("/health")).json() == {"broker": "b1", "state": "RUNNING"}
        rig.state = "PAUSED"
        assert "paused" in told(await rig.ann.post("/queues/q/messages", json={"body": 1}), 503)
        answer = await rig.ann.get("/health")
        assert (answer.status_code, answer.json()["state"]) == (503, "PAUSED")

    run(work, "rest-paused")


def test_more_requests_than_there_is_room_for_are_refused_and_the_others_go_on() -> None:
    async def work(rig: Rig) -> None:
        await rig.send("x", queue="other")
        waiting = [asyncio.create_task(rig.receive(wait_ms=20_000)) for _ in range(2)]
        await until(lambda: rig.application.load["receives"] == 2)
        assert "2 requests wait" in told(await rig.ann.post("/queues/q/receive"), 503)
        await rig.send("a", "b")
        assert len([row for rows in await asyncio.gather(*waiting) for row in rows]) in (1, 2)

    run(work, "rest-bounds", TERMS._replace(requests_max=3))


def test_whoever_goes_away_while_he_waits_holds_nothing() -> None:
    async def work(rig: Rig) -> None:
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/queues/q/receive",
            "raw_path": b"/queues/q/receive",
            "query_string": b"wait_ms=20000",
            "scheme": "http",
            "client": ("127.0.0.1", 1),
            "server": ("b", 1),
            "headers": [(b"authorization", b"Basic YW5uOnNlY3JldA==")],
        }
        gone = asyncio.Event()
        told_empty = False

        async def receive() -> dict[str, Any]:
            nonlocal told_empty
            if not told_empty:
                told_empty = True
                return {"type": "http.request", "body": b"", "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            return

        request = asyncio.create_task(rig.application.app(scope, receive, send))
        await until(lambda: rig.application.load["receives"] == 1)
        gone.set()
        await request
        await rig.send("for others")
        assert [row["body"] for row in await rig.receive(wait_ms=20_000)] == ["for others"]

    run(work, "rest-gone")


def test_errors_have_their_status_and_say_whether_to_try_again() -> None:
    assert problem(SecurityError("no"))["status"] == 403
    full = problem(QuotaExceededError("full"))
    assert (full["status"], full["code"], full["retryable"], full["definite"]) == (507, "quota_exceeded", True, True)
    assert (problem(StoreError("x"))["status"], problem(StoreError("x"))["definite"]) == (500, False)
    json.dumps(full)
