"""Uncovered deliveries: what a session's next ``acknowledge()`` would cover, had it not gone back meanwhile.

An application of a "client" session receives some messages and acknowledges the last of them.  What went back before,
since its ack deadline has passed, its connection was lost or its consumer was closed, comes again; whoever acknowledges
is told which ones, once.  What a recover gives back was given back by the application.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final, NamedTuple

from raybroker.client.consumer.acknowledging.returned_deliveries import LOST, RECOVERED, UNCONFIRMED
from raybroker.client.consumer.acknowledging.unacknowledged_ranges import Ranges, Rows
from raybroker.model.errors import BrokerError, ConnectionLostError, IllegalStateError

UNCOVERED_MAX: Final = 256
"""Ranges of deliveries that are remembered; of more the number is told."""
TOLD_MAX: Final = 8
"""Ranges that an error names."""


class Uncovered(NamedTuple):
    """Deliveries of one consumer, in the order of the session: the first has the serial ``serial``."""

    consumer: object
    name: str
    epoch: int
    first: int
    last: int
    serial: int
    why: str

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        which = f"delivery {self.first}" if self.first == self.last else f"deliveries {self.first} to {self.last}"
        return f"{which} of {self.name} ({self.why})"

    def part(self, first: int, last: int) -> list[Uncovered]:
        """Return those of them with tags first … last."""
        if first > last:
            return []
        return [self._replace(first=first, last=last, serial=self.serial + first - self.first)]


class UncoveredDeliveries:
    """Those of one session; in any thread."""

    def __init__(self) -> None:
        self.rows: list[Uncovered] = []
        """Read without the lock by who has just acknowledged: there is nothing to ask for while it is empty."""
        self._more = 0
        """Deliveries of rows that are not remembered."""
        self._lock = threading.Lock()

    def add(self, consumer: object, name: str, epoch: int, rows: Rows, ranges: Ranges | None, why: str) -> None:
        """What a consumer had handed out went back: all of the rows, or what is in the ranges of tags."""
        if why == RECOVERED:
            return
        for first, last, serial in rows:
            whole = Uncovered(consumer, name, epoch, first, last, serial, why)
            parts = (
                [whole]
                if ranges is None
                else [part for low, high in ranges for part in whole.part(max(first, low), min(last, high))]
            )
            with self._lock:
                for part in parts:
                    if len(self.rows) < UNCOVERED_MAX:
                        self.rows.append(part)
                    else:
                        self._more += part.size

    def told(self, consumer: object, epoch: int, tag: int) -> None:
        """The application knows of this one."""
        if not self.rows:
            return
        with self._lock:
            self.rows = [part for row in self.rows for part in _without(row, consumer, epoch, tag)]

    def clear(self) -> None:
        """The application starts again."""
        with self._lock:
            self.rows, self._more = [], 0

    def others(self) -> str:
        """Return all of them, as text, and forget them; "" when there are none."""
        with self._lock:
            found, self.rows = self.rows, []
            more, self._more = self._more, 0
        return _listed(found, more)

    def fault(self, what: str, up_to: int | None = None) -> BrokerError | None:
        """The error of ``what``, such as "acknowledge()", that names those up to a serial, and forgets them; None when
        there are none."""
        if not self.rows:
            return None
        with self._lock:
            if up_to is None:
                found, self.rows = self.rows, []
            else:
                parts = [(row, min(row.last, row.first + up_to - row.serial)) for row in self.rows]
                found = [part for row, end in parts for part in row.part(row.first, end)]
                self.rows = [part for row, end in parts for part in row.part(max(end + 1, row.first), row.last)]
            more = 0
            if not self.rows:
                more, self._more = self._more, 0
        if not found:
            return None
        lost = any(row.why in (LOST, UNCONFIRMED) for row in found)
        return (ConnectionLostError if lost else IllegalStateError)(
            f"{what} covers messages that had gone back and come again, flagged as redelivered: {_listed(found, more)};"
            " the others are acknowledged (message.tag is the number of a delivery)"
        )


def _without(row: Uncovered, consumer: object, epoch: int, tag: int) -> list[Uncovered]:
    if row.consumer is not consumer or row.epoch != epoch or not row.first <= tag <= row.last:
        return [row]
    return row.part(row.first, tag - 1) + row.part(tag + 1, row.last)


def _listed(rows: Iterable[Uncovered], more: int) -> str:
    rows = list(rows)
    rest = sum(row.size for row in rows[TOLD_MAX:]) + more
    return ", ".join(map(str, rows[:TOLD_MAX])) + (f" and {rest} more" if rest else "")
