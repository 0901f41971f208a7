"""``python -m benchmarks.large``: what a large message costs in memory, and what it does to messages beside it.

A broker, a producer and a consumer in processes of their own, and this one, which sends small messages one at a time
all the while, on a queue of the same host.  For each process: by how much its memory grew at most, without the body
that the application itself holds in the producer and in the consumer.  For the small messages: the longest confirmed
send while the large message was on its way, and the longest before.

    python -m benchmarks.large --size 70m --rounds 5
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Final

import raybroker as rb
from raybroker.model.sizes import MIB, parse_size_bytes
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.wire.scram import Verifier

LOGIN: Final[dict[str, Any]] = {"username": "ann", "password": "secret"}
GOAL_MB: Final = 16.0
GOAL_MS: Final = 50.0
QUIET_S: Final = 2.0

BROKER = """
import sys
import raybroker as rb
folder = sys.argv[1]
properties = {"imq.service.activelist": "jms", "imq.hostname": "127.0.0.1", "imq.portmapper.port": 0,
              "raybroker.security.dir": folder}
with rb.loopback(folder + "/store", properties=properties) as connection:
    admin = connection.admin()
    for name in ("large", "small"):
        admin.create_destination("queue", name, maxNumMsgs=-1, maxTotalMsgBytes=-1, maxBytesPerMsg=-1)
    print(next(row["port"] for row in admin.list_services() if row["service"] == "portmapper"), flush=True)
    sys.stdin.readline()
"""

CLIENT = """
import os, sys
import raybroker as rb
role, port, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
with rb.connect(f"mq://127.0.0.1:{port}", username="ann", password="secret") as connection:
    connection.start()
    session = connection.session()
    if role == "producer":
        body = os.urandom(size)
        producer = session.producer("large")
        producer.send(b"warm")
    else:
        consumer = session.consumer("large")
        assert consumer.receive(timeout=60).body == b"warm"
    print("ready", flush=True)
    for line in sys.stdin:
        if role == "producer":
            producer.send(body)
        else:
            message = consumer.receive(timeout=120)
            assert message is not None and len(message.body) == size
            del message
        print("done", flush=True)
"""


class Process:
    """A process of the benchmark, which says a line when it has done what it was told."""

    def __init__(self, code: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self.first = self.wait()

    def tell(self) -> None:
        _open(self._process.stdin).write("go\n")
        _open(self._process.stdin).flush()

    def wait(self) -> str:
        line = _open(self._process.stdout).readline().strip()
        if not line:
            raise RuntimeError("a process of the benchmark has ended")
        return line

    def memory(self, field: str) -> float:
        """VmRSS or VmHWM, megabytes."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        return int(next(line for line in text.splitlines() if line.startswith(field)).split()[1]) / 1024

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def end(self) -> None:
        _open(self._process.stdin).close()
        self._process.wait(60)


def _open(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def longest_ms(producer: Any, goes_on: Callable[[], bool]) -> float:
    """The longest confirmed send of a small message while ``goes_on()``."""
    longest = 0.0
    while goes_on():
        begun = time.perf_counter()
        producer.send(b"beside")
        longest = max(longest, time.perf_counter() - begun)
    return longest * 1e3


def carry(processes: dict[str, Process], size: int, beside: Any) -> dict[str, float]:
    """Figures of one large message from end to end, with small ones beside it."""
    before = {}
    for name, process in processes.items():
        process.forget_peak()
        before[name] = process.memory("VmRSS")
    clients = [processes["producer"], processes["consumer"]]
    begun = time.perf_counter()
    with ThreadPoolExecutor(len(clients)) as threads:
        for client in clients:
            client.tell()
        waiting = [threads.submit(client.wait) for client in clients]
        longest = longest_ms(beside, lambda: not all(one.done() for one in waiting))
        for one in waiting:
            one.result()
    seconds = time.perf_counter() - begun
    held = {"consumer": size / MIB}  # The producer had its body before.
    grown = {
        f"{name}_mb": process.memory("VmHWM") - before[name] - held.get(name, 0.0)
        for name, process in processes.items()
    }
    return {"seconds": seconds, "beside_ms": longest, **grown}


def measure(broker: Process, size: int, rounds: int) -> Iterator[dict[str, float]]:
    """A row for each round but the first, which makes buffers and threads."""
    with rb.connect(f"mq://127.0.0.1:{broker.first}", **LOGIN) as connection:
        connection.start()
        beside = connection.session().producer("small")
        clients = {role: Process(CLIENT, role, broker.first, str(size)) for role in ("producer", "consumer")}
        try:
            for number in range(rounds + 1):
                until = time.perf_counter() + QUIET_S
                alone = longest_ms(beside, lambda until=until: time.perf_counter() < until)  # type: ignore[misc]
                row = {"alone_ms": alone, **carry({"broker": broker, **clients}, size, beside)}
                if number:
                    yield row
        finally:
            for client in clients.values():
                client.end()


def main() -> int:
    """Prints the figures; 1 when a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--size", type=parse_size_bytes, default=70 * MIB - 4096, help="bytes of the body, or 70m")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, default=None, help="folder on the disk to test (the temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        UserFile(Path(name) / "passwd").add("ann", UserEntry(str(Verifier.from_password("secret", b"s" * 16)), "user"))
        broker = Process(BROKER, name)
        try:
            rows = list(measure(broker, options.size, options.rounds))
        finally:
            broker.end()
    figures = {key: (statistics.median(row[key] for row in rows), max(row[key] for row in rows)) for key in rows[0]}
    for key, (median, most) in figures.items():
        print(f"{key:>12} {median:8.1f}  at most {most:.1f}")
    memory = max(figures[f"{name}_mb"][0] for name in ("broker", "producer", "consumer"))
    beside = figures["beside_ms"][0]
    print(
        f"extra memory of a process {memory:.1f} MB (goal {GOAL_MB:g}), longest send beside it {beside:.0f} ms (goal"
        f" {GOAL_MS:g}), without it {figures['alone_ms'][0]:.0f} ms"
    )
    return int(memory > GOAL_MB or beside > GOAL_MS)


if __name__ == "__main__":
    raise SystemExit(main())
