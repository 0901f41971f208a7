"""Runs many seeds, in processes when asked, and says how to run a failing one again."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context

from tests.simulation_control.world import World

BATCH_SEEDS = 25


@dataclass(slots=True)
class Batch:
    """What a run of seeds came to; ``failure`` is a text about the first seed that failed, after which it stopped."""

    seeds: int = 0
    events: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failure: str | None = None


def run_batch(first: int, count: int) -> Batch:
    """Run seeds first … first + count - 1, up to the first that fails."""
    batch = Batch()
    for seed in range(first, first + count):
        world = World(seed)
        try:
            world.run()
        except Exception as error:  # noqa: BLE001 - whatever the machines raise is a finding
            batch.failure = describe(seed, error)
        batch.seeds += 1
        batch.events += world.loop.count
        batch.counts.update(world.counts)
        batch.counts["acknowledged"] += world.clients.acknowledged
        if batch.failure is not None:
            break
    return batch


def describe(seed: int, error: Exception) -> str:
    where = "".join(traceback.format_tb(error.__traceback__)[-3:])
    return (
        f"{where}{type(error).__name__}: {error}\n"
        f"seed {seed} failed; run it again with: python -m tests.simulation_control --seeds 1 --start {seed}"
    )


def run_batches(seeds: range, jobs: int) -> Iterator[Batch]:
    """Batches as they are done; after one with a failure no more are started."""
    todo = ((first, min(BATCH_SEEDS, seeds.stop - first)) for first in range(seeds.start, seeds.stop, BATCH_SEEDS))
    if jobs <= 1:
        for first, count in todo:
            batch = run_batch(first, count)
            yield batch
            if batch.failure is not None:
                return
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(run_batch, *item) for item in islice(todo, jobs * 2)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                batch = future.result()
                yield batch
                if batch.failure is not None:
                    return
                running |= {pool.submit(run_batch, *item) for item in islice(todo, 1)}
