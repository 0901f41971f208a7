"""``python -m tests.simulation.mutants [MUTANT …]``: how many seeds it takes to notice that one rule is switched off.

A simulation that notices nothing proves nothing.  Every mutant of ``mutant_table`` has to be caught within
``SEEDS_MAX`` seeds; the search stops at the first catch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from tests import seeds
from tests.seeds import Catch
from tests.simulation.mutant_table import TABLE, applied
from tests.simulation.world import World

SEEDS_MAX = 1000
"""The hardest mutant takes about two fifths of it, most of them less than ten."""


def hunt(name: str, seeds_max: int = SEEDS_MAX, seconds: float | None = None) -> Catch:
    """See tests.seeds."""
    mutant = next(m for m in TABLE if m.name == name)
    return seeds.hunt(name, lambda: applied(mutant), World, seeds_max, seconds)


def hunt_all(names: list[str], jobs: int, seeds_max: int = SEEDS_MAX, seconds: float | None = None) -> Iterator[Catch]:
    """These mutants, in order."""
    return seeds.hunt_all(hunt, names, jobs, seeds_max, seconds)


def missed(catches: list[Catch]) -> list[str]:
    """Mutants that should have been caught, or that are caught although they are called equivalent."""
    excused = {m.name for m in TABLE if m.equivalent}
    return [c.name for c in catches if not c.unfinished and (c.seeds == 0) != (c.name in excused)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("mutants", nargs="*", metavar="MUTANT", help="these alone; all without")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds-max", type=int, default=SEEDS_MAX)
    args = parser.parse_args()
    names = [m.name for m in TABLE]
    if unknown := set(args.mutants) - set(names):
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    catches = []
    for catch in hunt_all(args.mutants or names, args.jobs, args.seeds_max):
        catches.append(catch)
        print(f"{catch.name:32} {catch.seeds or '-':>5}  {catch.how}", flush=True)
    wrong = missed(catches)
    print(f"{len(catches) - len(wrong)} of {len(catches)} mutants caught" + (f"; missed: {wrong}" if wrong else ""))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
