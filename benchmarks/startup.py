"""``python -m benchmarks.startup``: how long it takes until the first message.

    import              import raybroker, in a fresh interpreter
    loopback            rb.loopback() until the first message was received, in a fresh interpreter, with what it imports
    start               rb.start() in a process that is connected to a running Ray, until the first message was received
    create_dedicated    creating a queue with a host of its own, which can be used when the call returns; with a spare
                        host (raybroker.hosting.spare) and, in the note, without
    restart_dedicated   with ``--hosts N``: rb.start() of a stopped broker with N such queues, until a message was read
                        in each of them; in the note, how long Ray takes to start N empty actors

Interpreters find compiled bytecode, as those of installed packages do: it is written to a folder of this run first.
Medians of several runs, with the lowest and the highest.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Final

from benchmarks import report
from benchmarks.goals import Spread, spread_of
from benchmarks.ours import CONFIG, Raybroker
from benchmarks.ours_connection import CLUSTER
from benchmarks.peers.base import Address
from benchmarks.ray_head import RayHead, join
from benchmarks.readings import FIGURE
from benchmarks.workers import Team

Found = dict[str, Spread]

INTERPRETERS: Final = 7
STARTS: Final = 3
CREATED: Final = 5
RESTARTS: Final = 5
PAUSE_SECONDS: Final = 5.0
"""Between two creations, so that the broker has the next spare host ready; and between the end of many processes and
the start of others."""
PATIENCE_SECONDS: Final = 60.0

IMPORT: Final = "began = time.perf_counter(); import raybroker; print(time.perf_counter() - began)"
LOOPBACK: Final = """
import raybroker as rb
began = time.perf_counter()
with rb.loopback() as connection:
    connection.start()
    session = connection.session()
    session.producer("first").send(b"x")
    assert session.receive("first", timeout=30).body == b"x"
    print(time.perf_counter() - began)
"""


def _environment(folder: Path) -> dict[str, str]:
    """Of processes that find bytecode of this run."""
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONDONTWRITEBYTECODE": "", "PYTHONPATH": path}


def interpreters(folder: Path, times: int = INTERPRETERS) -> Found:
    """``import`` and ``loopback``, in milliseconds; the first interpreter compiles and is not counted."""
    found = {}
    for figure, code in (("import", IMPORT), ("loopback", LOOPBACK)):
        took = [_interpreter_ms(code, folder) for _ in range(times + 1)]
        found[figure] = spread_of(took[1:])
    return found


def _interpreter_ms(code: str, folder: Path) -> float:
    done = subprocess.run(
        [sys.executable, "-c", f"import time\n{code}"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **_environment(folder)},
        timeout=PATIENCE_SECONDS,
    )
    return float(done.stdout) * 1e3


def starts(job: Any, address: Address, folder: str) -> list[dict[str, float]]:
    """Seconds of each step of several starts, each of a cluster of its own."""
    join(address, CLUSTER)
    import raybroker as rb

    job.ready()
    found = []
    for number in range(STARTS):
        name = f"start{number}"
        began = perf_counter()
        cluster = rb.start(name=name, brokers=1, config={**CONFIG, "raybroker.store.dir": folder})
        started = perf_counter()
        with rb.connect(cluster=name) as connection:
            connection.start()
            session = connection.session()
            session.producer("first").send(b"x")
            sent = perf_counter()
            message = session.receive("first", timeout=PATIENCE_SECONDS)
            ended = perf_counter()
            assert message is not None
            assert message.body == b"x"
        cluster.stop()
        found.append({"start": started - began, "sent": sent - started, "received": ended - sent, "all": ended - began})
    return found


def creations(job: Any, address: Address, pause_s: float) -> list[float]:
    """Milliseconds of creating each of several queues with hosts of their own, with a pause before each."""
    from benchmarks.ours_connection import connect

    job.ready()
    took = []
    with connect(address) as connection:
        admin = connection.admin()
        for number in range(CREATED):
            sleep(pause_s)
            began = perf_counter()
            admin.create_destination("queue", f"created-{number}", hosting="dedicated")
            took.append((perf_counter() - began) * 1e3)
    return took


def restarts(job: Any, address: Address, folder: str, hosts: int) -> dict[str, list[float]]:
    """Seconds of each of several restarts of a broker with queues that have a host each (``restart``), and of starting
    as many empty actors (``actors``), in turn."""
    join(address, CLUSTER)
    import ray

    import raybroker as rb

    class Empty:
        def here(self) -> None:
            """It runs."""

    def began() -> Any:
        return rb.start(name="restarted", brokers=1, config={**CONFIG, "raybroker.store.dir": folder})

    queues = [f"dedicated-{number}" for number in range(hosts)]
    cluster = began()
    with rb.connect(cluster="restarted") as connection:
        for queue in queues:
            connection.admin().create_destination("queue", queue, hosting="dedicated")
            connection.session().producer(queue).send(b"x")
    cluster.stop()
    job.ready()
    found: dict[str, list[float]] = {"restart": [], "actors": []}
    for _ in range(RESTARTS):
        sleep(PAUSE_SECONDS)
        since = perf_counter()
        cluster = began()
        with rb.connect(cluster="restarted") as connection:
            for queue in queues:
                assert [message.body for message in connection.session().browser(queue)] == [b"x"]
        found["restart"].append(perf_counter() - since)
        cluster.stop()
        sleep(PAUSE_SECONDS)
        since = perf_counter()
        actors = [ray.remote(Empty).options(num_cpus=0).remote() for _ in queues]
        ray.get([actor.here.remote() for actor in actors])
        found["actors"].append(perf_counter() - since)
        for actor in actors:
            ray.kill(actor)
    return found


def restarted(folder: Path, hosts: int) -> tuple[str, Spread]:
    """``restart_dedicated`` in seconds."""
    head = RayHead()
    head.environment.update(_environment(folder))
    try:
        took = _carried_out(restarts, head.environment, head.start(), str(folder / "many"), hosts)
    finally:
        head.stop()
    spread, floor = spread_of(took["restart"]), spread_of(took["actors"])
    note = f"{hosts} queues; {hosts} empty actors take {report.cell(floor)} s"
    return "restart_dedicated", Spread(spread.median, spread.low, spread.high, spread.rounds, note)


def _carried_out(work: Callable[..., Any], environment: dict[str, str], *args: Any) -> Any:
    with Team(environment) as team:
        worker = team.start(work, *args)
        worker.wait_ready()
        worker.go()
        return worker.result()


def clusters(folder: Path) -> Iterator[tuple[str, Spread]]:
    """``start`` in seconds and ``create_dedicated`` in milliseconds."""
    head = RayHead()
    head.environment.update(_environment(folder))
    try:
        address = head.start()
        steps = _carried_out(starts, head.environment, address, str(folder / "stores"))
        shares = ", ".join(f"{name} {spread_of([step[name] for step in steps]).median:.2f}" for name in steps[0])
        spread = spread_of([step["all"] for step in steps])
        yield "start", Spread(spread.median, spread.low, spread.high, spread.rounds, f"s: {shares}")
    finally:
        head.stop()
    slow, quick = (_creations(folder / name, spare) for name, spare in (("without", "false"), ("with", "true")))
    note = f"with raybroker.hosting.spare; {report.cell(slow)} ms without"
    yield "create_dedicated", Spread(quick.median, quick.low, quick.high, quick.rounds, note)


def _creations(folder: Path, spare: str) -> Spread:
    """Milliseconds of creating a queue with a host of its own, with or without a spare host."""
    folder.mkdir()
    broker = Raybroker({"raybroker.hosting.spare": spare})
    broker.head.environment.update(_environment(folder.parent))
    try:
        address = broker.start(folder)
        pause_s = PAUSE_SECONDS if spare == "true" else 0.0
        return spread_of(_carried_out(creations, broker.environment(), address, pause_s))
    finally:
        broker.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--without-ray", action="store_true", help="only what needs no Ray")
    parser.add_argument("--hosts", type=int, default=0, help="also restart a broker with so many dedicated queues")
    parser.add_argument("--dir", type=Path, default=None, help="folder for stores (the temporary folder)")
    parser.add_argument("--json", type=Path, default=None, help="file for the figures")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="rbs-", dir=options.dir) as scratch:
        found = interpreters(Path(scratch))
        if not options.without_ray:
            found |= dict(clusters(Path(scratch)))
        if options.hosts:
            found |= dict([restarted(Path(scratch), options.hosts)])
    print(
        "\n".join(
            report.table(
                ("figure", "unit", "median [lowest … highest]", ""),
                (
                    (FIGURE[key].title, FIGURE[key].unit, report.cell(spread), spread.note)
                    for key, spread in found.items()
                ),
            )
        )
    )
    if options.json is not None:
        options.json.write_text(json.dumps({key: asdict(spread) for key, spread in found.items()}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
