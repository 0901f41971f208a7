"""``python -m tests.simulation_control --seeds 10000 --start 0 --jobs 2``: run seeds until one fails."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation_control.run import run_batches


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation_control", description=__doc__)
    parser.add_argument("--seeds", type=int, default=500, help="how many seeds")
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

    for batch in run_batches(range(args.start, args.start + args.seeds), args.jobs):
        seeds += batch.seeds
        events += batch.events
        counts.update(batch.counts)
        if batch.failure is not None:
            print(f"\n{batch.failure}\n{summary()}")
            return 1
        if not args.quiet:
            print(f"\r{summary()}", end="", flush=True)
    print(f"\r{summary()}; {events / max(seeds, 1):.0f} events a seed")
    print("happened: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
