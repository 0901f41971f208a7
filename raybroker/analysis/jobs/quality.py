"""How good the input is: what was read, what was wrong with it, and which counters started anew."""

from __future__ import annotations

from typing import Any, Final

from raybroker.analysis import names
from raybroker.analysis.answer import Answer, Finding, Table, number
from raybroker.analysis.tables import Tables

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
    "wrong type": "samples whose TYPE is not that of the catalogue; not used",
    "unknown metric": "samples of metrics that this version does not know; not used",
    "foreign metric": "samples of other programs; not used",
}
HARMLESS: Final = frozenset({"foreign metric", "duplicate"})
SHOWN: Final = 40


def how_good_is_the_input(tables: Tables) -> Answer:
    """Counts by kind of fault, the places named, and restarts."""
    rows = tables.rows("""
        select what, broker, place, sum(number) number from notes where kind = 'fault' group by 1, 2, 3
        order by 1, 4 desc, 2, 3 limit 10000
    """)
    rows = [
        *rows,
        *({"what": one.what, "broker": "", "place": one.where, "number": one.times} for one in tables.faults),
    ]
    ingest = {row["what"]: row["number"] for row in tables.rows(
        "select what, sum(number) number from notes where kind = 'ingest' group by 1")}  # fmt: skip
    restarts = _restarts(tables)
    sums: dict[str, float] = {}
    for row in rows:
        sums[row["what"]] = sums.get(row["what"], 0.0) + row["number"]
    answer = Answer("how_good_is_the_input", "How good is the input?", "")
    answer.text = (
        f"{number(ingest.get('samples', 0.0))} samples of {number(ingest.get('scrapes', 0.0))} scrapes from "
        f"{len(tables.brokers)} brokers; {number(sum(sums.values()))} faults of {len(sums)} kinds; "
        f"{len(restarts)} restarts of brokers or hosts."
    )
    answer.findings += [
        Finding("info" if what in HARMLESS else "warning", what, f"{number(count)}: {MEANINGS.get(what, what)}; first: "
                f"{next(row['place'] or row['broker'] for row in rows if row['what'] == what)}",
                {"what": what, "count": count})
        for what, count in sorted(sums.items())
    ]  # fmt: skip
    answer.tables += [
        Table("What was wrong", {"what": "what", "broker": "broker", "place": "where", "number": "times"},
              _shown(rows)),
        Table("Counters that started anew", {"broker": "broker", "resets": "series", "from": "first in step of"},
              restarts[:SHOWN]),
    ]  # fmt: skip
    answer.figures = {"ingest": ingest, "faults": sums, "restarts": restarts, "places": rows[:1000]}
    return answer


def _shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Some of each kind."""
    kinds = {row["what"] for row in rows}
    each = max(3, SHOWN // max(1, len(kinds)))
    return [row for kind in sorted(kinds) for row in [one for one in rows if one["what"] == kind][:each]]


def _restarts(tables: Tables) -> list[dict[str, Any]]:
    from raybroker.analysis.plan import moment

    rows = tables.rows(f"""
        select broker, ts, sum(resets) resets from counters where resets > 0 and metric in ('{names.BROKER_IN}',
               '{names.BROKER_CPU}', '{names.IN}') group by 1, 2 order by 2, 1 limit 10000
    """)
    return [{**row, "from": moment(row["ts"])} for row in rows]
