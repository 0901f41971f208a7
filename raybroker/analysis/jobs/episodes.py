"""Tight times: episodes in which producers were held back, and in which memory ran short."""

from __future__ import annotations

from typing import Any, Final

from raybroker.analysis import names
from raybroker.analysis.frames import chosen, query, spread_rates, with_holes
from raybroker.analysis.lake.plan import moment
from raybroker.analysis.reports.answer import AnswerTable, Finding, JobAnswer, Lines, duration, held_back, percent
from raybroker.analysis.tables import LakeTables

LEVELS: Final = (("red", 0.98), ("orange", 0.90), ("yellow", 0.80))
"""Memory levels by used part, highest first; below the last it is green."""
MEMORY: Final = {"red": 95.0, "orange": 65.0, "yellow": 45.0}
"""Harm of memory that is short, by level."""
SHOWN: Final = 30
USED: Final = (
    f"try_divide(coalesce(max(if(metric = '{names.MEMORY_USED}', high, null)),"
    f" sum(if(metric = '{names.RESIDENT}', high, 0))), max(if(metric = '{names.MEMORY_LIMIT}', high, null)))"
)
"""SQL: the used part of a broker's memory, as its levels have it; lakes of old releases have resident memory alone."""
OF_MEMORY: Final = (names.MEMORY_USED, names.RESIDENT, names.MEMORY_LIMIT)
"""The metrics that USED needs."""


def when_was_it_tight(tables: LakeTables) -> JobAnswer:
    """Steps in which something was tight, those next to each other together."""
    steps = held_back_steps(tables.counters(names.FLOW_SECONDS), tables.gauges(names.HELD_BACK))
    flow = tables.plain_rows(islands(steps, "broker, destination, type", "sum(held) held_s", tables.step_ms))
    used = memory_used(tables.gauges(*OF_MEMORY))
    memory = _memory(tables, used)
    answer = JobAnswer("when_was_it_tight", "When were producers held back, and when was memory short?", "")
    held = sum(row["held_s"] for row in flow)
    answer.text = (
        f"{len(flow)} episodes of flow control, producers held back for {duration(held)} in all; "
        f"{len(memory)} episodes of short memory."
    )
    worst = sorted(flow, key=lambda row: -row["held_s"])
    answer.findings += [
        Finding(
            held_back(row["held_s"]),
            f"{row['destination']} on {row['broker']}",
            f"producers were held back for "
            f"{duration(row['held_s'])} from {moment(row['start'])} on: the destination was full, its consumers or "
            "its limits are too small",
            row,
        )
        for row in worst[:SHOWN]
    ]
    answer.findings += [
        Finding(
            MEMORY[row["level"]],
            row["broker"],
            f"memory level {row['level']} ({percent(row['used'])}) for {duration(row['seconds'])} from "
            f"{moment(row['start'])} on",
            row,
        )
        for row in memory[:SHOWN]
    ]
    answer.tables += [
        AnswerTable(
            "Flow control, longest first",
            {
                "destination": "destination",
                "broker": "broker",
                "from": "from",
                "lasted": "lasted",
                "held": "producers held",
            },
            [
                {
                    **row,
                    "from": moment(row["start"]),
                    "lasted": duration(row["seconds"]),
                    "held": duration(row["held_s"]),
                }
                for row in worst[:SHOWN]
            ],
        ),
        AnswerTable(
            "Memory",
            {"broker": "broker", "level": "level", "from": "from", "lasted": "lasted", "part": "most used"},
            [
                {**row, "from": moment(row["start"]), "lasted": duration(row["seconds"]), "part": percent(row["used"])}
                for row in memory[:SHOWN]
            ],
        ),
    ]
    answer.plots.append(_lines(tables, used, sorted({row["broker"] for row in memory})[:6]))
    answer.figures = {"flow_control": flow, "memory": memory, "held_s": held}
    return answer


def islands(rows: Any, by: str, sums: str, step_ms: int) -> Any:
    """Rows (columns ``by`` and ts) that are next to each other as one each: start, seconds, sums."""
    return query(
        f"""
        with p as (select *, unix_millis(ts) - lag(unix_millis(ts)) over (partition by {by} order by ts) since
                   from {{rows}}),
             n as (select *, if(since <= {step_ms}, 0, 1) begins from p),
             i as (select *, sum(begins) over (partition by {by} order by ts) island from n)
        select {by}, min(ts) start, (max(unix_millis(ts)) - min(unix_millis(ts)) + {step_ms}) / 1000 seconds, {sums}
        from i group by {by}, island order by start, {by} limit 10000
    """,
        rows=rows,
    )


def held_back_steps(counters: Any, gauges: Any) -> Any:
    """Steps in which producers of a destination were held back, and for how many seconds."""
    return query(
        """
        select broker, destination, type, ts, sum(held) held from (
            select broker, destination, type, ts, increase held from {counters} where increase > 0
            union all
            select broker, destination, type, ts, 0 held from {gauges} where high > 0)
        group by 1, 2, 3, 4
    """,
        counters=counters,
        gauges=gauges,
    )


def memory_used(gauges: Any) -> Any:
    """broker, ts, used: the part of a broker's memory that its processes used at most in a step."""
    return query(f"select broker, ts, {USED} used from {{gauges}} group by 1, 2", gauges=gauges)


def _memory(tables: LakeTables, used: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    short = islands(used.where(f"used >= {LEVELS[-1][1]}"), "broker", "max(used) used", tables.step_ms)
    for row in tables.plain_rows(short):
        level = next(name for name, least in LEVELS if row["used"] >= least)
        found.append({**row, "level": level})
    return found


def _lines(tables: LakeTables, used: Any, brokers: list[str]) -> Lines:
    rates = spread_rates(tables.counters(names.FLOW_SECONDS), tables.step_ms)
    held = query("select ts, sum(rate) held from {rates} group by 1 order by 1", rates=rates)
    series: dict[str, list[tuple[float, float | None]]] = {
        "destinations held back": [(row["ts"], row["held"]) for row in tables.plain_rows(held)]
    }
    for row in tables.plain_rows(chosen(used, "broker", brokers).orderBy("broker", "ts")) if brokers else ():
        series.setdefault(f"memory of {row['broker']} (part)", []).append((row["ts"], row["used"]))
    return Lines(
        "Destinations whose producers were held back",
        "at a time",
        {name: with_holes(points, tables.step_ms) for name, points in series.items()},
    )
