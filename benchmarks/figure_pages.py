"""The figures of README and manual: what a results file has, as the tables between the markers of pages.

Pure but for reading and writing pages.  Each figure keeps when and on which commit it was taken: one that a run could
not take, because a system is not installed or its part did not end in time, stays as it was, with its date.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks import report
from benchmarks.goals import Spread
from benchmarks.readings import PIPE

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = Path(__file__).resolve().parent / "figures.json"
COMMAND: Final = "python -m benchmarks.figures"
WIDTH: Final = 140
"""Of a line of text."""
COMMIT_SHOWN: Final = 10
"""Digits of a commit."""


@dataclass(frozen=True, slots=True)
class Taken:
    """One figure: median, lowest and highest, and when it was taken on which commit."""

    median: float
    low: float
    high: float
    rounds: int
    note: str
    date: str
    commit: str


@dataclass(slots=True)
class Results:
    """What the last run has found, and what earlier ones have that it could not.

    machine  how many "processors", and "GB of memory"
    load     the machine's load when the run began; None where that is not known
    absent   what was not measured → why
    """

    date: str = ""
    commit: str = ""
    machine: dict[str, float] = field(default_factory=dict)
    load: float | None = None
    absent: dict[str, str] = field(default_factory=dict)
    figures: dict[str, Taken] = field(default_factory=dict)

    def take(self, found: Mapping[str, Spread]) -> None:
        """Figures of this run, in the place of older ones."""
        for key, one in found.items():
            self.figures[key] = Taken(one.median, one.low, one.high, one.rounds, one.note, self.date, self.commit)


def load(path: Path = RESULTS) -> Results:
    """A results file; empty where there is none."""
    if not path.exists():
        return Results()
    saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return Results(**{**saved, "figures": {key: Taken(**one) for key, one in saved["figures"].items()}})


def save(results: Results, path: Path) -> None:
    """Write a results file."""
    path.write_text(json.dumps(asdict(results), indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


# ---- the tables


def _cell(results: Results, key: str, unit: str = "", *, spread: bool = True) -> str:
    """A figure with its unit, and with its date where it is older than the run."""
    one = results.figures.get(key)
    if one is None:
        return "–"
    shown = report.number(one.median)
    if spread and one.rounds > 1:
        shown = f"{shown} [{report.number(one.low)} … {report.number(one.high)}]"
    return f"{shown}{f' {unit}' if unit else ''}{_dated(results, one)}"


def _paragraph(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _dated(results: Results, one: Taken) -> str:
    return "" if one.date == results.date else f" ({one.date})"


AGAINST: Final = {
    "redis-streams": "Redis Streams",
    "nats-jetstream": "NATS JetStream (no fsync)",
    "nats-current": "NATS, synced",
    "rabbitmq": "RabbitMQ",
    "kafka": "Kafka (no fsync)",
    "kafka-flush": "Kafka, synced",
    PIPE: "bare pipe",
}
"""What raybroker is compared with → its name in the tables."""
PIPE_FIGURES: Final = frozenset({"through", "blocking"})
"""What the bare pipe is measured for."""
COMPARED: Final = {
    "through": "producer → consumer → ack, at once",
    "produce": "produce",
    "consume": "consume",
    "blocking": "one confirmed send at a time",
}
"""Figure → its column."""


def _against(results: Results) -> Iterator[str]:
    systems = {
        name: one for name, one in AGAINST.items() if any(f"{key} ÷ {name}" in results.figures for key in COMPARED)
    }
    columns = [key for key in COMPARED if any(f"{key} ÷ {name}" in results.figures for name in systems)]
    rows = [(shown, *(_cell(results, f"{key} ÷ {name}") for key in columns)) for name, shown in systems.items()]
    rows.append(("*raybroker, messages a second*", *(f"*{_cell(results, key)}*" for key in columns)))
    yield from report.table(("raybroker divided by", *(COMPARED[key] for key in columns)), rows)
    yield from _conditions(results)


TAKES: Final = (
    ("receive", "`receive()` from a filled buffer", "µs"),
    ("memory", "memory of a million queued messages, each", "bytes"),
    ("restart", "a killed host with a million stored messages delivers again, after", "s"),
    ("p50_1k", "end to end at 1,000 messages a second, p50", "ms"),
    ("p99_1k", "end to end at 1,000 messages a second, p99", "ms"),
    ("p50_10k", "end to end at 10,000 messages a second, p50", "ms"),
    ("p99_10k", "end to end at 10,000 messages a second, p99", "ms"),
    ("import", "`import raybroker`", "ms"),
    ("loopback", "`rb.loopback()` to the first message, in a new process", "ms"),
    ("start", "`rb.start()` in a running Ray to the first message", "s"),
    ("create", "creating a queue in a shared host", "ms"),
    ("selector_eval", "a selector of three comparisons, headers decoded, a message", "µs"),
    ("create_dedicated", "creating a queue with a host of its own, a spare one being ready", "ms"),
    ("host", "an idle dedicated host", "MB"),
    ("queue", "an idle queue in a shared host", "kB"),
)
"""(figure, what it is, unit)."""


def _takes(results: Results) -> Iterator[str]:
    rows = [(what, _cell(results, key, unit)) for key, what, unit in TAKES if key in results.figures]
    yield from report.table(("what", "figure"), rows)


FEATURES: Final = {
    "selector": "a selector of three comparisons on the consumer",
    "priority": "mixed priorities",
    "expiry": "a time to live on one of ten messages",
    "units": "1000 units of order over eight consumers",
    "tx_send": "sends in transactions of 100",
    "tx_take": "receives in transactions of 100 (eight sessions)",
    "topic_1": "a topic with one subscriber",
    "topic_64": "a topic with 64 subscribers, deliveries",
}
"""Figure → what it is; each is divided by the plain queue of the same run."""


def _features(results: Results) -> Iterator[str]:
    rows = [
        (what, _cell(results, f"{key} ÷ plain"))
        for key, what in FEATURES.items()
        if f"{key} ÷ plain" in results.figures
    ]
    yield from report.table(("feature", "of the plain queue"), rows)
    yield f"The plain queue moved {_cell(results, 'plain')} messages a second."


def _conditions(results: Results) -> Iterator[str]:
    """When and on what the figures were taken, and what was absent."""
    facts = [f"commit {results.commit[:COMMIT_SHOWN]}"] if results.commit else []
    # A file's order is not that of a run.
    facts += [f"{value:g} {what}" for what, value in sorted(results.machine.items(), reverse=True)]
    facts += [f"load {results.load:.1f}"] if results.load is not None else []
    sync = _cell(results, "sync", "ms", spread=False)
    yield _paragraph(f"Taken {results.date}: {', '.join(facts)}; a sync of 4 KiB took {sync}.")
    absent = [f"{AGAINST.get(what, what)} ({why})" for what, why in sorted(results.absent.items())]
    if absent:
        yield ""
        yield _paragraph(
            f"Not measured by this run: {'; '.join(absent)}. A figure with a date in brackets is of an earlier run."
        )


def _summary(results: Results) -> Iterator[str]:
    """The sentences of the README."""

    def times(key: str) -> str:
        return _cell(results, key, spread=False)

    cores = f"{results.machine.get('processors', 0):g}"
    yield _paragraph(
        f"On {cores} processors, each confirmed message of 1 KiB synced: {times('through')} messages a second from"
        f" producer to acknowledgement ({times('through ÷ rabbitmq')} times RabbitMQ,"
        f" {times('through ÷ nats-jetstream')} times NATS JetStream without fsync), and {times('blocking')} confirmed"
        f" sends one at a time ({times('blocking ÷ rabbitmq')} of RabbitMQ,"
        f" {times('blocking ÷ redis-streams')} of Redis Streams)."
    )


SECTIONS: Final[dict[str, Callable[[Results], Iterator[str]]]] = {
    "summary": _summary,
    "against": _against,
    "takes": _takes,
    "features": _features,
}
PAGES: Final = {
    "README.md": ("summary",),
    "raybroker/manual/performance.md": ("against", "takes", "features"),
}
"""Page → the sections that it has, between markers."""


def _between(section: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- figures: {section} -->\n)(.*?)(<!-- end of figures -->)", re.DOTALL)


def rewritten(page: str, text: str, results: Results) -> str:
    """A page with the tables of the results; raises ValueError where it lacks a marker."""
    for section in PAGES[page]:
        body = "\n".join(SECTIONS[section](results)).strip()
        text, found = _between(section).subn(lambda found, body=body: f"{found[1]}{body}\n{found[3]}", text)  # type: ignore[misc]
        if found != 1:
            raise ValueError(f"{page} has {found} sections between '<!-- figures: {section} -->' and its end; it has 1")
    return text


def differing(results: Results, root: Path = ROOT) -> list[str]:
    """Pages that do not say what the results do."""
    texts = {page: (root / page).read_text(encoding="utf-8") for page in PAGES}
    return [page for page, text in texts.items() if rewritten(page, text, results) != text]


def rewrite(results: Results, root: Path = ROOT) -> list[str]:
    """Have the pages say what the results do; those that were changed."""
    changed = differing(results, root)
    for page in changed:
        path = root / page
        path.write_text(rewritten(page, path.read_text(encoding="utf-8"), results), encoding="utf-8")
    return changed
