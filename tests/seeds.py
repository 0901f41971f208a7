"""Running many seeds of a simulation: in processes when asked, up to the first that fails, which can be run again.

A simulation proves something only if it notices rules that are switched off; :func:`hunt` looks for the seed that does.
"""

from __future__ import annotations

import argparse
import os
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice, repeat
from multiprocessing import get_context
from typing import Any, NamedTuple

from raybroker.model.errors import BrokerError
from tests.sweep import Deadline, until

TIMED_PARTS = 25
"""Where time bounds a run, its batches are that much smaller: one that has begun goes on to its end."""
NICE = 10
"""Processes that only compute leave the processors to tests that wait for something."""


def processes(jobs: int) -> ProcessPoolExecutor:
    """For functions of modules; each starts with nothing but what it imports."""
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=os.nice, initargs=(NICE,))


@dataclass(slots=True)
class Batch:
    """What a run of seeds came to; ``failure`` is a text about the first seed that failed, after which it stopped."""

    seeds: int = 0
    events: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Simulation:
    """``command``: the module that runs it; ``world``: seed → what has ``run()`` and ``loop.count``; ``tally``: what
    happened in a world; ``counted``: what that is called. Functions of modules, so that processes can have them."""

    command: str
    world: Callable[[int], Any]
    tally: Callable[[Any], Counter[str]]
    counted: str
    batch_seeds: int
    seeds: int

    def batch(self, first: int, count: int) -> Batch:
        """Run seeds first … first + count - 1, up to the first that fails."""
        batch = Batch()
        for seed in range(first, first + count):
            world = self.world(seed)
            try:
                world.run()
            except Exception as error:  # noqa: BLE001 - whatever is raised is a finding
                batch.failure = self.describe(seed, error)
            batch.seeds += 1
            batch.events += world.loop.count
            batch.counts.update(self.tally(world))
            if batch.failure is not None:
                break
        return batch

    def describe(self, seed: int, error: Exception) -> str:
        """What failed, where, and how to see it again."""
        where = "".join(traceback.format_tb(error.__traceback__)[-3:])
        return (
            f"{where}{type(error).__name__}: {error}\n"
            f"seed {seed} failed; run it again with: python -m {self.command} --seeds 1 --start {seed}"
        )

    def batches(self, seeds: range, jobs: int, seconds: float | None = None) -> Iterator[Batch]:
        """Batches as they are done; after one with a failure, or after so many seconds, no more are started."""
        size = self.batch_seeds if seconds is None else max(1, self.batch_seeds // TIMED_PARTS)
        starts = range(seeds.start, seeds.stop, size)
        todo = until(Deadline(seconds), ((first, min(size, seeds.stop - first)) for first in starts))
        if jobs <= 1:
            for first, count in todo:
                batch = self.batch(first, count)
                yield batch
                if batch.failure is not None:
                    return
            return
        with processes(jobs) as pool:
            running = {pool.submit(self.batch, *item) for item in islice(todo, jobs * 2)}
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    batch = future.result()
                    yield batch
                    if batch.failure is not None:
                        return
                    running |= {pool.submit(self.batch, *item) for item in islice(todo, 1)}

    def main(self, about: str | None) -> int:
        """The command line; ``about``: its description."""
        parser = argparse.ArgumentParser(prog=f"python -m {self.command}", description=about)
        parser.add_argument("--seeds", type=int, default=self.seeds, help="how many seeds")
        parser.add_argument("--seconds", type=float, help="start no more seeds after so many seconds")
        parser.add_argument("--start", type=int, default=0, help="the first seed")
        parser.add_argument("--jobs", type=int, default=2, help="processes")
        parser.add_argument("--quiet", action="store_true", help="no progress")
        args = parser.parse_args()
        began = time.monotonic()
        seeds = events = 0
        counts: Counter[str] = Counter()

        def summary() -> str:
            seconds = max(time.monotonic() - began, 0.001)
            return f"{seeds} seeds, {events} events, {seconds:.0f} s: {seeds / seconds * 60:.0f} seeds a minute"

        for batch in self.batches(range(args.start, args.start + args.seeds), args.jobs, args.seconds):
            seeds += batch.seeds
            events += batch.events
            counts.update(batch.counts)
            if batch.failure is not None:
                print(f"\n{batch.failure}\n{summary()}")
                return 1
            if not args.quiet:
                print(f"\r{summary()}", end="", flush=True)
        print(f"\r{summary()}; {events / max(seeds, 1):.0f} events a seed")
        print(f"{self.counted}: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
        return 0


NO_TIME = "no time"


class Catch(NamedTuple):
    """``seeds`` were run until ``how`` was raised; 0 seeds: never."""

    name: str
    seeds: int
    how: str

    @property
    def unfinished(self) -> bool:
        """The time was over before the hunt was: the mutant is neither caught nor missed."""
        return self.how == NO_TIME


def hunt(
    name: str,
    applied: Callable[[], AbstractContextManager[None]],
    world: Callable[[int], Any],
    seeds_max: int,
    seconds: float | None = None,
) -> Catch:
    """Run seeds with a mutant applied until one fails that does not fail without it, or the time is over.

    Only an assertion or an error of the broker counts: anything else means that the mutant is badly made.
    """
    deadline = Deadline(seconds)
    for seed in range(seeds_max):
        if deadline.passed:
            return Catch(name, 0, NO_TIME)
        with applied():
            try:
                world(seed).run()
            except (AssertionError, BrokerError) as error:
                found = error
            else:
                continue
        world(seed).run()
        text = str(found).splitlines()
        return Catch(name, seed + 1, f"{type(found).__name__}: {text[0][:90] if text else ''}")
    return Catch(name, 0, "not caught")


def noted(catches: Sequence[Catch]) -> None:
    """Warn of mutants that nobody had time for."""
    late = [catch.name for catch in catches if catch.unfinished]
    if late:
        text = f"{len(late)} of {len(catches)} mutants were not hunted to the end, the time was over: {', '.join(late)}"
        warnings.warn(text, stacklevel=2)


def hunt_all(
    hunt_one: Callable[[str, int, float | None], Catch],
    names: Sequence[str],
    jobs: int,
    seeds_max: int,
    seconds: float | None = None,
) -> Iterator[Catch]:
    """``hunt_one`` for every name, in order; what is left when the time is over comes as unfinished."""
    end = None if seconds is None else time.monotonic() + seconds
    if jobs <= 1:
        for name in names:
            yield _hunt_until(hunt_one, name, seeds_max, end)
        return
    with processes(jobs) as pool:
        yield from pool.map(_hunt_until, repeat(hunt_one, len(names)), names, repeat(seeds_max), repeat(end))


def _hunt_until(
    hunt_one: Callable[[str, int, float | None], Catch], name: str, seeds_max: int, end: float | None
) -> Catch:
    """The clock is the one of the whole machine, so that processes share the end."""
    return hunt_one(name, seeds_max, None if end is None else end - time.monotonic())
