"""When it was tight: episodes in which producers were held back, and in which memory ran short."""

from __future__ import annotations

from typing import Any, Final

from raybroker.analysis import names
from raybroker.analysis.answer import Answer, Finding, Lines, Table, duration, percent
from raybroker.analysis.plan import moment
from raybroker.analysis.tables import Tables

LEVELS: Final = (("red", 0.98), ("orange", 0.90), ("yellow", 0.80))
"""Memory levels by used part, highest first; below the last it is green (B-15)."""
SHOWN: Final = 30
USED: Final = f"sum(if(metric = '{names.RESIDENT}', high, 0)) / max(if(metric = '{names.MEMORY_LIMIT}', high, null))"
"""SQL: the used part of a broker's memory."""


def when_was_it_tight(tables: Tables) -> Answer:
    """Steps in which something was tight, those next to each other together."""
    flow = _flow(tables)
    memory = _memory(tables)
    answer = Answer("when_was_it_tight", "When were producers held back, and when was memory short?", "")
    held = sum(row["held_s"] for row in flow)
    answer.text = (
        f"{len(flow)} episodes of flow control, producers held back for {duration(held)} in all; "
        f"{len(memory)} episodes of short memory."
    )
    worst = sorted(flow, key=lambda row: -row["held_s"])
    answer.findings += [
        Finding("warning", f"{row['destination']} on {row['broker']}", f"producers were held back for "
                f"{duration(row['held_s'])} from {moment(row['start'])} on: the destination was full, its consumers or "
                "its limits are too small", row)
        for row in worst[:SHOWN]
    ]  # fmt: skip
    answer.findings += [
        Finding("critical" if row["level"] == "red" else "warning", row["broker"],
                f"memory level {row['level']} ({percent(row['used'])}) for {duration(row['seconds'])} from "
                f"{moment(row['start'])} on", row)
        for row in memory[:SHOWN]
    ]  # fmt: skip
    answer.tables += [
        Table("Flow control, longest first", {"destination": "destination", "broker": "broker", "from": "from",
                                              "lasted": "lasted", "held": "producers held"},
              [{**row, "from": moment(row["start"]), "lasted": duration(row["seconds"]),
                "held": duration(row["held_s"])}
               for row in worst[:SHOWN]]),
        Table("Memory", {"broker": "broker", "level": "level", "from": "from", "lasted": "lasted", "part": "most used"},
              [{**row, "from": moment(row["start"]), "lasted": duration(row["seconds"]), "part": percent(row["used"])}
               for row in memory[:SHOWN]]),
    ]  # fmt: skip
    answer.plots.append(_lines(tables, sorted({row["broker"] for row in memory})[:6]))
    answer.figures = {"flow_control": flow, "memory": memory, "held_s": held}
    return answer


def islands(by: str, rows: str, sums: str, step_ms: int) -> str:
    """SQL: rows of ``rows`` (columns ``by`` and ts) that are next to each other, as one each: start, seconds, sums."""
    return f"""
        with r as ({rows}),
             p as (select *, unix_millis(ts) - lag(unix_millis(ts)) over (partition by {by} order by ts) since from r),
             n as (select *, if(since <= {step_ms}, 0, 1) begins from p),
             i as (select *, sum(begins) over (partition by {by} order by ts) island from n)
        select {by}, min(ts) start, (max(unix_millis(ts)) - min(unix_millis(ts)) + {step_ms}) / 1000 seconds, {sums}
        from i group by {by}, island order by start, {by}
    """


def _flow(tables: Tables) -> list[dict[str, Any]]:
    rows = f"""
        select broker, destination, type, ts, sum(held) held from (
            select broker, destination, type, ts, increase held from counters
            where metric = '{names.FLOW_SECONDS}' and increase > 0
            union all
            select broker, destination, type, ts, 0 held from gauges where metric = '{names.HELD_BACK}' and high > 0)
        group by 1, 2, 3, 4
    """
    return tables.rows(islands("broker, destination, type", rows, "sum(held) held_s", tables.step_ms) + " limit 10000")


def _memory(tables: Tables) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    rows = f"""
        select broker, ts, used from (
            select broker, ts, {USED} used
            from gauges where metric in ('{names.RESIDENT}', '{names.MEMORY_LIMIT}') group by 1, 2)
        where used >= {LEVELS[-1][1]}
    """
    for row in tables.rows(islands("broker", rows, "max(used) used", tables.step_ms) + " limit 10000"):
        level = next(name for name, least in LEVELS if row["used"] >= least)
        found.append({**row, "level": level})
    return found


def _lines(tables: Tables, brokers: list[str]) -> Lines:
    rows = tables.rows(f"""
        select ts, sum(rate) held from counters where metric = '{names.FLOW_SECONDS}' group by 1 order by 1
    """)
    series: dict[str, list[tuple[float, float | None]]] = {
        "destinations held back": [(row["ts"], row["held"]) for row in rows]
    }
    if brokers:
        wanted = ", ".join("'" + name.replace("'", "''") + "'" for name in brokers)
        used = tables.rows(f"""
            select broker, ts, {USED} used
            from gauges where metric in ('{names.RESIDENT}', '{names.MEMORY_LIMIT}') and broker in ({wanted})
            group by 1, 2 order by 1, 2
        """)
        for row in used:
            series.setdefault(f"memory of {row['broker']} (part)", []).append((row["ts"], row["used"]))
    return Lines("Destinations whose producers were held back", "at a time", series)
