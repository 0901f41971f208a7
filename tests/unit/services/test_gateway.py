"""The gateway's connections to its own broker: real ones, which log in, over pairs of sockets."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.client.io.io_thread import IoThread, end_thread
from raybroker.errors import IllegalStateError, SecurityError
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.services.gateways.gateway import Gateway, Gateways
from raybroker.services.listening.arrivals import Origin
from raybroker.wire.scram import Verifier

PEER = "192.0.2.7:1234"


class Rig:
    """A loopback broker with the service jms, through whose listener the gateway comes in."""

    def __init__(self, folder: Path) -> None:
        UserFile(folder / "passwd").add("ann", UserEntry(str(Verifier.from_password("secret", b"s" * 16, 64)), "user"))
        self.rules = folder / "accesscontrol.properties"
        properties = {
            "imq.service.activelist": "jms",
            "imq.hostname": "127.0.0.1",
            "imq.portmapper.port": 0,
            "raybroker.security.dir": str(folder),
        }
        self.inside = rb.loopback(properties=properties)
        directory: Any = self.inside._core.directory
        self.listener = directory._services.listeners["jms"]
        self.io = IoThread("gateway of a test")
        self.gateway = Gateway("jms", self._arrive, self.io)

    def _arrive(self, taken: Any, peer: str, origin: Origin) -> None:
        self.inside._core.io.post(self.listener._arrived, taken, peer, origin)

    def close(self) -> None:
        end_thread(self.io)
        self.inside.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def test_a_client_of_a_gateway_is_an_ordinary_client(rig: Rig) -> None:
    async def work() -> None:
        async with await rig.gateway.connect_as("ann", "secret", peer=PEER, client_id="me", client="STOMP 1.2") as conn:
            (row,) = rig.inside.admin().list_connections()
            assert (row["user"], row["host"], row["client_id"], row["platform"]) == ("ann", PEER, "me", "STOMP 1.2")
            session = await conn.session()
            await (await session.producer("q")).send("hello")
            message = await session.receive("q", timeout=10)
            assert message is not None
            assert message.body == "hello"

    asyncio.run(work())


def test_a_wrong_password_is_refused_and_stands_in_no_log(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def work(password: str) -> None:
        await rig.gateway.connect_as("ann", password, peer=PEER)

    with pytest.raises(SecurityError, match="wrong user or password"):
        asyncio.run(work("hush-hush"))
    assert "hush-hush" not in caplog.text
    assert "ann" in caplog.text
    for _ in range(4):
        with pytest.raises(SecurityError):
            asyncio.run(work("hush-hush"))
    with pytest.raises(SecurityError, match="too many failed logins"):
        asyncio.run(work("secret"))


def test_rules_hold_for_it(rig: Rig) -> None:
    rig.rules.write_text(
        "version=JMQFileAccessControlModel/100\nconnection.NORMAL.allow.user=*\nqueue.*.consume.allow.user=*\n"
        "queue.create.allow.user=*\n"
    )

    async def work() -> None:
        async with await rig.gateway.connect_as("ann", "secret", peer=PEER) as conn:
            session = await conn.session()
            with pytest.raises(SecurityError, match="user 'ann' may not produce with queue 'q'"):
                await session.producer("q")

    asyncio.run(work())


def test_who_is_closed_by_an_administrator_is_told(rig: Rig) -> None:
    told = threading.Event()
    reasons: list[Exception] = []

    def ended(reason: Exception) -> None:
        reasons.append(reason)
        told.set()

    async def work() -> None:
        conn = await rig.gateway.connect_as("ann", "secret", peer=PEER, ended=ended)
        (row,) = rig.inside.admin().list_connections()
        rig.inside.admin().destroy_connection(row["id"])
        await asyncio.to_thread(told.wait, 10)
        assert "an administrator has closed the connection" in str(reasons[0])
        with pytest.raises(SecurityError):
            await (await conn.session()).producer("q")
        await conn.close()

    asyncio.run(work())


def test_a_server_that_cannot_start_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        async def start(self, bound: object) -> None:
            raise IllegalStateError("no")

        async def close(self) -> None:
            raise ValueError("not even this")

    gateways = Gateways({"stomp": lambda gateway: Broken()})
    gateways.open("stomp", "stomp", None, lambda taken, peer: None)  # type: ignore[arg-type]
    io = gateways._io
    assert io is not None
    gateways.close()
    deadline = threading.Event()
    for _ in range(1000):
        if not io._thread.is_alive():
            break
        deadline.wait(0.01)
    assert not io._thread.is_alive()
    assert "B3015" in caplog.text
    assert "not ended as it should" in caplog.text
