"""Negotiation, and a connection without a broker behind it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raybroker.model.errors import ProtocolError, SecurityError
from raybroker.services.stomp.connection import StompConnection, chosen_version, heart_beat
from raybroker.services.stomp.limits import Limits


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


class Closed:
    """A server whose broker lets nobody in."""

    limits = Limits(1000, 30.0, unencrypted=False)
    version = "9"

    def __init__(self) -> None:
        self.refusals: list[str] = []
        self.left = asyncio.Event()

    async def connect(self, *args: Any) -> Any:
        raise SecurityError("no")

    def known(self, connection: StompConnection) -> None:
        raise AssertionError

    def refused(self, peer: str, why: str) -> None:
        self.refusals.append(f"{peer} {why}")

    def gone(self, connection: StompConnection) -> None:
        self.left.set()


def test_who_is_not_let_in_gets_an_error_and_then_the_end() -> None:
    async def run() -> None:
        door = Closed()
        server = await asyncio.get_running_loop().create_server(lambda: StompConnection(door, "peer"), "127.0.0.1", 0)
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
