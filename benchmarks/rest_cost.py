"""Sending over HTTP: messages one at a time and in arrays, by clients that keep their connection.

    python -m benchmarks.rest_cost
    python -m benchmarks.rest_cost --hosting broker
    python -m benchmarks.rest_cost --loopback --memory --profile FILE

A broker of a local Ray stores to a disk and has the services httpjms and jms, with ``--loopback`` one whose host is a
thread of its own process. A client sends in slices that
take turns: one message a request through ``http.client`` of Python, the same through a socket that does no more than
HTTP needs, arrays of 1000, and confirmed sends one at a time through the native protocol, which say what the machine
does meanwhile. ``--profile`` writes what the threads of a broker of ``--loopback`` are at; the rates are lower then.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import raybroker as rb
from raybroker.model.settings.setting_table import HOSTINGS
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.wire.scram import Verifier

GOAL_ONE_BY_ONE: Final = 500
GOAL_ARRAYS: Final = 30_000
ARRAY: Final = 1000
CLUSTER: Final = "rest-cost"
USER: Final = "ann"
PASSWORD: Final = "secret"
PATH: Final = "/queues/q/messages"
MESSAGE: Final = json.dumps({"body": "x" * 100}).encode()
MESSAGES: Final = json.dumps([{"body": "x" * 100}] * ARRAY).encode()
HEADERS: Final = {
    "Authorization": "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode(),
    "Content-Type": "application/json",
}

BROKER: Final = """
import cProfile, sys, threading
import raybroker as rb
folder, store, profile = sys.argv[1:]
properties = {"imq.service.activelist": "jms,httpjms", "imq.hostname": "127.0.0.1", "imq.portmapper.port": 0,
              "raybroker.security.dir": folder}
with rb.loopback(store or None, properties=properties) as connection:
    admin = connection.admin()
    admin.create_destination("queue", "q", maxNumMsgs=-1, maxTotalMsgBytes=-1)
    ports = {row["service"]: row["port"] for row in admin.list_services()}
    if profile:
        from raybroker.client.io.io_thread import _all
        found = {}
        def begin(io):
            found[io] = cProfile.Profile()
            io.loop.call_soon_threadsafe(found[io].enable)
        for io in list(_all):
            begin(io)
    print(ports["portmapper"], ports["httpjms"], flush=True)
    while sys.stdin.readline():
        admin.purge_destination("queue", "q")
        print(flush=True)
    if profile:
        import pstats
        for n, (io, took) in enumerate(found.items()):
            done = threading.Event()
            io.loop.call_soon_threadsafe(lambda: (took.disable(), done.set()))
            done.wait(10)
            took.dump_stats(f"{profile}.{n}")
"""


class Bare:
    """A connection that sends a request and reads its answer, and knows no more of HTTP than that needs."""

    def __init__(self, port: int, body: bytes) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
        self._request = f"POST {PATH} HTTP/1.1\r\nHost: x\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def __call__(self) -> None:
        self._socket.sendall(self._request)
        found = self._socket.recv(65_536)
        while b"\r\n\r\n" not in found:
            found += self._socket.recv(65_536)
        head, _, body = found.partition(b"\r\n\r\n")
        if b" 201 " not in head.split(b"\r\n", 1)[0]:
            raise RuntimeError(found.decode())
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        got = len(body)
        while got < length:
            got += len(self._socket.recv(65_536))

    def close(self) -> None:
        self._socket.close()


class Library:
    """A connection of ``http.client``."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)

    def __call__(self) -> None:
        self._connection.request("POST", PATH, MESSAGE, HEADERS)
        answer = self._connection.getresponse()
        found = answer.read()
        if answer.status != 201:
            raise RuntimeError(found.decode())

    def close(self) -> None:
        self._connection.close()


def slice_of(send: Callable[[], object], messages: int, seconds: float) -> float:
    """Messages a second."""
    begun, count = time.perf_counter(), 0
    until = begun + seconds
    while time.perf_counter() < until:
        send()
        count += messages
    return count / (time.perf_counter() - begun)


class Running(NamedTuple):
    """A broker. ``pid``: of its process; ``purge``: lets the queue be empty for the next slice; ``end``: stops it."""

    mapper: int
    port: int
    pid: int
    purge: Callable[[], object]
    end: Callable[[], object]

    def processor_s(self) -> float:
        """What the broker's process has used of processors."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def loopback(folder: Path, *, memory: bool, profile: str) -> Running:
    """A broker whose host is a thread of its own process."""
    broker = subprocess.Popen(
        [sys.executable, "-c", BROKER, str(folder), "" if memory else str(folder / "store"), profile],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def purge() -> None:
        assert broker.stdin is not None
        assert broker.stdout is not None
        broker.stdin.write("\n")
        broker.stdin.flush()
        broker.stdout.readline()

    def end() -> None:
        assert broker.stdin is not None
        if profile:  # It writes them at its end.
            broker.stdin.close()
            broker.wait(60)
        broker.kill()
        broker.wait()

    assert broker.stdout is not None
    mapper, port = map(int, broker.stdout.readline().split())
    return Running(mapper, port, broker.pid, purge, end)


def cluster(folder: Path, *, memory: bool, hosting: str) -> Running:
    """A broker of a local Ray."""
    config = {
        "imq.service.activelist": "jms,httpjms",
        "imq.hostname": "127.0.0.1",
        "imq.portmapper.port": 0,
        "raybroker.security.dir": str(folder),
        "raybroker.store.dir": str(folder / "store"),
        "imq.persist.store": "memory" if memory else "file",
    }
    running = rb.start(name=CLUSTER, config=config)
    connection = rb.connect(cluster=CLUSTER)
    admin = connection.admin()
    admin.create_destination("queue", "q", maxNumMsgs=-1, maxTotalMsgBytes=-1, hosting=hosting)
    ports = {row["service"]: row["port"] for row in admin.list_services()}
    pid = running.pids()["broker"]

    def end() -> None:
        connection.close()
        running.stop()

    return Running(ports["portmapper"], ports["httpjms"], pid, lambda: admin.purge_destination("queue", "q"), end)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--dir", help="a folder on the disk to store on")
    parser.add_argument("--memory", action="store_true", help="store nothing: what the way costs without the disk")
    parser.add_argument("--hosting", choices=HOSTINGS, default=HOSTINGS[0], help="where the queue is (dedicated)")
    parser.add_argument("--loopback", action="store_true", help="a host in the broker's process")
    parser.add_argument("--profile", default="", help="files for profiles of the broker's threads, with --loopback")
    parser.add_argument("--only", nargs="*", help="the beginnings of names of figures")
    options = parser.parse_args()
    if options.profile and not options.loopback:
        parser.error("--profile is for --loopback: processes of Ray are profiled from outside")
    with tempfile.TemporaryDirectory(dir=options.dir) as name, ExitStack() as opened:
        folder = Path(name)
        UserFile(folder / "passwd").add(USER, UserEntry(str(Verifier.from_password(PASSWORD, b"s" * 16)), "user"))
        if options.loopback:
            broker = loopback(folder, memory=options.memory, profile=options.profile)
        else:
            broker = cluster(folder, memory=options.memory, hosting=options.hosting)
        opened.callback(broker.end)
        port = broker.port
        native = opened.enter_context(rb.connect(f"mq://127.0.0.1:{broker.mapper}", username=USER, password=PASSWORD))
        producer = native.session().producer("q")
        library, bare, arrays = Library(port), Bare(port, MESSAGE), Bare(port, MESSAGES)
        for one in (library, bare, arrays):
            opened.callback(one.close)
        work: dict[str, tuple[Callable[[], object], int, int]] = {
            "one by one, a bare socket": (bare, 1, GOAL_ONE_BY_ONE),
            "one by one, http.client": (library, 1, GOAL_ONE_BY_ONE),
            f"arrays of {ARRAY}": (arrays, ARRAY, GOAL_ARRAYS),
            "native, one confirmed send": (lambda: producer.send("x" * 100), 1, 0),
        }
        work = {title: row for title, row in work.items() if not options.only or title.startswith(tuple(options.only))}
        rates: dict[str, list[float]] = {title: [] for title in work}
        costs: dict[str, list[float]] = {title: [] for title in work}
        for send, messages, _ in work.values():
            slice_of(send, messages, options.seconds / 4)
        for _ in range(options.rounds):
            for title, (send, messages, _) in work.items():
                before = broker.processor_s()
                rates[title].append(slice_of(send, messages, options.seconds))
                costs[title].append((broker.processor_s() - before) / (rates[title][-1] * options.seconds) * 1e6)
                broker.purge()
        for title, (_, _, goal) in work.items():
            found = rates[title]
            middle = statistics.median(found)
            told = f", goal {goal:,}: {'met' if middle >= goal else 'missed'}" if goal else ""
            print(
                f"{title}: {middle:,.0f} messages/s ({min(found):,.0f} … {max(found):,.0f}){told};"
                f" the broker's processor time {statistics.median(costs[title]):,.0f} µs a message"
            )


if __name__ == "__main__":
    main()
