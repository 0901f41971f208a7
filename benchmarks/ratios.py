"""``python -m benchmarks.ratios``: raybroker divided by other systems, in alternating slices of one run.

A figure of a noisy machine says little; the ratio of two figures that were taken seconds apart says more.  All servers
run from the beginning to the end.  Slices of a few seconds take turns: ours, one of each other system, ours again.  A
slice of another system is compared with the mean of ours before it and after it; the table has the median of these
ratios and the lowest and the highest.

    python -m benchmarks.ratios --figure blocking --against rabbitmq redis-streams "bare pipe" --slices 5 --seconds 3
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from benchmarks import machine, report
from benchmarks.bare_pipe import Pipe, best_of
from benchmarks.goals import Spread
from benchmarks.peers.base import Address, Peer, seconds
from benchmarks.readings import FIGURE, OURS, PEERS, PIPE

TRIAL = 300
"""Messages of the first slice of each system, which says how many make a slice of the length asked for."""
PIPE_SHAPE = {"blocking": (1, 1), "through": (100, 64)}
"""(batch, window) of the bare pipe for a figure."""


class Sliced(Protocol):
    """A system that is running; ``rate`` takes one slice."""

    def rate(self, figure: str, messages: int) -> float:
        """Messages a second of one slice."""
        ...


class RunningPeer:
    """A system of :mod:`benchmarks.peers`, or raybroker, from its start to ``stop``."""

    def __init__(self, peer: Peer, folder: Path, size_bytes: int) -> None:
        self._peer = peer
        self._size = size_bytes
        self._address: Address = peer.start(folder)
        self._prepared: set[str] = set()

    def rate(self, figure: str, messages: int) -> float:
        queue = f"ratios-{figure}"
        if queue not in self._prepared:
            self._peer.prepare(self._address, queue)
            self._prepared.add(queue)
        if figure == "through":
            return messages / self._peer.run_both(self._address, queue, messages, self._size)
        work = type(self._peer).blocking
        if work is None:
            raise ValueError(f"{self._peer.name} has no figure {figure!r}")
        return messages / seconds(self._peer.run_one(work, self._address, queue, messages, self._size))


class RunningPipe:
    """The bare pipe, which is started for each slice."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self._folder = folder
        self._size = size_bytes

    def rate(self, figure: str, messages: int) -> float:
        batch, window = PIPE_SHAPE[figure]
        return best_of(Pipe(batch, window, max(messages // batch, 4 * window), self._size), self._folder).rate


def take(systems: Mapping[str, Sliced], figure: str, slices: int, length_s: float) -> Iterator[tuple[str, float]]:
    """(system, messages a second) of each slice, ours first and last and between any two rounds of the others."""
    amounts = {
        name: max(TRIAL, int(system.rate(figure, TRIAL) * length_s)) for name, system in systems.items()
    }  # fmt: skip
    others = [name for name in systems if name != OURS]
    yield OURS, systems[OURS].rate(figure, amounts[OURS])
    for _ in range(slices):
        for name in [*others, OURS]:
            yield name, systems[name].rate(figure, amounts[name])


def ratios(taken: Sequence[tuple[str, float]]) -> dict[str, Spread]:
    """System → what ours is divided by it: each slice of it against the mean of ours before and after."""
    found: dict[str, list[float]] = {}
    before, between = 0.0, list[tuple[str, float]]()
    for name, rate in taken:
        if name != OURS:
            between.append((name, rate))
            continue
        for other, theirs in between:
            found.setdefault(other, []).append((before + rate) / 2 / theirs)
        before, between = rate, []
    return {
        name: Spread(statistics.median(values), min(values), max(values), len(values)) for name, values in found.items()
    }


def rows(figure: str, taken: Sequence[tuple[str, float]]) -> Iterator[tuple[str, str, str, str]]:
    """One row a system for the table: figure, system, its rate, ours divided by it."""
    of = ratios(taken)
    for system in dict.fromkeys(name for name, _ in taken):
        rates = [rate for name, rate in taken if name == system]
        spread = Spread(statistics.median(rates), min(rates), max(rates), len(rates))
        yield FIGURE[figure].title, system, report.cell(spread), report.cell(of.get(system))


def running(names: Sequence[str], folder: Path, size_bytes: int, stack: ExitStack) -> dict[str, Sliced]:
    """The systems that can run here, started; they stop with the stack."""
    from benchmarks.__main__ import build_systems

    systems: dict[str, Sliced] = {}
    for system in build_systems(quick=True):
        if system.name != OURS and system.name not in names:
            continue
        if reason := system.missing():
            print(f"{system.name}: skipped, {reason}", flush=True)
            continue
        home = folder / system.name.replace(" ", "-")
        home.mkdir()
        if isinstance(system, Peer):
            stack.callback(system.stop)
            systems[system.name] = RunningPeer(system, home, size_bytes)
        else:
            systems[system.name] = RunningPipe(home, size_bytes)
    return systems


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; 1 when there is nothing to compare with."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ratios", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--figure", nargs="+", choices=sorted(PIPE_SHAPE), default=["blocking"])
    parser.add_argument("--against", nargs="+", choices=[PIPE, *PEERS], default=[PIPE, "rabbitmq", "redis-streams"])
    parser.add_argument("--slices", type=int, default=5, help="slices of each system (5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a slice (3)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--dir", type=Path, default=None, help="folder on the disk to test (the temporary folder)")
    parser.add_argument("--json", type=Path, default=None, help="file for all slices")
    options = parser.parse_args(arguments)
    if options.slices < 1 or options.seconds <= 0:
        parser.error("--slices is at least 1, --seconds more than 0")
    scratch = Path(tempfile.mkdtemp(prefix="rbr-", dir=options.dir))
    taken: dict[str, list[tuple[str, float]]] = {}
    try:
        with ExitStack() as stack:
            facts = machine.describe(scratch)
            systems = running(options.against, scratch, options.size, stack)
            if len(systems) < 2 or OURS not in systems:
                print("nothing to compare with", file=sys.stderr)
                return 1
            for figure in options.figure:
                taken[figure] = []
                for name, rate in take(systems, figure, options.slices, options.seconds):
                    taken[figure].append((name, rate))
                    print(f"{figure:>10s}  {name:16s} {report.number(rate):>10s} msg/s", flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    sync = facts["sync"][1]
    print(f"\n{facts['cpu']}, {facts['cpus']} cores; write + fdatasync of 4 KiB: {sync['median_ms']:.3f} ms\n")
    head = ("figure", "system", "messages a second", "raybroker divided by it")
    print("\n".join(report.table(head, [row for figure in taken for row in rows(figure, taken[figure])])))
    if options.json is not None:
        found = {
            figure: {"slices": slices, "ratios": {name: asdict(s) for name, s in ratios(slices).items()}}
            for figure, slices in taken.items()
        }
        options.json.write_text(json.dumps({"machine": facts, "figures": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
