"""A broker with the service stomp, and its clients: stomp.py, and bare sockets that speak frames."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import stomp

import raybroker as rb
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.wire.scram import SHA512, Verifier
from raybroker.wire.stomp.frame import Version
from tests.contracts.stomp_socket import StompSocket

VERIFIER = str(Verifier.from_password("secret", b"s" * 16, 64))
VERIFIERS = f"{VERIFIER},{Verifier.from_password('secret', b's' * 16, 64, SHA512)}"
RULES = """version=JMQFileAccessControlModel/100
connection.NORMAL.allow.user=*
connection.NORMAL.deny.user=stranger
connection.ADMIN.allow.group=admin
queue.*.produce.allow.user=*
queue.*.consume.allow.user=*
queue.*.produce.deny.user=mute
queue.*.consume.deny.user=mute
queue.create.allow.user=*
queue.create.deny.user=mute
topic.*.produce.allow.user=*
topic.*.consume.allow.user=*
topic.*.produce.deny.user=mute
topic.*.consume.deny.user=mute
topic.create.allow.user=*
topic.create.deny.user=mute
"""
WAIT_S = 60.0
BEATS_PATIENCE = 8
"""So many intervals of heart-beats a client waits for the broker, which shares a busy machine with it."""
BODY_MAX = 1 << 20


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.01)


class Seen(stomp.ConnectionListener):  # type: ignore[misc]
    """What a client of stomp.py has been told."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.errors: list[Any] = []
        self.receipts: list[str] = []
        self.connected: dict[str, str] = {}
        self.disconnections = self.beats_lost = 0

    def on_connected(self, frame: Any) -> None:
        self.connected = frame.headers

    def on_message(self, frame: Any) -> None:
        self.messages.append(frame)

    def on_error(self, frame: Any) -> None:
        self.errors.append(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.append(frame.headers["receipt-id"])

    def on_disconnected(self) -> None:
        self.disconnections += 1

    def on_heartbeat_timeout(self) -> None:
        self.beats_lost += 1

    @property
    def bodies(self) -> list[str]:
        return [frame.body for frame in self.messages]


class Bare(StompSocket):
    """One to a port of this machine."""

    def __init__(self, port: int, version: Version = "1.2") -> None:
        super().__init__(socket.create_connection(("127.0.0.1", port), timeout=WAIT_S), version)


class StompRig:
    """A loopback broker with users ann, bob, mute (who may do nothing) and stranger (who may not connect)."""

    def __init__(self, folder: Path, opened: ExitStack, **properties: Any) -> None:
        users = UserFile(folder / "passwd")
        for name in ("ann", "bob", "mute", "stranger"):
            users.add(name, UserEntry(VERIFIER, "user"))
        self.users = users
        (folder / "accesscontrol.properties").write_text(RULES)
        self._opened = opened
        self.inside = rb.loopback(
            properties={
                "imq.service.activelist": "stomp",
                "imq.hostname": "127.0.0.1",
                "imq.portmapper.port": 0,
                "raybroker.security.dir": str(folder),
                "raybroker.handshake.timeout_ms": 2000,
                "imq.message.max_size": BODY_MAX,
                **properties,
            }
        )
        opened.callback(self.inside.close)
        self.inside.start()
        self.admin = self.inside.admin()
        self.port = next(row["port"] for row in self.admin.list_services() if row["service"] == "stomp")

    def client(
        self, version: str = "1.2", user: str = "ann", *, heartbeats: tuple[int, int] = (0, 0), **more: Any
    ) -> tuple[Any, Seen]:
        """A client of stomp.py that has connected."""
        made = {"1.0": stomp.Connection10, "1.1": stomp.Connection11, "1.2": stomp.Connection12}[version]
        beats = {} if version == "1.0" else {"heartbeats": heartbeats, "heart_beat_receive_scale": BEATS_PATIENCE}
        client, seen = made([("127.0.0.1", self.port)], reconnect_attempts_max=1, **beats), Seen()
        client.set_listener("seen", seen)
        client.connect(user, "secret", wait=True, **more)
        self._opened.callback(client.disconnect)
        return client, seen

    def bare(self, version: Version = "1.2") -> Bare:
        made = Bare(self.port, version)
        self._opened.callback(made.close)
        return made

    def user(self, version: Version = "1.2", user: str = "ann", **headers: object) -> Bare:
        """A bare client that has logged in."""
        return self.bare(version).login(user, **headers)
