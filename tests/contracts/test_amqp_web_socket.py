"""AMQP over WebSocket: the services of HTTP serve the subprotocol amqp, with the login, rights and bounds of AMQP."""

from __future__ import annotations

import shutil
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as web_socket

from raybroker.wire.amqp.performatives import ACCEPTED
from tests.contracts.amqp_rig import AmqpPeer, AmqpRig, RefusedError, bodies, message
from tests.contracts.stomp_rig import WAIT_S
from tests.unit.security.certificates import Authority

SERVICES = {"ws": "httpjms", "wss": "httpsjms"}


class OverWebSocket:
    """What a client of AMQP takes for a socket."""

    def __init__(self, client: ClientConnection) -> None:
        self.client = client
        self._timeout_s = WAIT_S

    def sendall(self, data: bytes) -> None:
        self.client.send(data)

    def settimeout(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def recv(self, _: int) -> bytes:
        try:
            data = self.client.recv(timeout=self._timeout_s)
        except ConnectionClosed:
            return b""
        assert isinstance(data, bytes)
        return data

    def close(self) -> None:
        self.client.close()


class Rig(AmqpRig):
    """With the services of HTTP, and with TLS."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.authority = Authority(folder)
        self.authority.issue("keystore")
        shutil.copyfile(self.authority.file, folder / "truststore")
        super().__init__(folder, opened, **{"imq.service.activelist": "amqp,httpjms,httpsjms"})
        self._socket_of = opened

    def web_socket(self, scheme: str = "ws", path: str = "/amqp", **more: Any) -> ClientConnection:
        context = ssl.create_default_context(cafile=str(self.authority.file)) if scheme == "wss" else None
        asked = {"subprotocols": ["amqp"], "compression": None, **more}
        url = f"{scheme}://127.0.0.1:{self.ports[SERVICES[scheme]]}{path}"
        return self._socket_of.enter_context(web_socket(url, ssl=context, **asked))

    def clients(self) -> int:
        """Those of the service httpjms."""
        return sum(row["service"] == "httpjms" for row in self.admin.list_connections())

    def over(self, scheme: str = "ws", user: str = "ann", path: str = "/amqp", **more: Any) -> AmqpPeer:
        """A client of AMQP that comes so."""
        made = AmqpPeer(self.ports["amqp"], user, open=False, **more)
        made.socket.close()
        made.socket = OverWebSocket(self.web_socket(scheme, path))  # type: ignore[assignment]
        made.open(f"{user} over {scheme}")
        return made


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with ExitStack() as opened:
        yield Rig(tmp_path_factory.mktemp("amqp_web_socket"), opened)


@pytest.mark.parametrize("scheme", SERVICES)
def test_messages_go_over_web_socket_both_ways(rig: Rig, scheme: str) -> None:
    name, client = rig.name(), rig.over(scheme)
    rig.admin.create_destination("queue", name, maxBytesPerMsg=-1)
    sender = client.sender(name, "queue")
    large = "x" * 500_000
    assert client.send(sender, message("a"), message(large)) == [ACCEPTED] * 2
    plain = rig.peer()
    receiver = plain.receiver(name, "queue")
    found = plain.receive(2)
    assert bodies(found) == ["a", large]
    plain.settle(found)
    plain.close(receiver)
    plain.send(plain.sender(name, "queue"), message("b"))
    client.receiver(name, "queue")
    found = client.receive()
    assert bodies(found) == ["b"]
    client.settle(found)


def test_the_root_is_a_path_too(rig: Rig) -> None:
    assert rig.web_socket(path="/").subprotocol == "amqp"


@pytest.mark.parametrize(("path", "more"), [("/elsewhere", {}), ("/amqp", {"subprotocols": None})])
def test_what_does_not_ask_for_amqp_gets_none(rig: Rig, path: str, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidStatus):
        rig.web_socket(path=path, **more)


def test_a_login_is_refused_and_rights_hold_as_over_a_socket(rig: Rig) -> None:
    with pytest.raises(RefusedError):
        rig.over(user="stranger")
    client = rig.over(user="mute")
    with pytest.raises(RefusedError, match="unauthorized"):
        client.sender(rig.name(), "queue")


def test_a_client_that_goes_leaves_nothing(rig: Rig) -> None:
    before = rig.clients()
    client = rig.over()
    assert rig.clients() == before + 1
    client.end()
    deadline = time.monotonic() + WAIT_S
    while rig.clients() != before:
        assert time.monotonic() < deadline
        time.sleep(0.02)
