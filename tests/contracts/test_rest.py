"""Messages over HTTP, by the real server: curl, users and their rights, hostile clients, the description."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

import raybroker as rb
from raybroker.errors import ConfigError
from raybroker.security.tls import client_context
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.services.http.http_bounds import HEADERS_BYTES_MAX
from raybroker.wire.scram import Verifier
from tests.unit.security.certificates import Authority

RULES = """version=JMQFileAccessControlModel/100
connection.NORMAL.allow.user=*
connection.NORMAL.deny.user=stranger
connection.ADMIN.allow.group=admin
queue.*.produce.allow.user=ann
queue.*.consume.allow.user=ann
queue.*.browse.allow.user=ann
topic.*.produce.allow.user=ann
topic.*.consume.allow.user=*
queue.create.allow.user=ann
topic.create.allow.user=ann
"""
VERIFIER = str(Verifier.from_password("secret", b"s" * 16, 64))
"""With few rounds: a login in a test takes no time."""


class Served:
    """A loopback broker with the service httpjms."""

    def __init__(self, folder: Path, opened: ExitStack, *, store: Path | None = None, **more: object) -> None:
        users = UserFile(folder / "passwd")
        for name in ("ann", "bob", "stranger"):
            users.add(name, UserEntry(VERIFIER, "user"))
        self.users = users
        (folder / "accesscontrol.properties").write_text(RULES)
        properties = {
            "imq.service.activelist": "httpjms",
            "imq.hostname": "127.0.0.1",
            "imq.portmapper.port": 0,
            "raybroker.security.dir": str(folder),
            **more,
        }
        self._opened = opened
        self.inside = rb.loopback(store, properties=properties)
        opened.callback(self.inside.close)
        self.inside.start()
        self.admin = self.inside.admin()
        self.ports = {row["service"]: row["port"] for row in self.admin.list_services()}
        self.port = self.ports["httpjms"]
        self.url = f"http://127.0.0.1:{self.port}"
        self.ann = self.client("ann")

    def client(self, user: str, password: str = "secret", **options: Any) -> httpx.Client:
        made = httpx.Client(**{"base_url": self.url, "auth": (user, password), "timeout": 30, **options})
        self._opened.callback(made.close)
        return made

    def socket(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        self._opened.callback(made.close)
        return made

    def send(self, body: Any, queue: str = "q") -> httpx.Response:
        return self.ann.post(f"/queues/{queue}/messages", json={"body": body})

    def messages(self) -> dict[str, int]:
        return {row["name"]: row["messages"] for row in self.admin.list_destinations() if row["messages"]}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with ExitStack() as opened:
        yield Served(tmp_path, opened)


def until(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def curl(*arguments: str) -> tuple[int, Any]:
    """(status, body) of a request."""
    done = subprocess.run(
        ["curl", "-sS", "-m", "30", "-w", "\n%{http_code}", *arguments], capture_output=True, text=True, check=True
    )
    body, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(body)


def test_curl_sends_receives_and_acknowledges(served: Served) -> None:
    ann, kind, queue = ["-u", "ann:secret"], ["-H", "content-type: application/json"], f"{served.url}/queues/orders"
    status, sent = curl(*ann, *kind, "-d", '{"body": {"id": 1}, "properties": {"p": true}}', f"{queue}/messages")
    assert (status, len(sent["ids"])) == (201, 1)
    status, found = curl(*ann, "-X", "POST", f"{queue}/receive?max=5&lease_ms=60000")
    (message,) = found["messages"]
    assert (status, message["body"], message["id"]) == (200, {"id": 1}, sent["ids"][0])
    done = json.dumps({"receipts": [message["receipt"]]})
    assert curl(*ann, *kind, "-d", done, f"{queue}/acknowledge")[0] == 200
    assert curl(*ann, *kind, "-d", done, f"{queue}/acknowledge")[0] == 409
    assert curl(f"{served.url}/health") == (200, {"broker": "loopback", "state": "RUNNING"})
    assert served.messages() == {}


def test_who_asks_over_http_is_listed_as_a_client_and_may_be_closed(served: Served) -> None:
    served.send("one")
    (row,) = served.admin.list_connections("httpjms")
    assert (row["user"], row["service"], row["host"].split(":")[0]) == ("ann", "httpjms", "127.0.0.1")
    held = served.ann.post("/queues/q/receive").json()["messages"]
    assert len(held) == 1
    served.admin.destroy_connection(row["id"])
    answers = []

    def answered() -> bool:
        answers.append(served.ann.post("/queues/q/receive", params={"wait_ms": 5_000}))
        return bool(answers[-1].status_code == 200)

    until(answered)
    assert {answer.status_code for answer in answers} <= {200, 503}, "503 while its connection ends"
    assert [message["body"] for message in answers[-1].json()["messages"]] == ["one"]


def test_what_a_service_may_do_an_administrator_may_do_with_this_one(served: Served) -> None:
    served.send("one")
    served.admin.pause_service("httpjms")
    assert served.send("two").status_code == 503
    assert served.ann.get("/health").status_code == 503
    served.admin.resume_service("httpjms")
    assert served.send("two").status_code == 201
    served.admin.quiesce_service("httpjms")
    assert served.send("three").status_code == 201
    other = served.client("bob").get("/queues/q/messages")
    assert (other.status_code, "QUIESCED" in other.json()["detail"]) == (503, True)
    assert {row["service"]: row["protocol"] for row in served.admin.list_services()}["httpjms"] == "http"


def test_a_user_without_rights_tries_everything_and_nothing_happens(served: Served) -> None:
    served.send("here")
    bob = served.client("bob")
    message = {"body": "from bob"}
    tried = {
        "send": bob.post("/queues/q/messages", json=message),
        "send an array": bob.post("/queues/q/messages", json=[message, message]),
        "send to a new queue": bob.post("/queues/fresh/messages", json=message),
        "publish": bob.post("/topics/fresh/messages", json=message),
        "receive": bob.post("/queues/q/receive"),
        "browse": bob.get("/queues/q/messages"),
        "browse dead messages": bob.get("/queues/mq.sys.dmq/messages"),
    }
    for what, answer in tried.items():
        assert answer.status_code == 403, (what, answer.text)
        assert "user 'bob' may not" in answer.json()["detail"], what
    for user, password, status in (("stranger", "secret", 403), ("eve", "secret", 401), ("ann", "wrong", 401)):
        client = served.client(user, password)
        assert client.post("/queues/q/messages", json=message).status_code == status
        assert client.post("/queues/q/receive").status_code == status
    assert served.messages() == {"q": 1}
    assert "fresh" not in [row["name"] for row in served.admin.list_destinations()]


def test_wrong_passwords_lock_a_user_out_at_his_address_as_in_every_door(served: Served) -> None:
    wrong = served.client("ann", "wrong")
    for _ in range(5):
        assert wrong.get("/queues/q/messages").status_code == 401
    assert "too many failed logins" in served.client("ann").get("/queues/q/messages").json()["detail"]


def test_headers_bodies_and_lines_that_are_too_large_are_refused(served: Served) -> None:
    for size in (HEADERS_BYTES_MAX, HEADERS_BYTES_MAX * 30):
        assert served.ann.get("/health", headers={"x": "y" * size}).status_code in (400, 431)
    assert (
        served.ann.post(
            "/queues/q/messages", content=b" " * (5 << 20), headers={"content-type": "application/json"}
        ).status_code
        == 413
    )

    def without_end() -> Iterator[bytes]:
        for _ in range(64):
            yield b" " * (1 << 20)

    kind = {"content-type": "application/json"}
    try:
        assert served.ann.post("/queues/q/messages", content=without_end(), headers=kind).status_code == 413
    except httpx.WriteError:
        pass  # It was cut off while it still sent.
    assert served.send("goes on").status_code == 201
    assert served.messages() == {"q": 1}


def test_slow_and_silent_clients_are_let_go_and_keep_nobody_out(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 40 clients some say nothing, some a header now and then; there is room for 16 connections."""
    guard = guard_of(served)
    guard._most, guard.headers_s = 16, 1.0
    slow = [served.socket() for _ in range(40)]
    for number, one in enumerate(slow):
        if number % 2:
            one.sendall(b"POST /queues/q/messages HTTP/1.1\r\nHost: x\r\n")
    assert [served.send(number).status_code for number in range(20)] == [201] * 20
    assert len(guard) <= 16

    def over(one: socket.socket) -> bool:
        try:
            one.sendall(b"x-a: b\r\n")
            while one.recv(4096):  # Why it ends, perhaps.
                continue
            return True
        except TimeoutError:
            return False
        except OSError:
            return True

    assert all(over(one) for one in slow)
    until(lambda: len(guard) <= 1)


def guard_of(served: Served) -> Any:
    directory: Any = served.inside._core.directory
    return directory._services._gateways._open["httpjms"].guard


def test_a_connection_that_says_no_more_after_a_request_is_let_go_too(served: Served) -> None:
    guard_of(served).headers_s = 0.5
    one = served.socket()
    one.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    first = one.recv(65_536)
    assert first.startswith(b"HTTP/1.1 200")
    one.sendall(b"GET /health HT")
    assert one.recv(1) == b""


def test_garbage_is_answered_or_cut_off_and_others_go_on(served: Served) -> None:
    http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for data in (b"\0" * 4096, b"GET\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0", http2, b"RBS\x01\0"):
        with closing(served.socket()) as one:
            one.sendall(data)
            one.shutdown(socket.SHUT_WR)
            while one.recv(65_536):
                continue
    assert served.send("goes on").status_code == 201


def test_two_lengths_in_one_request_are_refused(served: Served) -> None:
    one = served.socket()
    one.sendall(
        b"POST /queues/q/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    )
    assert one.recv(65_536).split(b"\r\n")[0].split()[1] in (b"400", b"401")


def test_many_users_at_once_are_bounded_by_the_service(tmp_path: Path) -> None:
    with ExitStack() as opened:
        served = Served(tmp_path, opened, **{"imq.httpjms.max_threads": 2})
        served.send("one")
        held = served.ann.post("/queues/q/receive").json()["messages"]
        answer = served.client("bob").get("/queues/q/messages")
        assert (answer.status_code, "max_threads" in answer.json()["detail"]) == (503, True)
        served.ann.post("/queues/q/acknowledge", json={"receipts": [held[0]["receipt"]]})


def test_over_tls_the_same_and_a_broker_without_a_key_says_what_is_missing(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.issue("key.pem")
    with ExitStack() as opened:
        served = Served(
            tmp_path,
            opened,
            **{
                "imq.service.activelist": "httpjms,httpsjms",
                "imq.keystore.file.dirpath": str(tmp_path),
                "imq.keystore.file.name": "key.pem",
            },
        )
        client = served.client(
            "ann", base_url=f"https://localhost:{served.ports['httpsjms']}", verify=client_context(trust=authority.file)
        )
        assert client.post("/queues/q/messages", json={"body": 1}).status_code == 201
        assert served.admin.list_connections()[0]["service"] == "httpsjms"
        assert served.send("in clear, from this machine").status_code == 201
    keyless = tmp_path / "x"
    keyless.mkdir()
    with ExitStack() as opened, pytest.raises(ConfigError, match="keystore"):
        Served(keyless, opened, **{"imq.service.activelist": "httpsjms"})


@pytest.mark.sweep
@pytest.mark.timeout(400)
def test_schemathesis_finds_nothing_that_the_description_does_not_say(served: Served, tmp_path: Path) -> None:
    """Status codes, content types, schemas of answers, what is refused; nothing fails with 500.

    Left out: that whatever the schema allows is taken. It cannot say that base64 is a text, nor what a selector is.
    """
    report = subprocess.run(
        [
            sys.executable,
            "-m",
            "schemathesis.cli",
            "run",
            f"{served.url}/openapi.json",
            "--auth",
            "ann:secret",
            "--max-examples",
            "3",
            "--seed",
            "7",
            "--workers",
            "1",
            "--phases",
            "examples,coverage,fuzzing",
            "--no-color",
            "--request-timeout",
            "30",
            "--exclude-checks",
            "positive_data_acceptance",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        check=False,
    )
    assert report.returncode == 0, report.stdout[-6000:] + report.stderr[-2000:]
