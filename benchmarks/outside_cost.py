"""What it costs a client to come from outside the Ray cluster: the same work by a handle of the cluster, over jms and
over ssljms, in turn.

    python -m benchmarks.outside_cost

A broker in a Ray of its own has both services and stores on the disk. One client process has a connection of each kind;
slices of some seconds take turns, so that what drifts falls on all alike. Each slice from outside is compared with the
mean of the handle's slices before and after it; the median of these ratios is told with its spread.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import raybroker as rb
from raybroker.security.keystore import exported, instant, self_signed
from raybroker.security.private_files import write_private
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.system.clock import SystemClock
from raybroker.wire.scram import Verifier

BODY = b"x" * 1024
TAKE = 4_000
BLOCK = 2_000
GOALS = {"tcp": 0.9, "tls": 0.5}
HANDLE = "handle"
CLUSTER = "outside-cost"


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


def measure(
    sessions: dict[str, Any], work: Any, rounds: int, seconds: float
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Ratios of those from outside to the handle, and the median rate of each."""
    rates: dict[str, list[float]] = {name: [] for name in sessions}
    for session in sessions.values():
        work(session, seconds / 4)  # The first pages and buffers are nobody's.
    inside, ratios = rates[HANDLE], {name: [] for name in GOALS}
    inside.append(work(sessions[HANDLE], seconds))
    for _ in range(rounds):
        for name in GOALS:
            rates[name].append(work(sessions[name], seconds))
            inside.append(work(sessions[HANDLE], seconds))
            ratios[name].append(rates[name][-1] * 2 / (inside[-2] + inside[-1]))
    return ratios, {name: statistics.median(found) for name, found in rates.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        UserFile(folder / "passwd").add("ann", UserEntry(str(Verifier.from_password("secret", b"s" * 16)), "user"))
        pem = self_signed(["127.0.0.1"], days=1, now=instant(SystemClock().now_ms()))
        write_private(folder / "keystore", pem)
        (folder / "trust").write_bytes(exported(pem))
        config = {
            "imq.service.activelist": "jms,ssljms",
            "imq.hostname": "127.0.0.1",
            "imq.portmapper.port": 0,
            "raybroker.security.dir": str(folder),
            "raybroker.store.dir": str(folder / "stores"),
        }
        stack.callback(rb.start(name=CLUSTER, config=config).stop)
        inside = stack.enter_context(rb.connect(cluster=CLUSTER))
        admin = inside.admin()
        admin.create_destination("queue", "q", maxNumMsgs=-1, maxTotalMsgBytes=-1)
        port = next(row["port"] for row in admin.list_services() if row["service"] == "portmapper")
        login = {"username": "ann", "password": "secret"}
        connections = {
            HANDLE: inside,
            "tcp": stack.enter_context(rb.connect(f"mq://127.0.0.1:{port}", **login)),
            "tls": stack.enter_context(rb.connect(f"mqs://127.0.0.1:{port}", trust=folder / "trust", **login)),
        }
        sessions = {}
        for name, connection in connections.items():
            connection.start()
            sessions[name] = connection.session(ack="client")
        for title, work in (("one send at a time", single), ("in blocks, in and out", blocks)):
            ratios, rates = measure(sessions, work, options.rounds, options.seconds)
            print(f"{title}: handle {rates[HANDLE]:,.0f} messages/s")
            for name, goal in GOALS.items():
                median = statistics.median(ratios[name])
                print(
                    f"    {name}: {rates[name]:,.0f}, of the handle {median:.2f}"
                    f" ({min(ratios[name]):.2f} … {max(ratios[name]):.2f}), goal {goal}:"
                    f" {'met' if median >= goal else 'missed'}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
