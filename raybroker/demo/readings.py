"""The weather: hourly readings of three airports, from the same package as the departures, and who wants which.

Readings come in the order of time, as they would from stations.  What the file calls NA is None in the body of a
message and no property at all.  What each subscriber should get is said twice, as a selector for the broker and as
Python for the check, so that neither is measured by itself.
"""

from __future__ import annotations

import csv
import zlib
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from raybroker.demo.data import NOTHING, package_file

TEXTS: Final = frozenset({"origin", "time_hour"})
WHOLE: Final = frozenset({"year", "month", "day", "hour", "wind_dir"})
Reading = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Feed:
    """One subscriber: its selector, and ``wants``, which says the same of a reading.

    ``durable`` ones are kept while nobody listens; ``pauses``: it goes away in the middle and comes back.
    """

    name: str
    selector: str | None
    wants: Callable[[Reading], bool]
    durable: bool = False
    pauses: bool = False


def _gale(reading: Reading) -> bool:
    speed = reading["wind_speed"]
    return reading["origin"] == "JFK" and speed is not None and speed > 20


def _frost(reading: Reading) -> bool:
    return reading["temp"] is None or reading["temp"] < 32


def _wet(reading: Reading) -> bool:
    precip, visib = reading["precip"], reading["visib"]
    murky = visib is not None and 0 <= visib <= 2
    return reading["origin"] in {"EWR", "LGA"} and ((precip is not None and precip > 0) or murky)


FEEDS: Final = (
    Feed("archive", None, lambda reading: True, durable=True, pauses=True),
    Feed("gales", "origin = 'JFK' AND wind_speed > 20", _gale, durable=True),
    Feed("frost", "temp IS NULL OR temp < 32", _frost),
    Feed("wet", "origin IN ('EWR', 'LGA') AND (precip > 0 OR visib BETWEEN 0 AND 2)", _wet),
)


def readings(rows: int | None = None) -> list[Reading]:
    """The first ``rows`` readings by time (all without a number); "row" is the place of a reading in the file."""
    with package_file("weather.csv").open(newline="", encoding="utf-8") as file:
        lines = csv.reader(file)
        names = next(lines)
        found = [_reading(row, names, line) for row, line in enumerate(lines)]
    found.sort(key=lambda reading: (reading["time_hour"], reading["row"]))
    return found[:rows]


def _reading(row: int, names: list[str], line: list[str]) -> Reading:
    reading: Reading = {"row": row}
    for name, value in zip(names, line, strict=True):
        if value == NOTHING:
            reading[name] = None
        elif name in TEXTS:
            reading[name] = value
        else:
            reading[name] = int(value) if name in WHOLE else float(value)
    return reading


def properties_of(reading: Reading) -> dict[str, Any]:
    """The properties of a reading, for selectors: the values that are known."""
    return {name: value for name, value in reading.items() if value is not None}


def checksum(ids: Iterable[str]) -> int:
    """CRC-32 of message ids in their order; two lists that differ have different ones, but for an accident."""
    value = 0
    for text in ids:
        value = zlib.crc32(text.encode(), value)
    return value


class Gathered:
    """The readings that one subscriber got. One thread adds; others may read the counts."""

    def __init__(self, expected: dict[int, Reading]) -> None:
        self.expected = expected
        self.ids: dict[int, str] = {}
        self.flagged = 0
        self.duplicates = 0
        self.unflagged_duplicates = 0
        self.wrong = array("q")
        """Rows that it should not have got, or that are not as in the file."""
        self._unflagged: set[int] = set()

    @property
    def complete(self) -> bool:
        return self.ids.keys() >= self.expected.keys()

    def add(self, message: Any) -> None:
        """One message; the first of a row counts, of the others at most those that say so may be there."""
        body = message.body
        row = body["row"]
        reading = self.expected.get(row)
        if reading is None or body != reading or message.properties != properties_of(reading):
            self.wrong.append(row)
        if message.redelivered:
            self.flagged += 1
        else:
            self.unflagged_duplicates += row in self._unflagged
            self._unflagged.add(row)
        self.duplicates += row in self.ids
        self.ids.setdefault(row, message.id)

    def checksum(self) -> int:
        """Return the checksum of the ids, in the order of the rows."""
        return checksum(self.ids[row] for row in sorted(self.ids))


def expected_of(feed: Feed, taken: Iterable[Reading]) -> dict[int, Reading]:
    """The readings that a subscriber should get, by row."""
    return {reading["row"]: reading for reading in taken if feed.wants(reading)}
