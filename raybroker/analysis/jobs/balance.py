"""Balance: producers faster than consumers, consumers without messages, messages without consumers."""

from __future__ import annotations

from typing import Any, Final

from raybroker.analysis import names
from raybroker.analysis.frames import query
from raybroker.analysis.reports.answer import AnswerTable, Bars, Finding, JobAnswer, duration, number, percent
from raybroker.analysis.tables import LakeTables

GAUGES: Final = {
    "producers": names.PRODUCERS,
    "consumers": names.CONSUMERS,
    "idle": names.IDLE,
    "full": names.FULL,
    "waiting": names.WAITING,
    "oldest": names.OLDEST_AGE,
}
IMBALANCE: Final = 1.1
"""Messages in by messages out above which consumers are too slow."""
RATE_MIN: Final = 1.0
STARVED_PART: Final = 0.2
"""Part of the time that a broker's consumers were idle while another one had messages waiting."""
IDLE_PART: Final = 0.9
ABANDONED: Final = 60.0
SLOW: Final = 55.0
STARVED: Final = 50.0
"""Harm of messages without consumers, of consumers that are too slow, or that wait beside messages."""
TOP: Final = 20


def who_waits_for_whom(tables: LakeTables) -> JobAnswer:
    """Rates in and out, who was idle or full how long, by destination over all brokers."""
    seconds = max(1.0, (tables.window.until_ms - tables.window.since_ms) / 1000)
    found = tables.plain_rows(balances(tables.counters(names.IN, names.OUT), tables.gauges(*GAUGES.values())))
    rows = [_rated(row, seconds) for row in found]
    answer = JobAnswer(
        "who_waits_for_whom", "Who waits for whom: are producers and consumers in balance, who starves?", ""
    )
    for row in rows:
        answer.findings += _findings(row)
    slow = sum(row["verdict"] == "consumers too slow" for row in rows)
    starved = sum(row["starved_part"] >= STARVED_PART for row in rows)
    answer.text = (
        f"{len(rows)} destinations: consumers of {slow} are too slow, {starved} had idle consumers at one broker while "
        "messages waited at another."
    )
    answer.tables.append(
        AnswerTable(
            "Balance",
            {
                "destination": "destination",
                "in_rate": "in/s",
                "out_rate": "out/s",
                "verdict": "verdict",
                "producers": "producers",
                "consumers": "consumers",
                "idle": "idle (part of time)",
                "full": "full (part of time)",
                "starved": "starved (part of time)",
                "oldest": "oldest message",
            },
            [
                {
                    **row,
                    "idle": percent(row["idle_part"]),
                    "full": percent(row["full_part"]),
                    "starved": percent(row["starved_part"]),
                    "oldest": duration(row["oldest_s"]),
                }
                for row in rows[:TOP]
            ],
        )
    )
    answer.plots.append(
        Bars(
            "Messages in for each one out",
            "in/out",
            {row["destination"]: row["in_rate"] / row["out_rate"] for row in rows[:TOP] if row["out_rate"] >= RATE_MIN},
        )
    )
    answer.figures = {"destinations": rows[:1000]}
    return answer


def balances(counters: Any, gauges: Any) -> Any:
    """Messages in and out, consumers and what they did, by destination over all brokers.

    A consumer is attached to the members on all brokers: the largest number is how many there are.
    """
    columns = ", ".join(f"sum(if(metric = '{metric}', mean, 0)) {key}" for key, metric in GAUGES.items())
    return query(
        f"""
        with c as (select destination, type, sum(if(metric = '{names.IN}', increase, 0)) n_in,
                          sum(if(metric = '{names.OUT}', increase, 0)) n_out
                   from {{counters}} group by 1, 2),
             g as (select destination, type, broker, ts, {columns} from {{gauges}}
                   where coalesce(labels['state'], 'active') = 'active' group by 1, 2, 3, 4),
             t as (select destination, type, ts, sum(producers) producers, sum(consumers) attached,
                          max(consumers) consumers,
                          sum(idle) idle, sum(full) full, sum(waiting) waiting, max(oldest) oldest,
                          max(if(idle > 0 and waiting = 0, 1, 0)) * max(if(waiting >= 1 and idle = 0, 1, 0)) starved
                   from g group by 1, 2, 3),
             d as (select destination, type, avg(producers) producers, avg(consumers) consumers, avg(waiting) waiting,
                          max(oldest) oldest_s, avg(if(attached > 0 and idle >= attached * 0.99, 1, 0)) idle_part,
                          avg(if(full > 0, 1, 0)) full_part, avg(starved) starved_part,
                          avg(if(consumers = 0 and waiting > 0, 1, 0)) abandoned_part, max_by(waiting, ts) waiting_now
                   from t group by 1, 2)
        select * from c full join d using (destination, type)
        order by coalesce(n_in, 0) desc, destination limit 1000
    """,
        counters=counters,
        gauges=gauges,
    )


def _rated(row: dict[str, Any], seconds: float) -> dict[str, Any]:
    made = {key: 0.0 if value is None and key not in ("destination", "type") else value for key, value in row.items()}
    made["in_rate"], made["out_rate"] = made.pop("n_in") / seconds, made.pop("n_out") / seconds
    if made["type"] == "topic":
        made["verdict"] = "topic: one in, many or none out"
    elif made["in_rate"] >= RATE_MIN and made["in_rate"] > IMBALANCE * made["out_rate"]:
        made["verdict"] = "consumers too slow" if made["consumers"] > 0 else "no consumers"
    elif made["consumers"] > 0 and made["idle_part"] >= IDLE_PART:
        made["verdict"] = "consumers wait"
    else:
        made["verdict"] = "balanced"
    return made


def _findings(row: dict[str, Any]) -> list[Finding]:
    found = []
    name = row["destination"]
    if row["verdict"] == "consumers too slow":
        advice = (
            "they are the bottleneck: more of them, or faster ones"
            if row["full_part"] > 0.5
            else ("yet they have room: look at selectors, units of order and pauses")
        )
        found.append(
            Finding(
                SLOW,
                name,
                f"gets {number(row['in_rate'])} messages a second, its {row['consumers']:.3g} consumers "
                f"take {number(row['out_rate'])}; {advice}",
                row,
            )
        )
    elif row["abandoned_part"] > 0.5:
        found.append(
            Finding(
                ABANDONED,
                name,
                f"has messages waiting and no consumer for {percent(row['abandoned_part'])} of the time",
                row,
            )
        )
    elif row["verdict"] == "no consumers":
        waiting = f"; {number(row['waiting_now'])} messages wait at the end" if row["waiting_now"] else ""
        found.append(
            Finding(
                ABANDONED,
                name,
                f"gets {number(row['in_rate'])} messages a second and had no consumer in all this time{waiting}",
                row,
            )
        )
    if row["starved_part"] >= STARVED_PART:
        found.append(
            Finding(
                STARVED,
                name,
                f"consumers at one broker were idle while messages waited at another for "
                f"{percent(row['starved_part'])} of the time: they do not reach that member, "
                f"or a selector keeps them off",
                row,
            )
        )
    return found
