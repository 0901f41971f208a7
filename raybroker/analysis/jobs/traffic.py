"""Ways of the traffic: deliveries at the consumers' own broker, and deliveries from broker to broker."""

from __future__ import annotations

from typing import Any, Final

from raybroker.analysis import names
from raybroker.analysis.frames import query
from raybroker.analysis.reports.answer import AnswerTable, Finding, JobAnswer, Matrix, number, percent
from raybroker.analysis.tables import LakeTables

REMOTE_PART: Final = 0.5
REMOTE_HARM: Final = 10.0
MATRIX_MAX: Final = 30
RATE_MIN: Final = 1.0


def where_does_traffic_go(tables: LakeTables) -> JobAnswer:
    """Deliveries by place for each destination, and by member's and consumer's broker for all."""
    seconds = max(1.0, (tables.window.until_ms - tables.window.since_ms) / 1000)
    destinations = tables.plain_rows(by_place(tables.counters(names.DELIVERED)))
    pairs = tables.plain_rows(by_way(tables.counters(names.ROUTED)))
    local, remote = sum(row["local"] for row in destinations), sum(row["remote"] for row in destinations)
    answer = JobAnswer(
        "where_does_traffic_go", "Where does traffic go: local against remote delivery, from broker to broker?", ""
    )
    part = remote / (local + remote) if local + remote else None
    answer.text = (
        f"{number(local + remote)} deliveries, {percent(part)} of them to consumers at home at another broker."
    )
    answer.findings += [
        Finding(
            REMOTE_HARM,
            row["destination"],
            f"{percent(_remote(row))} of its deliveries go to another broker: "
            "localDeliveryPreferred, or consumers nearer to the producers, would save the way",
            row,
        )
        for row in destinations
        if _remote(row) >= REMOTE_PART and row["remote"] / seconds >= RATE_MIN
    ]
    answer.tables += [
        AnswerTable(
            "Destinations",
            {"destination": "destination", "local": "local", "remote": "remote", "part": "remote part"},
            [{**row, "part": percent(_remote(row))} for row in destinations[:20]],
        ),
        AnswerTable(
            "Busiest ways",
            {"member": "from broker", "home": "to consumers of", "messages": "messages", "rate": "msg/s"},
            [{**row, "rate": row["messages"] / seconds} for row in pairs[:20]],
        ),
    ]
    answer.plots += _matrix(pairs)
    answer.figures = {"destinations": destinations, "matrix": pairs, "local": local, "remote": remote}
    return answer


def by_place(counters: Any) -> Any:
    """Deliveries at the consumers' own broker and at others, by destination."""
    return query(
        """
        select destination, type, sum(if(labels['place'] = 'local', increase, 0)) local,
               sum(if(labels['place'] = 'remote', increase, 0)) remote
        from {counters} group by 1, 2 having sum(increase) > 0
        order by remote desc, local desc, destination limit 1000
    """,
        counters=counters,
    )


def by_way(counters: Any) -> Any:
    """Deliveries from the broker of the member to that of the consumer."""
    return query(
        """
        select broker member, coalesce(labels['consumer_broker'], '') home, sum(increase) messages from {counters}
        group by 1, 2 having sum(increase) > 0 order by messages desc, member, home
    """,
        counters=counters,
    )


def _remote(row: dict[str, Any]) -> float:
    return float(row["remote"] / (row["local"] + row["remote"]))


def _matrix(pairs: list[dict[str, Any]]) -> list[Matrix]:
    sums: dict[str, float] = {}
    for row in pairs:
        for broker in (row["member"], row["home"] or "unknown"):
            sums[broker] = sums.get(broker, 0.0) + row["messages"]
    chosen = sorted(sorted(sums, key=lambda name: -sums[name])[:MATRIX_MAX])
    if len(chosen) < 2:
        return []
    at = {name: index for index, name in enumerate(chosen)}
    values = [[0.0] * len(chosen) for _ in chosen]
    for row in pairs:
        home = row["home"] or "unknown"
        if row["member"] in at and home in at:
            values[at[row["member"]]][at[home]] += row["messages"]
    return [Matrix("Deliveries from member (rows) to consumers' home (columns)", "messages", chosen, chosen, values)]
