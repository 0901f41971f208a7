"""``python -m benchmarks.table``: every goal of sending and receiving one message at a time, in one run.

Ratios in alternating slices (:mod:`benchmarks.ratios`), latencies at 10 k msg/s (:mod:`benchmarks.latency`), memory of
messages sent alone, and start-up (:mod:`benchmarks.startup`), with medians and spreads.  About nine minutes.

    python -m benchmarks.table --out benchmarks/results
    python -m benchmarks.table --quick                # two short slices: does everything run here?
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks import latency, machine, ours_singles, ratios, report, startup
from benchmarks.goals import ABSOLUTE, SLICED, Goal, Spread, Verdict, spread_of
from benchmarks.hog import hog
from benchmarks.pace import Pace
from benchmarks.readings import FIGURE, OURS
from benchmarks.systems import RunningPeer, Sliced, running

RATE: Final = 10_000.0
LATENCY_SYSTEMS: Final = (OURS, "rabbitmq", "redis-streams", "nats-current", "kafka-flush")


@dataclass(slots=True)
class Amount:
    """How much a run does."""

    slices: int = ratios.SLICES_MIN
    slice_s: float = 1.5
    paces: int = 3
    """Runs at RATE, since a percentile of one run has no spread."""
    pace_s: float = 4.0
    alone: int = ours_singles.ALONE


QUICK: Final = Amount(slices=2, slice_s=0.5, paces=1, pace_s=1.0, alone=2_000)


@dataclass(slots=True)
class Found:
    """What a run has found: spreads of absolute figures by name, slices, latencies, and what could not be measured."""

    absolute: dict[str, Spread] = field(default_factory=dict)
    taken: ratios.Taken = field(default_factory=ratios.Taken)
    latencies: list[latency.Latency] = field(default_factory=list)
    synced: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def verdicts(self) -> list[Verdict]:
        """All goals, ratios first."""
        return [*self.taken.verdicts(SLICED), *(absolute(self.absolute, goal) for goal in ABSOLUTE)]


def absolute(found: Mapping[str, Spread], goal: Goal) -> Verdict:
    """What the spreads say of a goal that is no ratio."""
    spread = found.get(goal.figure)
    return Verdict(goal, spread.median, spread.low, spread.high) if spread else Verdict(goal, None)


def percentiles(found: Iterable[latency.Latency]) -> dict[str, Spread]:
    """Ours at RATE, over the runs that kept up."""
    runs = [one for one in found if one.system == OURS and one.rate == RATE and not one.fault]
    if not runs:
        return {}
    return {
        "p50_10k": spread_of([one.ms(50.0) for one in runs]),
        "p99_10k": spread_of([one.ms(99.0) for one in runs]),
    }


def measure(found: Found, systems: Mapping[str, Sliced], amount: Amount, size: int) -> None:
    """Everything that needs running systems."""
    found.taken = ratios.take(systems, SLICED, amount.slices, amount.slice_s, ratios.show)
    quick = {name: one for name, one in systems.items() if name in LATENCY_SYSTEMS}
    found.synced = latency.synced(quick)
    for _ in range(amount.paces):
        for one in list(latency.take(dict(quick), [Pace(RATE, amount.pace_s, 1.0, size)], [False])):
            found.latencies.append(one)
            if one.fault and one.system != OURS:
                del quick[one.system]  # Once is enough for one that does not keep up.
            print("  ".join(next(iter(latency.rows([one])))), flush=True)
    found.absolute |= percentiles(found.latencies)
    ours = systems.get(OURS)
    if isinstance(ours, RunningPeer):
        try:
            (memory,) = ours.together([(ours_singles.memory_alone, (ours.address, amount.alone, size))])
            value, note = memory["memory_alone"]
            found.absolute["memory_alone"] = Spread(value, value, value, 1, note)
        except Exception as error:  # noqa: BLE001 - the other figures are worth as much; the failure is reported
            found.failed.append(f"memory of messages sent alone: {error}")


def text(found: Found, facts: Mapping[str, Any]) -> str:
    """The report as Markdown."""
    sync = facts["sync"][1]
    head = f"{facts['cpu']}, {facts['cpus']} cores; write + fdatasync of 4 KiB: {sync['median_ms']:.3f} ms"
    lines = [
        head,
        "",
        *report.table(("what", "median [lowest … highest]", "goal", "verdict"), ratios.goal_rows(found.verdicts())),
    ]
    lines += [latency.lowest_p99(found.latencies, RATE, found.synced), ""]
    lines += report.table(latency.HEAD, latency.rows(found.latencies))
    lines += report.table(("figure", "system", "messages a second"), ratios.rate_rows(found.taken))
    notes = [(FIGURE[key].title, report.cell(one), one.note) for key, one in found.absolute.items()]
    lines += report.table(("figure", "value", ""), notes)
    lines += [f"FAILED: {system}, {figure}: {why}" for (system, figure), why in found.taken.failed.items()]
    return "\n".join([*lines, *(f"FAILED: {why}" for why in found.failed)])


def as_json(found: Found, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Everything as plain values."""
    return {
        "machine": facts,
        **ratios.as_json(found.taken, SLICED),
        "absolute": {key: [one.median, one.low, one.high, one.note] for key, one in found.absolute.items()},
        "latencies": latency.as_json(found.latencies),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the report; 1 when something failed. Missed goals do not change it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="two short slices: does everything run?")
    parser.add_argument("--hog", action="store_true", help="beside a process that takes one core")
    parser.add_argument("--without-startup", action="store_true", help="leave the start-up figures out")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--dir", type=Path, default=None, help="folder on the disk to test (the temporary folder)")
    parser.add_argument("--out", type=Path, default=None, help="folder for table.md and table.json")
    options = parser.parse_args(arguments)
    found, scratch = Found(), Path(tempfile.mkdtemp(prefix="rbt-", dir=options.dir))
    try:
        facts = machine.describe(scratch)
        with hog(options.hog):
            if not options.without_startup:
                found.absolute |= startup.interpreters(scratch)
                found.absolute |= dict(startup.clusters(scratch))
            with ExitStack() as stack:
                wanted = ratios.systems_of(SLICED) | set(LATENCY_SYSTEMS)
                systems = running(wanted, scratch, options.size, stack)
                measure(found, systems, QUICK if options.quick else Amount(), options.size)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    shown = text(found, facts)
    print(f"\n{shown}")
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "table.md").write_text(f"{shown}\n")
        (options.out / "table.json").write_text(json.dumps(as_json(found, facts), indent=1) + "\n")
    return 1 if found.failed or found.taken.failed else 0


if __name__ == "__main__":
    sys.exit(main())
