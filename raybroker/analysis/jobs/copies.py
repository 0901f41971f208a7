"""Copies of queues' logs: how far they were behind, who led when, and when nothing was confirmed."""

from __future__ import annotations

from typing import Any, Final

from raybroker.analysis import names
from raybroker.analysis.frames import query, with_holes
from raybroker.analysis.jobs.episodes import islands
from raybroker.analysis.lake.plan import moment
from raybroker.analysis.reports.answer import AnswerTable, Finding, JobAnswer, Lines, duration, number
from raybroker.analysis.tables import LakeTables

BEHIND_MAX: Final = 1000
"""Entries that a copy may lack in the middle of the time before that is told: as ``raybroker check cls`` has it."""
CHANGES_A_DAY: Final = 3.0
"""Changes of leader of one queue in a day from which on its brokers or their network want a look."""
UNCONFIRMED: Final = 90.0
FLAPPING: Final = 50.0
BEHIND: Final = 40.0
"""Harm of a log that confirms nothing, of leaders that change often, and of a copy that stays behind."""
SHOWN: Final = 30
LINES: Final = 8


def how_are_copies(tables: LakeTables) -> JobAnswer:
    """Leaders over time, entries that copies lacked, and times without a majority."""
    answer = JobAnswer("how_are_copies", "Are the copies of queues there, and who led them when?", "")
    led = with_changes(tables.plain_rows(leaderships(tables.gauges(names.LEADER_TERM))))
    changes = [row for row in led if row["before"]]
    lags = tables.plain_rows(lag(tables.gauges(names.COPY_LAG)))
    states = tables.gauges(names.COPIED_LOGS, names.COPIED_SHORT)
    episodes = tables.plain_rows(islands(unconfirmed(states), "broker", "max(logs) logs", tables.step_ms))
    if not (led or lags or episodes):
        answer.text = "No queue has copies, or the destination tier was not scraped."
        answer.figures = {"leaders": [], "lag": [], "unconfirmed": []}
        return answer
    queues = len({(row["destination"], row["type"]) for row in led})
    answer.text = (
        f"{queues} queues with copies, {len(changes)} changes of leader; "
        f"{len(episodes)} episodes in which a broker kept logs that confirmed nothing."
    )
    answer.findings += _findings(tables, changes, lags, episodes)
    answer.tables += [
        AnswerTable(
            "Changes of leader",
            {"destination": "queue", "from": "from", "broker": "to", "at": "seen at", "term": "term"},
            [{**row, "from": row["before"], "at": moment(row["since"])} for row in changes[:SHOWN]],
        ),
        AnswerTable(
            "Entries that copies lacked",
            {
                "destination": "queue",
                "copy": "copy at",
                "middle": "in the middle",
                "most": "at most",
                "now": "at the end",
            },
            lags[:SHOWN],
        ),
        AnswerTable(
            "Nothing was confirmed",
            {"broker": "broker", "logs": "logs", "from": "from", "lasted": "lasted"},
            [
                {**row, "from": moment(row["start"]), "lasted": duration(row["seconds"])}
                for row in sorted(episodes, key=lambda row: -row["seconds"])[:SHOWN]
            ],
        ),
    ]
    answer.plots += [
        _lines(tables, "Entries that the copies of a broker lack", names.COPY_BEHIND, "labels['copy']", "true"),
        _lines(tables, "Logs that a broker leads", names.COPIED_LOGS, "broker", "labels['state'] = 'led'"),
    ]
    answer.figures = {"leaders": led[:1000], "lag": lags[:1000], "unconfirmed": episodes[:1000]}
    return answer


def leaderships(gauges: Any) -> Any:
    """Return who led each queue in which term, and since when that was seen; the terms of a queue in order."""
    return query(
        """
        select destination, type, cast(high as bigint) term, broker, min(ts) since from {gauges}
        where high > 0 group by 1, 2, 3, 4 order by destination, type, term limit 10000
    """,
        gauges=gauges,
    )


def with_changes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each leadership with the broker that led before, ``before``: "" for the first that is known of a queue, and where
    the same broker goes on in a later term."""
    made: list[dict[str, Any]] = []
    for row in rows:
        last = made[-1] if made else row
        same = (last["destination"], last["type"]) == (row["destination"], row["type"])
        made.append({**row, "before": last["broker"] if same and last["broker"] != row["broker"] else ""})
    return made


def lag(gauges: Any) -> Any:
    """Entries that the copies of each queue lacked, by the broker that keeps them."""
    return query(
        """
        select destination, type, labels['copy'] copy, percentile(high, 0.5) middle, max(high) most,
               max_by(last, ts) now
        from {gauges} group by 1, 2, 3 order by middle desc, most desc, destination, copy limit 10000
    """,
        gauges=gauges,
    )


def unconfirmed(gauges: Any) -> Any:
    """broker, ts, logs: of how many logs that a broker keeps or leads nothing was confirmed in a step."""
    return query(
        f"""
        select broker, ts, sum(high) logs from {{gauges}}
        where high > 0 and (metric = '{names.COPIED_SHORT}' or labels['state'] = 'leaderless') group by 1, 2
    """,
        gauges=gauges,
    )


def _findings(
    tables: LakeTables, changes: list[dict[str, Any]], lags: list[dict[str, Any]], episodes: list[dict[str, Any]]
) -> list[Finding]:
    days = max(1.0, (tables.window.until_ms - tables.window.since_ms) / 86_400_000)
    counts: dict[str, int] = {}
    for row in changes:
        counts[row["destination"]] = counts.get(row["destination"], 0) + 1
    found = [
        Finding(
            FLAPPING,
            name,
            f"another broker led it {count} times, {count / days:.1f} times a day: the log of the brokers has the"
            " reason of each change (B2205)",
            {"changes": count, "a_day": count / days},
        )
        for name, count in counts.items()
        if count / days >= CHANGES_A_DAY
    ]
    found += [
        Finding(
            BEHIND,
            f"{row['destination']} at {row['copy']}",
            f"its copy lacked {number(row['middle'])} entries in the middle of the time: its disk or network is slower"
            " than those of the others, and it takes long to lead",
            row,
        )
        for row in lags
        if row["middle"] > BEHIND_MAX
    ]
    found += [
        Finding(
            UNCONFIRMED,
            row["broker"],
            f"for {duration(row['seconds'])} from {moment(row['start'])} on nothing was confirmed of"
            f" {number(row['logs'])} logs of which it keeps a copy: too few copies were there",
            row,
        )
        for row in sorted(episodes, key=lambda row: -row["seconds"])[:SHOWN]
    ]
    return found


def _lines(tables: LakeTables, title: str, metric: str, by: str, where: str) -> Lines:
    """The highest value of a metric in each step, a line for each value of ``by``."""
    rows = query(
        f"select {by} name, ts, max(high) value from {{gauges}} where {where} group by 1, 2 order by 1, 2",
        gauges=tables.gauges(metric),
    )
    series: dict[str, list[tuple[float, float | None]]] = {}
    for row in tables.plain_rows(rows):
        series.setdefault(str(row["name"]), []).append((row["ts"], row["value"]))
    shown = sorted(series, key=lambda name: -max(value or 0.0 for _, value in series[name]))[:LINES]
    unit = "entries" if metric == names.COPY_BEHIND else "logs"
    return Lines(title, unit, {name: with_holes(series[name], tables.step_ms) for name in shown})
