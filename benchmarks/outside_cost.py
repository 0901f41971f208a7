"""What TLS costs a client from outside the Ray cluster: the same work over jms and over ssljms, in turn.

    python -m benchmarks.outside_cost

A broker in a process of its own has both services. One client process has a connection to each; slices of some seconds
alternate between them, so that what drifts falls on both alike. Each slice of TLS is compared with the mean of the
slices of TCP before and after it; the median of these ratios is told with its spread.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import raybroker as rb
from raybroker.security.keystore import exported, instant, self_signed
from raybroker.security.private_files import write_private
from raybroker.security.user_file import Entry, UserFile
from raybroker.system.clock import SystemClock
from raybroker.wire.scram import Verifier

BODY = b"x" * 1024
TAKE = 4_000
BLOCK = 2_000
GOAL_PART = 0.5

BROKER = """
import sys
import raybroker as rb
folder = sys.argv[1]
properties = {"imq.service.activelist": "jms,ssljms", "imq.hostname": "127.0.0.1", "imq.portmapper.port": 0,
              "raybroker.security.dir": folder}
with rb.loopback(folder + "/store", properties=properties) as connection:
    admin = connection.admin()
    admin.create_destination("queue", "q", maxNumMsgs=-1, maxTotalMsgBytes=-1)
    print(next(row["port"] for row in admin.list_services() if row["service"] == "portmapper"), flush=True)
    sys.stdin.readline()
"""


def single(session: Any, seconds: float) -> float:
    """Confirmed sends of one message at a time, a second."""
    producer, until, count = session.producer("q"), time.perf_counter() + seconds, 0
    begun = time.perf_counter()
    while time.perf_counter() < until:
        producer.send(BODY)
        count += 1
    rate = count / (time.perf_counter() - begun)
    producer.close()
    drain(session, count)
    return rate


def blocks(session: Any, seconds: float) -> float:
    """Messages a second that are sent in blocks and consumed afterwards."""
    producer, count, begun = session.producer("q"), 0, time.perf_counter()
    while time.perf_counter() - begun < seconds / 2:
        producer.send_many([BODY] * BLOCK)
        count += BLOCK
    producer.close()
    drain(session, count)
    return count / (time.perf_counter() - begun)


def drain(session: Any, count: int) -> None:
    with session.consumer("q") as consumer:
        while count > 0:
            found = consumer.receive_many(TAKE, timeout=30)
            if not found:
                raise RuntimeError(f"{count} messages did not come")
            found[-1].acknowledge()
            count -= len(found)


def measure(sessions: dict[str, Any], work: Any, rounds: int, seconds: float) -> tuple[list[float], dict[str, float]]:
    """Ratios of TLS to TCP, and the median rate of each."""
    rates: dict[str, list[float]] = {name: [] for name in sessions}
    for session in sessions.values():
        work(session, seconds / 4)  # The first pages and buffers are nobody's.
    for _ in range(rounds):
        for name in ("tcp", "tls"):
            rates[name].append(work(sessions[name], seconds))
    rates["tcp"].append(work(sessions["tcp"], seconds))
    tcp = rates["tcp"]
    ratios = [tls * 2 / (tcp[at] + tcp[at + 1]) for at, tls in enumerate(rates["tls"])]
    return ratios, {name: statistics.median(found) for name, found in rates.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        UserFile(folder / "passwd").add("ann", Entry(str(Verifier.of("secret", b"s" * 16)), "user"))
        pem = self_signed(["127.0.0.1"], days=1, now=instant(SystemClock().now_ms()))
        write_private(folder / "keystore", pem)
        (folder / "trust").write_bytes(exported(pem))
        broker = subprocess.Popen(
            [sys.executable, "-c", BROKER, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert broker.stdout is not None
            port = int(broker.stdout.readline())
            login = {"username": "ann", "password": "secret"}
            with rb.connect(f"mq://127.0.0.1:{port}", **login) as tcp, rb.connect(
                f"mqs://127.0.0.1:{port}", trust=folder / "trust", **login
            ) as tls:
                tcp.start()
                tls.start()
                sessions = {"tcp": tcp.session(ack="client"), "tls": tls.session(ack="client")}
                for title, work in (("one send at a time", single), ("in blocks, in and out", blocks)):
                    ratios, rates = measure(sessions, work, options.rounds, options.seconds)
                    median = statistics.median(ratios)
                    print(
                        f"{title}: tcp {rates['tcp']:,.0f}/s, tls {rates['tls']:,.0f}/s, tls ÷ tcp {median:.2f}"
                        f" ({min(ratios):.2f} … {max(ratios):.2f}), goal {GOAL_PART}:"
                        f" {'met' if median >= GOAL_PART else 'missed'}"
                    )
        finally:
            broker.kill()
            broker.wait()


if __name__ == "__main__":
    main()
