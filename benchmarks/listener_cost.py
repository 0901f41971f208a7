"""What clients cost that do nothing, and what a flood of wrong passwords costs the others.

    python -m benchmarks.listener_cost

A broker in a process of its own has the service jms. *Idle*: so many connections log in and then do nothing; their
memory and processor time are what the broker's process has more than before. *Flood*: processes log in with wrong
passwords, each time under another name, as fast as the broker answers, while another client sends confirmed messages
one at a time; slices with and without the flood take turns, and each slice with it is compared with the mean of its
neighbours. Those processes have a low priority: what they take of the processors themselves is not what the broker
does to its clients.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import raybroker as rb
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.wire.scram import Verifier

CONNECTIONS: Final = 2_000
GOAL_MB: Final = 100
GOAL_PROCESSOR: Final = 0.02
GOAL_PART: Final = 0.8
USER: Final = "ann"
PASSWORD: Final = "secret"
FLOODERS: Final = 2
MB: Final = 1 << 20

BROKER: Final = """
import resource, sys
import raybroker as rb
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
folder, most = sys.argv[1:]
properties = {"imq.service.activelist": "jms", "imq.hostname": "127.0.0.1", "imq.portmapper.port": 0,
              "raybroker.security.dir": folder, "imq.jms.max_threads": 2 * int(most),
              "raybroker.service.address_connections_max": int(most),
              "raybroker.service.user_connections_max": int(most)}
with rb.loopback(properties=properties) as connection:
    admin = connection.admin()
    admin.create_destination("queue", "q", maxNumMsgs=-1, maxTotalMsgBytes=-1)
    print(next(row["port"] for row in admin.list_services() if row["service"] == "portmapper"), flush=True)
    while sys.stdin.readline():
        admin.purge_destination("queue", "q")
        print(flush=True)
"""

FLOOD: Final = """
import itertools, os, sys
import raybroker as rb
from raybroker.wire import scram
os.nice(15)
scram._salted = lambda password, salt, iterations: b"x" * 32  # Who guesses need not do the rounds.
for number in itertools.count():
    try:
        rb.connect("mq://127.0.0.1:" + sys.argv[1], username=f"nobody{os.getpid()}-{number}", password="wrong",
                   properties={"imqReconnectEnabled": False}).close()
    except rb.errors.BrokerError:
        pass
"""


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MB


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def used(pid: int, seconds: float) -> float:
    """The part of a processor that a process uses."""
    before, begun = processor_s(pid), time.monotonic()
    time.sleep(seconds)
    return (processor_s(pid) - before) / (time.monotonic() - begun)


def connect(port: int) -> Any:
    return rb.connect(f"mq://127.0.0.1:{port}", username=USER, password=PASSWORD)


def idle(broker: subprocess.Popen[str], port: int, connections: int, seconds: float) -> None:
    connect(port).close()  # What the first client brings is nobody's.
    memory, processor = resident_mb(broker.pid), used(broker.pid, seconds)
    held = [connect(port) for _ in range(connections)]
    time.sleep(2)
    memory, processor = resident_mb(broker.pid) - memory, used(broker.pid, seconds) - processor
    print(
        f"{len(held)} idle connections: {memory:.0f} MB (goal {GOAL_MB}: {'met' if memory <= GOAL_MB else 'missed'}),"
        f" {processor:.1%} of a processor (goal {GOAL_PROCESSOR:.0%}:"
        f" {'met' if processor <= GOAL_PROCESSOR else 'missed'})"
    )
    for one in held:
        one.close()


def flood(broker: subprocess.Popen[str], port: int, rounds: int, seconds: float) -> None:
    assert broker.stdin is not None
    assert broker.stdout is not None
    with ExitStack() as opened:
        session = opened.enter_context(connect(port)).session()
        producer = session.producer("q")
        flooders = [
            subprocess.Popen([sys.executable, "-c", FLOOD, str(port)], stderr=subprocess.DEVNULL)
            for _ in range(FLOODERS)
        ]
        for one in flooders:
            opened.callback(one.wait)
            opened.callback(one.kill)
        time.sleep(3)  # They import.
        rates: list[float] = []
        for number in range(2 * rounds + 1):
            for one in flooders:
                one.send_signal(signal.SIGCONT if number % 2 else signal.SIGSTOP)
            begun, count = time.perf_counter(), 0
            while time.perf_counter() - begun < seconds:
                producer.send(b"x" * 100)
                count += 1
            rates.append(count / (time.perf_counter() - begun))
            broker.stdin.write("\n")
            broker.stdin.flush()
            broker.stdout.readline()
        parts = [rates[at] * 2 / (rates[at - 1] + rates[at + 1]) for at in range(1, len(rates), 2)]
        middle = statistics.median(parts)
        print(
            f"a flood of wrong passwords leaves {middle:.2f} of {statistics.median(rates[::2]):,.0f} sends/s"
            f" ({min(parts):.2f} … {max(parts):.2f}), goal {GOAL_PART}: {'met' if middle >= GOAL_PART else 'missed'}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as name, ExitStack() as opened:
        UserFile(Path(name) / "passwd").add(USER, UserEntry(str(Verifier.from_password(PASSWORD, b"s" * 16)), "user"))
        broker = subprocess.Popen(
            [sys.executable, "-c", BROKER, name, str(options.connections + 16)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        opened.callback(broker.wait)
        opened.callback(broker.kill)
        assert broker.stdout is not None
        port = int(broker.stdout.readline())
        if options.rounds:
            flood(broker, port, options.rounds, options.seconds)
        idle(broker, port, options.connections, options.seconds)


if __name__ == "__main__":
    main()
