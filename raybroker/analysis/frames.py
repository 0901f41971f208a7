"""DataFrame → DataFrame functions that several jobs share: queries over frames, gaps, histograms put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def query(sql: str, **frames: Any) -> Any:
    """The result of a query whose tables stand in braces: ``query("select 1 from {rows}", rows=frame)``."""
    return next(iter(frames.values())).sparkSession.sql(sql, **frames)


def chosen(frame: Any, column: str, values: Sequence[str]) -> Any:
    """The rows whose column has one of the values, whatever letters those have."""
    return frame.where(frame[column].isin(list(values)))


def spread_rates(counters: Any, step_ms: int) -> Any:
    """broker, destination, type, metric, ts, rate: a rate holds for every step since the scrape before.

    A broker that was not scraped for a while did not stand still: what its counters rose by stands in the first step
    after the gap, with a rate that is that of the whole gap.
    """
    return query(
        f"""
        with s as (select *, lag(ts) over (partition by broker, destination, type, metric, to_json(labels) order by ts)
                             before
                   from {{counters}} where rate is not null)
        select broker, destination, type, metric, rate,
               explode(sequence(least(ts, coalesce(before + interval {step_ms} milliseconds, ts)), ts,
                                interval {step_ms} milliseconds)) ts
        from s
    """,
        counters=counters,
    )


def held_levels(gauges: Any, scraped: Any, step_ms: int) -> Any:
    """broker, destination, type, metric, ts, mean: a gauge stays what it was while its broker is not scraped.

    Only in steps in which another broker was; where nobody was scraped nothing is known.  ``scraped``: gauges of all
    brokers, which say when they were.
    """
    return query(
        f"""
        with p as (select distinct broker, ts from {{scraped}}),
             s as (select *, lead(ts) over (partition by broker, destination, type, metric, to_json(labels) order by ts)
                             after
                   from {{gauges}}),
             e as (select broker, destination, type, metric, mean, ts at,
                          explode(sequence(ts, greatest(ts, coalesce(after - interval {step_ms} milliseconds, ts)),
                                           interval {step_ms} milliseconds)) ts
                   from s),
             f as (select e.* from e left anti join p on e.broker = p.broker and e.ts = p.ts where e.ts > e.at)
        select broker, destination, type, metric, mean, ts from {{gauges}}
        union all
        select broker, destination, type, metric, mean, ts from f
            left semi join (select distinct ts from p) k on f.ts = k.ts
    """,
        gauges=gauges,
        scraped=scraped,
    )


def merged(histograms: Any, by: str = "") -> Any:
    """Histograms put together by columns: those, ``number``, ``total``, ``buckets``.

    Buckets are added edge by edge; series with different edges (of different versions) come apart correctly, because
    counts are cumulative, only at the edges that all have.
    """
    columns = f"{by}, " if by else ""
    return query(
        f"""
        select {columns} max(number) number, max(total) total, array_sort(collect_list(struct(le, n))) buckets from (
            select {columns} le, sum(n) n, sum(increase) number, sum(total) total
            from {{histograms}} lateral view inline(arrays_zip(edges, counts)) b as le, n
            group by {columns} le)
        {f"group by {by}" if by else ""}
    """,
        histograms=histograms,
    )


def with_holes(points: Sequence[tuple[float, float | None]], step_ms: int) -> list[tuple[float, float | None]]:
    """Points by rising time, and between those that are more than a step apart one that says that nothing is known."""
    made: list[tuple[float, float | None]] = []
    for ts, value in points:
        if made and ts - made[-1][0] > 1.5 * step_ms:
            made.append((made[-1][0] + step_ms, None))
        made.append((ts, value))
    return made
