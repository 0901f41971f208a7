"""Programs that others have written, at the real ports: openssl, curl, a WebSocket client of another library, and
clients in a network of their own. Where a program is not installed, or networks are not permitted, the test says so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import websocket

from raybroker.wire.native.connection import preface
from raybroker.wire.native.preamble import preamble
from raybroker.wire.port_map import read_map
from tests.fuzz.doors import PASSWORD, SERVICES, TLS, AllDoors, until

pytestmark = pytest.mark.xdist_group("outside_tools")  # One worker makes what they share.

INSIDE, OUTSIDE = "10.213.78.1", "10.213.78.2"
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
OLD: Final = ("-tls1", "-tls1_1")


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AllDoors]:
    with ExitStack() as opened:
        made = AllDoors(Path(tmp_path_factory.mktemp("tools")), opened)
        yield made
        assert made.faults.found == []


# ---- openssl ---------------------------------------------------------------------------------------------------------


def s_client(doors: AllDoors, listener: str, *more: str, said: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [
            "openssl",
            "s_client",
            "-connect",
            f"127.0.0.1:{doors.ports[listener]}",
            "-CAfile",
            str(doors.authority.file),
            "-verify_return_error",
            "-servername",
            "localhost",
            *more,
        ],
        input=said,
        capture_output=True,
        timeout=60,
        check=False,
    )


@needs_openssl
@pytest.mark.parametrize("listener", sorted(TLS))
def test_every_port_with_tls_has_new_versions_and_no_old_one(doors: AllDoors, listener: str) -> None:
    for version in ("-tls1_2", "-tls1_3"):
        done = s_client(doors, listener, version, "-verify_hostname", "localhost")
        assert b"Verify return code: 0 (ok)" in done.stdout, done.stderr
    for version in OLD:
        done = s_client(doors, listener, version, "-cipher", "ALL:@SECLEVEL=0")
        assert done.returncode != 0
        assert b"Cipher is (NONE)" in done.stdout
    for cipher in ("aNULL", "RC4", "3DES", "eNULL", "EXPORT"):
        done = s_client(doors, listener, "-tls1_2", "-cipher", f"{cipher}:@SECLEVEL=0")
        assert done.returncode != 0, cipher
    doors.serves(listener)


@needs_openssl
@pytest.mark.parametrize("listener", sorted(TLS))
def test_nobody_renegotiates_and_garbage_behind_the_handshake_ends_the_connection(
    doors: AllDoors, listener: str
) -> None:
    with subprocess.Popen(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{doors.ports[listener]}", "-tls1_2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        for line in client.stdout:
            if b"Extended master secret" in line:
                break
        client.stdin.write(b"R\n")  # openssl asks for another handshake.
        client.stdin.flush()
        told = client.communicate(timeout=60)[0]
    assert b"RENEGOTIATING" in told
    assert b"no renegotiation" in told or b"alert" in told or b"closed" in told or b"unexpected eof" in told, told
    garbage = os.urandom(100_000)
    done = s_client(doors, listener, "-quiet", "-no_ign_eof", said=garbage)
    assert garbage[:100] not in done.stdout
    doors.serves(listener)


@needs_openssl
def test_openssl_carries_the_native_protocol(doors: AllDoors) -> None:
    """A wrong preface is told nothing, and another listener's protocol neither."""
    for said in (preface(b"x" * 32), b"GET / HTTP/1.1\r\n\r\n", preamble("") + preface(bytes(32))):
        done = s_client(doors, "ssljms", "-quiet", said=said)
        assert done.stdout == b""
    doors.serves("ssljms")


# ---- curl ------------------------------------------------------------------------------------------------------------


def curl(doors: AllDoors, *arguments: str, check: bool = True) -> tuple[int, str]:
    """(status, body)"""
    done = subprocess.run(
        ["curl", "-sS", "-m", "30", "--cacert", str(doors.authority.file), "-w", "\n%{http_code}", *arguments],
        capture_output=True,
        text=True,
        check=check,
    )
    body, _, status = done.stdout.rpartition("\n")
    return int(status or 0), body


@needs_curl
@pytest.mark.parametrize("listener", ["httpjms", "httpsjms"])
def test_curl_sends_receives_and_is_refused_what_it_should_not_do(doors: AllDoors, listener: str) -> None:
    scheme = "https" if listener in TLS else "http"
    url = f"{scheme}://127.0.0.1:{doors.ports[listener]}"
    ann, kind = ["-u", f"ann:{PASSWORD}"], ["-H", "content-type: application/json"]
    messages = f"{url}/queues/of-{listener}/messages"
    assert curl(doors, *ann, *kind, "-d", '{"body": {"id": 1}}', messages)[0] == 201
    assert curl(doors, *ann, *kind, "-H", "Transfer-Encoding: chunked", "-d", '{"body": 2}', messages)[0] == 201
    status, told = curl(doors, *ann, "-X", "POST", f"{url}/queues/of-{listener}/receive?max=5")
    assert (status, [row["body"] for row in json.loads(told)["messages"]]) == (200, [{"id": 1}, 2])
    assert curl(doors, *kind, "-d", '{"body": 1}', messages)[0] == 401
    assert curl(doors, *ann, *kind, "-H", "Content-Encoding: gzip", "-d", "x", messages)[0] == 415
    assert curl(doors, *ann, "-H", f"x: {'y' * 20_000}", f"{url}/health")[0] == 431
    assert curl(doors, *ann, "-X", "TRACE", f"{url}/health")[0] == 405
    assert curl(doors, *ann, "--path-as-is", f"{url}/../../etc/passwd")[0] == 404
    assert curl(doors, "--http2", f"{url}/health")[0] == 200, "it stays with HTTP/1.1"
    if listener in TLS:
        assert curl(doors, "--tls-max", "1.1", f"{url}/health", check=False)[0] == 0
        plain = f"http://127.0.0.1:{doors.ports[listener]}/health"
        assert curl(doors, plain, check=False)[0] == 0
    doors.serves(listener)


@needs_curl
def test_curl_reads_metrics_as_a_scraper_does(doors: AllDoors) -> None:
    url = f"http://127.0.0.1:{doors.ports['metrics']}"
    status, page = curl(doors, "--compressed", f"{url}/metrics")
    assert (status, "raybroker_" in page) == (200, True)
    assert curl(doors, "-I", f"{url}/healthy")[0] == 200
    assert curl(doors, "-d", "x", f"{url}/metrics")[0] == 405
    assert curl(doors, "-H", f"x: {'y' * 20_000}", f"{url}/metrics")[0] == 431
    status, ports = curl(doors, "--http0.9", f"http://127.0.0.1:{doors.ports['portmapper']}", check=False)
    assert "jms" in read_map(ports.encode()), "the port mapper tells its map to whoever connects"


# ---- another WebSocket client ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", ["httpjms", "httpsjms"])
def test_a_web_socket_of_another_library(doors: AllDoors, listener: str) -> None:
    """websocket-client; the handles use a carrier of their own, over websockets."""
    url = f"{'wss' if listener in TLS else 'ws'}://127.0.0.1:{doors.ports[listener]}/native"

    def connect() -> Any:
        made = websocket.create_connection(url, timeout=60, sslopt={"ca_certs": str(doors.authority.file)})
        doors.opened.callback(made.close)
        return made

    good = connect()
    good.ping(b"there?")
    opcode, _ = good.recv_data(control_frame=True)
    assert opcode == websocket.ABNF.OPCODE_PONG
    good.send_binary(preamble("") + preface(bytes(32)) + b"\xff" * 64)
    with pytest.raises((websocket.WebSocketConnectionClosedException, ConnectionError)):  # noqa: PT012 - messages may come before the end
        while good.recv() != "":
            continue
        raise ConnectionError
    text = connect()
    text.send("text is not understood")
    opcode, data = text.recv_data()
    assert (opcode, int.from_bytes(data[:2], "big")) == (websocket.ABNF.OPCODE_CLOSE, 1000)
    large = connect()
    with pytest.raises((OSError, websocket.WebSocketException)):  # noqa: PT012 - it may be any of these that fails
        large.send_binary(bytes(5 << 20))
        opcode, data = large.recv_data()
        assert (opcode, int.from_bytes(data[:2], "big")) == (websocket.ABNF.OPCODE_CLOSE, 1009)
        large.send_binary(b"x")
        large.recv_data()
        large.recv_data()
    doors.serves(listener)


# ---- another network -------------------------------------------------------------------------------------------------


def no_network() -> str:
    """Why there can be none here."""
    for tool in ("ip", "unshare", "nsenter"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    tried = subprocess.run(
        ["unshare", "--net", "ip", "link", "add", "rb0", "type", "veth", "peer", "name", "rb1"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"network namespaces are not permitted: {tried.stderr.strip()}" if tried.returncode else ""


class Elsewhere:
    """A network namespace, joined to this one by a cable."""

    def __init__(self, holder: int) -> None:
        self.holder = holder

    def command(self, *arguments: str) -> list[str]:
        return ["nsenter", "-t", str(self.holder), "-n", *arguments]

    def run(self, program: str, *arguments: str) -> str:
        """Standard output of a program of Python there."""
        done = subprocess.run(
            self.command(sys.executable, "-c", program, *arguments),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def cut(self) -> None:
        subprocess.run(self.command("ip", "link", "set", "rbo", "down"), check=True)


@contextmanager
def elsewhere() -> Iterator[Elsewhere]:
    with subprocess.Popen(["unshare", "--net", "sleep", "infinity"]) as holder:
        own = os.readlink("/proc/self/ns/net")
        until(lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != own)
        made = Elsewhere(holder.pid)
        cable = f"rbi{os.getpid() % 100_000}"
        try:
            for command in (
                ["ip", "link", "add", cable, "type", "veth", "peer", "name", "rbo", "netns", str(holder.pid)],
                ["ip", "addr", "add", f"{INSIDE}/30", "dev", cable],
                ["ip", "link", "set", cable, "up"],
                made.command("ip", "addr", "add", f"{OUTSIDE}/30", "dev", "rbo"),
                made.command("ip", "link", "set", "rbo", "up"),
                made.command("ip", "link", "set", "lo", "up"),
            ):
                subprocess.run(command, check=True, capture_output=True)
            yield made
        finally:
            subprocess.run(["ip", "link", "del", cable], check=False, capture_output=True)
            holder.kill()


@pytest.fixture
def other() -> Iterator[Elsewhere]:
    why = no_network()
    if why:
        pytest.skip(why)
    with elsewhere() as made:
        yield made


PASSWORDS_IN_CLEAR: Final = """
import sys, socket
import httpx
http, stomp, portmapper = map(int, sys.argv[2:5])
answer = httpx.post(f"http://{sys.argv[1]}:{http}/queues/q/messages", json={"body": 1}, auth=("ann", "secret"))
assert answer.status_code == 403 and "httpsjms" in answer.text, answer.text
with socket.create_connection((sys.argv[1], stomp), 30) as made:
    made.sendall(b"CONNECT\\naccept-version:1.2\\nlogin:ann\\npasscode:secret\\n\\n\\0")
    told = made.recv(65536)
    assert told.startswith(b"ERROR") and b"sslstomp" in told, told
import raybroker as rb
with rb.connect(f"mq://{sys.argv[1]}:{portmapper}/jms", username="ann", password="secret") as client:
    session = client.session()
    session.producer("q").send("from outside")
    assert session.receive("q", timeout=30).body == "from outside"
print("done")
"""
STAYS: Final = """
import sys, time
import raybroker as rb
client = rb.connect(f"mq://{sys.argv[1]}:{sys.argv[2]}/jms", username="ann", password="secret")
client.start()
client.session().producer("q").send("here")
print("connected", flush=True)
time.sleep(600)
"""
HALF: Final = """
import socket, sys
made = [socket.create_connection((sys.argv[1], int(port)), 30) for port in sys.argv[2:] for _ in range(40)]
for one in made:
    one.sendall(b"R")
print(len(made), flush=True)
import time
time.sleep(600)
"""


def outside_doors(folder: Path, opened: ExitStack, **more: Any) -> AllDoors:
    return AllDoors(folder, opened, SERVICES, **{"imq.hostname": "0.0.0.0", **more})


def test_from_another_network_passwords_in_clear_are_refused_and_the_rest_works(
    tmp_path: Path, other: Elsewhere
) -> None:
    with ExitStack() as opened:
        doors = outside_doors(tmp_path, opened, **{"raybroker.service.advertised": INSIDE})
        ports = [str(doors.ports[name]) for name in ("httpjms", "stomp", "portmapper")]
        assert other.run(PASSWORDS_IN_CLEAR, INSIDE, *ports).strip() == "done"
        assert doors.faults.found == []


def test_an_attacker_elsewhere_keeps_nobody_here_out(tmp_path: Path, other: Elsewhere) -> None:
    with ExitStack() as opened:
        doors = outside_doors(
            tmp_path,
            opened,
            **{
                "raybroker.service.address_arriving_max": 16,
                "raybroker.handshake.timeout_ms": 30_000,
            },
        )
        ports = [str(doors.ports[name]) for name in SERVICES]
        command = other.command(sys.executable, "-c", HALF, INSIDE, *ports)
        with subprocess.Popen(command, stdout=subprocess.PIPE) as attacker:
            try:
                assert attacker.stdout is not None
                assert int(attacker.stdout.readline()) == 40 * len(ports)
                for listener in SERVICES:
                    doors.serves(listener)
            finally:
                attacker.kill()
        doors.nothing_left()
        assert doors.faults.found == []


def test_a_machine_that_is_gone_without_a_word_is_noticed(tmp_path: Path, other: Elsewhere) -> None:
    """Its cable is pulled: no byte and no end comes any more. Pings find it at hosts, keep-alives at the service."""
    with ExitStack() as opened:
        doors = outside_doors(
            tmp_path,
            opened,
            **{
                "raybroker.service.keepalive": 1,
                "imq.ping.interval": 2,
                "raybroker.service.unread_timeout": 2,
                "raybroker.service.advertised": INSIDE,
            },
        )
        command = other.command(sys.executable, "-c", STAYS, INSIDE, str(doors.ports["portmapper"]))
        with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
            try:
                assert client.stdout is not None
                assert client.stdout.readline().strip() == b"connected"
                host: Any = doors.inside._core.directory
                guests = host._service.service.connections
                assert [known for known in guests if known.guest is not None]
                other.cut()
                until(lambda: not doors.clients())
                until(lambda: not [known for known in guests if known.guest is not None])
            finally:
                client.kill()
        assert doors.faults.found == []
