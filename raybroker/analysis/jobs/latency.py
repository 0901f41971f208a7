"""Latency: the time until a message is stored, delivered, acknowledged, and the time a consumer needs for one."""

from __future__ import annotations

from typing import Any, Final

from raybroker.analysis import names
from raybroker.analysis.frames import merged, with_holes
from raybroker.analysis.reports.answer import AnswerTable, Finding, JobAnswer, Lines, duration, number
from raybroker.analysis.tables import LakeTables, quantile, split

STAGES: Final = {
    "until stored": names.SEND_TO_STORE,
    "until delivered": names.WAIT,
    "until acknowledged": names.DELIVERY_TO_ACK,
    "service": names.SERVICE,
    "commit": names.COMMIT,
}
QUANTILES: Final = (0.5, 0.95, 0.99)
SLOW_STORE_S: Final = 0.1
SLOW_STORE_HARM: Final = 48.0
TOP: Final = 12


def how_long_does_it_take(tables: LakeTables) -> JobAnswer:
    """Quantiles of the histograms of each stage, by destination, and over time for all of them."""
    histograms = tables.histograms(*STAGES.values())
    by_destination = merged(histograms, "metric, destination, type").where("number > 0")
    order = [by_destination["number"].desc(), "metric", "destination", "type"]
    rows = _quantiles(tables.plain_rows(by_destination.orderBy(*order).limit(1000)))
    everything = {row["stage"]: row for row in _quantiles(tables.plain_rows(merged(histograms, "metric")))}
    answer = JobAnswer(
        "how_long_does_it_take", "How long does it take until messages are stored, delivered, acknowledged?", ""
    )
    shown: list[dict[str, Any]] = []
    for stage in STAGES:
        mine = sorted((row for row in rows if row["stage"] == stage), key=lambda row: -row["number"])
        shown += mine[:TOP]
        answer.findings += [
            Finding(
                SLOW_STORE_HARM,
                row["destination"],
                f"one message in a hundred takes {duration(row['p99'])} "
                "until it is stored: look at the disk's sync times and at commit sizes",
                row,
            )
            for row in mine
            if stage == "until stored" and (row["p99"] or 0) >= SLOW_STORE_S
        ]
    told = [
        f"{stage} {duration(everything[stage]['p50'])} (p99 {duration(everything[stage]['p99'])})"
        for stage in STAGES
        if stage in everything and everything[stage]["p50"] is not None
    ]
    answer.text = "Medians over everything: " + ", ".join(told) + "." if told else "No histograms in this time."
    answer.tables.append(
        AnswerTable(
            "Quantiles",
            {
                "stage": "stage",
                "destination": "destination",
                "count": "observations",
                "mean": "mean",
                "p50_text": "p50",
                "p95_text": "p95",
                "p99_text": "p99",
            },
            [
                {
                    **row,
                    "count": number(row["number"]),
                    "mean": duration(row["mean_s"]),
                    **{f"p{p}_text": duration(row[f"p{p}"]) for p in (50, 95, 99)},
                }
                for row in shown
            ],
        )
    )
    answer.plots.append(_lines(tables))
    answer.figures = {"stages": rows, "all": everything}
    return answer


def _quantiles(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made = []
    for row in rows:
        edges, counts = split(row["buckets"])
        plain = {key: value for key, value in row.items() if key != "buckets"}
        plain["stage"] = next(stage for stage, metric in STAGES.items() if metric == row["metric"])
        plain |= {f"p{round(100 * q)}": quantile(edges, counts, q) for q in QUANTILES}
        made.append({**plain, "mean_s": row["total"] / row["number"] if row["number"] else None})
    return made


def _lines(tables: LakeTables) -> Lines:
    chosen = {STAGES[stage]: stage for stage in ("until stored", "until delivered", "until acknowledged")}
    series: dict[str, list[tuple[float, float | None]]] = {f"{stage}, p99": [] for stage in chosen.values()}
    for row in tables.plain_rows(merged(tables.histograms(*chosen), "metric, ts").orderBy("ts")):
        value = quantile(*split(row["buckets"]), 0.99)
        series[f"{chosen[row['metric']]}, p99"].append((row["ts"], None if value is None else value * 1000))
    holed = {name: with_holes(points, tables.step_ms) for name, points in series.items()}
    return Lines("The slowest message in a hundred", "ms", holed)
