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
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster import rays
from tests.cluster.kill_worker import SEQ_BITS

KINDS = ("host", "broker", "producer", "consumer")
RECOVERY_S = 60.0
QUEUE = "load"


def until(condition: Callable[[], Any], what: str, timeout_s: float = RECOVERY_S) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.02)
    return found


# ---- the verdict -----------------------------------------------------------------------------------------------------


@dataclass
class Verdict:
    """What the notes say. ``lost``, ``unexpected``, ``unflagged`` and ``disordered`` must be empty."""

    sent: int = 0
    acknowledged: int = 0
    delivered: int = 0
    redelivered: int = 0
    twice: int = 0
    """Values that came more than once, as they may when they say so."""
    recovered: int = 0
    """Values that came though their producer never heard that they were stored."""
    lost: set[int] = field(default_factory=set)
    unexpected: set[int] = field(default_factory=set)
    unflagged: set[int] = field(default_factory=set)
    disordered: list[str] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def valid(self) -> bool:
        return not (self.lost or self.unexpected or self.unflagged or self.disordered)

    def __str__(self) -> str:
        return (
            f"sent {self.sent}, acknowledged {self.acknowledged}, delivered {self.delivered}"
            f" (flagged as redelivered {self.redelivered}, values more than once {self.twice}, stored though unknown"
            f" to their producer {self.recovered}); acknowledged and lost {len(self.lost)}, never sent"
            f" {len(self.unexpected)}, duplicates without a flag {len(self.unflagged)}, out of order"
            f" {len(self.disordered)}"
        )


def lines(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Whole lines of a worker's notes."""
    for line in path.read_bytes().decode().split("\n")[:-1]:
        letter, _, *values = line.split(" ")
        yield letter, [v for v in values if v]


def judge(folder: Path) -> Verdict:
    """Read all notes, as total-queue does, and look at flags and order besides."""
    verdict = Verdict()
    sent: set[int] = set()
    known: set[int] = set()
    for path in sorted(folder.glob("producer.*")):
        for letter, values in lines(path):
            if letter == "i":
                sent.update(map(int, values))
            elif letter == "o":
                known.update(map(int, values))
            elif letter == "x":
                verdict.errors[values[0][:60]] += 1
    came: Counter[int] = Counter()
    first: Counter[int] = Counter()
    for path in sorted(folder.glob("consumer.*")):
        last: dict[int, int] = {}
        for letter, values in lines(path):
            if letter == "u":
                verdict.errors[values[0][:60]] += 1
            if letter != "d":
                continue
            for value, attempt in (map(int, v.split("/")) for v in values):
                came[value] += 1
                if attempt > 1:
                    verdict.redelivered += 1
                    continue
                first[value] += 1
                producer = value >> SEQ_BITS
                if value <= last.get(producer, -1):
                    verdict.disordered.append(f"{path.name}: {value} after {last[producer]}")
                last[producer] = value
    verdict.sent, verdict.acknowledged, verdict.delivered = len(sent), len(known), sum(came.values())
    verdict.twice = sum(n > 1 for n in came.values())
    verdict.recovered = len(set(came) & sent - known)
    verdict.lost, verdict.unexpected = known - set(came), set(came) - sent
    verdict.unflagged = {value for value, n in first.items() if n > 1}
    return verdict


# ---- the run ---------------------------------------------------------------------------------------------------------


class Run:
    """A cluster under load. Workers that are killed are replaced."""

    def __init__(self, cluster: Any, address: str, folder: Path, rng: random.Random) -> None:
        self.cluster = cluster
        self.address = address
        self.folder = folder
        self.rng = rng
        self.killed: Counter[str] = Counter()
        self._numbers = dict.fromkeys(("producer", "consumer"), 0)
        self._workers: dict[str, list[tuple[subprocess.Popen[bytes], Path]]] = {"producer": [], "consumer": []}

    def spawn(self, role: str) -> None:
        self._numbers[role] += 1
        number = self._numbers[role]
        arguments = (role, str(number), self.address, self.cluster.name, QUEUE, str(self.folder))
        process = rays.python("-m", "tests.cluster.kill_worker", *arguments)
        self._workers[role].append((process, self.folder / f"{role}.{number}"))

    def wait_busy(self) -> None:
        """Every worker has done something since now."""
        for role, mark in (("producer", "o"), ("consumer", "d")):
            for process, path in self._workers[role]:
                before = _count(path, mark)

                def moved(process: Any = process, path: Path = path, mark: str = mark, before: int = before) -> bool:
                    assert process.poll() is None, f"{path.name} ended with {process.returncode}"
                    return _count(path, mark) > before

                until(moved, f"{path.name} goes on")

    def pids(self) -> dict[str, int] | None:
        from raybroker.errors import BrokerError

        try:
            found: dict[str, int] = self.cluster.pids()
        except BrokerError:
            return None
        return found

    def kill(self, kind: str) -> None:
        """One SIGKILL, and then the cluster works again."""
        time.sleep(self.rng.uniform(0.0, 0.3))
        if kind in self._workers:
            process, _ = self._workers[kind].pop(self.rng.randrange(len(self._workers[kind])))
            process.kill()
            process.wait()
            self.spawn(kind)
        else:
            before = until(self.pids, "the cluster answers")
            name = "broker" if kind == "broker" else self.rng.choice(sorted(n for n in before if n != "broker"))
            os.kill(before[name], signal.SIGKILL)
            until(lambda: (self.pids() or before).get(name, before[name]) != before[name], f"{name} restarts")
        self.killed[kind] += 1

    def finish(self, connection: Any) -> None:
        """No more is sent; what is there is drained."""
        from raybroker.errors import BrokerError

        self._end("producer")

        def drained() -> bool:
            try:
                return bool(connection.admin().query_destination("queue", QUEUE)["messages"] == 0)
            except BrokerError:
                return False

        until(drained, "everything is delivered and acknowledged")
        self._end("consumer")

    def _end(self, role: str) -> None:
        (self.folder / f"stop-{role}s").touch()
        for process, path in self._workers[role]:
            assert process.wait(RECOVERY_S) == 0, f"{path.name} ended with {process.returncode}"
        self._workers[role].clear()

    def show(self) -> None:
        """After a failure: where every worker stands, and its last lines."""
        for workers in self._workers.values():
            for process, path in workers:
                print(f"{path.name}, process {process.pid}, ends with:", flush=True)
                for line in path.read_text().splitlines()[-4:] if path.exists() else ():
                    print(f"  {line[:200]}", flush=True)
                if process.poll() is None:
                    process.send_signal(signal.SIGUSR1)
        time.sleep(1.0)

    def abandon(self) -> None:
        for workers in self._workers.values():
            for process, _ in workers:
                process.kill()
                process.wait()


def _count(path: Path, letter: str) -> int:
    return sum(found == letter for found, _ in lines(path)) if path.exists() else 0


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
