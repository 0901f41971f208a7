"""``python -m benchmarks.figures``: every figure that README and manual quote, in one run, and the pages with them.

    python -m benchmarks.figures                  # at most a quarter of an hour; writes figures.json and the pages
    python -m benchmarks.figures --quick --out DIR    # short runs: does everything run here? changes no page
    python -m benchmarks.figures --only starts    # one part; what the others have found stays, with its date
    python -m benchmarks.figures --check          # 1 when a page does not say what figures.json does; measures nothing

Each part is a process of its own with a time within which it ends or is ended; what it has not found then stays as it
was, with its date.  A system that is not installed is named, and so is a part that failed.  The machine should have
nothing else to do: its load is noted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Final

from benchmarks import figure_pages, latency, machine, ratios, report, startup
from benchmarks.figure_pages import AGAINST, FEATURES, PIPE_FIGURES, RESULTS, ROOT, Results
from benchmarks.goals import Goal, Spread, spread_of, spreads_of
from benchmarks.pace import Pace
from benchmarks.readings import OURS, PIPE, Amounts, Reading
from benchmarks.systems import running

Found = dict[str, Spread]

SIZE: Final = 1024
"""Bytes of a body."""
SYNCED: Final = 4096
"""Bytes of the sync that stands beside the figures."""
RATES: Final = {"1k": 1_000.0, "10k": 10_000.0}
ENDING_S: Final = 60.0
"""How long a part may take to end what it has started, once its time is over."""
LOAD_MAX: Final = 0.5
"""A load for each processor above which a run says that the machine is busy."""


AMOUNTS: Final = Amounts()
"""Messages of figures of a full run."""


@dataclass(frozen=True, slots=True)
class Amount:
    """How much a run does."""

    slices: int = ratios.SLICES_MIN
    slice_s: float = 1.5
    paces: int = 3
    """Runs at each rate, since a percentile of one run has no spread."""
    pace_s: float = 5.0
    rounds: int = 2
    """Of sizes, and of what features cost."""
    amounts: Amounts = AMOUNTS
    interpreters: int = startup.INTERPRETERS
    clusters: bool = True
    """Start-ups of clusters as well."""
    sync_s: float = 0.5
    """Syncs of the disk, of each size."""


QUICK: Final = Amount(
    2, 0.5, 1, 1.0, 1, Amounts(messages=5_000, singles=1_000, backlog=20_000), 1, clusters=False, sync_s=0.02
)


# ---- the parts: each gives figures, and what could not be measured → why, step by step


Step = tuple[Found, dict[str, str]]
Part = Callable[[Amount, Path], Iterator[Step]]

STEPS: Final = (("through",), ("blocking",), ("produce", "consume"))
"""Figures of COMPARED that are taken together."""


def goals(figures: Sequence[str], absent: Container[str]) -> list[Goal]:
    """Ours divided by the others that are here, of the figures that both have."""
    return [
        Goal(f"{figure} ÷ {system}", figure, 0.0, (system, figure))
        for system in AGAINST
        for figure in figures
        if system not in absent and (system != PIPE or figure in PIPE_FIGURES)
    ]


def against(amount: Amount, scratch: Path) -> Iterator[Step]:
    """Ratios to other systems in alternating slices, and our own rates in them."""
    from benchmarks.__main__ import build_systems

    absent = {one.name: why for one in build_systems(quick=True) if one.name in AGAINST and (why := one.missing())}
    yield {}, absent
    with ExitStack() as stack:
        systems = running({OURS, *AGAINST} - absent.keys(), scratch, SIZE, stack)
        for figures in STEPS:
            wanted = goals(figures, absent)
            taken = ratios.take(systems, wanted, amount.slices, amount.slice_s, ratios.show)
            found: Found = {}
            for verdict in taken.verdicts(wanted):
                if verdict.value is not None and verdict.low is not None and verdict.high is not None:
                    found[verdict.goal.title] = Spread(verdict.value, verdict.low, verdict.high, amount.slices)
            rates = taken.rates()
            found |= {figure: rates[OURS, figure] for figure in figures if (OURS, figure) in rates}
            yield found, {f"{figure} of {system}": why for (system, figure), why in taken.failed.items()}


def own(amount: Amount, scratch: Path) -> Iterator[Step]:
    """Sizes and times of ours, and what features cost: after each reading, with those before it."""
    from benchmarks.ours import Raybroker

    readings: list[Reading] = []
    for number in range(1, amount.rounds + 1):
        folder = scratch / f"round{number}"
        for one in Raybroker().measure(amount.amounts, folder, number):
            if isinstance(one, Reading):
                readings.append(one)
                print(f"    {one.figure}: {report.number(one.value)}", flush=True)
                yield of_readings(readings), {}
            else:
                yield {}, {one.figure or one.system: one.reason}
        shutil.rmtree(folder, ignore_errors=True)


def of_readings(readings: Sequence[Reading]) -> Found:
    """What the pages have of them; a feature is divided by the plain queue of its own round."""
    kept = {key for key, _, _ in figure_pages.TAKES} | {"plain"}
    found = {figure: spread for (_, figure), spread in spreads_of(readings).items() if figure in kept}
    plain = {one.round: one.value for one in readings if one.figure == "plain"}
    for feature in FEATURES:
        values = [one.value / plain[one.round] for one in readings if one.figure == feature and one.round in plain]
        if values:
            found[f"{feature} ÷ plain"] = spread_of(values)
    return found


def starts(amount: Amount, scratch: Path) -> Iterator[Step]:
    """The first message of a process, of a cluster, and hosts."""
    yield startup.interpreters(scratch, amount.interpreters), {}
    if amount.clusters:
        for figure, spread in startup.clusters(scratch):
            yield {figure: spread}, {}


def latencies(amount: Amount, scratch: Path) -> Iterator[Step]:
    """End to end, at given rates."""
    with ExitStack() as stack:
        systems = running({OURS}, scratch, SIZE, stack)
        for name, rate in RATES.items():
            runs = list(latency.take(systems, [Pace(rate, amount.pace_s, 1.0, SIZE)] * amount.paces, [False]))
            print("\n".join("  ".join(row) for row in latency.rows(runs)), flush=True)
            kept = [one for one in runs if not one.fault]
            found = {f"p{percent}_{name}": spread_of([one.ms(percent) for one in kept]) for percent in (50, 99) if kept}
            yield found, {f"latencies at {rate:,.0f}": one.fault for one in runs if one.fault}


@dataclass(frozen=True, slots=True)
class Timed:
    """A part, and how long it may take; together a quarter of an hour."""

    measure: Part
    most_s: float


PARTS: Final = {
    "against": Timed(against, 420.0),
    "own": Timed(own, 270.0),
    "starts": Timed(starts, 120.0),
    "latencies": Timed(latencies, 90.0),
}


# ---- a run


def carried_out(name: str, most_s: float, quick: bool, scratch: Path) -> Step:
    """A part in a process of its own, which is ended when its time is over: what it has found by then counts."""
    path = scratch / f"{name}.json"
    words = ["-m", "benchmarks.figures", "--part", name, "--out", str(scratch), *(["--quick"] if quick else [])]
    child = subprocess.Popen([sys.executable, *words], cwd=ROOT, start_new_session=True)
    failed: dict[str, str] = {}
    try:
        if status := child.wait(most_s):
            failed[f"part {name}"] = f"it failed with status {status}"
    except subprocess.TimeoutExpired:
        _end(child)
        failed[f"part {name}"] = f"it had not ended after {most_s:g} s"
    except BaseException:
        _end(child)
        raise
    if not path.exists():
        return {}, failed
    saved = json.loads(path.read_text(encoding="utf-8"))
    return {key: Spread(**one) for key, one in saved["found"].items()}, saved["absent"] | failed


def _end(child: subprocess.Popen[bytes]) -> None:
    """Interrupt a part, so that it ends what it has started; then end its session."""
    child.send_signal(signal.SIGINT)
    try:
        child.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _part(name: str, quick: bool, out: Path) -> int:
    """In the process of a part: measures it, and leaves what was found after each step."""
    path, saved = out / f"{name}.json", {"found": {}, "absent": {}}
    scratch = Path(tempfile.mkdtemp(prefix=f"rbf-{name}-", dir=out))
    try:
        for found, absent in PARTS[name].measure(QUICK if quick else Amount(), scratch):
            saved["found"] |= {key: asdict(one) for key, one in found.items()}
            saved["absent"] |= absent
            path.with_suffix(".new").write_text(json.dumps(saved), encoding="utf-8")
            path.with_suffix(".new").rename(path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


def commit_of(root: Path = ROOT) -> str:
    """The commit that is checked out, with a + where the source differs from it; "unknown" outside of a repository."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False, timeout=30)
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = git("rev-parse", "HEAD")
    return f"{commit}{'+' if git('status', '--porcelain', '--', 'raybroker') else ''}" if commit else "unknown"


def begun(results: Results, amount: Amount, scratch: Path) -> None:
    """What a run notes when it begins: when, on which commit and machine, with which load and sync."""
    results.date, results.commit = f"{datetime.now(UTC):%Y-%m-%d}", commit_of()
    facts = machine.describe(scratch, amount.sync_s)
    results.machine = {"processors": facts["cpus"], "GB of memory": facts["memory_gb"]}
    results.load = round(os.getloadavg()[0], 2)
    results.absent = {}
    sync = next(one["median_ms"] for one in facts["sync"] if one["size_bytes"] == SYNCED)
    results.take({"sync": Spread(sync, sync, sync, 1)})
    if results.load > LOAD_MAX * facts["cpus"]:
        print(f"the machine has other work (load {results.load:.1f}): the figures will say little", flush=True)


def run(
    results: Results,
    parts: Mapping[str, Timed],
    measure: Callable[[str, float], Step],
    say: Callable[[str], None],
    keep: Callable[[], None],
) -> None:
    """The parts one after the other; what is found is kept after each of them."""
    for number, (name, part) in enumerate(parts.items(), 1):
        say(f"\n{number} of {len(parts)}: {name}, at most {part.most_s:.0f} s")
        began = monotonic()
        found, absent = measure(name, part.most_s)
        results.take(found)
        results.absent |= absent
        keep()
        say(f"    {len(found)} figures in {monotonic() - began:.0f} s")
        for what, why in absent.items():
            say(f"    absent: {what}: {why}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.figures", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="short runs, which change no page; wants --out")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), help="these parts (all)")
    parser.add_argument("--check", action="store_true", help="only compare the pages with figures.json")
    parser.add_argument("--pages", action="store_true", help="only write the pages from figures.json")
    parser.add_argument("--out", type=Path, default=None, help="folder for figures.json; no page is changed then")
    parser.add_argument("--dir", type=Path, default=None, help="folder on the disk to test (the temporary folder)")
    parser.add_argument("--part", choices=list(PARTS), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.quick and options.out is None:
        parser.error("--quick: short runs are not for the pages; say where they go with --out DIR")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when all parts ended, 1 when one did not, or a page differs; absent systems do not change it."""
    options = parse(arguments)
    if options.part:
        return _part(options.part, options.quick, options.out)
    if options.check or options.pages:
        differing = (figure_pages.differing if options.check else figure_pages.rewrite)(figure_pages.load())
        for page in differing:
            print(f"{page} {'does not say what figures.json does' if options.check else 'is written'}")
        return 1 if differing and options.check else 0
    path = RESULTS if options.out is None else options.out / RESULTS.name
    path.parent.mkdir(parents=True, exist_ok=True)
    results = figure_pages.load(path)
    scratch = Path(tempfile.mkdtemp(prefix="rbf-", dir=options.dir))
    try:
        begun(results, QUICK if options.quick else Amount(), scratch)
        run(
            results,
            {name: part for name, part in PARTS.items() if not options.only or name in options.only},
            lambda name, most_s: carried_out(name, most_s, options.quick, scratch),
            lambda text: print(text, flush=True),
            lambda: figure_pages.save(results, path),
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if options.out is None:
        print("\n".join(f"{page} is written" for page in figure_pages.rewrite(results)))
    print(f"figures: {path}")
    return 1 if any(what.startswith("part ") for what in results.absent) else 0


if __name__ == "__main__":
    sys.exit(main())
