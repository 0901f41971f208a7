"""``python -m benchmarks.ratios``: raybroker divided by other systems, in alternating slices of one run.

A figure of a noisy machine says little; the ratio of two figures that were taken seconds apart says more.  All servers
run from the beginning to the end.  Slices of a few seconds take turns, as :mod:`benchmarks.slices` says; the table has
the median of the ratios with the lowest and the highest, and whether the goal is reached.

    python -m benchmarks.ratios                                        # all goals of benchmarks.goals.SLICED
    python -m benchmarks.ratios --only blocking auto clients --slices 7 --seconds 3
    python -m benchmarks.ratios --hog                                  # beside a process that takes one core
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import machine, report
from benchmarks.goals import SLICED, Goal, Spread, Verdict, spread_of
from benchmarks.hog import hog
from benchmarks.readings import FIGURE
from benchmarks.slices import Group, Slice, Track, amount, groups, turns, verdict
from benchmarks.systems import Sliced, running

SLICES_MIN = 5
"""Slices of each track, below which a median says little."""


@dataclass(slots=True)
class Taken:
    """What a run of slices found. ``failed``: a track → what went wrong with it; its goals are not measured."""

    slices: list[tuple[Group, list[Slice]]] = field(default_factory=list)
    failed: dict[Track, str] = field(default_factory=dict)

    def verdicts(self, goals: Iterable[Goal]) -> list[Verdict]:
        """One verdict a goal."""
        return [verdict(goal, self.slices) for goal in goals]

    def rates(self) -> dict[tuple[str, str], Spread]:
        """(system, figure) → its own rates, over all groups."""
        found: dict[tuple[str, str], list[float]] = {}
        for _, slices in self.slices:
            for (system, _), rates in slices:
                for figure, rate in rates.items():
                    found.setdefault((system, figure), []).append(rate)
        return {key: spread_of(values) for key, values in found.items()}


def take(
    systems: Mapping[str, Sliced],
    goals: Sequence[Goal],
    slices: int,
    length_s: float,
    progress: Callable[[Slice], None],
) -> Taken:
    """All groups of the goals whose systems run. A track that fails is left out, and the others go on."""
    taken = Taken()
    amounts: dict[Track, int] = {}

    def measured(track: Track, messages: int) -> Slice:
        return track, systems[track[0]].rates(track[1], messages)

    def known(track: Track) -> bool:
        """Whether the track works; its amount is found out the first time."""
        if track in taken.failed:
            return False
        try:
            if track not in amounts:
                amounts[track] = amount(lambda messages: min(measured(track, messages)[1].values()), length_s)
        except Exception as error:  # noqa: BLE001 - one track's failure must not lose the others; it is reported
            taken.failed[track] = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            return False
        return True

    for group in groups(goals, systems.__contains__):
        if not known(group.pivot):
            continue
        group = Group(group.pivot, tuple(track for track in group.others if known(track)))  # noqa: PLW2901
        found: list[Slice] = []
        for track in turns(group, slices):
            found.append(measured(track, amounts[track]))
            progress(found[-1])
        taken.slices.append((group, found))
    return taken


def show(one: Slice) -> None:
    """A slice, as it comes."""
    (system, _), rates = one
    for figure, rate in rates.items():
        print(f"{FIGURE[figure].title:>50s}  {system:16s} {report.number(rate):>10s} msg/s", flush=True)


def goal_rows(verdicts: Iterable[Verdict]) -> Iterator[tuple[str, str, str, str]]:
    """One row a goal: what, median with extremes, limit, verdict."""
    for one in verdicts:
        limit = f"{'≥' if one.goal.at_least else '≤'} {one.goal.limit:g}"
        value = "–"
        if one.value is not None and one.low is not None and one.high is not None:
            value = f"{report.number(one.value)} [{report.number(one.low)} … {report.number(one.high)}]"
        yield one.goal.title, value, limit, one.word


def rate_rows(taken: Taken) -> Iterator[tuple[str, str, str]]:
    """One row a track: figure, system, its rate."""
    for (system, figure), spread in sorted(taken.rates().items(), key=lambda item: (item[0][1], item[0][0])):
        yield FIGURE[figure].title, system, report.cell(spread)


def chosen(only: Sequence[str] | None, against: Sequence[str] | None) -> list[Goal]:
    """The goals of these figures against these systems; of all without a word."""
    return [
        goal
        for goal in SLICED
        if (not only or goal.figure in only) and (not against or goal.over is None or goal.over[0] in against)
    ]


def systems_of(goals: Iterable[Goal]) -> set[str]:
    """Whom the goals speak of."""
    return {system for goal in goals for system in (goal.system, goal.over[0] if goal.over else goal.system)}


def print_tables(taken: Taken, goals: Sequence[Goal], facts: Mapping[str, Any]) -> None:
    """Verdicts, rates, and what failed."""
    sync = facts["sync"][1]
    print(f"\n{facts['cpu']}, {facts['cpus']} cores; write + fdatasync of 4 KiB: {sync['median_ms']:.3f} ms\n")
    print(
        "\n".join(
            report.table(("ratio", "median [lowest … highest]", "goal", "verdict"), goal_rows(taken.verdicts(goals)))
        )
    )
    print("\n".join(report.table(("figure", "system", "messages a second"), rate_rows(taken))))
    for (system, figure), why in taken.failed.items():
        print(f"{system}, {figure}: FAILED, {why}")


def as_json(taken: Taken, goals: Sequence[Goal]) -> dict[str, Any]:
    """Everything as plain values."""
    return {
        "ratios": [
            {
                "title": one.goal.title,
                "limit": one.goal.limit,
                "median": one.value,
                "low": one.low,
                "high": one.high,
                "verdict": one.word,
            }
            for one in taken.verdicts(goals)
        ],
        "rates": {f"{system}, {figure}": asdict(spread) for (system, figure), spread in taken.rates().items()},
        "slices": [[{"system": track[0], **rates} for track, rates in slices] for _, slices in taken.slices],
        "failed": {", ".join(track): why for track, why in taken.failed.items()},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables; 1 when there was nothing to compare, or something failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ratios", description=(__doc__ or "").split("\n\n")[0])
    figures, others = sorted({goal.figure for goal in SLICED}), sorted(systems_of(SLICED))
    parser.add_argument("--only", nargs="+", choices=figures, help="goals of these figures (all)")
    parser.add_argument("--against", nargs="+", choices=others, help="goals against these systems (all)")
    parser.add_argument("--slices", type=int, default=SLICES_MIN, help=f"slices of each system ({SLICES_MIN})")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a slice (2)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--hog", action="store_true", help="beside a process that takes one core")
    parser.add_argument("--dir", type=Path, default=None, help="folder on the disk to test (the temporary folder)")
    parser.add_argument("--json", type=Path, default=None, help="file for all slices")
    options = parser.parse_args(arguments)
    if options.slices < 1 or options.seconds <= 0:
        parser.error("--slices is at least 1, --seconds more than 0")
    goals = chosen(options.only, options.against)
    scratch = Path(tempfile.mkdtemp(prefix="rbr-", dir=options.dir))
    try:
        with ExitStack() as stack:
            facts = machine.describe(scratch)
            systems = running(systems_of(goals), scratch, options.size, stack)
            with hog(options.hog):
                taken = take(systems, goals, options.slices, options.seconds, show)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if not taken.slices:
        print("nothing to compare with", file=sys.stderr)
        return 1
    print_tables(taken, goals, facts)
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": facts, "hog": options.hog, **as_json(taken, goals)}, indent=1))
    return 1 if taken.failed else 0


if __name__ == "__main__":
    sys.exit(main())
