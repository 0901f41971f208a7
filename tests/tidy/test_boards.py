"""Boards, rules and documentation agree with the catalogue of metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from dashboards.boards import FOLDER, written
from raybroker.boards.catalogue import BOARDS, boards
from raybroker.boards.queries import targets
from raybroker.metrics.catalogue import METRICS, QUANTITIES, Metric
from tests.tidy.source import ROOT

RULES = ROOT / "dashboards" / "prometheus" / "rules"
_NAME = re.compile(r"(?<![:a-z0-9_])raybroker_[a-z0-9_]+")
_MATCHED = re.compile(r"((?<![:a-z0-9_])raybroker_[a-z0-9_]+)\{([^}]*)\}")
_LABEL = re.compile(r"([a-z_]+)\s*[=!]~?\"")
POSITION = "raybroker_record_entries_total"
"""A counter of which the height is looked at."""
_SUFFIX = re.compile(r"_(bucket|sum|count)$")


def metric_of(name: str) -> Metric | None:
    """The metric that a name in a query means."""
    if name in METRICS:
        return METRICS[name]
    found = METRICS.get(_SUFFIX.sub("", name))
    return found if found is not None and found.kind == "histogram" else None


def faults(expr: str) -> Iterator[str]:
    """What in a query does not agree with the catalogue."""
    for name in set(_NAME.findall(expr)):
        metric = metric_of(name)
        if metric is None:
            yield f"{name} is in no catalogue"
        elif metric.kind == "histogram" and name in METRICS:
            yield f"{name} is a histogram: it has _bucket, _sum and _count"
        elif metric.kind != "gauge" and name != POSITION and not re.search(rf"(rate|increase)\([^()]*{name}\b", expr):
            yield f"{name} counts: a query takes its rate or increase"
    for name, matchers in _MATCHED.findall(expr):
        metric = metric_of(name)
        for label in _LABEL.findall(matchers) if metric is not None else ():
            if label not in (*metric.labels, "le"):
                yield f"{name} has no label {label}"


def rules(name: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load((RULES / name).read_text())["groups"] for rule in group["rules"]]


def queries() -> dict[str, str]:
    """Where it stands → the query, of all boards and rules."""
    found = {
        f"{name}: {target.panel} {number}": target.expr
        for name, board in boards().items()
        for number, target in enumerate(targets(name, board))
    }
    found |= {f"{name}: annotation": b["annotations"]["list"][0]["expr"] for name, b in boards().items()}
    for file in ("recording.yml", "alerts.yml"):
        found |= {f"{file}: {rule.get('alert') or rule['record']}": rule["expr"] for rule in rules(file)}
    return found


def test_every_query_agrees_with_the_catalogue() -> None:
    wrong = {where: list(faults(expr)) for where, expr in queries().items() if list(faults(expr))}
    assert wrong == {}


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        ("sum(raybroker_mesages)", "raybroker_mesages is in no catalogue"),
        ('raybroker_messages{destination="orders"}', "raybroker_messages has no label destination"),
        ("sum(raybroker_messages_in_total)", "raybroker_messages_in_total counts: a query takes its rate or increase"),
        (
            "rate(raybroker_commit_seconds[1m])",
            "raybroker_commit_seconds is a histogram: it has _bucket, _sum and _count",
        ),
        ("rate(raybroker_messages_count[1m])", "raybroker_messages_count is in no catalogue"),
    ],
)
def test_a_query_that_does_not_is_found(expr: str, text: str) -> None:
    assert list(faults(expr)) == [text]


def test_every_quantity_is_on_a_board() -> None:
    shown = {metric_of(name).key for expr in queries().values() for name in _NAME.findall(expr)}  # type: ignore[union-attr]
    assert set(QUANTITIES) - shown == set()


def test_the_files_are_what_the_descriptions_say() -> None:
    files = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    assert files == written(), "run: python -m dashboards.boards"


@pytest.mark.parametrize("name", [board.uid.removeprefix("raybroker-") for board in BOARDS])
def test_a_board_is_well_formed(name: str) -> None:
    board = boards()[name]
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    names = {variable["name"] for variable in board["templating"]["list"]}
    used = {found for target in targets(name, board) for found in re.findall(r"\$([a-z]+)", target.expr)}
    assert used <= names
    assert {"datasource", "cluster", "broker"} <= names


def test_every_alert_has_a_test() -> None:
    tested = {
        case["alertname"]
        for test in yaml.safe_load((RULES / "tests.yml").read_text())["tests"]
        for case in test.get("alert_rule_test", ())
        if case["exp_alerts"]
    }
    assert {rule["alert"] for rule in rules("alerts.yml")} == tested


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    for rule in rules("alerts.yml"):
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "do"}, rule["alert"]
