"""``python -m benchmarks.cluster_cost``: what several brokers cost on one machine, and how long a cluster takes.

    cpu        processor time a message over 1, 2 and 4 brokers, each with a producer and a consumer of its own on one
               queue that prefers local consumers: the sum over hosts, brokers and clients.  Beside each its control,
               the same pairs of clients at ONE broker, each on a queue with a host of its own: as many processes share
               the processors there, so that what is left of the difference is what several brokers cost
    idle       processor time a second of all brokers and hosts while clients are attached and nothing is sent
    remote     messages that went to a consumer of another broker meanwhile (none may while a local one is there); each
               consumer waits for as many as were sent at its broker
    paths      new units of order a second that the path service places, and what it costs when they are known
    failover   from SIGKILL of the home broker and its hosts until the next confirmed send of its client
    join       a broker joining a cluster whose record has 10,000 entries, until it takes clients

What units of order cost is measured with the other features: ``python -m benchmarks``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic_ns, process_time, sleep
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.peers.base import stream_of
from benchmarks.ray_head import RayHead
from benchmarks.workers import Team

PREFETCH: Final = 20_000
TAKE: Final = 4_000
SIZE: Final = 1024
PATIENCE_S: Final = 60.0
RECORD_ENTRIES: Final = 10_000
IDLE_S: Final = 3.0
QUIET_S: Final = 2.0
"""For how long the idle cluster is watched."""

Facts = dict[str, Any]


def _join(address: dict[str, Any]) -> Any:
    import ray

    import raybroker as rb

    if not ray.is_initialized():
        ray.init(address=address["ray"], namespace="bench", log_to_driver=False)
    return rb


def hold(job: Any, address: dict[str, Any], name: str, brokers: int, folder: str) -> None:
    """Start a cluster, and stop it when told to."""
    rb = _join(address)
    with rb.start(name, brokers, {"raybroker.store.dir": folder}) as cluster:
        job.ready({broker: cluster.pids(broker) for broker in cluster.brokers})


def produce(job: Any, address: dict[str, Any], name: str, queue: str, broker: str, count: int) -> Facts:
    rb = _join(address)
    with rb.connect(cluster=name, broker=broker) as connection:
        session = connection.session()
        producer = session.producer(queue, persistent=True)
        bodies = list(stream_of(SIZE, count))
        job.ready()
        began, used = monotonic_ns(), process_time()
        producer.send_many(bodies)
        return {"began_ns": began, "ended_ns": monotonic_ns(), "cpu_s": process_time() - used}


def consume(job: Any, address: dict[str, Any], name: str, queue: str, broker: str, count: int) -> Facts:
    """Take ``count`` messages, or until nothing came for a while."""
    rb = _join(address)
    with rb.connect(cluster=name, broker=broker) as connection:
        consumer = connection.session(ack="client").consumer(queue, prefetch=PREFETCH)
        job.ready()
        began, used = monotonic_ns(), process_time()
        got = 0
        last = began
        while got < count and monotonic_ns() - last < IDLE_S * 1e9:
            messages = consumer.receive_many(max=TAKE, timeout=IDLE_S / 4)
            if messages:
                got += len(messages)
                messages[-1].acknowledge()
                last = monotonic_ns()
        return {"got": got, "began_ns": began, "ended_ns": last, "cpu_s": process_time() - used}


@contextmanager
def cluster(head: RayHead, address: dict[str, Any], name: str, brokers: int) -> Iterator[dict[str, dict[str, int]]]:
    """A running cluster; process ids by broker."""
    with tempfile.TemporaryDirectory(prefix="rbc") as folder, Team(head.environment) as team:
        worker = team.start(hold, address, name, brokers, folder)
        yield worker.wait_ready()
        worker.go()
        worker.result()


def administer(
    job: Any, address: dict[str, Any], name: str, queues: list[str], attributes: Facts
) -> dict[str, dict[str, int]]:
    """Create queues, each with a host of its own; process ids by broker afterwards."""
    rb = _join(address)
    from raybroker.actors.cluster import find

    with rb.connect(cluster=name) as connection:
        for queue in queues:
            given = {"hosting": "dedicated", "consumerFlowLimit": -1, **attributes}
            connection.admin().create_destination("queue", queue, **given)
    found = find(name)
    assert found is not None
    job.ready()
    return {broker: found.pids(broker) for broker in found.brokers}


def _used(pids: set[int]) -> float:
    """Processor seconds of these processes so far."""
    import psutil

    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)


def _idle(pids: set[int]) -> float:
    """Processor seconds a second of these processes while nothing is asked of them."""
    used, began = _used(pids), monotonic_ns()
    sleep(QUIET_S)
    return (_used(pids) - used) * 1e9 / (monotonic_ns() - began)


def _run(team: Team, work: Callable[..., Any], *args: Any) -> Any:
    worker = team.start(work, *args)
    worker.wait_ready()
    worker.go()
    return worker.result()


def traffic(
    head: RayHead, address: dict[str, Any], brokers: int, messages: int, *, pairs: int | None = None, turn: int = 0
) -> Facts:
    """Pairs of a producer and a consumer at once, one on each broker or all on one; costs and rates.

    ``turn``: which of several such runs this is.
    """
    pairs = pairs or brokers
    assert brokers in (1, pairs)
    name = f"c{brokers}p{pairs}r{turn}"
    queues = ["q"] if brokers == pairs else [f"q{number}" for number in range(pairs)]
    with cluster(head, address, name, brokers) as first, Team(head.environment) as team:
        pids = _run(team, administer, address, name, queues, {"localDeliveryPreferred": brokers > 1})
        processes = {pid for found in pids.values() for pid in found.values()}
        each = messages // pairs
        places = list(zip(queues * (pairs // len(queues)), list(first) * (pairs // brokers), strict=True))
        consumers = [team.start(consume, address, name, *place, each) for place in places]
        for worker in consumers:
            worker.wait_ready()
        producers = [team.start(produce, address, name, *place, each) for place in places]
        for worker in producers:
            worker.wait_ready()
        idle = _idle(processes)
        used = _used(processes)
        for worker in (*consumers, *producers):
            worker.go()
        sent = [worker.result() for worker in producers]
        got = [worker.result() for worker in consumers]
        used = _used(processes) - used
    total = sum(found["got"] for found in got)
    seconds = (max(found["ended_ns"] for found in got) - min(found["began_ns"] for found in sent)) / 1e9
    cpu_s = used + sum(found["cpu_s"] for found in (*sent, *got))
    return {
        "brokers": brokers,
        "pairs": pairs,
        "messages": total,
        "seconds": seconds,
        "rate": total / seconds,
        "cpu_us": cpu_s * 1e6 / max(total, 1),
        "hosts_cpu_us": used * 1e6 / max(total, 1),
        "idle_ms_per_s": idle * 1e3,
        "remote": sum(each - found["got"] for found in got),
    }


def paths(job: Any, address: dict[str, Any], name: str, count: int) -> Facts:
    """New units by the path service, then the same again, which the producer knows."""
    rb = _join(address)
    with rb.connect(cluster=name) as connection:
        connection.admin().create_destination("queue", "routed", hosting="shared", unitOfOrderRouting="PathService")
        producer = connection.session().producer("routed", persistent=False)
        bodies, units = [b"x"] * count, [f"u{number}" for number in range(count)]
        producer.send_many([b"x"], unit_of_order=["warm"])
        job.ready()
        began = monotonic_ns()
        producer.send_many(bodies, unit_of_order=units)
        middle = monotonic_ns()
        producer.send_many(bodies, unit_of_order=units)
        ended = monotonic_ns()
    return {"new_units_per_s": count * 1e9 / (middle - began), "known_units_per_s": count * 1e9 / (ended - middle)}


def failover(job: Any, address: dict[str, Any], name: str, pids: dict[str, dict[str, int]]) -> Facts:
    """Kill the home broker under a client; how long its next confirmed send takes."""
    rb = _join(address)
    with rb.connect(cluster=name) as connection:
        connection.admin().create_destination("queue", "f", hosting="shared")
        producer = connection.session().producer("f")
        producer.send("before")
        from raybroker.actors.cluster import find

        found = find(name)
        assert found is not None
        home = connection._core.directory.home
        victims = found.pids(home)
        job.ready()
        began = monotonic_ns()
        for pid in victims.values():
            os.kill(pid, signal.SIGKILL)
        producer.send("after")
        moved = monotonic_ns()
        _wait_back(found, home)
    return {"failover_s": (moved - began) / 1e9}


def _wait_back(found: Any, broker: str) -> None:
    """Wait until a killed broker is there again, which whoever stops the cluster then can."""
    from raybroker.errors import BrokerError

    deadline_ns = monotonic_ns() + PATIENCE_S * 1e9
    while True:
        try:
            found.pids(broker)
            return
        except BrokerError:
            if monotonic_ns() > deadline_ns:
                raise
            sleep(0.1)


def join_many(job: Any, address: dict[str, Any], name: str, folder: str) -> Facts:
    """A broker that joins a cluster with a long record."""
    rb = _join(address)
    from raybroker.actors import runtime

    config = {"raybroker.store.dir": folder, "raybroker.hosting.default": "shared"}
    with rb.start(name, 1, config), rb.connect(cluster=name) as connection:
        admin = connection.admin()
        for number in range(RECORD_ENTRIES // 2):
            admin.create_destination("queue", f"q{number % 100}")
            admin.destroy_destination("queue", f"q{number % 100}")
        job.ready()
        runtime.call_blocking(runtime.find_actor(runtime.broker_name(name, "b1")).ready)
        began = monotonic_ns()
        with rb.start(name, 2, config):
            return {"join_s": (monotonic_ns() - began) / 1e9}


def compare(head: RayHead, address: dict[str, Any], brokers: list[int], messages: int, rounds: int) -> list[Facts]:
    """Each number of brokers and its control, in turn; of several rounds the run whose cost is the median."""
    wanted = [(count, pairs) for pairs in brokers for count in dict.fromkeys((pairs, 1))]
    found: dict[tuple[int, int], list[Facts]] = {}
    for turn in range(rounds):
        for count, pairs in wanted:
            row = traffic(head, address, count, messages, pairs=pairs, turn=turn)
            found.setdefault((count, pairs), []).append(row)
    return [sorted(found[key], key=lambda row: float(row["cpu_us"]))[(rounds - 1) // 2] for key in wanted]


def measure(messages: int, brokers: list[int], rounds: int, console: Console) -> Facts:
    """All of it, in one Ray of its own."""
    head = RayHead()
    address = {**head.start(), "root": os.getpid()}
    found: Facts = {"messages": messages, "rounds": rounds}
    try:
        console.print(f"{', '.join(map(str, brokers))} brokers …")
        found["traffic"] = compare(head, address, brokers, messages, rounds)
        with cluster(head, address, "paths", 2) as pids, Team(head.environment) as team:
            console.print("path service and failover …")
            found["paths"] = _run(team, paths, address, "paths", 100_000)
            found["failover"] = _run(team, failover, address, "paths", pids)
        with tempfile.TemporaryDirectory(prefix="rbc") as folder, Team(head.environment) as team:
            console.print("join …")
            found["join"] = _run(team, join_many, address, "joined", folder)
    finally:
        head.stop()
    return found


def show(found: Facts, console: Console) -> None:
    table = Table(
        "brokers",
        "pairs",
        "msg/s",
        "µs/msg",
        "one pair",
        "same pairs",
        "hosts",
        "idle",
        "remote",
        title="processor time; beside that of one broker with one pair, and with the same pairs of clients",
        caption="hosts: of it in hosts and brokers; idle: ms a second of these while nothing is sent",
    )
    base = found["traffic"][0]["cpu_us"]
    control = {row["pairs"]: row["cpu_us"] for row in found["traffic"] if row["brokers"] == 1}
    for row in found["traffic"]:
        same = f"{row['cpu_us'] / control[row['pairs']]:.2f} ×" if row["pairs"] in control else ""
        table.add_row(
            str(row["brokers"]),
            str(row["pairs"]),
            f"{row['rate']:,.0f}",
            f"{row['cpu_us']:.2f}",
            f"{row['cpu_us'] / base:.2f} ×",
            same,
            f"{row['hosts_cpu_us']:.2f}",
            f"{row['idle_ms_per_s']:.0f}",
            str(row["remote"]),
        )
    console.print(table)
    console.print(
        f"path service: {found['paths']['new_units_per_s']:,.0f} new units/s,"
        f" {found['paths']['known_units_per_s']:,.0f} messages/s of known ones"
    )
    console.print(f"failover: {found['failover']['failover_s']:.2f} s; join: {found['join']['join_s']:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--brokers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=1, help="of the cost of brokers; the median is shown")
    parser.add_argument("--out", type=Path, help="the figures as JSON")
    args = parser.parse_args()
    console = Console(highlight=False)
    found = measure(args.messages, args.brokers, args.rounds, console)
    show(found, console)
    if args.out is not None:
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
