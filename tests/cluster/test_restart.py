"""A broker with many hosts is restarted while clients of each kind are at work, on a machine that takes its time."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, cycle
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

import raybroker as rb
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.wire.scram import Verifier
from tests.cluster import rays
from tests.contracts.handles import until
from tests.contracts.stomp_socket import StompSocket
from tests.ports import free_port

QUEUES: Final = 12
NATIVE, STOMP, REST = (tuple(f"q{number}" for number in range(first, QUEUES, 3)) for first in range(3))
LIMIT_MS: Final = 30_000
"""How long a native client waits for a broker that does not get on: shorter than all the hosts take together."""
PATIENCE_S: Final = 100.0
"""Until what must come is there, whatever else the machine has to do."""
APART_S: Final = 0.05
LOOK_S: Final = 0.5
SLOW: Final = "*/h*@host.open:1:wait"


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Ray in which hosts take their time to start, as long as there is that file."""
    file = tmp_path / "slow"
    rays.folder()
    monkeypatch.setenv("RB_FAILPOINT", f"@{file}")
    with rays.running_ray():
        yield file


class Work:
    """A client of one kind that sends and one that receives, in threads, until it is told to stop.

    ``send`` returns once the broker has confirmed; ``receive`` returns what has come and is settled.
    """

    def __init__(
        self, send: Callable[[int], None], receive: Callable[[], list[int]], close: Callable[[], None] = lambda: None
    ) -> None:
        self._close = close
        self.confirmed: set[int] = set()
        self.taken: set[int] = set()
        self._over, self._given_up = threading.Event(), threading.Event()
        self._pool = ThreadPoolExecutor(2)
        self._ends = [self._pool.submit(self._send_all, send), self._pool.submit(self._receive_all, receive)]

    def _send_all(self, send: Callable[[int], None]) -> None:
        for number in count():
            if self._over.is_set():
                return
            send(number)
            self.confirmed.add(number)
            time.sleep(APART_S)

    def _receive_all(self, receive: Callable[[], list[int]]) -> None:
        while not (self._given_up.is_set() or (self._over.is_set() and self.confirmed <= self.taken)):
            self.taken.update(receive())

    def going(self, kind: str) -> None:
        """Something more is sent and received; raises what has ended one of the clients."""
        before = len(self.taken), len(self.confirmed)

        def gone_on() -> bool:
            self.require()
            return len(self.taken) > before[0] and len(self.confirmed) > before[1]

        until(gone_on, f"messages come: {kind}", PATIENCE_S)

    def require(self) -> None:
        for end in self._ends:
            if end.done():
                end.result()

    def end(self) -> None:
        """In any case: its threads do not outlive the test."""
        self._over.set()
        self._given_up.set()
        self._close()
        self._pool.shutdown(wait=True)

    def finish(self) -> None:
        self._over.set()
        for end in self._ends:
            end.result(PATIENCE_S)
        assert self.confirmed <= self.taken


def again(work: Callable[[], Any], *passing: type[Exception]) -> Any:
    """The result of work that is tried anew while its service is not there, as its client has to."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return work()
        except passing:
            assert time.monotonic() < deadline, "the service does not come back"
            time.sleep(0.2)


def native() -> Work:
    connection = rb.ConnectionFactory({"raybroker.reconnect.timeout_ms": LIMIT_MS}).connect()
    connection.start()
    sending, receiving = connection.session(), connection.session()
    producers = cycle([sending.producer(name) for name in NATIVE])
    consumers = cycle([receiving.consumer(name) for name in NATIVE])

    def receive() -> list[int]:
        message = next(consumers).receive(0.1)
        return [] if message is None else [message.body]

    return Work(lambda number: next(producers).send(number), receive, connection.close)  # type: ignore[arg-type]


class StompClient:
    """It connects again when its broker has ended; what it does not know to be done it does again."""

    def __init__(self, port: int, setting_up: Callable[[StompSocket], None] = lambda made: None) -> None:
        self._port = port
        self._setting_up = setting_up
        self._made: StompSocket | None = None

    def do(self, work: Callable[[StompSocket], Any]) -> Any:
        def once() -> Any:
            if self._made is None:
                made = StompSocket(socket.create_connection(("127.0.0.1", self._port), PATIENCE_S)).login()
                self._setting_up(made)
                self._made = made
            try:
                return work(self._made)
            except (OSError, AssertionError):
                self._made.close()
                self._made = None
                raise

        return again(once, OSError, AssertionError)


def stomp(port: int) -> Work:
    def subscribe(made: StompSocket) -> None:
        for name in STOMP:
            made.send("SUBSCRIBE", {"destination": f"/queue/{name}", "id": name, "ack": "client-individual"})
        made.socket.settimeout(LOOK_S)

    def receive(made: StompSocket) -> list[int]:
        try:
            frame = made.expect("MESSAGE")
        except TimeoutError:
            return []
        made.send("ACK", {"id": frame.headers["ack"]})  # A receipt would come after messages that are under way.
        return [int(frame.body)]

    def send(made: StompSocket, queue: str, number: int) -> None:
        made.done("SEND", {"destination": f"/queue/{queue}"}, b"%d" % number)

    sending, receiving, queues = StompClient(port), StompClient(port, subscribe), cycle(STOMP)

    def send_one(number: int) -> None:
        queue = next(queues)
        sending.do(lambda made: send(made, queue, number))

    return Work(send_one, lambda: receiving.do(receive))


def rest(port: int) -> Work:
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", auth=("ann", "secret"), timeout=PATIENCE_S)
    sending, receiving = cycle(REST), cycle(REST)

    def asked(path: str, body: dict[str, Any]) -> Any:
        """Tried again when the service is not there, or says that it may be."""

        def once() -> Any:
            answer = client.post(path, json=body)
            if answer.status_code == 503 or answer.json().get("retryable"):
                raise httpx.TransportError(answer.text)
            assert answer.is_success, answer.text
            return answer.json()

        return again(once, httpx.TransportError)

    def receive() -> list[int]:
        queue = next(receiving)
        found = asked(f"/queues/{queue}/receive", {"max": 100, "wait_ms": 100})["messages"]
        if found:  # A receipt of the time before the restart is not known any more: the message comes again.
            receipts = {"receipts": [row["receipt"] for row in found]}
            asked(f"/queues/{queue}/acknowledge", receipts)
        return [row["body"] for row in found]

    return Work(lambda number: asked(f"/queues/{next(sending)}/messages", {"body": number}), receive)


@pytest.mark.timeout(600)
def test_clients_of_each_kind_survive_the_restart_of_a_broker_with_many_hosts(slow: Path, tmp_path: Path) -> None:
    users = tmp_path / "security"
    users.mkdir()
    UserFile(users / "passwd").add("ann", UserEntry(str(Verifier.from_password("secret", b"s" * 16, 64)), "user"))
    ports = {"stomp": free_port(), "httpjms": free_port()}
    running = rb.start(
        config={
            **rays.small_store(tmp_path / "store"),
            "imq.service.activelist": "stomp,httpjms",
            "imq.hostname": "127.0.0.1",
            "imq.portmapper.port": 0,
            "imq.stomp.tcp.port": ports["stomp"],
            "imq.httpjms.http.port": ports["httpjms"],
            "raybroker.security.dir": str(users),
        }
    )
    with running, rb.connect() as inside:
        with ThreadPoolExecutor(2) as pool:
            made = (
                pool.submit(inside.admin().create_destination, "queue", f"q{number}", hosting="dedicated")
                for number in range(QUEUES)
            )
            for one in list(made):
                one.result()
        works = {"native": native(), "stomp": stomp(ports["stomp"]), "rest": rest(ports["httpjms"])}
        try:
            for kind, work in works.items():
                work.going(kind)
            before = running.pids()
            slow.write_text(SLOW)
            done = subprocess.run(
                [sys.executable, "-m", "raybroker", "restart", "bkr", "-f"],
                capture_output=True,
                text=True,
                env={**os.environ, "RAY_ADDRESS": running.address},
                timeout=2 * PATIENCE_S,
                check=False,
            )
            assert (done.returncode, done.stdout) == (0, "broker b1 was restarted\n"), done.stderr
            slow.unlink()
            for kind, work in works.items():
                work.going(kind)
                work.finish()
        finally:
            for work in works.values():
                work.end()
        after = running.pids()
        assert before.keys() == after.keys()
        assert not set(before.values()) & set(after.values())
