"""The report: one HTML file that needs nothing else, and the findings as JSON beside it."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from raybroker.analysis.lake.plan import moment
from raybroker.analysis.reports import plots
from raybroker.analysis.reports.answer import SEVERITIES, AnswerTable, Finding, JobAnswer, by_harm, number

FINDINGS_TOP: Final = 12
FORMAT: Final = 1
"""Version of the JSON."""

_STYLE: Final = """
:root { color-scheme: light; --ink: #212529; --soft: #6c757d; --line: #dee2e6; --accent: #0b7285; }
* { box-sizing: border-box; }
body { margin: 0; font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif; color: var(--ink);
  background: #f8f9fa; }
header { background: #102a33; color: #fff; padding: 28px 0 24px; }
main, .wide { max-width: 1060px; margin: 0 auto; padding: 0 24px; }
h1 { font-size: 26px; margin: 0 0 4px; } header p { margin: 0; color: #b6c8ce; }
.cards { display: flex; flex-wrap: wrap; gap: 12px; margin: 20px 0; }
.card { background: #fff; border: 1px solid var(--line); border-radius: 8px; padding: 10px 16px; min-width: 130px; }
.card b { display: block; font-size: 21px; font-weight: 600; } .card span { color: var(--soft); font-size: 13px; }
section { background: #fff; border: 1px solid var(--line); border-radius: 8px; padding: 4px 24px 18px;
  margin: 0 0 18px; }
h2 { font-size: 19px; margin: 18px 0 6px; }
h3 { font-size: 14px; margin: 18px 0 6px; color: var(--soft); font-weight: 600; }
ul.findings { list-style: none; padding: 0; margin: 10px 0; }
ul.findings li { border-left: 4px solid var(--line); padding: 4px 12px; margin: 6px 0; background: #f8f9fa; }
ul.findings li.critical { border-color: #c92a2a; } ul.findings li.warning { border-color: #f08c00; }
ul.findings li.info { border-color: #1c7ed6; }
.tag { display: inline-block; min-width: 62px; font-size: 12px; color: var(--soft); }
.table { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th { text-align: left; color: var(--soft); font-weight: 600; border-bottom: 2px solid var(--line);
  padding: 4px 10px 4px 0; }
td { border-bottom: 1px solid #f1f3f5; padding: 4px 10px 4px 0; vertical-align: top; overflow-wrap: anywhere; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
svg { width: 100%; height: auto; } nav { columns: 2; margin: 10px 0 20px; }
nav a { color: var(--accent); text-decoration: none; }
footer { color: var(--soft); font-size: 13px; padding: 8px 0 40px; } .none { color: var(--soft); }
details summary { cursor: pointer; color: var(--accent); margin: 6px 0; }
@media print { section { break-inside: avoid; border: none; } }
"""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the report is about. Times in milliseconds; ``took_s`` seconds of each part of the work; ``clusters``: names
    that the metrics bear."""

    lake: str
    since_ms: int
    until_ms: int
    brokers: int
    samples: float
    scrapes: float
    step_s: float
    took_s: Mapping[str, float]
    clusters: Sequence[str] = ()


def to_json(facts: Facts, answers: Sequence[JobAnswer]) -> dict[str, Any]:
    """Everything as plain values."""
    jobs = [
        {
            "job": one.job,
            "question": one.question,
            "answer": one.text,
            "findings": [{"severity": found.severity, **asdict(found)} for found in by_harm(one.findings)],
            "figures": one.figures,
        }
        for one in answers
    ]
    written: dict[str, Any] = _finite({"format": FORMAT, **asdict(facts), "jobs": jobs})
    return written


def write(out: Path, facts: Facts, answers: Sequence[JobAnswer]) -> list[Path]:
    """Write ``out`` (HTML) and the JSON beside it; the files written."""
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = out.with_suffix(".json")
    hidden = out.with_name(f".{out.name}")
    hidden.write_text(page(facts, answers), encoding="utf-8")
    hidden.rename(out)
    beside.write_text(json.dumps(to_json(facts, answers), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return [out, beside]


def page(facts: Facts, answers: Sequence[JobAnswer]) -> str:
    """The report as HTML."""
    findings = by_harm(found for one in answers for found in one.findings)
    counts = {name: sum(found.severity == name for found in findings) for name in SEVERITIES}
    name = html.escape(_name(facts))
    span = f"{moment(facts.since_ms)} to {moment(facts.until_ms)} UTC"
    cards = [
        (number(facts.brokers), _of(facts.brokers, "broker")),
        (number(facts.scrapes), _of(facts.scrapes, "scrape")),
        (number(facts.samples), _of(facts.samples, "sample")),
        (str(counts["critical"]), "critical findings"),
        (str(counts["warning"]), "warnings"),
    ]
    links = "".join(f'<div><a href="#{one.job}">{html.escape(one.question)}</a></div>' for one in answers)
    boxes = "".join(f"<div class=card><b>{value}</b><span>{name}</span></div>" for value, name in cards)
    took = ", ".join(f"{html.escape(part)} {seconds:.1f} s" for part, seconds in facts.took_s.items())
    read = f"Read from {html.escape(facts.lake)}: {took}."
    body = "".join(_section(one) for one in answers)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>raybroker: {name}</title><style>{_STYLE}</style></head><body>"
        f'<header><div class="wide"><h1>Report of {name}</h1><p>{span}</p></div>'
        f'</header><main><div class="cards">{boxes}</div>'
        f"<section><h2>What to look at first</h2>{_findings(findings, FINDINGS_TOP)}</section>"
        f"<nav>{links}</nav>{body}"
        f"<footer>Times are UTC. Steps of {facts.step_s:g} s. {read}</footer></main></body></html>\n"
    )


def _name(facts: Facts) -> str:
    """What the report is of: the clusters, or the folder where metrics bear no name."""
    if not facts.clusters:
        return f"the cluster in {Path(facts.lake).name}"
    return f"the {_of(len(facts.clusters), 'cluster')} {', '.join(facts.clusters)}"


def _of(count: float, what: str) -> str:
    return what if count == 1 else f"{what}s"


def _section(answer: JobAnswer) -> str:
    parts = [f'<section id="{answer.job}"><h2>{html.escape(answer.question)}</h2><p>{html.escape(answer.text)}</p>']
    if answer.findings:
        parts.append(_findings(by_harm(answer.findings), FINDINGS_TOP))
    for plot in answer.plots:
        drawn = plots.svg(plot)
        if drawn is not None:
            parts.append(f"<h3>{html.escape(plot.title)}</h3>{drawn}")
    parts += [_table(table) for table in answer.tables if table.rows]
    return "".join(parts) + "</section>"


def _findings(found: Sequence[Finding], shown: int) -> str:
    if not found:
        return '<p class="none">Nothing stands out.</p>'

    def listed(some: Sequence[Finding]) -> str:
        rows = "".join(
            f'<li class="{one.severity}"><span class="tag">{one.severity}</span><b>{html.escape(one.subject)}</b> '
            f"{html.escape(one.text)}</li>"
            for one in some
        )
        return f'<ul class="findings">{rows}</ul>'

    rest = found[shown:]
    more = f"<details><summary>{len(rest)} more</summary>{listed(rest)}</details>" if rest else ""
    return listed(found[:shown]) + more


def _table(table: AnswerTable) -> str:
    numbers = {key for key in table.columns if all(isinstance(row.get(key), int | float | None) for row in table.rows)}

    def kind(key: str) -> str:
        return " class=n" if key in numbers else ""

    head = "".join(f"<th{kind(key)}>{html.escape(title)}</th>" for key, title in table.columns.items())
    rows = "".join(
        "<tr>" + "".join(f"<td{kind(key)}>{html.escape(_cell(row.get(key)))}</td>" for key in table.columns) + "</tr>"
        for row in table.rows
    )
    return f'<h3>{html.escape(table.title)}</h3><div class="table"><table><tr>{head}</tr>{rows}</table></div>'


def _cell(value: Any) -> str:
    return number(value) if value is None or isinstance(value, int | float) else str(value)


def _finite(value: Any) -> Any:
    """Return the value without infinities, which JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value
