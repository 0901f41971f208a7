"""Hot spots: the destinations, brokers and units of order that carry most of the traffic."""

from __future__ import annotations

import statistics
from typing import Any, Final

from raybroker.analysis import names
from raybroker.analysis.frames import chosen, query, spread_rates, with_holes
from raybroker.analysis.reports.answer import AnswerTable, Bars, Finding, JobAnswer, Lines, number, percent
from raybroker.analysis.tables import LakeTables

TOP: Final = 20
LINES: Final = 6
HOT_BROKER: Final = 2.0
"""A broker with this many times the median of the others is hot."""
HOT_DESTINATION: Final = 0.5
"""A destination with this part of all traffic is hot, if there are at least three."""
HOT_UNIT: Final = 0.3
"""A unit of order with this part of its destination's traffic bounds it: one consumer works for a unit at a time."""
HOT_BROKER_HARM: Final = 35.0
HOT_UNIT_HARM: Final = 40.0
HOT_DESTINATION_HARM: Final = 15.0
RATE_MIN: Final = 1.0
"""Messages a second below which nothing is called hot."""


def who_is_hot(tables: LakeTables) -> JobAnswer:
    """Destinations by messages a second, brokers by theirs, units by their part of a destination."""
    seconds = max(1.0, (tables.window.until_ms - tables.window.since_ms) / 1000)
    counters = tables.counters(names.IN, names.BYTES_IN, names.BROKER_CPU, names.UNITS)
    destinations = [{**row, "rate": row["messages"] / seconds} for row in tables.plain_rows(by_destination(counters))]
    brokers = [
        {**row, "rate": row["messages"] / seconds, "cpu": row["cpu_seconds"] / seconds}
        for row in tables.plain_rows(by_broker(counters))
    ]
    units = tables.plain_rows(by_unit(counters))
    everything = sum(row["messages"] for row in destinations)
    answer = JobAnswer("who_is_hot", "Who is hot: which destinations, brokers and units of order carry the load?", "")
    answer.findings += _hot_destinations(destinations, everything)
    answer.findings += _hot_brokers(brokers)
    answer.findings += [
        Finding(
            HOT_UNIT_HARM,
            f"unit {row['unit']} of {row['destination']}",
            f"has {percent(row['part'])} of the messages of {row['destination']}: one consumer at a time works for "
            "it, so more consumers do not help",
            row,
        )
        for row in units
        if row["part"] >= HOT_UNIT and row["messages"] / seconds >= RATE_MIN
    ]
    shown = destinations[:TOP]
    if shown:
        first = shown[0]
        answer.text = (
            f"{number(everything)} messages came in, {number(everything / seconds)} a second over "
            f"{len(destinations)} destinations. {first['destination']} has {percent(_part(first, everything))} of them."
        )
    else:
        answer.text = "No destination took messages in this time, or the lake has the aggregate tier alone."
    answer.tables += [
        AnswerTable(
            "Destinations",
            {
                "destination": "destination",
                "type": "type",
                "messages": "messages in",
                "rate": "in/s",
                "peak": "peak in/s",
                "bytes_text": "bytes in",
                "brokers": "brokers",
            },
            [{**row, "bytes_text": number(row["bytes"], "B")} for row in shown],
        ),
        AnswerTable(
            "Brokers",
            {"broker": "broker", "messages": "messages in", "rate": "in/s", "peak": "peak in/s", "cpu": "CPU cores"},
            brokers[:TOP],
        ),
        AnswerTable(
            "Units of order",
            {
                "destination": "destination",
                "unit": "unit",
                "messages": "messages",
                "part_text": "part of the destination",
            },
            [{**row, "part_text": percent(row["part"])} for row in units[:TOP]],
        ),
    ]
    answer.plots += [_lines(tables, [row["destination"] for row in shown[:LINES]])]
    if len(brokers) > 1:
        answer.plots.append(
            Bars("Messages in by broker", "msg/s", {row["broker"]: row["rate"] for row in brokers[:TOP]})
        )
    answer.figures = {"destinations": shown, "brokers": brokers, "units": units[:TOP], "messages": everything}
    return answer


def _part(row: dict[str, Any], everything: float) -> float:
    return row["messages"] / everything if everything else 0.0


def by_destination(counters: Any) -> Any:
    """Messages and bytes in, the busiest step, and the most brokers that took some at once."""
    return query(
        f"""
        with s as (select destination, type, ts, sum(if(metric = '{names.IN}', increase, 0)) n,
                          sum(if(metric = '{names.BYTES_IN}', increase, 0)) bytes,
                          sum(if(metric = '{names.IN}', rate, 0)) rate,
                          count(distinct if(increase > 0, broker, null)) brokers
                   from {{counters}} where metric in ('{names.IN}', '{names.BYTES_IN}') group by 1, 2, 3)
        select destination, type, sum(n) messages, sum(bytes) bytes, max(rate) peak, max(brokers) brokers
        from s group by 1, 2 having sum(n) > 0 order by messages desc, destination limit 1000
    """,
        counters=counters,
    )


def by_broker(counters: Any) -> Any:
    """Messages in, the busiest step, and seconds of processor time."""
    return query(
        f"""
        with s as (select broker, ts, sum(if(metric = '{names.IN}', increase, 0)) n,
                          sum(if(metric = '{names.IN}', rate, 0)) rate,
                          sum(if(metric = '{names.BROKER_CPU}', increase, 0)) cpu
                   from {{counters}} where metric in ('{names.IN}', '{names.BROKER_CPU}') group by 1, 2)
        select broker, sum(n) messages, max(rate) peak, sum(cpu) cpu_seconds
        from s group by 1 order by messages desc, broker
    """,
        counters=counters,
    )


def by_unit(counters: Any) -> Any:
    """Units of order by their part of the messages of their destination."""
    return query(
        f"""
        with u as (select destination, type, labels['unit'] unit, sum(increase) messages
                   from {{counters}} where metric = '{names.UNITS}' group by 1, 2, 3),
             d as (select destination, type, sum(increase) everything from {{counters}}
                   where metric = '{names.IN}' group by 1, 2)
        select destination, unit, messages, least(1.0, try_divide(messages, everything)) part
        from u join d using (destination, type) where everything > 0 and messages > 0
        order by part desc, messages desc, destination, unit limit 100
    """,
        counters=counters,
    )


def over_time(counters: Any, step_ms: int) -> Any:
    """Rates by destination and step, over all brokers; one that was not scraped went on meanwhile."""
    return query(
        "select destination, ts, sum(rate) rate from {rates} group by 1, 2 order by 1, 2",
        rates=spread_rates(counters, step_ms),
    )


def _hot_destinations(rows: list[dict[str, Any]], everything: float) -> list[Finding]:
    if len(rows) < 3:
        return []
    return [
        Finding(
            HOT_DESTINATION_HARM,
            row["destination"],
            f"carries {percent(_part(row, everything))} of all messages, "
            f"{number(row['rate'])}/s, with peaks of {number(row['peak'])}/s",
            row,
        )
        for row in rows
        if _part(row, everything) >= HOT_DESTINATION and row["rate"] >= RATE_MIN
    ]


def _hot_brokers(rows: list[dict[str, Any]]) -> list[Finding]:
    if len(rows) < 2:
        return []
    found = []
    for row in rows:
        others = sorted(one["rate"] for one in rows if one is not row)
        middle = statistics.median(others)
        range_ = number(others[0]) if others[0] == others[-1] else f"{number(others[0])} to {number(others[-1])}"
        if row["rate"] >= RATE_MIN and row["rate"] >= HOT_BROKER * middle:
            found.append(
                Finding(
                    HOT_BROKER_HARM,
                    row["broker"],
                    f"takes {number(row['rate'])} messages a second where the others take "
                    f"{range_}: spread the producers (addresses, placement) or move destinations",
                    {**row, "median_of_others": middle},
                )
            )
    return found


def _lines(tables: LakeTables, wanted: list[str]) -> Lines:
    series: dict[str, list[tuple[float, float | None]]] = {name: [] for name in wanted}
    lines = over_time(chosen(tables.counters(names.IN), "destination", wanted), tables.step_ms)
    for row in tables.plain_rows(lines) if wanted else ():
        series[row["destination"]].append((row["ts"], row["rate"]))
    return Lines(
        "Messages in by destination",
        "msg/s",
        {name: with_holes(points, tables.step_ms) for name, points in series.items()},
    )
