"""``rb.data.read_queue`` against ``receive_many`` in as many processes.

    python -m benchmarks.data_read --messages 1000000 --tasks 2

One broker in a Ray of its own.  For each slice the queue is filled, and then emptied in one of three ways, which take
turns in the orders abccba: *receive*, tasks of Ray that call ``receive_many`` and read each body; *iterate*,
``iter_batches`` of a read; *execute*, the same with a transformation, so that Ray Data executes it.  Two paces are
told.  The *whole* is timed from the call to the last acknowledgement, with the start of whatever processes that needs,
and with IDLE_S at the end of a read: *receive* finds its processes running.  *Under way* is from the first messages
that were handed over to the last ones; of *execute* from the first ones that came to the transformation, since it hands
over blocks of Ray Data, of 128 MiB.  The goal is a ratio of 0.5 to *receive*, of the whole.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import ray

import raybroker as rb

QUEUE: Final = "read"
GOAL: Final = 0.5
IDLE_S: Final = 0.5
"""What a read waits at its end, which is counted."""
FILL_MESSAGES: Final = 10_000
OBJECT_STORE_BYTES: Final = 2_000_000_000


class Handed(NamedTuple):
    """Bytes of bodies that one reader was handed, and when: its first messages, and its last ones."""

    nbytes: int
    messages: int
    first_s: float
    first_messages: int
    last_s: float


class Pace(NamedTuple):
    """Messages a second of one slice."""

    whole: float
    under_way: float


MAPPED: Final = "mapped_s"
"""The column of *execute* with the time at which a message came to the transformation."""


def counted(parts: Iterator[tuple[int, int]]) -> Handed:
    """What (messages, bytes of bodies) of all parts come to."""
    messages = first_messages = nbytes = 0
    first_s = last_s = 0.0
    for count, size in parts:
        last_s = time.time()  # Of several processes.
        if not messages:
            first_s, first_messages = last_s, count
        messages += count
        nbytes += size
    return Handed(nbytes, messages, first_s, first_messages, last_s)


@ray.remote(num_cpus=0)
def received(messages: int) -> Handed:
    """Receive so many messages, and read their bodies."""

    def parts() -> Iterator[tuple[int, int]]:
        with rb.connect() as connection:
            consumer = connection.session(ack="client").consumer(QUEUE, prefetch=1000, threshold=50)
            taken = 0
            while taken < messages:
                part = consumer.receive_many(min(1000, messages - taken), timeout=10)
                if not part:
                    raise RuntimeError(f"{messages - taken} messages did not come")
                taken += len(part)
                yield len(part), sum(len(message.body) for message in part)
                part[-1].acknowledge_up_to()

    return counted(parts())


def receive(messages: int, tasks: int) -> list[Handed]:
    found: list[Handed] = ray.get([received.remote(messages // tasks) for _ in range(tasks)])
    return found


def iterate(messages: int, tasks: int) -> list[Handed]:
    read = rb.data.read_queue(QUEUE, tasks=tasks, idle_s=IDLE_S)
    return [counted(map(size_of, read.iter_batches(batch_size=None, batch_format="pyarrow")))]


def execute(messages: int, tasks: int) -> list[Handed]:
    read = rb.data.read_queue(QUEUE, tasks=tasks, idle_s=IDLE_S)
    read = read.map_batches(mapped, batch_format="pyarrow", batch_size=None)
    mapped_s: list[float] = []

    def parts() -> Iterator[tuple[int, int]]:
        for batch in read.iter_batches(batch_size=None, batch_format="pyarrow"):
            mapped_s.append(batch.column(MAPPED)[0].as_py())
            yield size_of(batch)

    return [counted(parts())._replace(first_s=min(mapped_s), first_messages=0)]


def mapped(batch: Any) -> Any:
    import pyarrow

    return batch.append_column(MAPPED, pyarrow.repeat(time.time(), batch.num_rows))


def size_of(batch: Any) -> tuple[int, int]:
    """Messages, and bytes of their bodies."""
    import pyarrow.compute as pc

    return batch.num_rows, int(pc.sum(pc.binary_length(batch.column("body"))).as_py() or 0)


Way = Callable[[int, int], list[Handed]]
WAYS: Final[tuple[Way, ...]] = (receive, iterate, execute)


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
                paces_of = slices(connection, options)
        finally:
            cluster.stop()
            ray.shutdown()
    for way in WAYS:
        paces, base = paces_of[way], paces_of[receive]
        whole = compared([pace.whole for pace in paces], [pace.whole for pace in base])
        under_way = compared([pace.under_way for pace in paces], [pace.under_way for pace in base])
        reached = statistics.median(one.whole / other.whole for one, other in zip(paces, base, strict=True)) >= GOAL
        word = "" if way is receive else f", {'reached' if reached else 'missed'} ({GOAL})"
        print(f"{way.__name__:8} whole {whole}{word}; under way {under_way}")


def compared(rates: list[float], base: list[float]) -> str:
    """Messages a second, and their ratio to those of *receive*: median, lowest and highest of all slices."""
    ratios = [rate / other for rate, other in zip(rates, base, strict=True)]
    return (
        f"{statistics.median(rates):10,.0f} msg/s, ÷ receive {statistics.median(ratios):.2f}"
        f" ({min(ratios):.2f}–{max(ratios):.2f})"
    )


def slices(connection: Any, options: argparse.Namespace) -> dict[Way, list[Pace]]:
    """The paces of each way, slice by slice."""
    messages = options.messages // options.tasks * options.tasks
    producer = connection.session().producer(QUEUE)
    body = b"x" * options.size
    paces: dict[Way, list[Pace]] = {way: [] for way in WAYS}
    for way in [*WAYS, *reversed(WAYS)] * options.rounds:
        for start in range(0, messages, FILL_MESSAGES):
            producer.send_many([body] * min(FILL_MESSAGES, messages - start))
        begun = time.perf_counter()
        found = way(messages, options.tasks)
        whole = messages / (time.perf_counter() - begun)
        nbytes = sum(handed.nbytes for handed in found)
        if nbytes != messages * options.size:
            raise RuntimeError(f"{way.__name__} gave {nbytes} bytes instead of {messages * options.size}")
        took_s = max(handed.last_s for handed in found) - min(handed.first_s for handed in found)
        behind_first = messages - sum(handed.first_messages for handed in found)
        paces[way].append(Pace(whole, behind_first / took_s if took_s else whole))
        print(f"{way.__name__:8} whole {whole:10,.0f} msg/s, under way {paces[way][-1].under_way:10,.0f}", flush=True)
    return paces


if __name__ == "__main__":
    main()
