"""The report of a run: one value, written as JSON and as Markdown.  Pure but for the two ``write`` calls."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.goals import Spread, Spreads, Verdict, best_peer, judge, settle_pipe, spreads_of
from benchmarks.readings import (
    FEATURES,
    FIGURE,
    FIGURES,
    ONE_BY_ONE,
    OURS,
    PIPE,
    RAY_QUEUE,
    SYSTEMS,
    Amounts,
    Reading,
    Skipped,
)


@dataclass(slots=True)
class Report:
    """Everything a run found. ``systems`` maps a system to its versions and settings."""

    taken_at: str
    amounts: Amounts
    rounds: int
    machine: dict[str, Any]
    systems: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)
    readings: list[Reading] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def settled(self) -> list[Reading]:
        """The readings, with the bare pipe at its best shape."""
        return settle_pipe(self.readings)

    def label(self, system: str) -> str:
        """Name of a system, with its mark."""
        mark = self.marks.get(system)
        return f"{system} ({mark})" if mark else system

    def spreads(self) -> Spreads:
        """Medians and extremes."""
        return spreads_of(self.settled())

    def verdicts(self) -> list[Verdict]:
        """One verdict a goal."""
        return judge(self.settled())


def number(value: float) -> str:
    """Three significant digits, thousands set apart."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def cell(spread: Spread | None) -> str:
    """``median [min … max]``, or a dash."""
    if spread is None:
        return "–"
    if spread.rounds == 1:
        return number(spread.median)
    return f"{number(spread.median)} [{number(spread.low)} … {number(spread.high)}]"


def plural(count: int, noun: str) -> str:
    """``1 round``, ``3 rounds``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table, first column left, the others right; pipes in cells are escaped."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    lines += ["| " + " | ".join(text.replace("|", "\\|") for text in row) + " |" for row in rows]
    return [*lines, ""]


def _goal_rows(verdicts: Iterable[Verdict]) -> Iterable[Sequence[str]]:
    for verdict in verdicts:
        goal = verdict.goal
        limit = f"{'≥' if goal.at_least else '≤'} {goal.limit:g}"
        value = "–"
        if verdict.value is not None and verdict.low is not None and verdict.high is not None:
            value = cell(Spread(verdict.value, verdict.low, verdict.high, 1 if verdict.low == verdict.high else 2))
        title = f"{goal.title} ({verdict.against})" if goal.over and goal.over[0] != verdict.against else goal.title
        yield title, value, limit, verdict.word


def _rate_rows(report: Report, spreads: Spreads) -> Iterable[Sequence[str]]:
    for system in SYSTEMS:
        row = [cell(spreads.get((system, key))) for key in ("through", "produce", "consume", "blocking", "single")]
        if set(row) != {"–"}:
            yield report.label(system), *row


def _ratio_rows(report: Report, spreads: Spreads) -> Iterable[Sequence[str]]:
    limit, ours = spreads.get((PIPE, "through")), spreads.get((OURS, "through"))
    for system in SYSTEMS:
        mine = spreads.get((system, "single" if system == RAY_QUEUE else "through"))
        if mine is None:
            continue
        of_limit = f"{mine.median / limit.median:.3g}" if limit else "–"
        us = f"{ours.median / mine.median:.2f} ×" if ours else "–"
        yield report.label(system), number(mine.median), of_limit, us


def _feature_rows(spreads: Spreads) -> Iterable[Sequence[str]]:
    plain, each = spreads.get((OURS, "plain")), spreads.get((OURS, "each"))
    for key in FEATURES:
        mine = spreads.get((OURS, key))
        if mine is None:
            continue
        of_plain = f"{mine.median / plain.median:.2f}" if plain else "–"
        of_each = f"{mine.median / each.median:.2f}" if each and key in ONE_BY_ONE else "–"
        yield FIGURE[key].title, cell(mine), of_plain, of_each, mine.note


def _sweep_rows(readings: Iterable[Reading]) -> Iterable[Sequence[str]]:
    shapes: dict[str, list[Reading]] = {}
    for reading in readings:
        if reading.system == PIPE and reading.figure == "sweep":
            shapes.setdefault(reading.note, []).append(reading)
    for note, taken in shapes.items():
        values = sorted(reading.value for reading in taken)
        yield note, cell(Spread(values[len(values) // 2], values[0], values[-1], len(values)))


def _machine_lines(machine: dict[str, Any]) -> list[str]:
    packages = ", ".join(f"{name} {found}" for name, found in machine["packages"].items())
    what = (
        f"{machine['cpu']}, {machine['cpus']} cores, {machine['memory_gb']} GB; {machine['system']}, "
        f"kernel {machine['kernel']}; Python {machine['python']}; {packages}."
    )
    lines = [
        what,
        "",
        f"Disk ({machine['file_system']}), one `pwrite` + `fdatasync` into blocks written before:",
        "",
    ]
    rows = [(f"{s['size_bytes']:,} B", f"{s['median_ms']:.3f}", f"{s['p99_ms']:.3f}") for s in machine["sync"]]
    return lines + table(("write", "median ms", "p99 ms"), rows)


def markdown(report: Report) -> str:
    """The whole report as Markdown."""
    spreads, amounts = report.spreads(), report.amounts
    peer = best_peer(spreads, "through")
    how = (
        f"Taken {report.taken_at}: {amounts.size_bytes} B bodies, {amounts.messages:,} messages a figure "
        f"({amounts.singles:,} where one at a time), {plural(report.rounds, 'round')}, systems in turn within each "
        "round, one running at a time. Medians over the rounds, [lowest … highest]."
    )
    best = (
        f"Best peer: {report.label(peer) if peer else 'none measured'}; those that do not sync take part. "
        f"For {RAY_QUEUE} the figure is one by one."
    )
    lines = [
        "# Benchmark report",
        "",
        how,
        "",
        "## Goals",
        "",
        *table(("what", "value", "goal", "verdict"), _goal_rows(report.verdicts())),
        "## Messages a second",
        "",
        "![rates](report.png)",
        "",
        *table(
            ("system", *(FIGURE[key].title for key in ("through", "produce", "consume", "blocking", "single"))),
            _rate_rows(report, spreads),
        ),
        "## Ratios of “producer → consumer → ack”",
        "",
        best,
        "",
        *table(("system", "msg/s", "of the bare pipe", "raybroker is"), _ratio_rows(report, spreads)),
    ]
    scale = [(f.title, cell(spreads.get((OURS, f.key))), f.unit) for f in FIGURES if not f.unit.startswith("msg")]
    if any(row[1] != "–" for row in scale):
        notes = {f.title: spreads[OURS, f.key].note for f in FIGURES if (OURS, f.key) in spreads}
        noted = [(title, value, unit, notes.get(title, "")) for title, value, unit in scale]
        lines += ["## raybroker: size and time", "", *table(("what", "value", "unit", "note"), noted)]
    if features := list(_feature_rows(spreads)):
        head = ("what", "deliveries/s", "of the plain queue", "of it, one by one", "note")
        lines += ["## raybroker: what features cost", "", *table(head, features)]
    if sweep := list(_sweep_rows(report.readings)):
        lines += ["## Bare pipe, all shapes", "", *table(("shape", "msg/s"), sweep)]
    lines += ["## Versions and durable settings", ""]
    for system, facts in report.systems.items():
        lines += [f"* **{system}**: {'; '.join(facts['versions'])}", *(f"  * {text}" for text in facts["settings"])]
    lines += ["", "## Machine", "", *_machine_lines(report.machine)]
    if report.skipped:
        rows = [(skip.system, skip.figure or "all", skip.reason) for skip in dict.fromkeys(report.skipped)]
        lines += ["## Skipped", "", *table(("system", "figure", "why"), rows)]
    return "\n".join(lines).rstrip() + "\n"


def as_json(report: Report) -> dict[str, Any]:
    """The whole report as plain values: readings of every round, medians, verdicts."""
    return {
        "taken_at": report.taken_at,
        "rounds": report.rounds,
        "amounts": asdict(report.amounts),
        "machine": report.machine,
        "systems": report.systems,
        "medians": {f"{system}/{figure}": asdict(spread) for (system, figure), spread in report.spreads().items()},
        "goals": [
            {
                "title": v.goal.title,
                "value": v.value,
                "low": v.low,
                "high": v.high,
                "limit": v.goal.limit,
                "at_least": v.goal.at_least,
                "against": v.against,
                "verdict": v.word,
            }
            for v in report.verdicts()
        ],
        "readings": [asdict(reading) for reading in report.readings],
        "skipped": [asdict(skip) for skip in dict.fromkeys(report.skipped)],
    }


def write(report: Report, folder: Path) -> None:
    """report.json and report.md in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(as_json(report), indent=1, ensure_ascii=False) + "\n")
    (folder / "report.md").write_text(markdown(report))
