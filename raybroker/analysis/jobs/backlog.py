"""Backlogs: destinations whose backlog grows, the time until they reach their quota, and the time draining takes."""

from __future__ import annotations

from typing import Any, Final

from raybroker.analysis import names
from raybroker.analysis.frames import chosen, held_levels, query, with_holes
from raybroker.analysis.reports.answer import AnswerTable, Finding, JobAnswer, Lines, due, duration, number
from raybroker.analysis.tables import LakeTables

TREND_STEPS: Final = 24
"""The trend is that of so many of the last steps."""
R2_MIN: Final = 0.5
"""A trend explains at least this part of what changes, else it is none."""
QUOTA_SOON_S: Final = 86_400.0
HELD_MIN: Final = 100
GROWS: Final = 45.0
DRAINS: Final = 10.0
"""Harm of a backlog that is far from its quota, or drained."""
TOP: Final = 20


def what_piles_up(tables: LakeTables) -> JobAnswer:
    """The trend of messages held by broker and destination over the last steps, and what follows from it."""
    asked = tables.gauges(names.HELD, names.HELD_BYTES, names.QUOTA_MESSAGES, names.QUOTA_BYTES)
    since_ms = tables.window.until_ms - TREND_STEPS * tables.step_ms
    found = sorted(tables.plain_rows(trends(asked, since_ms)), key=lambda row: -row["held"])
    rows = [{**row, **_outlook(row)} for row in found]
    answer = JobAnswer("what_piles_up", "What piles up, and when is it drained or at its quota?", "")
    for row in rows:
        where = f"{row['destination']} on {row['broker']}"
        if row["to_quota_s"] is not None and row["to_quota_s"] <= QUOTA_SOON_S:
            answer.findings.append(
                Finding(
                    due(row["to_quota_s"]),
                    where,
                    f"holds {number(row['held'])} messages, grows by {number(row['slope'])} a second and reaches "
                    f"its quota of {row['quota']} in {duration(row['to_quota_s'])}",
                    row,
                )
            )
        elif row["trend"] == "grows" and row["held"] >= HELD_MIN:
            answer.findings.append(
                Finding(
                    GROWS,
                    where,
                    f"holds {number(row['held'])} messages and grows by {number(row['slope'])} a second",
                    row,
                )
            )
        elif row["trend"] == "drains" and row["held"] >= HELD_MIN:
            answer.findings.append(
                Finding(
                    DRAINS,
                    where,
                    f"holds {number(row['held'])} messages and is drained in {duration(row['to_drain_s'])}",
                    row,
                )
            )
    growing = sum(row["trend"] == "grows" for row in rows)
    held = sum(row["held"] for row in rows)
    answer.text = f"{number(held)} messages are held at the end, {growing} of {len(rows)} backlogs grow."
    answer.tables.append(
        AnswerTable(
            "Backlogs at the end",
            {
                "destination": "destination",
                "broker": "broker",
                "held": "messages",
                "slope": "change/s",
                "trend": "trend",
                "to_drain": "drained in",
                "to_quota": "quota in",
            },
            [
                {**row, "to_drain": duration(row["to_drain_s"]), "to_quota": duration(row["to_quota_s"])}
                for row in rows[:TOP]
            ],
        )
    )
    answer.plots.append(_lines(tables, [row["destination"] for row in rows]))
    answer.figures = {"backlogs": rows[:1000], "held": held, "growing": growing}
    return answer


def trends(gauges: Any, since_ms: int) -> Any:
    """What is held by broker and destination, its rise a second from ``since_ms`` on, and quotas."""
    return query(
        f"""
        with g as (select broker, destination, type, unix_millis(ts) / 1000 t, last, metric from {{gauges}}
                   where metric in ('{names.HELD}', '{names.HELD_BYTES}') and ts >= timestamp_millis({since_ms})),
             m as (select broker, destination, type, max_by(last, t) held, regr_slope(last, t) slope,
                          regr_r2(last, t) r2, count(1) points from g where metric = '{names.HELD}' group by 1, 2, 3),
             b as (select broker, destination, type, max_by(last, t) bytes, regr_slope(last, t) bytes_slope
                   from g where metric = '{names.HELD_BYTES}' group by 1, 2, 3),
             q as (select broker, destination, type,
                          max_by(last, ts) filter (where metric = '{names.QUOTA_MESSAGES}') quota_messages,
                          max_by(last, ts) filter (where metric = '{names.QUOTA_BYTES}') quota_bytes
                   from {{gauges}} where metric in ('{names.QUOTA_MESSAGES}', '{names.QUOTA_BYTES}') group by 1, 2, 3)
        select m.*, bytes, bytes_slope, quota_messages, quota_bytes
        from m left join b using (broker, destination, type) left join q using (broker, destination, type)
        where held > 0 or abs(slope) > 0 order by held desc, destination, type, broker limit 10000
    """,
        gauges=gauges,
    )


def held_over_time(gauges: Any, scraped: Any, step_ms: int) -> Any:
    """Messages held by destination and step, over all brokers; one that was not scraped holds what it held."""
    return query(
        "select destination, ts, sum(mean) held from {levels} group by 1, 2 order by 1, 2",
        levels=held_levels(gauges, scraped, step_ms),
    )


def _outlook(row: dict[str, Any]) -> dict[str, Any]:
    slope = row["slope"] or 0.0
    certain = (row["points"] or 0) >= 3 and (row["r2"] or 0.0) >= R2_MIN
    trend = "grows" if certain and slope > 0 else "drains" if certain and slope < 0 < row["held"] else "steady"
    quotas = [
        (name, (limit - now) / rise)
        for name, now, rise, limit in (
            ("messages", row["held"], slope, row["quota_messages"]),
            ("bytes", row["bytes"], row["bytes_slope"], row["quota_bytes"]),
        )
        if trend == "grows" and limit is not None and limit > 0 and rise and rise > 0 and now is not None
    ]
    name, to_quota = min(quotas, key=lambda pair: pair[1], default=("", None))
    return {
        "slope": slope,
        "trend": trend,
        "to_drain_s": row["held"] / -slope if trend == "drains" else None,
        "to_quota_s": None if to_quota is None else max(0.0, to_quota),
        "quota": name,
    }


def _lines(tables: LakeTables, order: list[str]) -> Lines:
    names_ = list(dict.fromkeys(order))[:6]
    series: dict[str, list[tuple[float, float | None]]] = {name: [] for name in names_}
    held = tables.gauges(names.HELD)
    lines = held_over_time(chosen(held, "destination", names_), held, tables.step_ms)
    for row in tables.plain_rows(lines) if names_ else ():
        series[row["destination"]].append((row["ts"], row["held"]))
    return Lines(
        "Messages held",
        "messages",
        {name: with_holes(points, tables.step_ms) for name, points in series.items()},
    )
