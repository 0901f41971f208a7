"""Quality of the input: scrapes read, faults in them, counters that started anew, clocks that differ."""

from __future__ import annotations

import statistics
from typing import Any, Final

from raybroker.analysis import names
from raybroker.analysis.frames import query
from raybroker.analysis.reports.answer import AnswerTable, Finding, JobAnswer, duration, lost, number
from raybroker.analysis.tables import LakeTables

MEANINGS: Final = {
    "torn": "scrapes or files that end too early; not used",
    "corrupt": "scrapes whose checksum is wrong; not used",
    "empty file": "files without anything",
    "unreadable": "files that cannot be opened",
    "vanished": "files that went away while being read",
    "strange file": "files that are none of the lake's",
    "impossible time": "files of days that are no days of this lake; not used",
    "duplicate": "scrapes that are there twice; used once",
    "late": "scrapes that came after newer ones; not used, totals are right without them",
    "future": "scrapes from the future; not used",
    "gap": "pauses without scrapes",
    "bad line": "lines that are no exposition; not used",
    "impossible value": "samples that are NaN, infinite, negative or above 1e18; not used",
    "wrong type": "samples whose TYPE is not that of the catalogue; not used",
    "unknown metric": "samples of metrics that this version does not know; not used",
    "foreign metric": "samples of other programs; not used",
}
HARMLESS: Final = frozenset({"foreign metric", "duplicate"})
HARMLESS_HARM: Final = 5.0
CLOCKS_HARM: Final = 38.0
SHOWN: Final = 40
CLOCK_S: Final = 1.0
"""Clocks that differ by more are worth a finding; an answer to a scrape may take a good part of it."""
COLLECTOR: Final = "(collector)"


def how_good_is_the_input(tables: LakeTables) -> JobAnswer:
    """Counts by kind of fault, the places named, restarts, and clocks."""
    rows = [
        *({key: one[key] for key in ("what", "broker", "place", "number")} for one in tables.notes),
        *({"what": one.what, "broker": "", "place": one.where, "number": one.times} for one in tables.faults),
    ]
    ingest = dict(tables.ingest)
    started, clocks = _restarts(tables), ahead(tables.plain_rows(clock_offsets(tables.gauges(names.CLOCK_OFFSET))))
    sums: dict[str, float] = {}
    for row in rows:
        sums[row["what"]] = sums.get(row["what"], 0.0) + row["number"]
    answer = JobAnswer("how_good_is_the_input", "How good is the input?", "")
    answer.text = (
        f"{number(ingest.get('samples', 0.0))} samples of {number(ingest.get('scrapes', 0.0))} scrapes from "
        f"{len(tables.brokers)} brokers; {number(sum(sums.values()))} faults of {len(sums)} kinds; "
        f"{len(started)} restarts of brokers or hosts."
    )
    answer.findings += [
        Finding(
            HARMLESS_HARM if what in HARMLESS else lost(count, 2.0),
            what,
            f"{number(count)}: {MEANINGS.get(what, what)}; first: "
            f"{next(row['place'] or row['broker'] for row in rows if row['what'] == what)}",
            {"what": what, "count": count},
        )
        for what, count in sorted(sums.items())
    ]
    answer.findings += _differing(clocks)
    answer.tables += [
        AnswerTable(
            "What was wrong", {"what": "what", "broker": "broker", "place": "where", "number": "times"}, _shown(rows)
        ),
        AnswerTable(
            "Counters that started anew",
            {"broker": "broker", "resets": "series", "from": "first in step of"},
            started[:SHOWN],
        ),
        AnswerTable(
            "Clocks",
            {"broker": "broker", "ahead_text": "ahead of the others", "least": "at least (s)", "most": "at most (s)"},
            [{**row, "ahead_text": _signed(row["ahead_s"])} for row in clocks[:SHOWN]],
        ),
    ]
    answer.figures = {"ingest": ingest, "faults": sums, "restarts": started, "places": rows[:1000], "clocks": clocks}
    return answer


def _shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Some of each kind."""
    kinds = {row["what"] for row in rows}
    each = max(3, SHOWN // max(1, len(kinds)))
    return [row for kind in sorted(kinds) for row in [one for one in rows if one["what"] == kind][:each]]


def _restarts(tables: LakeTables) -> list[dict[str, Any]]:
    from raybroker.analysis.lake.plan import moment

    rows = tables.plain_rows(restarts(tables.counters(names.BROKER_IN, names.BROKER_CPU, names.IN)))
    return [{**row, "from": moment(row["ts"])} for row in rows]


def restarts(counters: Any) -> Any:
    """Steps in which counters of a broker started anew, and how many."""
    return query(
        "select broker, ts, sum(resets) resets from {counters} where resets > 0 group by 1, 2 order by 2, 1 "
        "limit 10000",
        counters=counters,
    )


def clock_offsets(gauges: Any) -> Any:
    """Return by how much the clocks of brokers are ahead of the times of their scrapes."""
    return query(
        "select broker, percentile(mean, 0.5) offset, min(low) least, max(high) most from {gauges} group by 1 "
        "order by 1",
        gauges=gauges,
    )


def ahead(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return by how many seconds each clock is ahead of the middle one, the collector's among them; the worst first.

    A broker's clock stands in its scrape, the collector's is the scrape's time.  With one broker nobody can say whose
    is wrong: then the collector's is taken to be right.
    """
    if not rows:
        return []
    rows = [*rows, {"broker": COLLECTOR, "offset": 0.0, "least": 0.0, "most": 0.0}]
    middle = statistics.median_low(row["offset"] for row in rows) if len(rows) > 2 else 0.0
    made = [
        {
            "broker": row["broker"],
            "ahead_s": row["offset"] - middle,
            "least": row["least"] - middle,
            "most": row["most"] - middle,
        }
        for row in rows
    ]
    return sorted(made, key=lambda row: (-abs(row["ahead_s"]), row["broker"]))


def _signed(seconds: float) -> str:
    return duration(seconds) if seconds >= 0 else f"-{duration(-seconds)}"


def _differing(clocks: list[dict[str, Any]]) -> list[Finding]:
    """One finding for all clocks that are off."""
    off = [row for row in clocks if abs(row["ahead_s"]) >= CLOCK_S]
    if not off:
        return []
    named = ", ".join(
        f"{row['broker']} {duration(abs(row['ahead_s']))} {'ahead' if row['ahead_s'] > 0 else 'behind'}"
        for row in off[:5]
    )
    more = f" and {len(off) - 5} more" if len(off) > 5 else ""
    return [
        Finding(
            CLOCKS_HARM,
            "clocks differ",
            f"{named}{more}: times to live, delivery times and schedules go by these clocks; have them set by NTP",
            {"clocks": off},
        )
    ]
