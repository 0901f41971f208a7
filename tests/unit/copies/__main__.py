"""Many seeds of trouble for real copies: ``python -m tests.unit.copies --seeds 100``; see ``chaos``."""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
from pathlib import Path

from tests.unit.copies.chaos import Chaos


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--steps", type=int, default=14, help="faults of a seed")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    failed: list[int] = []
    for seed in range(given.first, given.first + given.seeds):
        directory = Path(tempfile.mkdtemp(prefix=f"copies-{seed}-"))
        chaos = Chaos(directory, seed, given.steps)
        try:
            chaos.run()
        except AssertionError as error:
            failed.append(seed)
            print(f"seed {seed}: {error}\n  its folders: {directory}", flush=True)
            continue
        print(f"seed {seed}: {', '.join(f'{name} {n}' for name, n in sorted(chaos.happened.items()))}", flush=True)
        shutil.rmtree(directory)
    print(f"{given.seeds} seeds, failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
