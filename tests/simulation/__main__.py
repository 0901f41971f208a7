"""``python -m tests.simulation --seeds 100000 --start 0 --jobs 2``: run seeds until one fails, or all are done."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.run import Batch, run_batches


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    args = parser.parse_args()
    began = time.monotonic()
    seeds = events = 0
    faults: Counter[str] = Counter()

    def summary() -> str:
        seconds = max(time.monotonic() - began, 0.001)
        return f"{seeds} seeds, {events} events, {seconds:.0f} s: {seeds / seconds * 60:.0f} seeds a minute"

    for batch in run_batches(range(args.start, args.start + args.seeds), args.jobs):
        assert isinstance(batch, Batch)
        seeds += batch.seeds
        events += batch.events
        faults.update(batch.faults)
        if batch.failure is not None:
            print(f"\n{batch.failure}\n{summary()}")
            return 1
        if not args.quiet:
            print(f"\r{summary()}", end="", flush=True)
    print(f"\r{summary()}; {events / max(seeds, 1):.0f} events a seed")
    print("faults: " + ", ".join(f"{name} {count}" for name, count in sorted(faults.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
