"""``python -m benchmarks.against TREE``: the plain queue of this source tree against that of another one, to a percent.

Each tree has a process with a broker, a client and a store of its own.  They take turns in many short rounds, in the
orders oTTo and TooT (T: this tree, o: the other), so that what drifts falls on both alike; the one whose turn it is not
waits.  Of each four rounds the ratio is taken, in processor time of the whole process, client and host, which depends
less on who else uses the machine, and in time that passed.  The median of these ratios is told with its interval of
95 %: that is how much of it may be noise.  A ratio above 1: this tree does more in the same time.

    git worktree add ../before COMMIT
    python -m benchmarks.against ../before --batches 1000 100 --fours 40

With ``--consumers N`` the queue has N sessions with a consumer each.  A block for each is sent, then all of them take
turns in the one thread of the application until everything is received: threads that wait for one another are not what
is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any, Final

ROUND_MESSAGES: Final = {1000: 60_000, 100: 20_000, 10: 3_000, 1: 300}
ORDERS: Final = ((False, True, True, False), (True, False, False, True))
WARM_UP: Final = 3
"""Fours before those that count."""
GOAL: Final = 0.98


def work() -> None:
    """A process of one tree: a round for each line that comes in."""
    import raybroker as rb

    folder, (batch, size, consumers) = sys.argv[2], map(int, sys.argv[3:6])
    with rb.loopback(Path(folder) / "store") as connection:
        connection.admin().create_destination("queue", "q")
        sessions = [connection.session(ack="client") for _ in range(consumers)]
        producer, receivers = sessions[0].producer("q"), [session.consumer("q") for session in sessions]
        bodies, timeout = [b"x" * size] * batch, 60 if consumers == 1 else 0
        for line in sys.stdin:
            processor, passed = time.process_time(), time.perf_counter()
            for _ in range(int(line) // (batch * consumers)):
                for _ in receivers:
                    producer.send_many(bodies)
                missing, turns = batch * consumers, cycle(receivers)
                while missing:
                    taken = next(turns).receive_many(max=max(batch // 2, 1), timeout=timeout)
                    missing -= len(taken)
                    if taken:
                        taken[-1].acknowledge()
            took = time.process_time() - processor, time.perf_counter() - passed
            print(json.dumps(took), flush=True)


class Tree:
    """The process of a tree, which does rounds."""

    def __init__(self, tree: Path, folder: str, batch: int, size: int, consumers: int) -> None:
        numbers = map(str, (batch, size, consumers))
        command = [sys.executable, "-P", str(Path(__file__).resolve()), "--work", folder, *numbers]
        paths = os.pathsep.join([str(tree.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths}
        )

    def round(self, messages: int) -> tuple[float, float]:
        """Processor time and time that passed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(messages, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of a tree ended with {self.process.wait()}")
        processor, passed = json.loads(line)
        return processor, passed

    def close(self) -> None:
        self.process.communicate()


def compare(
    other: Path, this: Path, batch: int, fours: int, size: int, parent: str | None, consumers: int = 1
) -> tuple[list[float], list[float]]:
    """The ratios of all fours, ordered: of processor time, and of time that passed."""
    ratios: tuple[list[float], list[float]] = [], []
    with ExitStack() as stack:
        trees: dict[bool, Tree] = {}
        for ours, tree in ((False, other), (True, this)):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rba-", dir=parent))
            trees[ours] = Tree(tree, folder, batch, size, consumers)
            stack.callback(trees[ours].close)
        for number in range(-WARM_UP, fours):
            rounds = [(ours, trees[ours].round(ROUND_MESSAGES[batch])) for ours in ORDERS[number % 2]]
            for clock, found in enumerate(ratios if number >= 0 else ()):
                theirs, our = (sum(took[clock] for ours, took in rounds if ours is way) for way in (False, True))
                found.append(theirs / our)
    return sorted(ratios[0]), sorted(ratios[1])


def main() -> dict[str, Any]:
    from benchmarks.metrics_cost import median

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, help="the other source tree, the folder with raybroker/ in it")
    parser.add_argument(
        "--this",
        metavar="TREE",
        type=Path,
        default=Path(__file__).resolve().parent.parent,
        help="compare that tree in the place of this one",
    )
    parser.add_argument("--batches", nargs="+", type=int, choices=ROUND_MESSAGES, default=[1000, 100])
    parser.add_argument("--fours", type=int, default=40, help="four rounds so often, for each size of blocks")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--consumers", type=int, default=1, help="so many sessions with a consumer on the same queue")
    parser.add_argument("--dir", help="folder on the disk to test (the temporary folder)")
    given = parser.parse_args()
    for tree in (given.tree, given.this):
        if not (tree / "raybroker" / "__init__.py").exists():
            parser.error(f"{tree} is no source tree: there is no raybroker/__init__.py in it")
    found = {}
    for batch in given.batches:
        ratios = compare(given.tree, given.this, batch, given.fours, given.size, given.dir, given.consumers)
        processor, passed = map(median, ratios)
        found[f"processor_{batch}"], found[f"passed_{batch}"] = processor, passed
        print(
            f"{batch} at a time: {_text(processor)} by processor time, {_text(passed)} by time that passed"
            f" (goal: {GOAL}); median of {given.fours} and its interval of 95 %",
            flush=True,
        )
    return found


def _text(found: tuple[float, float, float]) -> str:
    low, middle, high = found
    return f"{middle:.3f} [{low:.3f} … {high:.3f}]"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work()
    else:
        main()
