"""Forecasts: quantities that grow from day to day, and the day on which they reach a limit that is known.

Each whole day counts with its highest step, so that the time of day plays no part; a line through them says the rest.
With fewer than three days the line goes through steps, and the answer says so: an afternoon's growth is no forecast.
"""

from __future__ import annotations

from typing import Any, Final

from raybroker.analysis import names
from raybroker.analysis.frames import query, spread_rates, with_holes
from raybroker.analysis.jobs.episodes import OF_MEMORY, USED
from raybroker.analysis.reports.answer import AnswerTable, Finding, JobAnswer, Lines, due, duration, number, percent
from raybroker.analysis.tables import LakeTables

COUNTERS: Final = (names.BROKER_CPU, names.BROKER_IN)
GAUGES: Final = (*OF_MEMORY, names.QUOTA_USED, names.STORE_LIVE)
DAY_S: Final = 86_400.0
DAYS_MIN: Final = 3
TELL_DAYS: Final = 0.25
"""A shorter time than this shows what grows and tells nobody to act."""
R2_MIN: Final = 0.5
WHOLE_PART: Final = 0.9
"""A day is whole with this part of the steps that the fullest day has."""
SOON_DAYS: Final = 30.0
TENDENCY: Final = 25.0
"""Harm of what a time that is too short for a forecast lets expect."""
CPU_FULL: Final = 0.8
"""Cores of a broker's processes that count as full: a host's loop is one thread."""


def when_is_it_full(tables: LakeTables) -> JobAnswer:
    """Growth a day of memory, quotas, processor and traffic, and days to the limit."""
    days = (tables.window.until_ms - tables.window.since_ms) / 1000 / DAY_S
    by_day = days >= DAYS_MIN
    found = tables.plain_rows(trends(tables.counters(*COUNTERS), tables.gauges(*GAUGES), by_day=by_day))
    rows = [_outlook(row, enough=days >= TELL_DAYS) for row in found]
    rows.sort(key=lambda row: (row["days_left"] is None, row["days_left"] or 0.0, -abs(row["growth_part"] or 0.0)))
    answer = JobAnswer("when_is_it_full", "What grows, and when is it full?", "")
    soon = [row for row in rows if row["days_left"] is not None and row["days_left"] <= SOON_DAYS]
    answer.findings += [
        Finding(
            due(row["days_left"] * DAY_S) if by_day else TENDENCY,
            f"{row['what']} of {row['subject']}",
            f"is at {_amount(row, row['now'])}, grows by {_amount(row, row['per_day'])} a day and reaches "
            f"{_amount(row, row['full'])} in {duration(row['days_left'] * DAY_S)}",
            row,
        )
        for row in (soon[:30] if days >= TELL_DAYS else ())
    ]
    basis = f"{days:.1f} days" if by_day else f"only {duration(days * DAY_S)}: a tendency, no forecast"
    first = f", the first in {duration(soon[0]['days_left'] * DAY_S)}" if soon else ""
    answer.text = f"{len(soon)} limits are reached within {SOON_DAYS:.0f} days if growth goes on{first}; from {basis}."
    if days < TELL_DAYS:
        answer.text = f"{duration(days * DAY_S)} of metrics say nothing of days to come; this is how it stands."
    answer.tables.append(
        AnswerTable(
            "Growth",
            {
                "what": "what",
                "subject": "of",
                "at": "now",
                "growth": "a day",
                "part": "of itself",
                "limit": "limit",
                "left": "left",
            },
            [
                {
                    **row,
                    "at": _amount(row, row["now"]),
                    "growth": _amount(row, row["per_day"]),
                    "part": percent(row["growth_part"]),
                    "limit": _amount(row, row["full"]),
                    "left": duration(None if row["days_left"] is None else row["days_left"] * DAY_S),
                }
                for row in rows[:40]
            ],
        )
    )
    answer.plots.append(_lines(tables))
    answer.figures = {"growth": rows[:1000], "by_day": by_day}
    return answer


def _amount(row: dict[str, Any], value: float | None) -> str:
    if row["unit"] == "part":
        return percent(value)
    return number(value, row["unit"])


def trends(counters: Any, gauges: Any, *, by_day: bool) -> Any:
    """What grows, by how much a day: a line through the highest value of each whole day, or through all steps."""
    bucket = "date_trunc('day', ts)" if by_day else "ts"
    quantities = f"""
        select 'memory' what, 'part' unit, broker subject, ts,
               {USED} value
        from {{gauges}} where metric in {OF_MEMORY} group by broker, ts
        union all
        select 'quota', 'part', concat(destination, ' on ', broker), ts, max(high) from {{gauges}}
        where metric = '{names.QUOTA_USED}' group by destination, broker, ts
        union all
        select 'processor', 'cores', broker, ts, sum(rate) from {{counters}}
        where metric = '{names.BROKER_CPU}' group by broker, ts
        union all
        select 'messages in', 'msg/s', broker, ts, sum(rate) from {{counters}}
        where metric = '{names.BROKER_IN}' group by broker, ts
        union all
        select 'store', 'B', broker, ts, sum(high) from {{gauges}}
        where metric = '{names.STORE_LIVE}' group by broker, ts
    """
    return query(
        f"""
        with q as ({quantities}),
             t as (select *, unix_millis(ts) / 1000.0 / {DAY_S} day, {bucket} bucket from q where value is not null),
             d as (select what, unit, subject, bucket, max_by(day, value) day, max(value) value, count(1) steps
                   from t group by 1, 2, 3, 4),
             w as (select *, max(steps) over (partition by what, subject) whole from d),
             l as (select what, unit, subject, regr_slope(value, day) per_day, regr_r2(value, day) r2,
                          regr_intercept(value, day) start, count(1) points, max(value) most
                   from w where steps >= {WHOLE_PART} * whole group by 1, 2, 3),
             n as (select what, unit, subject, max_by(value, day) now, max(day) today from t group by 1, 2, 3)
        select what, unit, subject, now, per_day, r2, per_day * today + start fitted, points
        from l join n using (what, unit, subject) where points >= 3 and most > 0
        order by per_day / greatest(now, 1e-9) desc, what, subject limit 2000
    """,
        counters=counters,
        gauges=gauges,
    )


def _outlook(row: dict[str, Any], *, enough: bool) -> dict[str, Any]:
    """``enough``: the time suffices to say what a day brings; of a shorter one nothing is said but how it stands."""
    if not enough:
        row = {**row, "per_day": None}
    full = {"memory": 1.0, "quota": 1.0, "processor": CPU_FULL}.get(row["what"])
    grows = (row["per_day"] or 0.0) > 0 and (row["r2"] or 0.0) >= R2_MIN
    left = None
    if full is not None and grows:
        left = max(0.0, (full - row["fitted"]) / row["per_day"])
    part = row["per_day"] / row["now"] if row["per_day"] is not None and row["now"] else None
    return {**row, "full": full, "days_left": left, "growth_part": part}


def _lines(tables: LakeTables) -> Lines:
    rates = spread_rates(tables.counters(names.BROKER_IN), tables.step_ms)
    rows = tables.plain_rows(query("select ts, sum(rate) rate from {rates} group by 1 order by 1", rates=rates))
    points = with_holes([(row["ts"], row["rate"]) for row in rows], tables.step_ms)
    return Lines("Messages in, all brokers", "msg/s", {"messages in": points})
