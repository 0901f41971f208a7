"""Output of results: tables at a terminal, plain columns in a pipe, JSON when asked.

Plain columns are aligned, never cut and without colour, so that grep and awk can have them; values that programs rely
on belong to ``--json``.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from io import TextIOWrapper
from typing import Any, Final

from raybroker.config.layers import variable

Row = Mapping[str, Any]

TEXT_CHARS_MIN: Final = 20
"""A text column is not squeezed below this, if its texts are as long."""


def is_terminal() -> bool:
    """Whether a person looks at standard output."""
    return sys.stdout.isatty()


def show_everything() -> None:
    """Write a character that standard output has no code for, in a locale without UTF-8, as its escape."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def is_dumb() -> bool:
    """Whether the terminal can only write one line below the other."""
    return variable("TERM") in (None, "dumb")


objects: ContextVar[bool] = ContextVar("raybroker_cli_objects", default=False)
"""Whether the command has --json: what it says on standard error is an object of JSON a line then, too."""


def error(text: str, **more: Any) -> None:
    """One line on standard error; a verb of Python that it names is named as the command it is here. ``more``: what
    programs are told beside the text."""
    if objects.get():
        print(json.dumps({"error": as_commands(text), **more}), file=sys.stderr)
    else:
        print(f"raybroker: {as_commands(text)}", file=sys.stderr)


OBJECTS: Final = {
    "destination": "dst",
    "broker": "bkr",
    "consumer": "con",
    "subscription": "dur",
    "transaction": "txn",
    "message": "msg",
    "replica": "replica",
    "template": "tpl",
    "quota": "quota",
    "policy": "policy",
    "policie": "policy",
    "schedule": "sch",
    "forwarding": "saf",
    "service": "svc",
    "connection": "cxn",
    "cluster": "cls",
    "store": "store",
    "version": "version",
    "definition": "definitions",
}
"""What verbs of ``conn.admin()`` are about → the objects of commands."""
_VERB: Final = re.compile(
    r"\b(create|list|query|update|destroy|purge|pause|resume|commit|rollback|delete|move|retry|skip|export|import|adopt"
    rf"|publish|reset|compact|reload|shutdown|restart|quiesce|check)_({'|'.join(OBJECTS)})s?\b(\(\))?"
)


def as_commands(text: str) -> str:
    """A text of the broker, as list_transactions in it is list txn here."""
    return _VERB.sub(lambda found: f"{found[1]} {OBJECTS[found[2]]}", text)


def nobody_reads() -> None:
    """Whoever read standard output has gone, as in ``list dst | head -1``: what is left to write goes nowhere."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def say(text: str = "") -> None:
    """One line on standard output, at once."""
    print(text, flush=True)


def as_json(value: Any) -> None:
    """The value as indented JSON. The objects of a list have the same keys: what one of them lacks is null."""
    print(json.dumps(_even(value) if isinstance(value, Sequence) else value, indent=2, default=str), flush=True)


def _even(rows: Sequence[Any]) -> list[Any]:
    keys = {key: None for row in rows if isinstance(row, Mapping) for key in row}
    return [{**keys, **row} if isinstance(row, Mapping) else row for row in rows]


def cell(value: Any) -> str:
    """A value as people read it: numbers with separators, no value as a dash."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:,}" if is_terminal() else str(value)
    if isinstance(value, float):
        return f"{value:,.1f}" if is_terminal() else f"{value:.1f}"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={plain(inner)}" for key, inner in value.items()) or "-"
    return str(value)


def plain(value: Any) -> str:
    """A value as one would write it on a command line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def columns(text: str) -> dict[str, str]:
    """Key → title of "key: title, other_key"; without one the title is the key."""
    pairs = (part.strip().partition(":") for part in text.split(","))
    return {key: title.strip() or key.replace("_", " ") for key, _, title in pairs}


def table(rows: Sequence[Row], columns: Mapping[str, str], *, empty: str, less: Sequence[str] = ()) -> None:
    """Rows under titles; ``columns`` is key → title. ``empty`` is said, on standard error, when there are none;
    ``less``: columns that a terminal which is too narrow leaves out, in that order."""
    if not rows:
        print(empty, file=sys.stderr)
    elif is_terminal():
        from rich.console import Console

        console = Console()
        console.print(rich_table(rows, fitting(rows, columns, less, console.width)))
    else:
        _plain(rows, columns)


def fitting(rows: Sequence[Row], columns: Mapping[str, str], less: Sequence[str], width: int) -> Mapping[str, str]:
    """The columns that so many characters have room for, without as many of ``less`` as that takes."""
    left = dict(columns)
    for key in less:
        if sum(_least_chars(rows, one, heading) + 1 for one, heading in left.items()) <= width:
            break
        left.pop(key, None)
    return left


def _least_chars(rows: Sequence[Row], key: str, heading: str) -> int:
    chars = max((len(cell(row.get(key))) for row in rows), default=0)
    number = all(isinstance(row.get(key), int | float) for row in rows)
    return max(len(heading), chars if number else min(chars, TEXT_CHARS_MIN))


def rich_table(rows: Sequence[Row], columns: Mapping[str, str], title: str | None = None) -> Any:
    """Make the same table as an object of rich; numbers to the right."""
    from rich import box
    from rich.table import Table

    made = Table(
        box=box.SIMPLE_HEAD,
        title=title,
        title_justify="left",
        header_style="bold",
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for key, heading in columns.items():
        number = all(isinstance(row.get(key), int | float) for row in rows)
        width = max((len(cell(row.get(key))) for row in rows), default=0)
        least = None if number else max(len(heading), min(width, TEXT_CHARS_MIN))
        made.add_column(
            heading, justify="right" if number else "left", overflow="fold", no_wrap=number, min_width=least
        )
    for row in rows:
        made.add_row(*(cell(row.get(key)) for key in columns))
    return made


def _plain(rows: Sequence[Row], columns: Mapping[str, str]) -> None:
    lines = [[title.upper().replace(" ", "_") for title in columns.values()]]
    lines += [[cell(row.get(key)) for key in columns] for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def fields(values: Mapping[str, Any], *, title: str | None = None) -> None:
    """Names and values, one a line; nested mappings indented under their name."""
    if title is not None:
        print(title)
    _fields(values, "  " if title is not None else "")


def _fields(values: Mapping[str, Any], indent: str) -> None:
    width = max((len(str(name)) for name, value in values.items() if not isinstance(value, Mapping)), default=0)
    for name, value in values.items():
        if isinstance(value, Mapping):
            print(f"{indent}{name}")
            _fields(value, indent + "  ")
        else:
            print(f"{indent}{name!s:<{width}}  {cell(value)}")
