"""Contents of the table of a configuration change record, as plain values.  The table's reader and the state machine
agree on them, and neither knows the other.

The table belongs to one cluster and has one record: a base, which is the record up to some entry in the text of a
backup, and one row for each entry after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TABLE: Final = "raybroker_sharecc"
"""Name of the table, and the beginning of the name of the one that has the entries."""


@dataclass(frozen=True, slots=True)
class RecordHead:
    """``base_number``: the entry that the base ends with."""

    cluster: str
    record: str
    term: int
    base_number: int


@dataclass(frozen=True, slots=True)
class TableRow:
    """One entry: its body and hash as the record has them.  ``writer``: who put it there, never the same twice."""

    number: int
    body: str
    digest: str
    writer: str


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """The rows after a position, read at one moment.

    digest  hash after the position's own entry; "" when the table has no such entry
    base    text of the base, when the position is not in the rows that there are; "" otherwise
    rows    those after the position, or after the base; perhaps not all up to ``last``
    """

    head: RecordHead
    last: int
    digest: str
    rows: tuple[TableRow, ...]
    base: str = ""
