"""Boards as Grafana reads them, from short descriptions: a board is rows of panels, a panel is queries and a unit.

Written for Grafana 10 and newer.  Every query is chosen by the variables ``cluster`` and ``broker``, the boards of
destinations also by ``destination``; rates are over ``$__rate_interval``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SCHEMA_VERSION = 39
WIDTH = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Query:
    """``legend``: Grafana's template of the series' name."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """``kind``: timeseries, stat, table or heatmap; ``width`` of 24; ``note`` is shown at the title's corner."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    note: str = ""
    stacked: bool = False
    least: float | None = 0
    thresholds: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class BoardRow:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Board:
    """``destinations``: it has the variables of the destination tier."""

    uid: str
    title: str
    note: str
    rows: tuple[BoardRow, ...]
    destinations: bool = False


def panel(
    title: str,
    *queries: tuple[str, str] | str,
    unit: str = "short",
    kind: str = "timeseries",
    width: int = 8,
    height: int = 8,
    note: str = "",
    stacked: bool = False,
    thresholds: Sequence[tuple[float, str]] = (),
    least: float | None = 0,
) -> Panel:
    found = tuple(Query(q) if isinstance(q, str) else Query(*q) for q in queries)
    return Panel(title, found, unit, kind, width, height, note, stacked, least, tuple(thresholds))


def stat(title: str, expr: str, *, unit: str = "short", note: str = "", bad: float | None = None) -> Panel:
    """One number; red from ``bad`` on."""
    colours = [(float("-inf"), "green")] + ([(bad, "red")] if bad is not None else [])
    return panel(title, expr, unit=unit, kind="stat", width=4, height=4, note=note, thresholds=colours)


# ---- as JSON ---------------------------------------------------------------------------------------------------------


def board_json(board: Board) -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    for row in board.rows:
        panels.append(
            {
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "panels": [],
                "id": len(panels) + 1,
                "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
            }
        )
        y += 1
        x = height = 0
        for one in row.panels:
            if x + one.width > WIDTH:
                x, y, height = 0, y + height, 0
            place = {"x": x, "y": y, "w": one.width, "h": one.height}
            panels.append(_panel_json(one, len(panels) + 1, place))
            x, height = x + one.width, max(height, one.height)
        y += height
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.note,
        "tags": ["raybroker"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables(board)},
        "links": [
            {
                "type": "dashboards",
                "tags": ["raybroker"],
                "title": "raybroker",
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "annotations": {
            "list": [
                {
                    "name": "restarts",
                    "enable": True,
                    "iconColor": "orange",
                    "datasource": SOURCE,
                    "titleFormat": "restart",
                    "expr": 'changes(raybroker_start_time_seconds{cluster="$cluster",broker=~"$broker"}[1m]) > 0',
                    "textFormat": "{{broker}}",
                    "step": "30s",
                }
            ]
        },
        "panels": panels,
    }


def _variables(board: Board) -> list[dict[str, Any]]:
    def query(name: str, text: str, *, several: bool) -> dict[str, Any]:
        more: dict[str, Any] = {}
        if several:
            more = {"multi": True, "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
        return {
            "name": name,
            "label": name,
            "type": "query",
            "datasource": SOURCE,
            "query": text,
            "definition": text,
            "refresh": 2,
            "sort": 1,
            **more,
        }

    found = [
        {"name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus"},
        query("cluster", "label_values(raybroker_info, cluster)", several=False),
        query("broker", 'label_values(raybroker_info{cluster="$cluster"}, broker)', several=True),
    ]
    if board.destinations:
        of = 'raybroker_destination_messages{cluster="$cluster",broker=~"$broker"}'
        found.append(query("destination", f"label_values({of}, destination)", several=True))
    return found


def _panel_json(one: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": SOURCE,
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
            "range": one.kind in ("timeseries", "heatmap"),
            "instant": one.kind not in ("timeseries", "heatmap"),
            "format": {"heatmap": "heatmap", "table": "table"}.get(one.kind, "time_series"),
        }
        for index, query in enumerate(one.queries)
    ]
    return {
        "id": number,
        "type": one.kind,
        "title": one.title,
        "description": one.note,
        "datasource": SOURCE,
        "gridPos": place,
        "targets": targets,
        "fieldConfig": {"defaults": _defaults(one), "overrides": []},
        "options": _options(one),
    }


def _defaults(one: Panel) -> dict[str, Any]:
    found: dict[str, Any] = {"unit": one.unit}
    if one.least is not None:
        found["min"] = one.least
    if one.kind == "timeseries":
        stacking = {"mode": "normal" if one.stacked else "none", "group": "A"}
        found["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 20 if one.stacked else 5,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": stacking,
        }
    if one.thresholds:
        found["thresholds"] = {
            "mode": "absolute",
            "steps": [
                {"value": None if value == float("-inf") else value, "color": colour}
                for value, colour in one.thresholds
            ],
        }
    return found


def _options(one: Panel) -> dict[str, Any]:
    if one.kind == "timeseries":
        return {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    if one.kind == "heatmap":
        return {"calculate": False, "yAxis": {"unit": one.unit}, "color": {"mode": "scheme", "scheme": "Oranges"}}
    if one.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "orientation": "horizontal"}
    return {"showHeader": True}
