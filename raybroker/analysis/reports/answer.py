"""Answers of jobs: text, findings, tables and plots; plain values that go to JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")


CRITICAL: Final = 70.0
WARNING: Final = 30.0
"""Harm from which on a finding is critical, or a warning."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something worth knowing. ``subject`` is what it is about; ``values`` are the figures behind the text.

    ``harm`` is how bad it is, from 0 to 100, on one scale for all jobs (see ``lost`` and ``due``): findings are shown
    by it, whichever job they come from, and it says how severe they are.
    """

    harm: float
    subject: str
    text: str
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def severity(self) -> Severity:
        return "critical" if self.harm >= CRITICAL else "warning" if self.harm >= WARNING else "info"


def by_harm(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first."""
    return sorted(findings, key=lambda found: -found.harm)


def lost(messages: float, weight: float = 12.0) -> float:
    """The harm of messages that are gone, or were handled in vain: ``weight`` more for each tenfold."""
    return min(100.0, WARNING + weight * math.log10(max(1.0, messages)))


def due(seconds: float) -> float:
    """The harm of something that is full in so many seconds: 100 now, 88 in three hours, 81 in a day, 69 in a month."""
    return 100.0 - 8.0 * math.log10(1.0 + max(0.0, seconds) / 360.0)


def held_back(seconds: float) -> float:
    """The harm of producers that were held back for so long in all: 56 for half an hour."""
    return min(CRITICAL, WARNING + 8.0 * math.log10(max(1.0, seconds)))


@dataclass(frozen=True, slots=True)
class AnswerTable:
    """Rows to show; ``columns`` is key → title."""

    title: str
    columns: Mapping[str, str]
    rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Lines:
    """A plot over time: name → points of (milliseconds, value)."""

    title: str
    unit: str
    series: Mapping[str, Sequence[tuple[float, float | None]]]


@dataclass(frozen=True, slots=True)
class Bars:
    """A plot of one value for each of some things."""

    title: str
    unit: str
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A plot of values by row and column."""

    title: str
    unit: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]


Plot = Lines | Bars | Matrix


@dataclass(slots=True)
class JobAnswer:
    """The answer of one job. ``figures`` are its results for programs."""

    job: str
    question: str
    text: str
    findings: list[Finding] = field(default_factory=list)
    tables: list[AnswerTable] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)


def number(value: float | None, unit: str = "") -> str:
    """A number as people read it: 1,234,567, 12.3 k, 4.5 MB."""
    if value is None:
        return "–"
    if unit == "B":
        return _scaled(value, ("B", "kB", "MB", "GB", "TB", "PB"))
    if abs(value) >= 100_000:
        return _scaled(value, ("", "k", "M", "G", "T")) + (f" {unit}" if unit else "")
    text = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return text + (f" {unit}" if unit else "")


def _scaled(value: float, units: Sequence[str]) -> str:
    at = 0
    while abs(value) >= 1000 and at < len(units) - 1:
        value /= 1000
        at += 1
    return f"{value:.3g} {units[at]}".rstrip()


def duration(seconds: float | None) -> str:
    """A time span as people read it: 350 µs, 12 s, 3.5 h, 12 days."""
    if seconds is None:
        return "–"
    if seconds == 0:
        return "0 s"
    for limit, scale, unit in (
        (1e-3, 1e-6, "µs"),
        (1.0, 1e-3, "ms"),
        (120.0, 1.0, "s"),
        (7200.0, 60.0, "min"),
        (172_800.0, 3600.0, "h"),
    ):
        if abs(seconds) < limit:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 86_400:.3g} days"


def percent(part: float | None) -> str:
    """A part of a whole: 3.25 %, 5,610 %."""
    if part is None:
        return "–"
    value = 100 * part
    return f"{value:,.0f} %" if abs(value) >= 1000 else f"{value:.3g} %"
