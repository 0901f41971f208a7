"""What copies of a queue cost its clients: lone sends and blocks, to a queue with three copies and to one with one.

    python -m benchmarks.copies_client
    python -m benchmarks.copies_client --rounds 15 --count 500

One Ray of a head and three nodes on this machine, a broker on each; the client is this process, and its home broker is
the one that leads the queue with copies and has the other queue in a host of its own.  Slices of both take turns.  What
is between a client and a host is the same for both, and is measured with them; ``benchmarks.copies_cost`` leaves it
out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from benchmarks.readings import quarters
from tests.cluster import rays
from tests.cluster.nodes import running_nodes

CLUSTER: Final = "copies"
NAMES: Final = ("b1", "b2", "b3")
PLAIN, COPIED = "plain", "copied"
BODY: Final = 1024
BLOCK: Final = 100
WARM_SENDS: Final = 300
LONE_MOST: Final = 1.8
READY_S: Final = 120.0
COMMON: Final[dict[str, Any]] = {"useDMQ": False, "maxNumMsgs": -1, "maxTotalMsgBytes": -1}


def made(admin: Any, errors: Any) -> str:
    """Make the queue with copies, as soon as all brokers are seen; its leader."""
    end_s = time.monotonic() + READY_S
    while True:
        try:
            admin.create_destination("queue", COPIED, if_exists="keep", replicas=3, **COMMON)
            found = admin.query_destination("queue", COPIED)["replication"]
            copies = found.get("copies", ())
            if found.get("leader") and sum(one["voter"] and not one["behind"] for one in copies) == len(NAMES):
                return str(found["leader"])
        except errors.BrokerError:
            if time.monotonic() > end_s:
                raise
        assert time.monotonic() < end_s, f"no leader within {READY_S:.0f} s"
        time.sleep(0.25)


def lone(producer: Any, count: int) -> float:
    """Seconds a send that is waited for."""
    body = bytes(BODY)
    began = time.perf_counter()
    for _ in range(count):
        producer.send(body)
    return (time.perf_counter() - began) / count


def blocks(producer: Any, count: int) -> float:
    """Seconds a block of messages, each block waited for."""
    bodies = [bytes(BODY)] * BLOCK
    began = time.perf_counter()
    for _ in range(count):
        producer.send_many(bodies)
    return (time.perf_counter() - began) / count


def compare(
    what: str, slice_: Callable[[Any, int], float], producers: dict[str, Any], rounds: int, count: int
) -> float:
    """Print both, and the ratio of their times, which is given back."""
    found: dict[str, list[float]] = {PLAIN: [], COPIED: []}
    for round_ in range(rounds):
        order = (PLAIN, COPIED) if round_ % 2 == 0 else (COPIED, PLAIN)
        for name in order:
            found[name].append(slice_(producers[name], count))
    ratios = [b / a for a, b in zip(found[PLAIN], found[COPIED], strict=True)]
    added = [b - a for a, b in zip(found[PLAIN], found[COPIED], strict=True)]
    print(f"{what}, one copy    {quarters(found[PLAIN], 'µs', 1e6)}")
    print(f"{what}, three copies {quarters(found[COPIED], 'µs', 1e6)}; added {quarters(added, 'µs', 1e6)}")
    ratio = statistics.median(ratios)
    print(f"ratio of time {quarters(ratios, '%', 100)}, load {os.getloadavg()[0]:.1f}")
    return ratio


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.copies_client", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--count", type=int, default=300, help="sends of a slice")
    options = parser.parse_args(arguments)
    rays.folder()
    with tempfile.TemporaryDirectory() as scratch, running_nodes(len(NAMES)):
        import raybroker as rb

        config = {**rays.small_store(Path(scratch)), "raybroker.store.segment_bytes": "64m"}
        cluster = rb.start(CLUSTER, brokers=len(NAMES), config=config)
        with rb.connect(cluster=CLUSTER, broker=NAMES[0]) as connection:
            leader = made(connection.admin(), rb.errors)
        with rb.connect(cluster=CLUSTER, broker=leader) as connection:
            connection.admin().create_destination("queue", PLAIN, hosting="dedicated", **COMMON)
            producers = {name: connection.session().producer(name) for name in (PLAIN, COPIED)}
            for producer in producers.values():
                lone(producer, WARM_SENDS)
            ratio = compare("lone send", lone, producers, options.rounds, options.count)
            compare(f"block of {BLOCK}", blocks, producers, options.rounds, options.count // 4)
            print(f"lone send: {ratio:.2f}, at most {LONE_MOST} wanted" + (": missed" if ratio > LONE_MOST else ""))
        with suppress(rb.errors.ConnectionLostError):
            cluster.stop()
    return int(ratio > LONE_MOST)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
