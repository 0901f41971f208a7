"""Counters of a broker as sums over its hosts that never go down while the broker lives.

A host counts from its own start.  Its counters begin at zero when it starts again, and are missing when it is gone: in
a plain sum either would look like a restart of the broker, and Prometheus would take all counts of the other hosts for
new ones.  Counts of a host from before its restart or its end are therefore kept.  Counts of a host from before the
start of this broker are left out, so that the counters of a broker begin at zero with it.

What a host counted between the last scrape and its end is known when its destinations have recovered, as far as it is
stored (see ``core.counters``): the broker adds what the host has recovered beyond what it said last.  A host that has
recovered less than it said, because what it counted left no record, takes nothing away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from raybroker.model.histogram import PARTS

Row = dict[str, Any]
Rows = dict[str, Row]
"""The rows of one host: "host" or a type of destinations → row."""


def counters(rows: Mapping[str, Row]) -> Rows:
    """The rows without their gauges."""
    return {part: without_gauges(row) for part, row in rows.items()}


def plus(value: Any, other: Any, sign: int = 1) -> Any:
    """The sum of two values, of two rows of values, or of two sets of rows; a key that one side lacks is zero there."""
    if isinstance(value, dict) or isinstance(other, dict):
        left, right = value or {}, other or {}
        return {key: plus(left.get(key, 0), right.get(key, 0), sign) for key in {**left, **right}}
    if isinstance(value, tuple) or isinstance(other, tuple):
        counts, total = value or ([0] * len(other[0]), 0)
        more, extra = other or ([0] * len(counts), 0)
        return ([a + sign * b for a, b in zip(counts, more, strict=True)], total + sign * extra)
    return value + sign * other


class _Known(NamedTuple):
    """The counters of a host, or of a destination on it, as they were given last."""

    host: str
    incarnation: int
    counted: Row
    offset: Row
    """Added to ``counted``: counts of earlier incarnations, less those from before this broker."""
    lasting: Row
    """Totals that are stored, as the host gave them last."""

    def total(self) -> Row:
        total: Row = plus(self.counted, self.offset)
        return total

    def offset_in(self, incarnation: int, recovered: Row) -> Row:
        """The offset of the next counters, which are of this incarnation, and begin behind what was recovered."""
        if incarnation == self.incarnation:
            return self.offset
        offset: Row = plus(self.total(), _beyond(recovered, self.lasting))
        return offset


def _beyond(recovered: Row, lasting: Row) -> Row:
    """What was recovered and had not been told; nothing where less was recovered."""
    return {
        key: _beyond(value, lasting.get(key, {})) if isinstance(value, dict) else max(value - lasting.get(key, 0), 0)
        for key, value in recovered.items()
    }


class Totals:
    """Counters of all hosts of a broker, added up over restarts."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._gone: Rows = {}

    def take_rows(
        self,
        host: str,
        incarnation: int,
        rows: Rows,
        *,
        older: bool,
        recovered: Rows | None = None,
        lasting: Rows | None = None,
    ) -> None:
        """Take the rows of a host as they are now; ``older``: the host started before this broker; ``recovered``,
        ``lasting``: totals of its types that are stored, as they were when it started and as they are."""
        counted, known = counters(rows), self._known.get(host)
        if known is None:
            offset = plus({}, counted, -1) if older else {}
        else:
            offset = known.offset_in(incarnation, recovered or {})
        self._known[host] = _Known(host, incarnation, counted, offset, lasting or {})

    def keep(self, hosts: set[str]) -> None:
        """Keep these hosts; the counts of all others go on as they are."""
        for host in [host for host in self._known if host not in hosts]:
            self._gone = plus(self._gone, self._known.pop(host).total())

    def counter_rows(self) -> Rows:
        """The counters of the broker; those of a host that does not answer stay as they were."""
        total = self._gone
        for known in self._known.values():
            total = plus(total, known.total())
        return total


class DestinationTotals:
    """Counters of single destinations that go on where they were when their host starts again.

    ``unit_messages_total`` begins again, because the units of order that it names change anyway.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Known] = {}
        """By type and name."""

    def take_row(self, host: str, incarnation: int, row: Row) -> Row:
        """The row of a destination with the counts from before its host's last start."""
        row = dict(row)
        recovered = row.pop("recovered", {})
        key, counted = (row["type"], row["name"]), _own_counters(row)
        known = self._known.get(key)
        if known is None or known.host != host:
            offset: Row = {}
        elif known.incarnation == incarnation and counted.get(_FIRST, 0) < known.counted.get(_FIRST, 0):
            offset = {}  # The destination was destroyed and made again.
        else:
            offset = known.offset_in(incarnation, recovered)
        lasting = {part: value + counted.get(part, 0) for part, value in recovered.items()}
        self._known[key] = _Known(host, incarnation, counted, offset, lasting)
        return {**row, **plus(counted, offset)} if offset else row

    def keep(self, there: Callable[[tuple[str, str]], bool]) -> None:
        """Forget the destinations for which ``there`` is false."""
        for key in [key for key in self._known if not there(key)]:
            del self._known[key]


_FIRST: Final = "messages_in_total"


def _own_counters(row: Row) -> Row:
    from raybroker.metrics.catalogue import QUANTITIES

    return {
        key: value
        for key, value in row.items()
        if key in QUANTITIES and QUANTITIES[key].kind != "gauge" and key != "unit_messages_total"
    }


def shown(row: Row) -> Row:
    """The row with its times and the sums of its histograms as numbers of their units; until then they are counted in
    whole PARTS, see model.histogram."""
    return {**row, **{key: _in_units(row[key]) for key in _in_parts() & row.keys()}}


def _in_units(value: Any) -> Any:
    if isinstance(value, dict):
        return {label: one / PARTS for label, one in value.items()}
    return (value[0], value[1] / PARTS) if isinstance(value, tuple) else value / PARTS


@cache
def _in_parts() -> frozenset[str]:
    """The keys of the rows' values that hosts count in PARTS."""
    from raybroker.metrics.catalogue import QUANTITIES

    return frozenset(
        key
        for key, quantity in QUANTITIES.items()
        if quantity.kind == "histogram" or (quantity.kind == "counter" and quantity.unit == "seconds")
    )


def without_gauges(row: Row) -> Row:
    """The row without its gauges, which would be wrong in a sum that lacks some hosts."""
    from raybroker.metrics.catalogue import QUANTITIES

    return {key: value for key, value in row.items() if QUANTITIES[key].kind != "gauge"}


def gauges(all_rows: list[Rows]) -> Rows:
    """The gauges of several hosts as those of the broker."""
    from raybroker.metrics.catalogue import QUANTITIES

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
                    into[key] = _most(into[key], value) if quantity.merge == "max" else plus(into[key], value)
    return total


def _most(a: Any, b: Any) -> Any:
    """The larger value; of values by label, that of each label."""
    if isinstance(a, dict):
        return {label: max(a.get(label, 0), b.get(label, 0)) for label in {**a, **b}}
    return max(a, b)
