"""Unusual hours: redeliveries, expiries, dead and refused messages, against the same hour of the other days.

An hour is unusual when it has many more than is usual for its hour of the day: the median of the other days, with their
median deviation and the chance of counting as a measure.  With fewer than three days there is no usual hour; then an
hour is compared with the other hours.
"""

from __future__ import annotations

import math
import statistics
from typing import Any, Final

from raybroker.analysis import names
from raybroker.analysis.frames import query
from raybroker.analysis.lake.plan import moment
from raybroker.analysis.reports.answer import AnswerTable, Finding, JobAnswer, Lines, lost, number
from raybroker.analysis.tables import LakeTables

METRICS: Final = {
    "redelivered": names.REDELIVERED,
    "expired": names.EXPIRED,
    "dead": names.DEAD,
    "refused": names.REFUSED,
}
WEIGHTS: Final = {"dead": 12.0, "refused": 10.0, "expired": 9.0, "redelivered": 7.0}
"""How bad each is: a dead message is lost until somebody looks, a redelivered one cost some work."""
SCORE_MIN: Final = 5.0
EXCESS_MIN: Final = 10.0
RATIO_MIN: Final = 1.5
"""An unusual hour has at least so many times what is usual, and EXCESS_MIN more."""
DAYS_MIN: Final = 3
SCALE: Final = 1.4826
"""The median deviation by this is a standard deviation, for values that scatter normally."""
HOUR_MS: Final = 3_600_000
SHOWN: Final = 30


def what_is_unusual(tables: LakeTables) -> JobAnswer:
    """The hours of each destination with unusually many redelivered, expired, dead or refused messages."""
    hours = tables.plain_rows(hourly(tables.counters(*METRICS.values())))
    days = len({hour["ts"] // 86_400_000 for hour in hours})
    by_day = days > DAYS_MIN
    found: list[dict[str, Any]] = []
    series: dict[tuple[str, str, str], dict[int, float]] = {}
    for hour in hours:
        series.setdefault((hour["what"], hour["destination"], hour["type"]), {})[hour["ts"]] = hour["messages"]
    for (what, destination, type_), values in series.items():
        for ts, messages, usual, score in unusual(values, by_day=by_day):
            found.append(
                {
                    "what": what,
                    "destination": destination,
                    "type": type_,
                    "start": ts,
                    "messages": messages,
                    "usual": usual,
                    "score": score,
                }
            )
    found.sort(key=lambda row: -row["score"])
    answer = JobAnswer(
        "what_is_unusual", "Are there unusually many redelivered, expired, dead or refused messages?", ""
    )
    measure = "the same hour of the other days" if by_day else "the other hours (too few days for more)"
    answer.text = f"{len(found)} unusual hours, measured against {measure}."
    answer.findings += [
        Finding(
            lost(row["messages"] - row["usual"], WEIGHTS[row["what"]]),
            row["destination"],
            f"{number(row['messages'])} messages {row['what']} in the hour from {moment(row['start'])} on, usual "
            f"are {number(row['usual'])}",
            row,
        )
        for row in found[:SHOWN]
    ]
    answer.tables.append(
        AnswerTable(
            "Unusual hours",
            {
                "destination": "destination",
                "what": "what",
                "from": "hour",
                "messages": "messages",
                "usual": "usual",
                "score": "deviations",
            },
            [{**row, "from": moment(row["start"])} for row in found[:SHOWN]],
        )
    )
    sums: dict[str, dict[int, float]] = {what: {} for what in METRICS}
    for hour in hours:
        sums[hour["what"]][hour["ts"]] = sums[hour["what"]].get(hour["ts"], 0.0) + hour["messages"]
    answer.plots.append(
        Lines(
            "All destinations, by hour",
            "messages",
            {what: sorted(values.items()) for what, values in sums.items() if any(values.values())},
        )
    )
    answer.figures = {"hours": found[:1000], "by_day": by_day}
    return answer


def unusual(values: dict[int, float], *, by_day: bool) -> list[tuple[int, float, float, float]]:
    """(hour's start, value, usual value, score) of the hours that stick out among those they are compared with."""
    found = []
    peers: dict[int, list[int]] = {}
    for ts in values:
        peers.setdefault(ts // HOUR_MS % 24 if by_day else 0, []).append(ts)
    for group in peers.values():
        for ts in group:
            others = [values[one] for one in group if one != ts]
            if len(others) < DAYS_MIN or values[ts] < EXCESS_MIN:
                continue
            usual = statistics.median(others)
            spread = SCALE * statistics.median(abs(other - usual) for other in others) + math.sqrt(usual + 1)
            score = (values[ts] - usual) / spread
            if score >= SCORE_MIN and values[ts] >= max(RATIO_MIN * usual, usual + EXCESS_MIN):
                found.append((ts, values[ts], usual, score))
    return found


def hourly(counters: Any) -> Any:
    """Counts by hour of those destinations that have enough of something to be unusual at all."""
    what = " ".join(f"when '{metric}' then '{what}'" for what, metric in METRICS.items())
    return query(
        f"""
        with h as (select case metric {what} end what, destination, type, date_trunc('hour', ts) ts,
                          sum(increase) messages
                   from {{counters}} group by 1, 2, 3, 4),
             k as (select what, destination, type, max(messages) most from h group by 1, 2, 3
                   having max(messages) >= {EXCESS_MIN} order by most desc, what, destination, type limit 100)
        select what, destination, type, ts, messages from h join k using (what, destination, type)
        order by ts, what, destination, type
    """,
        counters=counters,
    )
