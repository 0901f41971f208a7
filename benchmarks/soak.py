"""``python -m benchmarks.soak``: producers that outrun a consumer, for as long as is wanted, and what that does.

One queue that holds ``--limit`` messages and lets producers wait (FLOW_CONTROL); one consumer that takes ``--rate``
messages a second and acknowledges each batch.  First a producer sends as many as it takes (*even*), then ``--factor``
times as many are offered (*flood*).  Every second: memory of broker and hosts, size of the store, what was sent and
what was received.  The findings are

    received   the consumer's rate in the flood divided by its rate before
    memory     greatest memory of broker and hosts in the last third of the flood divided by that in the second third
    errors     of producers and the consumer, none of which is asked for here

``--json FILE`` writes the rows, ``--plot FILE`` draws them.  ``--volatile`` sends messages that are not stored.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

from benchmarks.cluster_cost import Facts, _join, administer, hold
from benchmarks.peers.base import stream_of
from benchmarks.ray_head import RayHead
from benchmarks.workers import Team

NAME: Final = "soak"
QUEUE: Final = "slow"
TURN_S: Final = 0.05
"""Between two looks of a paced client."""
DRAIN_S: Final = 60.0
BATCH: Final = 2_000
EVEN_PART: Final = 5
"""The even phase takes one part of so many of the whole time."""
MB: Final = 1e6


def _paced(rate: float, seconds: float, work: Any) -> list[int]:
    """Call ``work(due)`` with how many are due, until the time is over; what it did, second by second."""
    done, began = [0] * (int(seconds) + 1), monotonic()
    total = 0
    while (now := monotonic() - began) < seconds:
        due = int(now * rate) - total
        if due > 0:
            did = work(due)
            total += did
            done[min(int(monotonic() - began), len(done) - 1)] += did
        sleep(TURN_S)
    return done


def produce(job: Any, address: Facts, size: int, rate: float, seconds: float, persistent: bool) -> Facts:
    """Offer ``rate`` messages a second; what the queue did not take in time is not made up for."""
    rb = _join(address)
    errors: list[str] = []
    with rb.connect(cluster=NAME) as connection:
        producer = connection.session().producer(QUEUE, persistent=persistent)
        bodies = list(stream_of(size, BATCH))

        def send(due: int) -> int:
            try:
                return int(producer.send_many(bodies[: min(due, BATCH)]))
            except Exception as error:  # noqa: BLE001 - it is a finding
                errors.append(repr(error))
                return 0

        job.ready()
        return {"sent": _paced(rate, seconds, send), "errors": errors}


def consume(job: Any, address: Facts, rate: float, seconds: float) -> Facts:
    """Take at most ``rate`` messages a second, then what is left."""
    rb = _join(address)
    errors: list[str] = []
    with rb.connect(cluster=NAME) as connection:
        consumer = connection.session(ack="client").consumer(QUEUE, prefetch=2 * BATCH)

        def take(due: int) -> int:
            try:
                messages = consumer.receive_many(max=due, timeout=TURN_S)
                if messages:
                    messages[-1].acknowledge()
                return len(messages)
            except Exception as error:  # noqa: BLE001 - it is a finding
                errors.append(repr(error))
                return 0

        job.ready()
        received, left, until = _paced(rate, seconds, take), 0, monotonic() + DRAIN_S
        while monotonic() < until and (count := take(10 * BATCH)):
            left += count
        return {"received": received, "left": left, "errors": errors}


def _memory(pids: set[int]) -> float:
    """Private memory of processes, MB; what they share with others is counted once at most."""
    import psutil

    return sum(psutil.Process(pid).memory_full_info().uss for pid in pids if psutil.pid_exists(pid)) / MB


def _disk(folder: Path) -> float:
    """What the files of a folder take on the disk, MB."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue  # It is gone meanwhile.
    return total / MB


def soak(head: RayHead, address: Facts, given: argparse.Namespace) -> Facts:
    """Run both phases: rows by second, and the findings."""
    even_s = given.seconds / EVEN_PART
    with tempfile.TemporaryDirectory(prefix="rbs") as folder, Team(head.environment) as team:
        holder = team.start(hold, address, NAME, 1, folder)
        holder.wait_ready()
        limits = {"maxNumMsgs": given.limit, "maxTotalMsgBytes": -1, "limitBehavior": "FLOW_CONTROL"}
        making = team.start(administer, address, NAME, [QUEUE], limits)
        making.wait_ready()
        making.go()
        found: dict[str, dict[str, int]] = making.result()
        pids = {pid for broker in found.values() for pid in broker.values()}
        consumer = team.start(consume, address, given.rate, given.seconds)
        even = team.start(produce, address, given.size, given.rate, even_s, not given.volatile)
        flood = team.start(
            produce, address, given.size, given.rate * given.factor, given.seconds - even_s, not given.volatile
        )
        for worker in (consumer, even, flood):
            worker.wait_ready()
        rows: list[Facts] = []
        began, flooding = monotonic(), False
        for worker in (consumer, even):
            worker.go()
        while (now := monotonic() - began) < given.seconds:
            if now >= even_s and not flooding:
                flooding = True
                flood.go()
            rows.append({"second": round(now, 1), "memory_mb": _memory(pids), "disk_mb": _disk(Path(folder))})
            sleep(max(0.0, began + len(rows) - monotonic()))
        parts = [worker.result(given.seconds + 2 * DRAIN_S) for worker in (even, flood, consumer)]
        holder.go()
        holder.result()
    return judged(rows, parts, given, int(even_s))


def judged(rows: list[Facts], parts: list[Facts], given: argparse.Namespace, even_s: int) -> Facts:
    """``parts``: of the even producer, of the flood, of the consumer."""
    even, flood, consumer = parts
    sent = [*even["sent"][:even_s], *flood["sent"]]
    for row in rows:
        second = int(row["second"])
        row["sent"] = sent[second] if second < len(sent) else 0
        row["received"] = consumer["received"][second] if second < len(consumer["received"]) else 0
    third = (len(rows) - even_s) // 3
    before = [row["received"] for row in rows[1 : max(even_s, 2)]]
    during = [row["received"] for row in rows[even_s + 1 : -1]]
    second, last = rows[even_s + third : even_s + 2 * third], rows[even_s + 2 * third :]
    total = sum(even["sent"]) + sum(flood["sent"])
    got = sum(consumer["received"]) + consumer["left"]
    findings = {
        "sent": total,
        "received": got,
        "not_received": total - got,
        "received_even_s": _mean(before),
        "received_flood_s": _mean(during),
        "received_ratio": _mean(during) / max(_mean(before), 1e-9),
        "memory_mb": max(row["memory_mb"] for row in rows),
        "memory_ratio": max(row["memory_mb"] for row in last) / max(row["memory_mb"] for row in second),
        "disk_mb": max(row["disk_mb"] for row in rows),
        "errors": [error for part in parts for error in part["errors"]],
    }
    shown = {name: round(value, 3) if isinstance(value, float) else value for name, value in findings.items()}
    return {"given": {key: str(value) for key, value in vars(given).items()}, "findings": shown, "rows": rows}


def _mean(values: list[int]) -> float:
    return sum(values) / max(len(values), 1)


def draw(found: Facts, path: Path) -> None:
    """Rates, memory and disk over the time; needs matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows = found["rows"]
    seconds = [row["second"] for row in rows]
    figure, (rates, sizes) = plt.subplots(2, 1, sharex=True, figsize=(9, 6), layout="constrained")
    for name in ("sent", "received"):
        rates.plot(seconds, [row[name] for row in rows], label=name)
    rates.set_ylabel("messages a second")
    for name, label in (("memory_mb", "memory of broker and hosts"), ("disk_mb", "disk")):
        sizes.plot(seconds, [row[name] for row in rows], label=label)
    sizes.set_ylabel("MB")
    sizes.set_xlabel("seconds")
    for axes in (rates, sizes):
        axes.set_ylim(bottom=0)
        axes.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--rate", type=float, default=2_000.0, help="messages a second that the consumer takes")
    parser.add_argument("--factor", type=float, default=10.0, help="how many times as many the flood offers")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--limit", type=int, default=50_000, help="messages that the queue holds")
    parser.add_argument("--volatile", action="store_true", help="messages are not stored")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--plot", type=Path, default=None)
    given = parser.parse_args()
    head = RayHead()
    address = head.start()
    try:
        found = soak(head, address, given)
    finally:
        head.stop()
    print(json.dumps(found["findings"], indent=2))
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1))
    if given.plot is not None:
        draw(found, given.plot)


if __name__ == "__main__":
    main()
