"""Tables that ``top`` can show: of destinations, brokers, connections and consumers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from raybroker.cli import output
from raybroker.cli.exits import UsageError
from raybroker.model.naming.nearest import nearest

Row = Mapping[str, Any]


class TableView(NamedTuple):
    """A table that can be shown.

    columns  key → title; ``less``: those that a narrow terminal leaves out, in that order
    sort     what it is sorted by at first
    """

    name: str
    columns: Mapping[str, str]
    less: Sequence[str]
    sort: str

    def column(self, text: str) -> str:
        """The key of a column that is named by its key or its title; raises UsageError."""
        wanted = text.strip().lower()
        for key, title in self.columns.items():
            if wanted in (key.lower(), title.lower()):
                return key
        near = nearest(wanted, [*self.columns, *self.columns.values()])
        hint = f"did you mean {near}? " if near else ""
        known = ", ".join(self.columns.values())
        raise UsageError(f"--sort {text}: there is no such column; {hint}{self.name} have {known}")


VIEWS: Final = {
    view.name: view
    for view in (
        TableView(
            "destinations",
            output.columns(
                "name, type, messages, in_per_second: in/s, out_per_second: out/s, active_consumers: consumers, "
                "unacknowledged: unacked, redelivered, state"
            ),
            ("redelivered", "type", "active_consumers", "state", "unacknowledged", "out_per_second", "in_per_second"),
            "in_per_second",
        ),
        TableView(
            "brokers",
            output.columns(
                "broker, state, messages, in_per_second: in/s, out_per_second: out/s, memory_percent: memory %, "
                "disk_free_percent: disk free %, master, reason"
            ),
            ("reason", "master", "disk_free_percent", "out_per_second", "in_per_second", "memory_percent"),
            "broker",
        ),
        TableView(
            "connections",
            output.columns(
                "client_id: client id, user, service, host, producers, consumers, in_per_second: in/s, "
                "out_per_second: out/s, broker, id"
            ),
            ("id", "broker", "host", "service", "out_per_second", "in_per_second", "user", "producers"),
            "in_per_second",
        ),
        TableView(
            "consumers",
            output.columns(
                "destination, id, unacknowledged: unacked, limit, out_per_second: out/s, sent, active, broker, "
                "subscription"
            ),
            ("subscription", "broker", "limit", "active", "sent", "out_per_second"),
            "unacknowledged",
        ),
    )
}

FALLING: Final = frozenset(
    {
        "messages",
        "in_per_second",
        "out_per_second",
        "active_consumers",
        "unacknowledged",
        "redelivered",
        "memory_percent",
        "producers",
        "consumers",
        "sent",
        "limit",
    }
)
"""Columns of which the largest come first."""


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def chosen(rows: Sequence[Row], view: TableView, sort: tuple[str, bool], wanted: str) -> list[Row]:
    """The rows that have the text in one of their columns, sorted; of equals, and without a value, by the first."""
    key, falling = sort
    text = wanted.casefold()
    found = [
        row for row in rows if not text or any(text in output.cell(row.get(one)).casefold() for one in view.columns)
    ]
    first = next(iter(view.columns))
    found.sort(key=lambda row: str(row.get(first)).casefold())
    known = [row for row in found if row.get(key) not in (None, "")]
    known.sort(key=lambda row: _order(row[key]), reverse=falling)
    return [*known, *(row for row in found if row.get(key) in (None, ""))]


def _order(value: Any) -> tuple[bool, float, str]:
    return (False, value, "") if is_number(value) else (True, 0.0, str(value).casefold())
