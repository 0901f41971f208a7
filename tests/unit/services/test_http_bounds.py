"""Connections of HTTP alone, on sockets: what a client may send, how long it may take, and that others have room."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from raybroker.services.http import http_bounds as bounded
from raybroker.services.http.http_bounds import HEADERS_BYTES_MAX, HEADERS_MAX, Guard
from raybroker.services.http.http_server import HttpServer
from tests.unit.services.web.rig import until

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


class Rig:
    """An application that answers "ok" once ``gate`` is open, behind a server with a guard."""

    def __init__(self, guard: Guard, port: int, gate: asyncio.Event, asked: list[dict[str, Any]]) -> None:
        self.guard = guard
        self.port = port
        self.gate = gate
        self.asked = asked
        self.refused: list[str] = []

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def said(self, *parts: bytes) -> bytes:
        """What comes back when that is sent, until the end."""
        reader, writer = await self.open()
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0.01)
        found = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        return found


@asynccontextmanager
async def served(answer: bytes = b"ok", **bounds: Any) -> AsyncIterator[Rig]:
    gate, asked = asyncio.Event(), []
    gate.set()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            more = message.get("more_body", False)
        asked.append(scope)
        await gate.wait()
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(answer)).encode())]}
        )
        await send({"type": "http.response.body", "body": answer})

    async def ended() -> None:
        return

    bound = socket.create_server(("127.0.0.1", 0))
    refused: list[str] = []
    guard = Guard(lambda address, why: refused.append(why), **bounds)
    server = HttpServer(app, guard=guard, ended=ended)
    await server.start(bound)
    rig = Rig(guard, bound.getsockname()[1], gate, asked)
    rig.refused = refused
    try:
        yield rig
    finally:
        gate.set()
        await server.close()


def run(work: Callable[[Rig], Awaitable[None]], **bounds: Any) -> None:
    async def whole() -> None:
        async with served(**bounds) as rig:
            await work(rig)

    asyncio.run(whole())


LONG = b"y" * (HEADERS_BYTES_MAX + 1)


@pytest.mark.parametrize(
    ("parts", "status", "why"),
    [
        ([b"GET /" + LONG + b" HTTP/1.1\r\nHost: x\r\n\r\n"], b"431", "bytes"),
        ([b"GET / HTTP/1.1\r\nHost: x\r\nX: " + LONG + b"\r\n\r\n"], b"431", "bytes"),
        ([b"GET / HTTP/1.1\r\nHost: x\r\nX: ", *[b"y" * 4096] * 5], b"431", "bytes"),
        ([b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * HEADERS_MAX + b"\r\n"], b"431", "headers"),
        ([b"GET / HTTP/1.1\r\n" + b"a:\r\n" * (HEADERS_MAX + 1)], b"431", "headers"),
        ([b"\r\n" * 2048] * 5, b"431", "bytes"),
        ([CHUNKED, b"5;", *[b"e" * 4096] * 4], b"431", "bytes"),
        ([CHUNKED + b"0\r\nX: ", *[b"y" * 4096] * 5], b"431", "bytes"),
        ([CHUNKED + b"0\r\n" + b"a:\r\n" * (HEADERS_MAX + 2)], b"431", "headers"),
        ([b"\x16\x03\x01\x02\0\x01\0"], b"400", "no HTTP"),
        ([b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"], b"400", "no HTTP"),
    ],
)
def test_what_the_parser_would_keep_is_bounded_and_the_log_says_why(
    parts: list[bytes], status: bytes, why: str
) -> None:
    async def work(rig: Rig) -> None:
        answer = await rig.said(*parts)
        assert answer.split(b" ", 2)[1] == status
        assert b"connection: close" in answer
        (told,) = rig.refused
        assert why in told
        assert (await rig.said(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))).endswith(b"ok")

    run(work)


def test_requests_that_came_before_their_turn_wait_in_the_socket() -> None:
    """The client may send no more than some buffers have, until it is answered; then all are answered in turn."""

    async def work(rig: Rig) -> None:
        rig.gate.clear()
        many = 1_000_000
        _reader, writer = await rig.open()
        writer.write(GET * many)
        await until(lambda: len(rig.asked) == 1)
        await asyncio.sleep(0.5)
        assert writer.transport.get_write_buffer_size() > len(GET) * many // 2
        writer.transport.abort()
        assert len(rig.asked) == 1
        rig.gate.set()
        last = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        assert (await rig.said(GET * 2000 + b"\r\n" + last)).count(b"HTTP/1.1 200 OK\r\n") == 2001
        assert rig.refused == []

    run(work)


def test_what_follows_a_body_in_chunks_is_no_header_of_the_request() -> None:
    async def work(rig: Rig) -> None:
        reader, writer = await rig.open()
        writer.write(CHUNKED + b"2\r\nhi\r\n0\r\nAuthorization: Basic x\r\n\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        assert [name for name, _ in rig.asked[0]["headers"]] == [b"host", b"transfer-encoding"]
        writer.close()

    run(work)


def test_who_goes_on_sending_what_nobody_reads_is_let_go() -> None:
    """Its request was answered; neither bytes without a meaning nor a body without end keep the connection."""

    async def work(rig: Rig) -> None:
        reader, writer = await rig.open()
        writer.write(GET)
        await reader.readuntil(b"ok")
        writer.write(b"\r\n")
        assert await asyncio.wait_for(reader.read(), 30) == b""
        assert "headers have not come" in rig.refused[0]

    run(work, headers_s=0.3)


def test_a_client_that_does_not_read_its_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "CLOSE_TIMEOUT_S", 0.3)

    async def work(rig: Rig) -> None:
        with socket.create_connection(("127.0.0.1", rig.port)) as silent:
            silent.sendall(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            await until(lambda: bool(rig.refused))
        assert "has not read its last answer" in rig.refused[0]
        assert len(rig.guard) == 0

    run(work, answer=b"x" * (32 << 20))


def test_answers_without_a_body_are_written_too() -> None:
    async def work(rig: Rig) -> None:
        reader, writer = await rig.open()
        writer.write(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)).startswith(b"HTTP/1.1 200 OK")
        writer.close()

    run(work)
