"""A broker with every listener there is, what attacks them, and how to see that nothing is left of an attack."""

from __future__ import annotations

import asyncio
import gc
import logging
import shutil
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import httpx

import raybroker as rb
from raybroker.metrics.snapshot import Snapshot
from raybroker.model.settings.setting import PortRange
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.services.metrics.metrics_http import MetricsEndpoint
from raybroker.wire.native import frames as wire
from raybroker.wire.native.connection import Native, preface
from raybroker.wire.native.preamble import preamble
from raybroker.wire.port_map import read_map
from raybroker.wire.scram import ScramClient, Verifier
from raybroker.wire.stomp.frame import Version
from tests.contracts.stomp_socket import StompSocket
from tests.unit.security.certificates import Authority

SERVICES: Final = ("jms", "ssljms", "admin", "ssladmin", "httpjms", "httpsjms", "stomp", "sslstomp")
TLS: Final = frozenset({"ssljms", "ssladmin", "httpsjms", "sslstomp"})
LISTENERS: Final = (*SERVICES, "portmapper", "metrics")
PASSWORD: Final = "secret"
WAIT_S: Final = 60.0
OPEN: Final = preamble("") + preface(bytes(32))


def until(condition: Callable[[], Any], what: Callable[[], str] | str = "it has not happened") -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what if isinstance(what, str) else what()
        time.sleep(0.01)


class Faults(logging.Handler):
    """Collects what no attack may bring into the log: exceptions, and lines of ERROR."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.found: list[str] = []
        self.refusals: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno >= logging.ERROR or record.exc_info:
            self.found.append(f"{record.name}: {text} {record.exc_info[1]!r}" if record.exc_info else text)
        elif "[B" in text:
            self.refusals.append(text)


class AllDoors:
    """A loopback broker with all services, its port mapper and an endpoint of metrics. Users ann, bob and root."""

    def __init__(self, folder: Path, opened: ExitStack, services: tuple[str, ...] = SERVICES, **more: Any) -> None:
        self.opened = opened
        self.authority = Authority(folder)
        self.authority.issue("keystore")
        shutil.copyfile(self.authority.file, folder / "truststore")
        users = UserFile(folder / "passwd")
        verifier = str(Verifier.from_password(PASSWORD, b"s" * 16, 64))
        for name, group in (("ann", "user"), ("bob", "user"), ("root", "admin")):
            users.add(name, UserEntry(verifier, group))
        self.faults = Faults()
        for logger in ("raybroker", "asyncio"):
            logging.getLogger(logger).addHandler(self.faults)
            opened.callback(logging.getLogger(logger).removeHandler, self.faults)
        self.inside = rb.loopback(
            properties={
                "imq.service.activelist": ",".join(services),
                "imq.hostname": "127.0.0.1",
                "imq.portmapper.port": 0,
                "raybroker.security.dir": str(folder),
                "raybroker.handshake.timeout_ms": 3000,
                **more,
            }
        )
        opened.callback(self.inside.close)
        self.inside.start()
        self.admin = self.inside.admin()
        self.ports = {row["service"]: row["port"] for row in self.admin.list_services()}
        self.endpoint = MetricsEndpoint(_snapshot, list)
        url = self.endpoint.start("127.0.0.1", PortRange(0, 0))
        opened.callback(self.endpoint.stop)
        self.ports["metrics"] = int(url.rsplit(":", 1)[1].split("/")[0])

    # ---- ways in -----------------------------------------------------------------------------------------------------

    def socket(self, listener: str, *, source: str = "127.0.0.1", tls: bool = True, timeout: float = WAIT_S) -> Any:
        """A connection; with TLS where the listener has that. Whoever asks closes it."""
        made = socket.create_connection(("127.0.0.1", self.ports[listener]), timeout, source_address=(source, 0))
        if tls and listener in TLS:
            context = ssl.create_default_context(cafile=str(self.authority.file))
            return context.wrap_socket(made, server_hostname="127.0.0.1")
        return made

    def keep(self, listener: str, **more: Any) -> Any:
        """The same, closed at the end of the test."""
        made = self.socket(listener, **more)
        self.opened.callback(made.close)
        return made

    def raw(self, listener: str = "jms", **more: Any) -> Raw:
        return Raw(self.keep(listener, **more))

    def stomp(self, version: Version = "1.2", listener: str = "stomp", **more: Any) -> StompSocket:
        return StompSocket(self.keep(listener, **more), version)

    def http(self, listener: str = "httpjms", user: str = "ann", source: str = "127.0.0.1") -> httpx.Client:
        scheme = "https" if listener in TLS else "http"
        transport = httpx.HTTPTransport(
            local_address=source, verify=ssl.create_default_context(cafile=str(self.authority.file))
        )
        made = httpx.Client(
            base_url=f"{scheme}://127.0.0.1:{self.ports[listener]}",
            auth=(user, PASSWORD),
            timeout=WAIT_S,
            transport=transport,
        )
        self.opened.callback(made.close)
        return made

    # ---- what has to hold --------------------------------------------------------------------------------------------

    def serves(self, listener: str, source: str = "127.0.0.2") -> None:
        """A client that means well, from another address, is served."""
        if listener == "metrics":
            with socket.create_connection(("127.0.0.1", self.ports[listener]), WAIT_S, (source, 0)) as asked:
                asked.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert _all(asked).startswith(b"HTTP/1.1 200")
        elif listener == "portmapper":
            with socket.create_connection(("127.0.0.1", self.ports[listener]), WAIT_S, (source, 0)) as asked:
                assert "jms" in read_map(_all(asked))
        elif listener in ("stomp", "sslstomp"):
            client = StompSocket(self.socket(listener, source=source), "1.2")
            client.login()
            client.done("SEND", {"destination": "/queue/good"}, b"x")
            client.close()
        elif listener in ("httpjms", "httpsjms"):
            with self.http(listener, source=source) as client:
                assert client.post("/queues/good/messages", json={"body": 1}).status_code == 201
        else:
            one = Raw(self.socket(listener, source=source))
            one.login("root" if "admin" in listener else "ann")
            one.close()

    def nothing_left(self) -> None:
        """Connections of services end, and no task of theirs goes on."""
        until(lambda: not self.clients(), lambda: f"clients stay: {self.clients()}")
        until(lambda: not self.tasks(), lambda: f"tasks go on: {self.tasks()}")

    def clients(self) -> list[Any]:
        """Clients that have logged in, but those whom the HTTP gateway keeps for its users for a while."""
        return [row for row in self.admin.list_connections() if row["service"] not in ("httpjms", "httpsjms", "inside")]

    def tasks(self) -> list[str]:
        """What works for a single client."""
        loops = [found for found in gc.get_objects() if issubclass(type(found), asyncio.AbstractEventLoop)]
        names = [
            str(task.get_coro()).split(" at 0x")[0] for loop in loops if not loop.is_closed() for task in _tasks(loop)
        ]
        return [name for name in names if any(word in name for word in _OF_CLIENTS)]


_OF_CLIENTS: Final = (
    "StompConnection._work",
    "StompServer._take_socket",
    "Listener._take_socket",
    "PortMapper._tell",
    "_up",
    "_down",
    "HttpServer._take_socket",
    "Guests._serve_socket",
    "PollSession",
)


def _tasks(loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[Any]]:
    with suppress(RuntimeError):  # The set has changed meanwhile.
        return list(asyncio.all_tasks(loop))
    return []


def _snapshot(names: str | None) -> Snapshot:
    return Snapshot("c", "b1", {"connections": 2}, {"queue": {"messages": 5}}, [])


def _all(asked: socket.socket) -> bytes:
    found = b""
    while data := asked.recv(65_536):
        found += data
    return found


def said_until_end(made: socket.socket) -> bytes:
    """What comes until the end of the connection, however that comes."""
    found = b""
    with suppress(OSError):
        while data := made.recv(65_536):
            found += data
    return found


class Raw:
    """A socket that speaks the native protocol, without any of the client's cautions."""

    def __init__(self, made: socket.socket) -> None:
        self.socket = made
        self.opening = preface(bytes(32)) if isinstance(made, ssl.SSLSocket) else OPEN
        """What a control connection begins with; over TLS there is no preamble."""
        self._machine = Native(token=None)
        self._frames: list[wire.Frame] = []
        self._numbers = 0

    def send(self, *parts: bytes) -> None:
        self.socket.sendall(b"".join(parts))

    def frame(self) -> wire.Frame:
        """The next one that is no ping."""
        while not self._frames:
            data = self.socket.recv(65_536)
            if not data:
                raise EOFError
            self._frames += [f for f in self._machine.receive_data(data) if not isinstance(f, wire.PingFrame)]
        return self._frames.pop(0)

    def ask(self, op: str, **args: Any) -> Any:
        self._numbers += 1
        self.send(wire.call(self._numbers, op, args))
        return self.answer(self._numbers)

    def answer(self, number: int) -> Any:
        while True:
            found = self.frame()
            if isinstance(found, wire.ReplyFrame) and found.request == number:
                return found.result
            if isinstance(found, wire.FailedFrame) and found.request == number:
                raise ValueError(found.text)

    def begin(self, user: str = "ann") -> str:
        """Begin a login; what proves it."""
        scram = ScramClient(user, PASSWORD, "n" * 24)
        return scram.final(str(self.ask("login", mechanism="digest", first=scram.first(), client={})))

    def login(self, user: str = "ann") -> Raw:
        self.send(self.opening)
        self.ask("proof", final=self.begin(user))
        return self

    def located(self, queue: str) -> bytes:
        """What a connection to the host of that queue begins with."""
        key, _, _, secret = self.ask("ask", method="locate", args=["queue", queue, True])
        return preamble(key) + preface(secret)

    def close(self) -> None:
        self.socket.close()
