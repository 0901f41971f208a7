"""Kills every kind of process under load and counts: ``python -m tests.cluster.kills --rounds N --seed S``.

Producers and consumers run in processes of their own and write down what happens to them.  A round kills one host,
broker, producer or consumer with SIGKILL and waits until the cluster works again.  At the end everything is drained
and the notes are judged: acknowledged and never delivered, delivered and never sent, delivered twice without saying
so, first deliveries out of order.  The exit status is 1 if any of them happened.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.cluster import rays
from tests.cluster.load import QUEUE, Load, Verdict, judge, until

KINDS = ("host", "broker", "producer", "consumer")


class Run(Load):
    """A cluster under load. Workers that are killed are replaced."""

    def __init__(self, cluster: Any, address: str, folder: Path, rng: random.Random) -> None:
        super().__init__(cluster.name, address, folder)
        self._cluster = cluster
        self.rng = rng
        self.killed: Counter[str] = Counter()

    def pids(self) -> dict[str, int] | None:
        from raybroker.errors import BrokerError

        try:
            found: dict[str, int] = self._cluster.pids()
        except BrokerError:
            return None
        return found

    def kill(self, kind: str) -> None:
        """One SIGKILL, and then the cluster works again."""
        time.sleep(self.rng.uniform(0.0, 0.3))
        if kind in self.workers:
            process, _ = self.workers[kind].pop(self.rng.randrange(len(self.workers[kind])))
            process.kill()
            process.wait()
            self.spawn(kind)
        else:
            before = until(self.pids, "the cluster answers")
            name = "broker" if kind == "broker" else self.rng.choice(sorted(n for n in before if n != "broker"))
            os.kill(before[name], signal.SIGKILL)
            until(lambda: (self.pids() or before).get(name, before[name]) != before[name], f"{name} restarts")
        self.killed[kind] += 1


def run(address: str, store: Path, notes: Path, kinds: list[str], seed: int, workers: int = 2) -> tuple[Verdict, Run]:
    """Kill so many processes of these kinds, one after the other; the verdict."""
    import raybroker as rb

    with rb.start("kills", config=rays.small_store(store)) as cluster:
        found = Run(cluster, address, notes, random.Random(seed))
        try:
            with rb.connect(cluster="kills") as connection:
                connection.admin().create_destination("queue", QUEUE)
                for role in ("consumer", "producer"):
                    for _ in range(workers):
                        found.spawn(role)
                found.wait_busy()
                for index, kind in enumerate(kinds):
                    found.kill(kind)
                    if index % 4 == 3:
                        found.wait_busy()
                found.finish(connection)
        except AssertionError:
            found.show()
            raise
        finally:
            found.abandon()
    return judge(notes), found


def schedule(rounds: int, seed: int) -> list[str]:
    """Every kind equally often, in an order of its own."""
    kinds = [KINDS[n % len(KINDS)] for n in range(rounds)]
    random.Random(seed).shuffle(kinds)
    return kinds


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.kills", description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    started = time.monotonic()
    rays.folder()
    with tempfile.TemporaryDirectory() as scratch:
        notes = Path(scratch) / "notes"
        notes.mkdir()
        with rays.running_ray() as address:
            verdict, found = run(
                address, Path(scratch) / "store", notes, schedule(options.rounds, options.seed), options.seed
            )
    killed = ", ".join(f"{kind} {n}" for kind, n in sorted(found.killed.items()))
    print(f"killed {killed} in {time.monotonic() - started:.0f} s with seed {options.seed}: {verdict}")
    for text, count in verdict.errors.most_common(10):
        print(f"  told to a worker {count} times: {text}")
    for text in verdict.disordered[:10]:
        print(f"  out of order: {text}")
    return 0 if verdict.valid else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
