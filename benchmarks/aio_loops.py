"""What the own loop of an application saves an asynchronous client: ``raybroker.client.loop`` shared against own.

    python -m benchmarks.aio_loops

A broker in a process of its own has the service jms; clients on it take turns in slices, one with each kind of loop:
``send`` awaits one confirmed send after another, ``pair`` sends and receives one message at a time, and ``tasks`` lets
a hundred tasks send beside each other.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.listener_cost import BROKER, PASSWORD, USER
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.wire.scram import Verifier

LOOPS: Final = ("shared", "own")
FIGURES: Final = ("send", "pair", "tasks")
TASKS: Final = 100

CLIENT: Final = """
import asyncio, sys, time
from raybroker import aio

port, loop, tasks, policy = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
body = b"x" * 100

async def main():
    async with await aio.connect(f"mq://127.0.0.1:{port}", username="ann", password="secret",
                                 **{"raybroker.client.loop": loop}) as connection:
        session = await connection.session()
        sender = await session.producer("q")
        producer, consumer = await session.producer("pairs-" + loop), await session.consumer("pairs-" + loop)

        async def send():
            await sender.send(body)
            return 1

        async def pair():
            await producer.send(body)
            await consumer.receive()
            return 1

        async def many():
            await asyncio.gather(*(sender.send(body) for _ in range(tasks)))
            return tasks

        calls = {"send": send, "pair": pair, "tasks": many}
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, seconds = line.split()
            call, count, begun = calls[name], 0, time.perf_counter()
            while time.perf_counter() - begun < float(seconds):
                count += await call()
            print(count / (time.perf_counter() - begun), flush=True)

if policy == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""


def rate(client: subprocess.Popen[str], figure: str, seconds: float) -> float:
    """Messages a second of one slice."""
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(f"{figure} {seconds}\n")
    client.stdin.flush()
    return float(client.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.7)
    parser.add_argument("--event-loop", choices=("asyncio", "uvloop"), default="asyncio")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as opened:
        UserFile(Path(name) / "passwd").add(USER, UserEntry(str(Verifier.from_password(PASSWORD, b"s" * 16)), "user"))

        def begin(*command: str) -> subprocess.Popen[str]:
            made = subprocess.Popen(
                [sys.executable, "-c", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            opened.callback(made.wait)
            opened.callback(made.kill)
            return made

        broker = begin(BROKER, name, "16")
        assert broker.stdin is not None
        assert broker.stdout is not None
        port = broker.stdout.readline().strip()
        clients = {loop: begin(CLIENT, port, loop, str(TASKS), options.event_loop) for loop in LOOPS}
        print(f"event loop: {options.event_loop}; load {os.getloadavg()[0]:.1f}")
        for figure in FIGURES:
            found: dict[str, list[float]] = {loop: [] for loop in LOOPS}
            for number in range(options.rounds + 1):
                for loop in LOOPS:
                    now = rate(clients[loop], figure, options.seconds)
                    if number:  # The first round warms up.
                        found[loop].append(now)
                broker.stdin.write("\n")
                broker.stdin.flush()
                broker.stdout.readline()
            parts = [own / shared for shared, own in zip(found["shared"], found["own"], strict=True)]
            rates = ", ".join(f"{loop} {statistics.median(found[loop]):,.0f}/s" for loop in LOOPS)
            print(
                f"{figure:<6} {rates}; own ÷ shared {statistics.median(parts):.2f}"
                f" ({min(parts):.2f} … {max(parts):.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
