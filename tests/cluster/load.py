"""Producers, consumers and pipelines in processes of their own, and the verdict on what they wrote down.

Acknowledged and never delivered, delivered and never sent, delivered twice without saying so, first deliveries out of
order: none of it may be, whatever was killed meanwhile.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster import rays
from tests.cluster.kill_worker import SEQ_BITS

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
    for letter, _, values in timed_lines(path):
        yield letter, values


def timed_lines(path: Path) -> Iterator[tuple[str, int, list[str]]]:
    """The same with their times, in nanoseconds of the machine's monotonic clock."""
    for line in path.read_bytes().decode().split("\n")[:-1]:
        letter, time_ns, *values = line.split(" ")
        yield letter, int(time_ns), [v for v in values if v]


def judge(folder: Path, *, moving: Collection[int] = ()) -> Verdict:
    """Read all notes, as total-queue does, and look at flags and order besides.

    ``moving``: producers that went to other brokers meanwhile, whose messages are in no order (K-19).
    """
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
                if producer in moving:
                    continue
                if value <= last.get(producer, -1):
                    verdict.disordered.append(f"{path.name}: {value} after {last[producer]}")
                last[producer] = value
    verdict.sent, verdict.acknowledged, verdict.delivered = len(sent), len(known), sum(came.values())
    verdict.twice = sum(n > 1 for n in came.values())
    verdict.recovered = len(set(came) & sent - known)
    verdict.lost, verdict.unexpected = known - set(came), set(came) - sent
    verdict.unflagged = {value for value, n in first.items() if n > 1}
    return verdict


def story(folder: Path, value: int) -> list[str]:
    """All that was written down about a value: time in seconds, who, what."""
    found = []
    for path in sorted(folder.glob("*.*")):
        for letter, at_ns, values in timed_lines(path):
            if str(value) in (text.partition("/")[0] for text in values):
                attempt = next((f" {text}" for text in values if text.startswith(f"{value}/")), "")
                found.append(f"{at_ns / 1e9:.3f} {path.name} {letter}{attempt}")
            elif letter in "ur":
                found.append(f"{at_ns / 1e9:.3f} {path.name} {letter} {values[0][:60]}")
    return sorted(found)


# ---- the workers -----------------------------------------------------------------------------------------------------


class Load:
    """Workers of one queue. Those that are killed are replaced by whoever kills them.

    homes: the brokers of each worker, see kill_worker; "" for any
    """

    def __init__(self, cluster: str, address: str, folder: Path, queue: str = QUEUE) -> None:
        self.cluster = cluster
        self.address = address
        self.folder = folder
        self.queue = queue
        self._numbers = dict.fromkeys(("producer", "consumer", "pipeline"), 0)
        self.workers: dict[str, list[tuple[subprocess.Popen[bytes], Path]]] = {role: [] for role in self._numbers}

    def spawn(self, role: str, homes: str = "", *, through: Sequence[str] = ()) -> int:
        """Another worker, started by the command ``through``; its number."""
        self._numbers[role] += 1
        number = self._numbers[role]
        arguments = (role, str(number), self.address, self.cluster, self.queue, str(self.folder), homes)
        process = rays.python(
            "-m", "tests.cluster.kill_worker", *arguments, through=through, errors=self._stderr(f"{role}.{number}")
        )
        self.workers[role].append((process, self.folder / f"{role}.{number}"))
        return number

    def wait_busy(self) -> None:
        """Every worker has done something since now."""
        marks = [
            (process, path, mark, count(path, mark))
            for role, mark in (("producer", "o"), ("consumer", "d"), ("pipeline", "c"))
            for process, path in self.workers[role]
        ]
        for process, path, mark, before in marks:

            def moved(process: Any = process, path: Path = path, mark: str = mark, before: int = before) -> bool:
                assert process.poll() is None, f"{path.name} ended with {process.returncode}"
                return count(path, mark) > before

            until(moved, f"{path.name} goes on")

    def finish(self, connection: Any, queues: Collection[str] = ()) -> None:
        """No more is sent; what is there is drained, however slowly, as long as it becomes less."""
        from raybroker.errors import BrokerError

        self._end("producer")

        least: list[int] = []

        def less() -> bool:
            """Or nothing is left."""
            try:
                found = [connection.admin().query_destination("queue", q)["messages"] for q in queues or (self.queue,)]
            except BrokerError:
                return False
            if least and 0 < sum(found) >= least[-1]:
                return False
            least.append(sum(found))
            return True

        while not least or least[-1]:
            until(less, "everything is delivered and acknowledged")
        self._end("pipeline")
        self._end("consumer")

    def _stderr(self, name: str) -> Path:
        folder = self.folder / "stderr"
        folder.mkdir(exist_ok=True)
        return folder / name

    def _end(self, role: str) -> None:
        """They end well, and what was lost meanwhile left no errors that nobody looked at."""
        (self.folder / f"stop-{role}s").touch()
        for process, path in self.workers[role]:
            assert process.wait(RECOVERY_S) == 0, f"{path.name} ended with {process.returncode}"
            said = self._stderr(path.name).read_text(errors="replace")
            assert "never retrieved" not in said, said[-4_000:]
        self.workers[role].clear()

    def show(self) -> None:
        """After a failure: where every worker stands, and its last lines."""
        for workers in self.workers.values():
            for process, path in workers:
                print(f"{path.name}, process {process.pid}, ends with:", flush=True)
                for line in path.read_text().splitlines()[-4:] if path.exists() else ():
                    print(f"  {line[:200]}", flush=True)
                if process.poll() is None:
                    process.send_signal(signal.SIGUSR1)
        time.sleep(1.0)
        for path in sorted((self.folder / "stderr").glob("*")):
            print(f"{path.name} says:\n{path.read_text(errors='replace')[-4_000:]}", flush=True)

    def abandon(self) -> None:
        for workers in self.workers.values():
            for process, _ in workers:
                process.kill()
                process.wait()


def count(path: Path, letter: str) -> int:
    """How many lines of a kind a worker has written."""
    return (b"\n" + path.read_bytes()).count(b"\n%s " % letter.encode()) if path.exists() else 0
