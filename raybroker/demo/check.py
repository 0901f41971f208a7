"""The tally of what consumers reported, and its comparison with the file.

The tally is kept by row number: the first report of a row counts for the sums, later ones are duplicates.  A broker
that delivers at least once may hand out a row again after a failure, if it says so; so of all reports of a row at most
one may come from a message without the redelivered flag.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from raybroker.demo import data
from raybroker.demo.consumers import MILLIS_CODE, ROW_CODE

DELAYS: Final = ("dep_delay", "arr_delay")


@dataclass(slots=True)
class Airline:
    """Sums over the departures of one carrier; minutes, and how many rows have a delay at all."""

    departures: int = 0
    minutes: list[int] = field(default_factory=lambda: [0] * len(DELAYS))
    known: list[int] = field(default_factory=lambda: [0] * len(DELAYS))

    def add(self, delays: tuple[int | None, ...]) -> None:
        self.departures += 1
        for index, delay in enumerate(delays):
            if delay is not None:
                self.minutes[index] += delay
                self.known[index] += 1


class Tally:
    """The reports so far. One thread adds; others may read the counts."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.carriers: dict[str, Airline] = {}
        self.waited_ms = array(MILLIS_CODE, bytes(4 * rows))
        self.distinct = 0
        self.reports = 0
        self.flagged = 0
        self.duplicates = 0
        self.unflagged_duplicates = 0
        self.foreign = 0
        self._seen = bytearray(rows)
        self._unflagged = bytearray(rows)
        self._reports_seen: set[str] = set()

    def add(self, message_id: str, body: dict[str, Any]) -> None:
        """One report; the same message again, as queues may deliver it, counts once."""
        if message_id in self._reports_seen:
            return
        self._reports_seen.add(message_id)
        self.reports += 1
        rows, waits = array(ROW_CODE), array(MILLIS_CODE)
        rows.frombytes(body["rows"])
        waits.frombytes(body["waited_ms"])
        columns = zip(
            rows, body["redelivered"], waits, body["carriers"], body["dep_delays"], body["arr_delays"], strict=True
        )
        for row, flag, wait, carrier, dep_delay, arr_delay in columns:
            if row >= self.rows:
                self.foreign += 1
                continue
            self._count_copies(row, flag)
            if not self._seen[row]:
                self._seen[row] = 1
                self.distinct += 1
                self.waited_ms[row] = wait
                self.carriers.setdefault(carrier, Airline()).add((dep_delay, arr_delay))

    def _count_copies(self, row: int, flag: int) -> None:
        self.flagged += flag
        self.duplicates += self._seen[row]
        if not flag:
            self.unflagged_duplicates += self._unflagged[row]
            self._unflagged[row] = 1

    def missing(self) -> list[int]:
        """Row numbers that nobody reported."""
        return [row for row, seen in enumerate(self._seen) if not seen]

    def percentiles_ms(self, percents: Sequence[float]) -> dict[str, int]:
        """Waits from packing to the consumer, exact over all rows."""
        waits = sorted(wait for wait, seen in zip(self.waited_ms, self._seen, strict=True) if seen)
        if not waits:
            return {}
        return {f"p{percent:g}": waits[min(len(waits) - 1, int(len(waits) * percent / 100))] for percent in percents}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold."""

    name: str
    good: bool
    found: str


def sums_of_file(rows: int | None) -> dict[str, Airline]:
    """The sums of the first ``rows`` rows of the file, read apart from what the producers do."""
    found = data.lines(rows)
    names = next(found)
    carrier_at = names.index("carrier")
    delays_at = [names.index(name) for name in DELAYS]
    carriers: dict[str, Airline] = {}
    for line in found:
        delays = tuple(None if line[at] == data.NOTHING else int(line[at]) for at in delays_at)
        carriers.setdefault(line[carrier_at], Airline()).add(delays)
    return carriers


def compare(tally: Tally, truth: dict[str, Airline], stored: int, left: int) -> list[Check]:
    """All checks: ``stored`` is what the broker counted as sent to the queue, ``left`` what it still holds."""
    in_file = sum(carrier.departures for carrier in truth.values())
    missing = tally.missing()
    checks = [
        Check(
            "nothing lost",
            not missing and tally.distinct == in_file == tally.rows,
            f"{tally.distinct:,} of {in_file:,} rows arrived" + (f", missing {missing[:5]} …" if missing else ""),
        ),
        Check(
            "nothing invented",
            tally.foreign == 0 and stored == in_file,
            f"{stored:,} messages stored, {tally.foreign:,} rows that are not in the file",
        ),
        Check("departures per carrier", *_same(tally, truth, lambda carrier: carrier.departures)),
    ]
    for index, name in enumerate(DELAYS):
        same = _same(tally, truth, lambda c, i=index: (c.minutes[i], c.known[i]))
        total = sum(carrier.minutes[index] for carrier in truth.values())
        checks.append(Check(f"sum of {name} per carrier", same[0], f"{same[1]}, {total:,} minutes in all"))
    checks.append(
        Check(
            "repeats are flagged",
            tally.unflagged_duplicates == 0,
            f"{tally.flagged:,} redelivered, {tally.duplicates:,} of them processed twice,"
            f" {tally.unflagged_duplicates:,} without the flag",
        )
    )
    checks.append(Check("the queue is empty", left == 0, f"{left:,} messages left"))
    return checks


def _same(tally: Tally, truth: dict[str, Airline], value: Any) -> tuple[bool, str]:
    names = sorted(truth.keys() | tally.carriers.keys())
    nobody = Airline()
    wrong = [n for n in names if value(tally.carriers.get(n, nobody)) != value(truth.get(n, nobody))]
    if wrong:
        return False, f"differs for {', '.join(wrong)}"
    return True, f"equal for {len(names)} carriers"
