"""Counters of a broker as sums over its hosts that never go down while the broker lives.

A host counts from its own start.  When one starts again its counters begin at zero, and when one is gone they are
missing: in a sum both would look as if the broker had started again, and everything that the other hosts ever counted
would be taken for new.  So what a host had counted before it restarted or went is kept; and what one had counted before
this broker started is left out, so that the counters of a broker begin at zero with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from raybroker.metrics.catalogue import QUANTITIES

Row = dict[str, Any]
Rows = dict[str, Row]
"""What a host tells: "host" or a type of destinations → row."""


class _Known(NamedTuple):
    incarnation: int
    counted: Rows
    """As the host said it last."""
    offset: Rows
    """What is added to that."""


def counters(rows: Mapping[str, Row]) -> Rows:
    """Counters and histograms of some rows."""
    return {
        part: {key: value for key, value in row.items() if QUANTITIES[key].kind != "gauge"}
        for part, row in rows.items()
    }


def plus(value: Any, other: Any, sign: int = 1) -> Any:
    """Two values of one quantity, added; what one side lacks is zero."""
    if isinstance(value, dict) or isinstance(other, dict):
        left, right = value or {}, other or {}
        return {key: plus(left.get(key, 0), right.get(key, 0), sign) for key in {**left, **right}}
    if isinstance(value, tuple) or isinstance(other, tuple):
        counts, total = value or ([0] * len(other[0]), 0.0)
        more, extra = other or ([0] * len(counts), 0.0)
        return ([a + sign * b for a, b in zip(counts, more, strict=True)], total + sign * extra)
    return value + sign * other


def plus_rows(rows: Rows, others: Rows, sign: int = 1) -> Rows:
    parts = {**rows, **others}
    return {
        part: {
            key: plus(rows.get(part, {}).get(key, 0), others.get(part, {}).get(key, 0), sign)
            for key in {**rows.get(part, {}), **others.get(part, {})}
        }
        for part in parts
    }


class Totals:
    """See the module."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._gone: Rows = {}

    def take(self, host: str, incarnation: int, rows: Rows, *, older: bool) -> None:
        """What a host tells now; ``older``: it had started before this broker did."""
        counted, known = counters(rows), self._known.get(host)
        if known is None:
            offset = plus_rows({}, counted, -1) if older else {}
        elif known.incarnation != incarnation:
            offset = plus_rows(known.offset, known.counted)
        else:
            offset = known.offset
        self._known[host] = _Known(incarnation, counted, offset)

    def keep(self, hosts: set[str]) -> None:
        """Only these hosts are there still."""
        for host in [host for host in self._known if host not in hosts]:
            known = self._known.pop(host)
            self._gone = plus_rows(self._gone, plus_rows(known.counted, known.offset))

    def rows(self) -> Rows:
        """The counters of the broker; those of a host that does not answer stay as they were."""
        total = self._gone
        for known in self._known.values():
            total = plus_rows(plus_rows(total, known.counted), known.offset)
        return total


class _KnownRow(NamedTuple):
    host: str
    incarnation: int
    counted: Row
    """As the host said it last."""
    offset: Row
    """What earlier lives of the host had counted."""


class DestinationTotals:
    """Counters of single destinations that go on where they were when their host starts again.

    What was counted after somebody had last asked, and before the host ended, is lost.  ``unit_messages_total`` begins
    again: which units of order it names changes anyway.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _KnownRow] = {}
        """By type and name."""

    def take(self, host: str, incarnation: int, row: Row) -> Row:
        """A destination's row as its host tells it now, with what was counted before its host started."""
        key, counted = (row["type"], row["name"]), _own_counters(row)
        known = self._known.get(key)
        if known is None or known.host != host:
            offset: Row = {}
        elif known.incarnation != incarnation:
            offset = _plus_row(known.offset, known.counted)
        elif counted.get(_FIRST, 0) < known.counted.get(_FIRST, 0):
            offset = {}  # It was destroyed and made again.
        else:
            offset = known.offset
        self._known[key] = _KnownRow(host, incarnation, counted, offset)
        return {**row, **_plus_row(counted, offset)} if offset else row

    def keep(self, there: Callable[[tuple[str, str]], bool]) -> None:
        """Forget the destinations that are not there any more."""
        for key in [key for key in self._known if not there(key)]:
            del self._known[key]


_FIRST: Final = "messages_in_total"


def _own_counters(row: Row) -> Row:
    return {
        key: value for key, value in row.items()
        if key in QUANTITIES and QUANTITIES[key].kind != "gauge" and key != "unit_messages_total"
    }  # fmt: skip


def _plus_row(row: Row, other: Row) -> Row:
    return {key: plus(row.get(key, 0), other.get(key, 0)) for key in {**row, **other}}


def without_gauges(row: Row) -> Row:
    """The row without what stands for the moment, for a sum that lacks some of its parts."""
    return {key: value for key, value in row.items() if QUANTITIES[key].kind != "gauge"}


def gauges(all_rows: list[Rows]) -> Rows:
    """The gauges of several hosts as those of the broker."""
    total: Rows = {}
    for rows in all_rows:
        for part, row in rows.items():
            into = total.setdefault(part, {})
            for key, value in row.items():
                quantity = QUANTITIES[key]
                if quantity.kind != "gauge":
                    continue
                if key not in into:
                    into[key] = value
                else:
                    into[key] = max(into[key], value) if quantity.merge == "max" else plus(into[key], value)
    return total
