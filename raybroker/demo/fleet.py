"""Messages and counts of the act of the aircraft: the flights of each aircraft, one unit of order each.

An aircraft flies one flight after the other.  Whoever handles its flights has to see them in that order, however
many consumers there are and whatever happens to a broker meanwhile.  A delivery may come again after a failure; but no
flight may be handled for the first time before the one that the same aircraft flew before.
"""

from __future__ import annotations

import os
import threading
import zlib
from array import array
from collections.abc import Iterator
from typing import Any, Final

import raybroker as rb
from raybroker.demo import data
from raybroker.system.clock import SystemClock

ROW_CODE: Final = "I"
CHUNK: Final = 2000
"""Flights that a producer hands over at a time."""


def flights(rows: int | None, part: int = 0, parts: int = 1) -> Iterator[tuple[int, str]]:
    """(row, aircraft) of every flight whose aircraft is known and belongs to that part, in the order of the file."""
    found = data.lines(rows)
    at = next(found).index("tailnum")
    for row, line in enumerate(found):
        aircraft = line[at]
        if aircraft != data.NOTHING and zlib.crc32(aircraft.encode()) % parts == part:
            yield row, aircraft


class Dispatcher:
    """An actor that sends its aircraft's flights, each with the aircraft as its unit of order."""

    def __init__(self, cluster: str, queue: str, rows: int | None, part: int, parts: int, home: str) -> None:
        self._place = (cluster, queue, home)
        self._share = (rows, part, parts)
        self._stored = 0
        self._error: str | None = None
        self._done = False
        self._thread = threading.Thread(target=self._run, name="dispatch", daemon=True)

    def start(self) -> int:
        """Begin to send; the process id."""
        self._thread.start()
        return os.getpid()

    def stats(self) -> dict[str, Any]:
        """Flights known to be stored, whether that is all, and the error that ended it, if one did."""
        return {"stored": self._stored, "done": self._done, "error": self._error}

    def _run(self) -> None:
        cluster, queue, home = self._place
        try:
            with rb.connect(cluster=cluster, broker=home) as connection:
                producer = connection.session().producer(queue, persistent=True)
                bodies: list[dict[str, Any]] = []
                units: list[str] = []
                for row, aircraft in flights(*self._share):
                    bodies.append({"row": row, "aircraft": aircraft})
                    units.append(aircraft)
                    if len(bodies) == CHUNK:
                        self._stored += producer.send_many(bodies, unit_of_order=units)
                        bodies, units = [], []
                self._stored += producer.send_many(bodies, unit_of_order=units)
            self._done = True
        except Exception as error:  # noqa: BLE001 - whoever asks for stats is told
            self._error = repr(error)


class FlightHandler:
    """The listener of each consumer actor: reports which flights it handled and when it began with them."""

    def __init__(self, cluster: str, reports: str) -> None:
        self.cluster = cluster
        self.reports = reports
        self._producer: Any = None

    def __call__(self, messages: list[Any]) -> None:
        began_ms = SystemClock().now_ms()
        if self._producer is None:
            connection = rb.connect(cluster=self.cluster)
            self._producer = connection.session().producer(self.reports, persistent=True)
        rows = array(ROW_CODE, [message.body["row"] for message in messages])
        self._producer.send(
            {
                "pid": os.getpid(),
                "began_ms": began_ms,
                "ended_ms": SystemClock().now_ms(),
                "rows": rows.tobytes(),
                "redelivered": bytes(message.redelivered for message in messages),
            }
        )


class FleetLog:
    """The flights that were handled, as consumers reported them."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.redelivered = 0
        self.consumers: set[int] = set()
        self._batches: list[tuple[int, int, array[int]]] = []

    def add(self, body: dict[str, Any]) -> None:
        rows = array(ROW_CODE)
        rows.frombytes(body["rows"])
        self.seen.update(rows)
        self.consumers.add(body["pid"])
        self.redelivered += sum(body["redelivered"])
        self._batches.append((body["began_ms"], body["ended_ms"], rows))

    def disorder(self, rows: int | None) -> tuple[int, int, list[str]]:
        """(aircraft, aircraft with a flight that was handled too early, the first of those in words)."""
        aircraft_of = dict(flights(rows))
        course: dict[str, list[int]] = {}
        for row, aircraft in aircraft_of.items():
            course.setdefault(aircraft, []).append(row)
        handled: dict[str, list[int]] = {}
        known: set[int] = set()
        for _, _, batch in sorted(self._batches, key=lambda found: (found[0], found[1])):
            for row in batch:
                if row not in known:
                    known.add(row)
                    handled.setdefault(aircraft_of[row], []).append(row)
        wrong = [aircraft for aircraft, expected in course.items() if handled.get(aircraft, []) != expected]
        shown = [f"{aircraft}: {handled.get(aircraft, [])[:6]} … of {course[aircraft][:6]} …" for aircraft in wrong[:3]]
        return len(course), len(wrong), shown
