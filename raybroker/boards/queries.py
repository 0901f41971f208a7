"""Asking a Prometheus what the panels ask."""

from __future__ import annotations

import json
import math
import urllib.error
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from raybroker.analysis.asking import Asking

TIMEOUT_S = 30.0


class Series(NamedTuple):
    """``points``: (seconds since 1970, value); not-a-numbers are left out."""

    labels: dict[str, str]
    points: list[tuple[float, float]]


class QueryTarget(NamedTuple):
    """One query of a panel."""

    board: str
    panel: str
    kind: str
    expr: str
    legend: str


class QueryError(Exception):
    """Prometheus refused a query; the text is its own."""


def targets(name: str, board: Mapping[str, Any]) -> Iterator[QueryTarget]:
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield QueryTarget(name, panel["title"], panel["type"], target["expr"], target["legendFormat"])


def substituted(expr: str, variables: Mapping[str, str]) -> str:
    """Put in the values of Grafana's variables; longer names first, since ``$broker`` begins others."""
    for name in sorted(variables, key=len, reverse=True):
        expr = expr.replace(f"${name}", variables[name])
    return expr


class Prometheus:
    """``url``: of the server, such as http://localhost:9090; ``asking``: what it is shown, and which certificate it
    has."""

    def __init__(self, url: str, asking: Asking | None = None) -> None:
        self._url = url.rstrip("/")
        self._asking = asking or Asking()

    def _query(self, path: str, **arguments: object) -> list[dict[str, Any]]:
        data = {name: str(value) for name, value in arguments.items()}
        try:
            with self._asking.open(f"{self._url}/api/v1/{path}", TIMEOUT_S, data) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
                return found
        except urllib.error.HTTPError as error:
            raise QueryError(json.load(error).get("error", str(error))) from None

    def instant(self, expr: str, at_s: float | None = None) -> list[Series]:
        """Ask for the value as it was at that time, seconds since 1970; None: as it is now."""
        when = {} if at_s is None else {"time": at_s}
        return [_series(row["metric"], [row["value"]]) for row in self._query("query", query=expr, **when)]

    def over(self, expr: str, start_s: float, end_s: float, step_s: float) -> list[Series]:
        rows = self._query("query_range", query=expr, start=start_s, end=end_s, step=step_s)
        return [_series(row["metric"], row["values"]) for row in rows]


def _series(labels: dict[str, str], values: list[list[Any]]) -> Series:
    points = [(float(at), float(value)) for at, value in values]
    return Series(labels, [(at, value) for at, value in points if math.isfinite(value)])


def legend(template: str, labels: Mapping[str, str]) -> str:
    """The name of a series."""
    if template == "__auto" or not template:
        return ", ".join(f"{name}={value}" for name, value in labels.items() if name != "__name__") or "value"
    for name, value in labels.items():
        template = template.replace(f"{{{{{name}}}}}", value)
    return template
