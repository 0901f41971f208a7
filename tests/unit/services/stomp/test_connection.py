"""Negotiation, and a connection without a broker behind it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.model.errors import ProtocolError, SecurityError
from raybroker.services.stomp.broker import StompBroker
from raybroker.services.stomp.connection import StompConnection, chosen_version, heart_beat
from raybroker.services.stomp.limits import StompLimits
from raybroker.wire.stomp.frame import StompFrame
from tests.unit.services.stomp.parts import until


@pytest.mark.parametrize(
    ("accepted", "version"), [(None, "1.0"), ("1.0", "1.0"), ("1.2,1.1", "1.2"), ("1.0, 1.1", "1.1"), ("9,1.0", "1.0")]
)
def test_the_highest_version_that_both_have(accepted: str | None, version: str) -> None:
    assert chosen_version(accepted) == version


def test_a_version_that_nobody_has() -> None:
    with pytest.raises(ProtocolError, match=r"supported: 1\.0, 1\.1, 1\.2"):
        chosen_version("2.0")


def test_heart_beats_are_a_pair() -> None:
    assert (heart_beat(None), heart_beat("0,10"), heart_beat(" 5 , 6 ")) == ((0, 0), (0, 10), (5, 6))
    for text in ("", "1", "1,2,3", "a,b", "-1,0", "9999999999999,0"):
        with pytest.raises(ProtocolError, match="is no pair of milliseconds"):
            heart_beat(text)


class Closed(StompBroker):
    """A broker that lets nobody in. ``left``: set when the connection has gone."""

    def __init__(self) -> None:
        self.refusals: list[str] = []
        self.left = asyncio.Event()
        limits, gateway = StompLimits(1000, 30.0, unencrypted=False), SimpleNamespace()
        super().__init__(gateway, limits, "9", lambda peer, why: self.refusals.append(f"{peer} {why}"))  # type: ignore[arg-type]

    async def connect(self, *args: Any) -> Any:
        raise SecurityError("no")

    def connection(self) -> StompConnection:
        def known(_: StompConnection) -> None:
            raise AssertionError

        return StompConnection(self, "peer", known=known, gone=lambda _: self.left.set())


def test_who_is_not_let_in_gets_an_error_and_then_the_end() -> None:
    async def run() -> None:
        door = Closed()
        server = await asyncio.get_running_loop().create_server(door.connection, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"CONNECT\nlogin:ann\npasscode:x\n\n\0")
        answer = await reader.read()
        assert answer.startswith(b"ERROR\nmessage:no\nerror-code:security\n")
        writer.close()
        async with asyncio.timeout(10):
            await door.left.wait()
        assert door.refusals == ["peer no"]
        server.close()

    asyncio.run(run())


class Busy:
    """A session that does some frames at once, and leaves others to be waited for."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.slow = asyncio.Event()

    def send_at_once(self, frame: StompFrame) -> bool:
        if frame.command != "SEND":
            return False
        self.done.append(frame.body.decode())
        return True

    async def handle(self, frame: StompFrame) -> None:
        await self.slow.wait()
        self.done.append(frame.command)

    async def close(self) -> None: ...


class Open(Closed):
    """A broker whose connections are logged in from the beginning. ``together``: how often frames were taken."""

    together_count = 0

    def together(self, work: Any) -> None:
        self.together_count += 1
        work()


def _serving(work: Any) -> None:
    """Run ``work(door, session, connection, writer, reader)`` with a connection that has logged in."""

    async def run() -> None:
        door, session, made = Open(), Busy(), []

        def connection() -> StompConnection:
            one = door.connection()
            one._session = session  # type: ignore[assignment]
            one._parser.body_bytes_max = 1000
            made.append(one)
            return one

        server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        async with asyncio.timeout(20):
            await until(lambda: made)
            await work(door, session, made[0], writer, reader)
            writer.close()
            await door.left.wait()
        server.close()

    asyncio.run(run())


def test_frames_that_wait_for_nothing_are_done_as_they_come_and_in_order() -> None:
    async def work(door: Open, session: Busy, connection: StompConnection, writer: Any, _: Any) -> None:
        writer.write(b"SEND\n\none\0SEND\n\ntwo\0SE")
        await until(lambda: session.done == ["one", "two"])
        writer.write(b"ND\n\nthree\0ACK\n\n\0SEND\n\nfour\0")
        await until(lambda: session.done == ["one", "two", "three"])
        writer.write(b"SEND\n\nfive\0")
        await asyncio.sleep(0.05)
        assert session.done == ["one", "two", "three"]  # The ACK is waited for, and nothing overtakes it.
        session.slow.set()
        await until(lambda: len(session.done) == 6)
        assert session.done[3] == "ACK"
        assert door.together_count == 2

    _serving(work)


def test_what_is_no_frame_is_an_error_after_what_came_before_it() -> None:
    async def work(_: Open, session: Busy, connection: StompConnection, writer: Any, reader: Any) -> None:
        writer.write(b"SEND\n\none\0SEND\ncontent-length:x\n\n")
        answer = await reader.read()
        assert answer.startswith(b"ERROR\nmessage:content-length")
        assert session.done == ["one"]

    _serving(work)
