"""Prefetch: the limit and threshold that suit a destination, by its consumers' service time and round trip.

While a request for more travels and the messages come back a consumer works on what it has: it needs the round trip by
its service time, with a margin, when it asks.  So the threshold is that many messages, and the limit twice as many, for
there must be as much again to work on.  A limit far above that only takes messages from other consumers, and
memory: consumers x limit x size x 2.
"""

from __future__ import annotations

import math
from typing import Any, Final

from raybroker.analysis import names
from raybroker.analysis.frames import merged, query
from raybroker.analysis.reports.answer import AnswerTable, Finding, JobAnswer, duration, number, percent
from raybroker.analysis.tables import LakeTables, quantile, split

MARGIN: Final = 2.0
ROUND_TRIP_S: Final = 0.001
"""Taken where no round trips were measured."""
LIMIT_MIN: Final = 2
LIMIT_MAX: Final = 10_000
NICE: Final = (1, 2, 5)
TOO_LOW: Final = 0.5
TOO_HIGH: Final = 10.0
TOO_LOW_HARM: Final = 35.0
TOO_HIGH_HARM: Final = 12.0
DRY_PART: Final = 0.1
"""Part of requests that found the buffer empty, above which a low limit is known to have cost time."""
HOARD_S: Final = 10.0
"""A buffer that is work for longer than this keeps messages from others."""


def which_prefetch(tables: LakeTables) -> JobAnswer:
    """Advice for each destination whose consumers were measured."""
    round_trip = _round_trip(tables)
    rows = [_advice(row, round_trip) for row in _measured(tables)]
    rows.sort(key=lambda row: -row["number"])
    answer = JobAnswer("which_prefetch", "Which prefetch limit and threshold do consumers need?", "")
    for row in rows:
        answer.findings += _finding(row)
    assumed = "" if round_trip is not None else " (assumed: none was measured)"
    used = ROUND_TRIP_S if round_trip is None else round_trip
    answer.text = (
        f"With a round trip of {duration(used)}{assumed} and the measured service times; memory by consumers × limit × "
        "message size × 2."
    )
    answer.tables.append(
        AnswerTable(
            "Advice",
            {
                "destination": "destination",
                "consumers": "consumers",
                "service": "time for a message",
                "limit": "limit now",
                "dry": "ran dry",
                "advised_limit": "limit advised",
                "advised_threshold": "threshold advised (%)",
                "memory_now": "memory now",
                "memory_advised": "memory advised",
            },
            [
                {
                    **row,
                    "service": duration(row["service_s"]),
                    "dry": percent(row["dry_part"]),
                    "memory_now": number(row["memory_bytes"], "B"),
                    "memory_advised": number(row["advised_memory_bytes"], "B"),
                }
                for row in rows[:20]
            ],
        )
    )
    answer.figures = {"round_trip_s": used, "measured": round_trip is not None, "destinations": rows}
    return answer


def advise(service_s: float, round_trip_s: float) -> tuple[int, int]:
    """Limit, and threshold in percent of it, for a service time and a round trip."""
    needed = max(1.0, MARGIN * round_trip_s / service_s) if service_s > 0 else LIMIT_MAX / 2
    limit = min(LIMIT_MAX, max(LIMIT_MIN, _nice(2 * needed)))
    return limit, min(90, max(10, math.ceil(100 * needed / limit)))


def memory_bytes(consumers: float, limit: float, message_bytes: float) -> float:
    """Memory that clients need for their buffers."""
    return consumers * limit * message_bytes * 2


def _nice(value: float) -> int:
    scale = 10.0 ** math.floor(math.log10(value))
    return next((round(step * scale) for step in NICE if step * scale >= value * 0.999), 10 * round(scale))


def _round_trip(tables: LakeTables) -> float | None:
    row = tables.plain_rows(merged(tables.histograms(names.ROUND_TRIP)))
    return quantile(*split(row[0]["buckets"]), 0.9) if row and row[0]["buckets"] is not None else None


def measured(counters: Any, gauges: Any, histograms: Any) -> Any:
    """Consumers, their limit, service time and message size. Consumers are attached at every broker: counted once."""
    return query(
        f"""
        with m as (select destination, type, broker, ts, sum(if(metric = '{names.CONSUMERS}'
                                 and labels['state'] = 'active', mean, 0)) consumers,
                          sum(if(metric = '{names.LIMIT}', mean, 0)) limits
                   from {{gauges}} group by 1, 2, 3, 4),
             g as (select destination, type, ts, max(consumers) consumers, max(limits) limits from m group by 1, 2, 3),
             n as (select destination, type, avg(consumers) consumers, try_divide(avg(limits), avg(consumers)) limit
                   from g where consumers > 0 group by 1, 2),
             b as (select destination, type, sum(if(metric = '{names.BYTES_IN}', increase, 0)) bytes,
                          sum(if(metric = '{names.IN}', increase, 0)) messages
                   from {{counters}} group by 1, 2),
             s as (select destination, type, sum(increase) number, try_divide(sum(total), sum(increase)) service_s
                   from {{histograms}} group by 1, 2 having sum(increase) > 0)
        select destination, type, number, service_s, consumers, limit, try_divide(bytes, messages) message_bytes
        from s join n using (destination, type) left join b using (destination, type) order by number desc limit 1000
    """,
        counters=counters,
        gauges=gauges,
        histograms=histograms,
    )


def _measured(tables: LakeTables) -> list[dict[str, Any]]:
    rows = tables.plain_rows(
        measured(
            tables.counters(names.BYTES_IN, names.IN),
            tables.gauges(names.CONSUMERS, names.LIMIT),
            tables.histograms(names.SERVICE),
        )
    )
    dry = {
        (row["destination"], row["type"]): row
        for row in tables.plain_rows(merged(tables.histograms(names.OCCUPANCY), "destination, type"))
    }
    for row in rows:
        asked = dry.get((row["destination"], row["type"]))
        row["dry_part"] = None
        if asked is not None and asked["number"]:
            edges, counts = split(asked["buckets"])
            row["dry_part"] = counts[0] / counts[-1] if counts and counts[-1] and edges[0] <= 0 else None
    return rows


def _advice(row: dict[str, Any], round_trip: float | None) -> dict[str, Any]:
    limit, threshold = advise(row["service_s"], ROUND_TRIP_S if round_trip is None else round_trip)
    size = row["message_bytes"] or 0.0
    now = row["limit"] or 0.0
    verdict = "right"
    if now and now < TOO_LOW * limit and (row["dry_part"] is None or row["dry_part"] >= DRY_PART):
        verdict = "too low"
    elif now > TOO_HIGH * limit and now * row["service_s"] >= HOARD_S:
        verdict = "too high"
    return {
        **row,
        "limit": now,
        "advised_limit": limit,
        "advised_threshold": threshold,
        "verdict": verdict,
        "memory_bytes": memory_bytes(row["consumers"], now, size),
        "advised_memory_bytes": memory_bytes(row["consumers"], limit, size),
    }


def _finding(row: dict[str, Any]) -> list[Finding]:
    advice = (
        f"set consumerFlowLimit={row['advised_limit']} and a threshold of {row['advised_threshold']} % "
        f"(memory of all clients {number(row['advised_memory_bytes'], 'B')})"
    )
    if row["verdict"] == "too low":
        return [
            Finding(
                TOO_LOW_HARM,
                row["destination"],
                f"consumers have a limit of {number(row['limit'])}, need "
                f"{duration(row['service_s'])} for a message and ran dry "
                f"{percent(row['dry_part'])} of the time: {advice}",
                row,
            )
        ]
    if row["verdict"] == "too high":
        return [
            Finding(
                TOO_HIGH_HARM,
                row["destination"],
                f"a full buffer is work for {duration(row['limit'] * row['service_s'])}, which other "
                f"consumers cannot take over: {advice}",
                row,
            )
        ]
    return []
