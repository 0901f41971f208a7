"""Path service: how evenly units of order are spread over the members."""

from __future__ import annotations

from typing import Any, Final

from raybroker.analysis import names
from raybroker.analysis.frames import query, with_holes
from raybroker.analysis.reports.answer import AnswerTable, Bars, Finding, JobAnswer, Lines, number
from raybroker.analysis.tables import LakeTables

SKEW: Final = 2.0
"""Units of a member by the mean of all, above which the spread is uneven."""
UNITS_MIN: Final = 20
UNEVEN: Final = 32.0
"""Harm of an uneven spread."""


def are_paths_even(tables: LakeTables) -> JobAnswer:
    """Units by member at the end, and over time."""
    gauges = tables.gauges(names.PATH_UNITS)
    rows = tables.plain_rows(at_the_end(gauges))
    answer = JobAnswer("are_paths_even", "Does the path service spread units of order evenly?", "")
    total = sum(row["units"] for row in rows)
    members = max(len(rows), len(tables.brokers)) if rows else 0
    mean = total / members if members else 0.0
    for row in rows:
        row["skew"] = row["units"] / mean if mean else 0.0
    answer.text = (
        f"{number(total)} units on {len(rows)} members, {number(mean)} on average."
        if rows
        else "The path service is not in use."
    )
    answer.findings += [
        Finding(
            UNEVEN,
            row["member"],
            f"has {number(row['units'])} units of order, {row['skew']:.1f} times the "
            "average: it was there first, or the others were away; new units go to the others",
            row,
        )
        for row in rows
        if row["skew"] >= SKEW and row["units"] >= UNITS_MIN
    ]
    answer.tables.append(
        AnswerTable("Units by member", {"member": "member", "units": "units", "skew": "by the average"}, rows[:30])
    )
    if rows:
        answer.plots += [
            Bars("Units of order", "units", {row["member"]: row["units"] for row in rows[:30]}),
            _lines(tables, gauges),
        ]
    answer.figures = {"members": rows, "units": total, "mean": mean}
    return answer


def at_the_end(gauges: Any) -> Any:
    """Units by member in the last step."""
    return query(
        """
        with t as (select ts, labels['member'] member, max(last) units from {gauges} group by 1, 2),
             n as (select max(ts) newest from t)
        select member, units from t join n on ts = newest order by units desc, member
    """,
        gauges=gauges,
    )


def skew(gauges: Any) -> Any:
    """The largest member by the average, by step."""
    return query(
        """
        with t as (select ts, labels['member'] member, max(last) units from {gauges} group by 1, 2)
        select ts, try_divide(max(units), avg(units)) skew from t group by 1 order by 1
    """,
        gauges=gauges,
    )


def _lines(tables: LakeTables, gauges: Any) -> Lines:
    points = with_holes([(row["ts"], row["skew"]) for row in tables.plain_rows(skew(gauges))], tables.step_ms)
    return Lines("Largest member by the average", "times", {"skew": points})
