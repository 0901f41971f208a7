"""The server of HTTP on sockets, with applications of a few lines: requests, answers and WebSockets as they should be.

What clients may not do is in ``test_http_bounds.py``.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import h11
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from raybroker.services.http import http_server, web_socket
from raybroker.services.http.http_bounds import Guard
from raybroker.services.http.http_server import HttpServer, target_of
from raybroker.services.http.web_socket import ServedWebSocket
from tests.unit.services.web.rig import until

App = Callable[[Any, Any, Any], Awaitable[None]]
GET = b"GET /a%20b/c?d=e HTTP/1.1\r\nHost: x\r\n\r\n"


async def whole(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError
        body += message["body"]
        more = message["more_body"]
    return body


async def answer(send: Any, body: bytes, status: int = 200) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def echo(scope: Any, receive: Any, send: Any) -> None:
    await answer(send, await whole(receive))


class Rig:
    """A server with one application."""

    def __init__(self, app: App, **bounds: Any) -> None:
        self.refused: list[str] = []
        self.bound = socket.create_server(("127.0.0.1", 0))
        self.port = self.bound.getsockname()[1]
        self.guard = Guard(lambda address, why: self.refused.append(why), **bounds)
        web_socket_of = partial(ServedWebSocket, app, self.guard, 1 << 20)
        self.server = HttpServer(app, guard=self.guard, ended=self.ended, web_socket=web_socket_of)

    async def ended(self) -> None:
        return

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)

    async def said(self, *parts: bytes) -> bytes:
        """What comes back when that is sent, until the end."""
        reader, writer = await self.open()
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0.01)
        found = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        return found

    def web_socket(self, **options: Any) -> Any:
        return connect(f"ws://127.0.0.1:{self.port}/ws", compression=None, **options)


def run(app: App, work: Callable[[Rig], Awaitable[None]], **bounds: Any) -> None:
    async def all_of_it() -> None:
        rig = Rig(app, **bounds)
        await rig.server.start(rig.bound)
        try:
            await work(rig)
        finally:
            await rig.server.close()
        await until(lambda: len(rig.guard) == 0)

    asyncio.run(all_of_it())


async def read(reader: asyncio.StreamReader, mark: bytes) -> bytes:
    return await asyncio.wait_for(reader.readuntil(mark), 30)


# ---- requests -------------------------------------------------------------------------------------------------------


def test_requests_of_a_connection_are_answered_one_after_another() -> None:
    scopes: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        await answer(send, b"<" + await whole(receive) + b">")

    async def work(rig: Rig) -> None:
        reader, writer = await rig.open()
        writer.write(GET)
        assert (await read(reader, b"<>")).startswith(b"HTTP/1.1 200 OK\r\n")
        for part in (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Le", b"ngth: 4\r\n\r\n", b"fo", b"ur"):
            writer.write(part)
            await asyncio.sleep(0.01)
        assert b"\r\ndate: " in await read(reader, b"<four>")
        writer.write(
            b"\r\nPUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nfi\r\n2;x=y\r\nve\r\n0\r\n\r\n"
            + GET
        )
        await read(reader, b"<five>")
        await read(reader, b"<>")
        first = scopes[0]
        assert (first["method"], first["path"], first["raw_path"]) == ("GET", "/a b/c", b"/a%20b/c")
        assert (first["query_string"], first["headers"]) == (b"d=e", [(b"host", b"x")])
        assert (first["scheme"], first["client"]) == ("http", writer.get_extra_info("sockname"))
        assert len(scopes) == 4
        writer.close()

    run(app, work)


def test_a_target_may_name_the_server() -> None:
    for target, found in (
        (b"http://x:1/a?b", b"/a?b"),
        (b"http://x", b"/"),
        (b"/http://x", b"/http://x"),
        (b"*", b"*"),
    ):
        assert target_of(h11.Request(method="GET", target=target, headers=[("host", "x")])) == found


def test_a_client_that_asks_whether_to_go_on_is_told_when_its_body_is_wanted() -> None:
    wanted = True

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await answer(send, await whole(receive) if wanted else b"no", 200 if wanted else 413)

    async def work(rig: Rig) -> None:
        nonlocal wanted
        head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
        reader, writer = await rig.open()
        writer.write(head)
        assert await read(reader, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"body")
        assert b" 200 OK" in await read(reader, b"body")
        wanted = False
        writer.write(head)
        refused = await asyncio.wait_for(reader.read(), 30)
        assert refused.startswith(b"HTTP/1.1 413 ")
        assert b"connection: close" in refused.lower(), "nobody knows whether the body comes"

    run(app, work)


def test_an_answer_may_come_in_pieces_of_any_length() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in (b"one ", b"", b"two"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})

    async def work(rig: Rig) -> None:
        reader, writer = await rig.open()
        writer.write(GET)
        assert b"chunked" in await read(reader, b"4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n")
        writer.write(GET.replace(b"GET", b"HEAD"))
        assert (await read(reader, b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
        writer.write(GET.replace(b"1.1", b"1.0"))
        old = await asyncio.wait_for(reader.read(), 30)
        assert (b"chunked" in old, old.endswith(b"\r\n\r\none two")) == (False, True)

    run(app, work)


def test_a_large_answer_waits_for_its_client_to_read() -> None:
    written = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal written
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(64):
            await send({"type": "http.response.body", "body": b"x" * (1 << 20), "more_body": True})
            written += 1
        await send({"type": "http.response.body"})

    async def work(rig: Rig) -> None:
        with socket.create_connection(("127.0.0.1", rig.port)) as slow:
            slow.sendall(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            await until(lambda: written > 0)
            await asyncio.sleep(0.3)
            assert written < 32
            slow.setblocking(False)
            loop, came = asyncio.get_running_loop(), 0
            while data := await loop.sock_recv(slow, 1 << 20):
                came += len(data)
        assert written == 64
        assert came > 64 << 20

    run(app, work)


def test_a_body_that_nobody_asks_for_waits_in_the_socket_and_is_thrown_away_after_the_answer() -> None:
    gate = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "GET":
            await answer(send, b"next")
            return
        await gate.wait()
        await answer(send, b"enough", 413)

    async def work(rig: Rig) -> None:
        size = 64 << 20
        reader, writer = await rig.open()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)
        await asyncio.sleep(0.5)
        assert writer.transport.get_write_buffer_size() > size // 2  # type: ignore[attr-defined]
        gate.set()
        await read(reader, b"enough")
        writer.write(GET)
        await read(reader, b"next")
        writer.close()

    run(app, work)


def test_who_goes_is_noticed_while_his_request_is_answered() -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((await receive())["type"])
        seen.append((await receive())["type"])
        await answer(send, b"nobody hears it")

    async def work(rig: Rig) -> None:
        for parts in ((GET,), (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", b"half")):
            seen.clear()
            _, writer = await rig.open()
            for part in parts:
                writer.write(part)
            await until(lambda: len(seen) == 1)
            writer.transport.abort()
            await until(lambda: seen == ["http.request", "http.disconnect"])
        await until(lambda: len(rig.guard) == 0)

    run(app, work)


@pytest.mark.parametrize("begun", [True, False])
def test_a_fault_of_the_application_is_told_or_ends_the_connection(
    caplog: pytest.LogCaptureFixture, *, begun: bool
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("a fault")

    async def work(rig: Rig) -> None:
        reader, writer = await rig.open()
        writer.write(GET)
        found = b""
        try:
            found = await asyncio.wait_for(reader.read(), 30)
        except ConnectionError:
            pass
        if not begun:
            assert found.startswith(b"HTTP/1.1 500 ")
            assert b"application/problem+json" in found
            assert b"a fault" not in found

    with caplog.at_level(logging.ERROR, "raybroker.services"):
        run(app, work)
    assert "a fault" in caplog.text


def test_a_connection_without_requests_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "IDLE_TIMEOUT_S", 0.1)

    async def work(rig: Rig) -> None:
        assert (await rig.said(GET)).startswith(b"HTTP/1.1 200")
        assert rig.refused == []

    run(echo, work)


def test_a_server_that_ends_answers_what_has_begun_and_nothing_else() -> None:
    gate, begun = asyncio.Event(), 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal begun
        begun += 1
        await gate.wait()
        await answer(send, b"done")

    async def work(rig: Rig) -> None:
        idle, _ = await rig.open()
        reader, writer = await rig.open()
        writer.write(GET * 2)
        await until(lambda: begun == 1)
        closing = asyncio.ensure_future(rig.server.close())
        assert await asyncio.wait_for(idle.read(), 30) == b""
        gate.set()
        found = await asyncio.wait_for(reader.read(), 30)
        assert (found.count(b"done"), b"connection: close" in found.lower(), begun) == (1, True, 1)
        await closing

    run(app, work)


# ---- WebSockets ------------------------------------------------------------------------------------------------------


def ws(talk: Callable[[Any, Any], Awaitable[None]]) -> App:
    """An application that accepts a WebSocket, and talks."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (scope["type"], scope["path"], scope["scheme"]) == ("websocket", "/ws", "ws")
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        await talk(receive, send)

    return app


async def parrot(receive: Any, send: Any) -> None:
    while (message := await receive())["type"] == "websocket.receive":
        await send({**message, "type": "websocket.send"})


def test_messages_go_both_ways_and_either_end_may_close() -> None:
    ends: list[Any] = []

    async def talk(receive: Any, send: Any) -> None:
        while (message := await receive())["type"] == "websocket.receive":
            if message.get("text") == "end":
                await send({"type": "websocket.close", "code": 4000, "reason": "as asked"})
            else:
                await send({**message, "type": "websocket.send"})
        ends.append(message["code"])

    async def work(rig: Rig) -> None:
        async with rig.web_socket() as client:
            for said in ("text ü", b"bytes", b"x" * 500_000):
                await client.send(said)
                assert await client.recv() == said
            await client.send([b"in ", b"three ", b"parts"])
            assert await client.recv() == b"in three parts"
        await until(lambda: ends == [1000])
        async with rig.web_socket() as client:
            await client.send("end")
            with pytest.raises(ConnectionClosed) as closed:
                await client.recv()
            assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4000, "as asked")
        await until(lambda: ends == [1000, 4000])
        client = await rig.web_socket()
        client.transport.abort()
        await until(lambda: len(ends) == 3)
        assert ends[2] == 1006
        assert len(rig.guard) == 0, "they have bounds of their own"

    run(ws(talk), work)


@pytest.mark.parametrize(
    ("frame", "code", "why"),
    [
        (b"\x81\x82\0\0\0\0\xff\xff", 1007, None),
        (b"\xc2\x80\0\0\0\0", 1002, "reserved bits"),
        (b"\x82\xff" + (2 << 20).to_bytes(8, "big") + bytes(4), 1009, "frame"),
        (b"\x82\x01x", 1002, "mask"),
        (b"\x80\x80\0\0\0\0", 1002, "continuation"),
    ],
)
def test_what_is_no_web_socket_ends_it_with_a_code(frame: bytes, code: int, why: str | None) -> None:
    async def work(rig: Rig) -> None:
        key = base64.b64encode(os.urandom(16))
        reader, writer = await rig.open()
        writer.write(
            b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n\r\n" % key + frame
        )
        assert b" 101 " in await read(reader, b"\r\n\r\n")
        found = await asyncio.wait_for(reader.read(), 30)
        assert (found[0], int.from_bytes(found[2:4], "big")) == (0x88, code)
        assert len(rig.refused) == 1
        assert why is None or why in rig.refused[0]

    run(ws(parrot), work)


@pytest.mark.parametrize("left_out", [b"Sec-WebSocket-Key", b"Sec-WebSocket-Version"])
def test_a_request_for_a_web_socket_that_is_not_right_is_refused(left_out: bytes) -> None:
    async def work(rig: Rig) -> None:
        head = (
            b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        found = await rig.said(head.replace(left_out, b"X-Other"))
        assert found.split(b" ", 2)[1].startswith(b"4")
        assert len(rig.refused) == 1
        assert (await rig.said(head.replace(b"\r\n\r\n", b"\r\nX: " + b"y" * 9000 + b"\r\n\r\n"))).split(b" ")[
            1
        ] == b"431"

    run(ws(parrot), work)


def test_an_application_may_not_want_a_web_socket_or_fail(caplog: pytest.LogCaptureFixture) -> None:
    fails = False

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if fails:
            raise ValueError("a fault")
        await send({"type": "websocket.close"})
        assert (await receive())["type"] == "websocket.disconnect"

    async def work(rig: Rig) -> None:
        nonlocal fails
        for status in (403, 500):
            with pytest.raises(InvalidStatus) as caught:
                await rig.web_socket()
            assert caught.value.response.status_code == status
            fails = True

    run(app, work)
    assert "a fault" in caplog.text


def test_a_client_that_answers_no_ping_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_socket, "PING_S", 0.1)

    async def work(rig: Rig) -> None:
        async with rig.web_socket() as client:
            await asyncio.sleep(0.5)
            await client.send("there")
            assert await client.recv() == "there"
            client.transport.pause_reading()
            await until(lambda: bool(rig.refused))
            assert "has not answered a ping" in rig.refused[0]
            client.transport.resume_reading()
            with pytest.raises(ConnectionClosed):
                await client.recv()

    run(ws(parrot), work)


def test_nothing_is_read_from_who_does_not_read_and_in_the_end_he_is_cut_off() -> None:
    async def work(rig: Rig) -> None:
        client = await rig.web_socket()
        client.transport.pause_reading()

        sent = 0

        async def flood() -> None:
            nonlocal sent
            while True:
                await client.send(b"x" * 100_000)
                sent += 1

        flooding = asyncio.ensure_future(flood())
        await until(lambda: bool(rig.refused))
        assert sent < 500, "what was not answered was not read either"
        assert "raybroker.service.unread_timeout" in rig.refused[0]
        client.transport.abort()
        with pytest.raises(ConnectionClosed):
            await flooding

    run(ws(parrot), work, unread_s=0.5)


def test_a_server_that_ends_says_so_to_its_web_sockets() -> None:
    async def work(rig: Rig) -> None:
        async with rig.web_socket() as client:
            closing = asyncio.ensure_future(rig.server.close())
            with pytest.raises(ConnectionClosed) as closed:
                await client.recv()
            assert closed.value.rcvd.code == 1012
            await closing

    run(ws(parrot), work)
