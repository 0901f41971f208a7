"""Rows as brokers told them, verb by verb: with their age, what changed since the look before, and what is not well.

A row that is not told any more because its broker does not answer stays as it was; others go with the first answer that
does not have them. Rates are of the counters of each broker, so that one that comes back is no burst.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from raybroker.admin.audit import AuditLook, findings
from raybroker.model.listing import Row

NOW: Final = frozenset({5, 8, 10, 13, 14, 16, 18})
"""Numbers of the audit's checks that are about now: paused, dead messages, transactions in doubt, certificates,
services, brokers, the cluster."""
ALARMS: Final = ("check_broker", "check_cluster", "check_services", "list_transactions")
"""What is asked for these checks alone, and less often."""
ALWAYS: Final = ("list_destinations", "list_brokers")
"""What is asked at each look, whatever is shown: the alarms and the line of the brokers are of it."""
VERBS: Final = {
    "destinations": "list_destinations",
    "brokers": "list_brokers",
    "connections": "list_connections",
    "consumers": "list_consumers",
}
"""View → the verb that tells its rows."""
RATES: Final = {"in_per_second": "messages_in", "out_per_second": "messages_out"}
SENT: Final = {"out_per_second": "sent"}
"""Rate → the counter that it is the change of; of a consumer."""

Rates = dict[str, float | None]


class ToldRow(NamedTuple):
    """A row, when it was told, and its rates since the look before."""

    row: Row
    at_ns: int
    rates: Rates


class Absence(NamedTuple):
    """Somebody does not answer since a time, for a reason."""

    since_ns: int
    why: str


class Sight(NamedTuple):
    """What there is to be seen.

    rows     view → rows; ``seen_ns`` of each: when it was told
    told_ns  view → when its last answer came; not there: none came
    absent   broker, or host of one, that does not answer
    alarms   findings, the worst first
    failure  nothing is answered at all; None while answers come
    """

    rows: Mapping[str, Sequence[Row]] = {}
    told_ns: Mapping[str, int] = {}
    absent: Mapping[str, Absence] = {}
    alarms: Sequence[Row] = ()
    failure: Absence | None = None


class TopFigures:
    """The latest that was told of each verb."""

    def __init__(self) -> None:
        self._told: dict[str, dict[Hashable, ToldRow]] = {}
        self._told_ns: dict[str, int] = {}
        self._missing: dict[str, Mapping[str, str]] = {}
        self._absent: dict[str, Absence] = {}
        self._counts: dict[str, dict[Hashable, tuple[int, Rates]]] = {}
        self._of_brokers: dict[str, tuple[int, Row]] = {}
        self._failure: Absence | None = None

    def tell(self, verb: str, rows: Iterable[Row], at_ns: int, missing: Mapping[str, str] | None = None) -> None:
        """An answer has come; ``missing``: who is not in it → why."""
        self._failure = None
        self._missing[verb] = missing or {}
        self._note_absent(at_ns)
        before, counted = self._told.get(verb, {}), self._counts.get(verb, {})
        silent = {_broker(name) for name in self._missing[verb]}
        found: dict[Hashable, ToldRow] = {}
        counts = self._counts[verb] = dict[Hashable, tuple[int, Rates]]()
        sums: dict[str, Row] = {}
        for row in rows:
            key = _key(verb, row)
            if row.get("state") == "UNKNOWN" and key in before:
                found[key] = before[key]._replace(row={**before[key].row, "state": "UNKNOWN"})
                continue
            rates: Rates = {}
            for broker, part in _parts(row):
                now = {rate: part.get(counter) for rate, counter in _rates_of(verb).items()}
                since = _since(now, at_ns, counted.get((key, broker)))
                counts[key, broker] = at_ns, now
                _add(rates, since)
                _add(sums.setdefault(broker, {}), {**since, "messages": part.get("messages", 0)})
            found[key] = ToldRow(row, at_ns, rates)
        for key, told in before.items():
            if key not in found and verb not in ALARMS and silent.intersection(_brokers(told.row)):
                found[key] = told
        self._told[verb], self._told_ns[verb] = found, at_ns
        if verb == "list_destinations":
            self._of_brokers |= {broker: (at_ns, row) for broker, row in sums.items()}

    def fail(self, why: str, at_ns: int) -> None:
        """Nothing is answered."""
        self._failure = Absence(self._failure.since_ns if self._failure is not None else at_ns, why)

    def refuse(self, verb: str, why: str, at_ns: int) -> None:
        """One verb is not answered, as to somebody without the right."""
        self._missing[verb] = {verb.replace("_", " "): why}
        self._note_absent(at_ns)

    def sight(self, now_ms: int) -> Sight:
        """``now_ms``: since 1970."""
        rows = {view: self._rows(verb) for view, verb in VERBS.items()}
        rows["brokers"] = [self._broker_row(row) for row in rows["brokers"]]
        told = {verb: [one.row for one in found.values()] for verb, found in self._told.items()}
        return Sight(
            rows,
            {view: self._told_ns[verb] for view, verb in VERBS.items() if verb in self._told_ns},
            dict(self._absent),
            [row for row in findings(AuditLook(told, now_ms), NOW) if row["of"] not in self._absent],
            self._failure,
        )

    def _note_absent(self, at_ns: int) -> None:
        missing = {name: why for named in self._missing.values() for name, why in named.items()}
        self._absent = {
            name: Absence(self._absent[name].since_ns if name in self._absent else at_ns, why)
            for name, why in sorted(missing.items())
        }

    def _rows(self, verb: str) -> list[Row]:
        return [{**told.row, **told.rates, "seen_ns": told.at_ns} for told in self._told.get(verb, {}).values()]

    def _broker_row(self, row: Row) -> Row:
        """The row of a broker with what its destinations have, and what its checks measure."""
        only = len(self._told.get("list_brokers", ())) == 1
        at_ns, sums = self._of_brokers.get(row["broker"]) or (only and self._of_brokers.get("")) or (row["seen_ns"], {})
        found = {**row, **sums, "master": "yes" if row.get("master") else "", "seen_ns": min(at_ns, row["seen_ns"])}
        for told in self._told.get("check_broker", {}).values():
            for figure in ("memory_percent", "disk_free_percent"):
                if told.row["broker"] == row["broker"] and told.row["check"] == figure.partition("_")[0]:
                    value, known = told.row.get("value"), found.get(figure)
                    worst = max if figure == "memory_percent" else min
                    found[figure] = value if known is None or value is None else worst(known, value)
        return found


def _key(verb: str, row: Row) -> Hashable:
    """What a row is known by from one look to the next."""
    if verb == "list_destinations":
        return row.get("type"), row["name"]
    if verb == "list_consumers":
        return row["id"], row.get("type"), row["destination"]
    if verb.startswith("check_"):
        return row.get("broker"), row["check"], row["of"]
    return row.get("id") or row.get("broker"), row.get("host")


def _broker(name: str) -> str:
    """The broker of a host, b1 of b1/h3."""
    return name.partition("/")[0]


def _brokers(row: Row) -> Iterator[str]:
    """The brokers that tell of a row."""
    for member in row.get("members") or ():
        yield member["broker"] if isinstance(member, Mapping) else str(member)
    yield str(row.get("broker") or _broker(str(row.get("host") or "")))


def _parts(row: Row) -> Iterator[tuple[str, Row]]:
    """(broker, what it counts) of a row; "" where that is not said."""
    members = [dict(member) for member in row.get("members") or () if isinstance(member, Mapping)]
    yield from ((member["broker"], member) for member in members)
    if not members:
        yield "", row


def _rates_of(verb: str) -> Mapping[str, str]:
    return RATES if verb in ("list_destinations", "list_connections") else SENT if verb == "list_consumers" else {}


def _since(now: Rates, at_ns: int, before: tuple[int, Rates] | None) -> Rates:
    """What counters grew in a second; 0 where they are new, None where nothing is counted."""
    found: Rates = {}
    for rate, value in now.items():
        was = before[1].get(rate) if before is not None else None
        if value is None:
            found[rate] = None
        elif was is None or before is None or at_ns <= before[0]:
            found[rate] = 0.0
        else:
            found[rate] = max(0.0, value - was) * 1e9 / (at_ns - before[0])
    return found


def _add(sums: dict[str, Any], more: Mapping[str, float | None]) -> None:
    for name, value in more.items():
        known = sums.get(name)
        sums[name] = value if known is None else known if value is None else known + value
