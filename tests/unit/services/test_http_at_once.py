"""Connections of HTTP whose small requests are answered at once, on sockets: which those are, and others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raybroker.services.http import http_at_once
from raybroker.services.http.http_at_once import (
    BODY_BYTES_MAX,
    HEAD_BYTES_KNOWN_MAX,
    HEADERS_KNOWN_MAX,
    HEADS_KNOWN_MAX,
    Answering,
    Head,
    Request,
    head_in,
)
from raybroker.services.http.http_bounds import Guard
from raybroker.services.http.http_server import IDLE_TIMEOUT_S, HttpServer
from tests.unit.services.web.rig import until

HEADERS = b"cache-control: no-store\r\ncontent-length: 2\r\n"


def post(body: bytes = b"{}", more: bytes = b"", *, version: bytes = b"1.1", path: bytes = b"/a") -> bytes:
    length = str(len(body)).encode()
    return b"POST %b HTTP/%b\r\nHost: x\r\nContent-Length: %b\r\n%b\r\n%b" % (path, version, length, more, body)


class Rig:
    """A server that answers "ok" to what it takes at once, and by its application "slow" and what it got."""

    def __init__(self) -> None:
        self.taken: list[Request] = []
        self.held: list[Answering] | None = None
        """Answers to come, when they do not come at once."""
        self.takes = True
        self.begun = 0
        """Requests that the application got."""
        self.refused: list[str] = []
        self.bound = socket.create_server(("127.0.0.1", 0))
        self.port = self.bound.getsockname()[1]
        guard = Guard(lambda address, why: self.refused.append(why))
        self.server = HttpServer(self.app, guard=guard, ended=self.ended, take_at_once=self.take)

    def take(self, request: Request, answer: Answering) -> bool:
        if not self.takes:
            return False
        self.taken.append(request)
        if self.held is None:
            answer.send(201, HEADERS, b"ok")
        else:
            self.held.append(answer)
        return True

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun += 1
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        said = b"slow " + scope["path"].encode() + b" " + body
        head = [(b"content-length", str(len(said)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": said})

    async def ended(self) -> None:
        return

    def connections(self) -> list[Any]:
        return list(self.server._server.server_state.connections)

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


def run(work: Callable[[Rig], Awaitable[None]]) -> None:
    async def whole() -> None:
        rig = Rig()
        await rig.server.start(rig.bound)
        try:
            await work(rig)
        finally:
            await rig.server.close()

    asyncio.run(whole())


async def read(reader: asyncio.StreamReader, until: bytes) -> bytes:
    return await asyncio.wait_for(reader.readuntil(until), 30)


def test_small_requests_are_answered_one_after_another() -> None:
    async def work(rig: Rig) -> None:
        reader, writer = await rig.open()
        for number in range(3):
            body = b'{"n":%d}' % number
            writer.write(post(body, b"X-A: b\r\n", path=b"/a%2Fb?c=d"))
            answer = await read(reader, b"ok")
            assert answer.startswith(b"HTTP/1.1 201 Created\r\ndate: ")
            assert answer.endswith(b"\r\n" + HEADERS + b"\r\nok")
            request = rig.taken[number]
            assert (request.head.url, request.body, request.head.scheme) == (b"/a%2Fb?c=d", body, "http")
            assert (request.head.headers[b"x-a"], request.head.peer) == (b"b", writer.get_extra_info("sockname"))
        writer.close()

    run(work)


@pytest.mark.parametrize(
    "parts",
    [
        [post(b"{}", b"X-A: b\r\nX-A: c\r\n")],
        [post(b"{}", b"Expect: 100-continue\r\n")],
        [post(b"{}", b"Connection: close\r\n")],
        [post(b"{}", version=b"1.0")],
        [post(b"x" * (BODY_BYTES_MAX + 1))],
        [post(b"")],
        [b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"],
        [b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"],
        [b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"],
    ],
)
def test_all_others_go_to_the_application_as_they_came(parts: list[bytes]) -> None:
    async def work(rig: Rig) -> None:
        reader, writer = await rig.open()
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.02)
        whole = b"".join(parts)
        body = b"hi" if b"chunked" in whole else whole.partition(b"\r\n\r\n")[2]
        answer = await read(reader, b"slow /a " + body)
        assert b" 200 OK\r\n" in answer
        assert rig.taken == []
        writer.close()

    run(work)


def test_a_body_that_follows_its_headers_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_at_once, "REST_S", 3600.0)

    async def work(rig: Rig) -> None:
        reader, writer = await rig.open()
        for part in (post(b"xxyy")[:-4], b"xx", b"yy"):
            assert rig.taken == []
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.02)
        await read(reader, b"ok")
        assert [request.body for request in rig.taken] == [b"xxyy"]
        writer.write(post(b"more"))
        await read(reader, b"ok")
        writer.write(post(b"rest")[:-1])
        await asyncio.sleep(0.02)
        closing = asyncio.ensure_future(rig.server.close())  # It has come in: it is still answered.
        await asyncio.sleep(0.02)
        writer.write(b"t")
        assert b"slow /a rest" in await asyncio.wait_for(reader.read(), 30)
        await asyncio.wait_for(closing, 30)

    run(work)


def test_one_that_does_not_come_soon_is_waited_for_by_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_at_once, "REST_S", 0.01)

    async def work(rig: Rig) -> None:
        reader, writer = await rig.open()
        writer.write(post(b"xxyy")[:-2])
        await until(lambda: rig.begun == 1)
        writer.write(b"yy")
        await read(reader, b"slow /a xxyy")
        assert rig.taken == []
        _, gone = await rig.open()
        gone.write(post(b"xxyy")[:-2])
        await asyncio.sleep(0)
        gone.transport.abort()
        await until(lambda: len(rig.server.guard) == 1)
        writer.write(post())
        await read(reader, b"ok")
        writer.close()

    run(work)


def test_what_is_not_taken_goes_to_the_application_with_its_body() -> None:
    async def work(rig: Rig) -> None:
        rig.takes = False
        reader, writer = await rig.open()
        for body in (b"first", b"second"):
            writer.write(post(body))
            await read(reader, b"slow /a " + body)
        rig.takes = True
        writer.write(post(b"third"))
        await read(reader, b"ok")
        assert [request.body for request in rig.taken] == [b"third"]
        writer.close()

    run(work)


def test_requests_that_came_together_are_answered_in_turn() -> None:
    async def work(rig: Rig) -> None:
        rig.held = []
        reader, writer = await rig.open()
        writer.write(post(b"1") + post(b"2") + post(b"3"))
        await until(lambda: bool(rig.held))
        rig.held[0].send(201, HEADERS, b"ok")
        rig.held[0].send(201, HEADERS, b"NO")  # Once is enough.
        answer = await read(reader, b"slow /a 3")
        assert [answer.count(text) for text in (b"ok", b"NO", b"slow /a 2", b" 201 Created")] == [1, 0, 1, 1]
        writer.close()

    run(work)


def test_a_request_is_answered_before_what_is_no_request_ends_the_connection() -> None:
    async def work(rig: Rig) -> None:
        reader, writer = await rig.open()
        writer.write(post() + b"garbage\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 30)
        assert answer.count(b" 201 Created") == 1
        assert b"HTTP/1.1 400" in answer

    run(work)


def test_a_client_that_has_gone_is_answered_nothing() -> None:
    async def work(rig: Rig) -> None:
        rig.held = []
        _, writer = await rig.open()
        writer.write(post())
        await until(lambda: bool(rig.held))
        writer.transport.abort()
        await until(lambda: len(rig.server.guard) == 0)
        rig.held[0].send(201, HEADERS, b"ok")
        reader, writer = await rig.open()
        rig.held = None
        writer.write(post())
        await read(reader, b"ok")
        writer.close()

    run(work)


class Clock:
    """In place of a connection's loop: time is what it says, and a timer is over when it is called."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now_s = 1000.0
        self.timers: list[tuple[float, Callable[[], object], asyncio.TimerHandle]] = []
        self._loop = loop

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, call: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        handle = self._loop.call_later(3600, call, *args)
        self.timers.append((delay_s, lambda: call(*args), handle))
        return handle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def idle(self) -> list[tuple[float, Callable[[], object]]]:
        """Timers that look whether it is idle."""
        running = [(delay_s, call) for delay_s, call, handle in self.timers if not handle.cancelled()]
        return [row for row in running if row[0] <= IDLE_TIMEOUT_S]


def test_a_connection_is_let_go_when_it_was_idle_since_its_last_answer() -> None:
    async def work(rig: Rig) -> None:
        reader, writer = await rig.open()
        writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
        await read(reader, b"slow /a ")
        (connection,) = rig.connections()
        clock = connection.loop = Clock(connection.loop)
        for _ in range(3):
            writer.write(post())
            await read(reader, b"ok")
            clock.now_s += IDLE_TIMEOUT_S / 2
        ((delay_s, look),) = clock.idle()
        assert delay_s == IDLE_TIMEOUT_S
        clock.timers.clear()
        look()  # Half of the time has passed since the last answer.
        ((delay_s, look),) = clock.idle()
        assert delay_s == IDLE_TIMEOUT_S / 2
        clock.timers.clear()
        rig.held = []
        writer.write(post())
        await until(lambda: bool(rig.held))
        clock.now_s += IDLE_TIMEOUT_S * 2
        look()  # A request that takes long is not idle.
        rig.held[0].send(201, HEADERS, b"ok")
        await read(reader, b"ok")
        ((_, look),) = clock.idle()
        clock.now_s += IDLE_TIMEOUT_S
        look()
        assert await asyncio.wait_for(reader.read(), 30) == b""
        assert rig.refused == []

    run(work)


def test_a_server_that_ends_waits_for_answers_to_come() -> None:
    async def work(rig: Rig) -> None:
        rig.held = []
        reader, writer = await rig.open()
        writer.write(post())
        await until(lambda: bool(rig.held))
        closing = asyncio.ensure_future(rig.server.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
        rig.held[0].send(201, HEADERS, b"ok")
        answer = await asyncio.wait_for(reader.read(), 30)
        assert b"connection: close\r\n" in answer
        assert answer.endswith(b"ok")
        await asyncio.wait_for(closing, 30)
        writer.close()

    run(work)


def known(rig: Rig) -> list[http_at_once.KnownHead]:
    (connection,) = rig.connections()
    found: list[http_at_once.KnownHead] = connection._known
    return found


def test_a_head_that_comes_again_is_the_same_object_whatever_the_length_of_its_body() -> None:
    async def work(rig: Rig) -> None:
        reader, writer = await rig.open()
        bodies = [b"x", b"y" * 12, b"z" * BODY_BYTES_MAX, b"\r\n\r\n", b"12"]
        for body in bodies:
            writer.write(post(body, b"X-A: b\r\n", path=b"/b?c"))
            await read(reader, b"ok")
        assert [request.body for request in rig.taken] == bodies
        assert len({id(request.head) for request in rig.taken}) == 1
        assert rig.taken[-1].head.headers == {b"host": b"x", b"x-a": b"b"}
        for number in range(2 * HEADS_KNOWN_MAX):
            writer.write(post(b"%d" % number, path=b"/%d" % number))
            await read(reader, b"ok")
            assert (rig.taken[-1].head.url, len(known(rig))) == (b"/%d" % number, min(number + 2, HEADS_KNOWN_MAX))
        writer.write(post(b"x" * (BODY_BYTES_MAX + 1)))
        await read(reader, b"slow /a " + b"x" * (BODY_BYTES_MAX + 1))
        writer.close()

    run(work)


@pytest.mark.parametrize(
    "parts",
    [
        [post(b"four")[:-4], b"four"],
        [post(b"four")[:-2], b"ur"],
        [post(b"four")[:20], post(b"four")[20:]],
        [b"\r\n", post(b"four")],
        [b"\r\n" + post(b"four")],
    ],
)
def test_a_known_head_may_come_in_pieces(parts: list[bytes]) -> None:
    async def work(rig: Rig) -> None:
        reader, writer = await rig.open()
        for _ in range(3):
            writer.write(post(b"first"))
            await read(reader, b"ok")
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.02)
            await read(reader, b"ok")
        assert [request.body for request in rig.taken] == [b"first", b"four"] * 3
        assert (rig.begun, rig.refused) == (0, [])
        writer.close()

    run(work)


@pytest.mark.parametrize("waits", [True, False])
def test_what_looks_like_a_known_request_is_the_body_of_another_one(*, waits: bool) -> None:
    async def work(rig: Rig) -> None:
        reader, writer = await rig.open()
        inner = post(b"inner")
        writer.write(inner)
        await read(reader, b"ok")
        whole = post(inner, b"X: y\r\n" if waits else b"Expect: nothing\r\n", path=b"/outer")
        if not waits:  # The application gets it as soon as its headers are there.
            whole = whole.replace(b"POST", b"PUT", 1)
        for part in (whole[: -len(inner)], inner):
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.02)
        await read(reader, b"ok" if waits else b"slow /outer " + inner)
        assert [request.body for request in rig.taken] == [b"inner", inner][: 1 + waits]
        writer.write(b"PUT /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(inner))
        for part in (inner, b"\r\n0\r\n", b"X: y\r\n\r\n"):
            await asyncio.sleep(0.02)
            writer.write(part)
        await read(reader, b"slow /a " + inner)
        writer.write(inner)
        await read(reader, b"ok")
        assert len(rig.taken) == 2 + waits
        writer.close()

    run(work)


def test_a_known_request_waits_for_those_before_it() -> None:
    async def work(rig: Rig) -> None:
        reader, writer = await rig.open()
        writer.write(post(b"first"))
        await read(reader, b"ok")
        rig.held = []
        writer.write(post(b"1"))
        await until(lambda: bool(rig.held))
        (connection,) = rig.connections()
        writer.write(post(b"2"))
        await until(lambda: bool(connection.pipeline))
        rig.held[0].send(201, HEADERS, b"ok")
        answer = await read(reader, b"slow /a 2")
        assert answer.count(b"ok") == 1
        rig.held = None
        rig.takes = False
        writer.write(post(b"4"))
        await read(reader, b"slow /a 4")
        rig.takes = True
        writer.write(post(b"5") + post(b"6", b"X: y\r\n"))
        await read(reader, b"ok")
        await until(lambda: len(rig.taken) == 4)
        assert [request.body for request in rig.taken] == [b"first", b"1", b"5", b"6"]
        writer.close()

    run(work)


def test_heads_that_are_long_or_have_many_headers_or_are_not_all_there_are_not_kept() -> None:
    head = Head(b"/a", {b"host": b"x"}, "http", None)
    found = head_in(post(b"four"), head)
    assert found is not None
    assert found.body_at(post(b"twelve bytes")) == len(post(b"twelve bytes")) - 12
    assert head_in(post(b"four").replace(b"Length: ", b"length:"), head) is not None
    for wrong in (
        post(b"four")[:-1],
        post(b"four") + b"x",
        b"\r\n\r\n" + post(b"four"),
        post(b"four", b"X: " + b"y" * HEAD_BYTES_KNOWN_MAX),
        post(b"four").replace(b"\r\n", b"\n"),
        post(b"four").replace(b": 4", b": +4"),
        b"four",
    ):
        assert head_in(wrong, head) is None, wrong
        assert not found.body_at(wrong), wrong
    for wrong in (b" 4", b"", b"0", b"4 ", b"\xb2", b"0000000004", b"1e1"):
        assert not found.body_at(post(b"four").replace(b": 4", b": " + wrong)), wrong
    many = {b"%d" % number: b"" for number in range(HEADERS_KNOWN_MAX + 1)}
    assert head_in(post(b"four"), Head(b"/", many, "http", None)) is None
