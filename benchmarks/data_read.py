"""``rb.data.read_queue`` against ``receive_many`` in as many processes.

    python -m benchmarks.data_read --messages 1000000 --tasks 2

One broker in a Ray of its own.  For each slice the queue is filled, and then emptied in one of three ways, which take
turns in the orders abccba: *receive*, tasks of Ray that call ``receive_many`` and read each body; *iterate*,
``iter_batches`` of a read; *execute*, the same with a transformation, so that Ray Data executes it.  A slice is timed
from the call to the last acknowledgement, with the start of whatever processes that needs.  The goal is a ratio of 0.5
to *receive*.
"""

from __future__ import annotations

import argparse
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import ray

import raybroker as rb

QUEUE: Final = "read"
GOAL: Final = 0.5
IDLE_S: Final = 0.5
"""What a read waits at its end, which is counted."""
FILL_MESSAGES: Final = 10_000
OBJECT_STORE_BYTES: Final = 2_000_000_000


@ray.remote(num_cpus=0)
def received(messages: int) -> int:
    """Receive so many messages, and read their bodies; the bytes of these."""
    found = taken = 0
    with rb.connect() as connection:
        consumer = connection.session(ack="client").consumer(QUEUE, prefetch=1000, threshold=50)
        while taken < messages:
            part = consumer.receive_many(min(1000, messages - taken), timeout=10)
            if not part:
                raise RuntimeError(f"{messages - taken} messages did not come")
            found += sum(len(message.body) for message in part)
            taken += len(part)
            part[-1].acknowledge_up_to()
    return found


def receive(messages: int, tasks: int) -> int:
    return sum(ray.get([received.remote(messages // tasks) for _ in range(tasks)]))


def iterate(messages: int, tasks: int) -> int:
    read = rb.data.read_queue(QUEUE, tasks=tasks, idle_s=IDLE_S)
    return sum(body_bytes(batch) for batch in read.iter_batches(batch_size=None, batch_format="pyarrow"))


def execute(messages: int, tasks: int) -> int:
    read = rb.data.read_queue(QUEUE, tasks=tasks, idle_s=IDLE_S)
    read = read.map_batches(lambda batch: batch, batch_format="pyarrow", batch_size=None)
    return sum(body_bytes(batch) for batch in read.iter_batches(batch_size=None, batch_format="pyarrow"))


def body_bytes(batch: Any) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(pc.binary_length(batch.column("body"))).as_py() or 0)


WAYS: Final[tuple[Callable[[int, int], int], ...]] = (receive, iterate, execute)


def main() -> None:
    description = (__doc__ or "").split("\n\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.data_read", description=description)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2, help="each has two slices of each way")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rbb") as folder:
        if "RAY_AUTH_TOKEN_PATH" not in os.environ:  # Ray looks at its environment when it is imported.
            token = Path(folder, "token")
            token.write_text(secrets.token_hex(32))
            token.chmod(0o600)
            own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_TMPDIR": folder}
            command = [sys.executable, "-m", "benchmarks.data_read", *sys.argv[1:]]
            sys.exit(subprocess.run(command, check=False, env=os.environ | own).returncode)
        ray.init(
            num_cpus=2 * options.tasks + 1,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,
            _temp_dir=folder,
        )
        ray.data.DataContext.get_current().enable_progress_bars = False
        cluster = rb.start(config={"raybroker.store.dir": str(Path(folder, "store"))})
        try:
            with rb.connect() as connection:
                connection.admin().create_destination("queue", QUEUE, maxNumMsgs=-1, maxTotalMsgBytes=-1)
                rates = slices(connection, options)
        finally:
            cluster.stop()
            ray.shutdown()
    base = rates[receive]
    for way in WAYS:
        ratios = [rate / base[index] for index, rate in enumerate(rates[way])]
        word = "" if way is receive else f", {'reached' if statistics.median(ratios) >= GOAL else 'missed'} ({GOAL})"
        print(
            f"{way.__name__:8} {statistics.median(rates[way]):10,.0f} msg/s, ÷ receive {statistics.median(ratios):.2f}"
            f" ({min(ratios):.2f}–{max(ratios):.2f}){word}"
        )


def slices(connection: Any, options: argparse.Namespace) -> dict[Callable[[int, int], int], list[float]]:
    """Messages a second of each way, slice by slice."""
    messages = options.messages // options.tasks * options.tasks
    producer = connection.session().producer(QUEUE)
    body = b"x" * options.size
    rates: dict[Callable[[int, int], int], list[float]] = {way: [] for way in WAYS}
    for way in [*WAYS, *reversed(WAYS)] * options.rounds:
        for start in range(0, messages, FILL_MESSAGES):
            producer.send_many([body] * min(FILL_MESSAGES, messages - start))
        begun = time.perf_counter()
        found = way(messages, options.tasks)
        rates[way].append(messages / (time.perf_counter() - begun))
        if found != messages * options.size:
            raise RuntimeError(f"{way.__name__} gave {found} bytes instead of {messages * options.size}")
        print(f"{way.__name__:8} {rates[way][-1]:10,.0f} msg/s", flush=True)
    return rates


if __name__ == "__main__":
    main()
