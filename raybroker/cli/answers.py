"""Answers of verbs as they are printed: lists as tables, one row as its fields, both as JSON when asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from raybroker.cli import output
from raybroker.cli.exits import end_of_list
from raybroker.model.listing import Row


def show_list(rows: list[Row], columns: str, *, empty: str, json: bool, shown: Callable[[Row], Row] = dict) -> None:
    """The rows of a list verb in columns as of ``output.columns``, ``shown`` as people read them; what is missing in
    the list ends the command, see ``end_of_list``."""
    if json:
        output.as_json(rows)
    else:
        output.table([shown(row) for row in rows], output.columns(columns), empty=empty)
    end_of_list(rows)


def show_one(row: Row, *, json: bool, shown: Callable[[Row], Row] = dict, **titled: str) -> None:
    """The row of a query verb; ``titled``: entries that come below the others, under a title of their own."""
    if json:
        output.as_json(row)
        return
    output.fields({key: value for key, value in shown(row).items() if key not in titled})
    for key, title in titled.items():
        if row[key]:
            output.fields(row[key], title=title)


def things(count: int, what: str) -> str:
    """ "1 message", "2 messages"."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def without(row: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in keys}
