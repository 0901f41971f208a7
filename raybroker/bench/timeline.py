"""The timeline of traced sends: how long each part of the way took, so that the parts of a send add up to the whole.

Stamps are nanoseconds of the monotonic clock, of the client and of its host.  Where those are of two machines the way
there and the way back cannot be told apart: their sum stands as one part.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Any, Final

from raybroker.client.producer.tracing import TracedSend
from raybroker.wire.native import frames as wire

PARTS: Final = (
    ("pack", "client: from the call to the frame"),
    ("there", "to the host: write, wake-up, read"),
    ("decide", "host: decision"),
    ("wait", "host: until the commit begins"),
    ("write", "host: commit without the sync"),
    ("sync", "host: sync"),
    ("confirm", "host: until the confirmation is written"),
    ("back", "to the client: write, wake-up, read"),
    ("return", "client: until the call returns"),
    ("ways", "there and back: the host has another clock"),
)
"""Key and title of each part, in order of time; the last one stands in the place of ``there`` and ``back``."""
EVENTS: Final = (
    ("collected", "the host's garbage collector ran", wire.COLLECTED),
    ("elsewhere", "committed in the host's other thread", wire.ELSEWHERE),
)
"""Key, title and bit of what may happen to a send beside its parts."""
SENDS_MAX: Final = 500_000
"""Sends of a run whose parts are kept; further ones are counted."""
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9, 100.0)
SLOWEST: Final = 0.01
"""The part of all sends whose parts are shown as those of the slowest."""
_NS_MAX: Final = 2**32 - 1
"""A part is kept in 32 bits: one of more than four seconds counts as that."""


class Timeline:
    """The parts of traced sends. ``untraced``: sends that the host told nothing of, and those beyond SENDS_MAX."""

    __slots__ = ("_columns", "_events", "untraced")

    def __init__(self) -> None:
        self._events = array("I")
        self._columns = [array("I") for _ in PARTS]
        self.untraced = 0

    def __len__(self) -> int:
        return len(self._columns[0])

    def record(self, called_ns: int, returned_ns: int, send: TracedSend | None) -> None:
        """Keep one send, called and returned at these times."""
        if send is None or len(self) >= SENDS_MAX:
            self.untraced += 1
            return
        self._events.append(send.host.events & _NS_MAX)
        for column, value in zip(self._columns, parts_of(called_ns, returned_ns, send), strict=True):
            column.append(min(max(value, 0), _NS_MAX))

    def merge(self, other: Timeline) -> None:
        """Add the sends of another one."""
        room = SENDS_MAX - len(self)
        self._events.extend(other._events[:room])
        for column, more in zip(self._columns, other._columns, strict=True):
            column.extend(more[:room])
        self.untraced += other.untraced + max(len(other) - room, 0)

    def to_json(self) -> dict[str, Any]:
        """Microseconds: for each part and for the whole."""
        rows = self._rows()
        return {
            "sends": len(self),
            "untraced": self.untraced,
            "parts": {key: dict(zip(_COLUMNS, values, strict=True)) for key, _, values in rows},
            "events": {key: {"of_all": of_all, "of_slowest": slow} for key, _, of_all, slow in self._happened()},
        }

    def lines(self) -> list[str]:
        """A table for a terminal: microseconds."""
        lines = [f"{len(self):,} sends traced" + (f", {self.untraced:,} not" if self.untraced else "")]
        if not len(self):
            return lines
        lines.append(f"{'µs':42s}" + "".join(f"{name:>10s}" for name in _COLUMNS))
        for _, title, values in self._rows():
            lines.append(f"{title:42s}" + "".join(f"{value:>10.1f}" for value in values))
        for _, title, of_all, of_slowest in self._happened():
            lines.append(f"{title}: with {of_all:.1%} of all sends, {of_slowest:.1%} of the slowest")
        return lines

    def _slowest(self, wholes: Sequence[int]) -> list[int]:
        """The indexes of the slowest sends, those of SLOWEST."""
        return sorted(range(len(wholes)), key=wholes.__getitem__)[-max(1, round(len(wholes) * SLOWEST)) :]

    def _wholes(self) -> list[int]:
        return [sum(values) for values in zip(*self._columns, strict=True)]

    def _happened(self) -> list[tuple[str, str, float, float]]:
        """(key, title, part of all sends, part of the slowest) of each event that was there."""
        if not any(self._events):
            return []
        slow = self._slowest(self._wholes())
        counts = [
            (key, title, sum(1 for seen in self._events if seen & bit), sum(1 for i in slow if self._events[i] & bit))
            for key, title, bit in EVENTS
        ]
        return [(key, title, count / len(self), at / len(slow)) for key, title, count, at in counts if count]

    def _rows(self) -> list[tuple[str, str, list[float]]]:
        """(key, title, values) of each part that any send has, and of the whole."""
        if not len(self):
            return []
        wholes = self._wholes()
        slow = self._slowest(wholes)
        rows = [
            (key, title, _figures(column, slow))
            for (key, title), column in zip(PARTS, self._columns, strict=True)
            if any(column)
        ]
        return [*rows, ("whole", "the whole call", _figures(wholes, slow))]


_COLUMNS: Final = ("mean", "p50", "p90", "p99", "p99.9", "max", "slowest")
"""``slowest``: the mean among the slowest sends, those of SLOWEST; of means and these the parts add up to the whole."""


def _figures(values: Sequence[int], slow: Sequence[int]) -> list[float]:
    """The columns of one row, in microseconds."""
    ordered, count = sorted(values), len(values)
    ranks = (min(count, max(1, math.ceil(count * percent / 100))) for percent in PERCENTILES)
    means = sum(values) / count, sum(values[index] for index in slow) / len(slow)
    return [round(value / 1000, 1) for value in (means[0], *(ordered[rank - 1] for rank in ranks), means[1])]


def parts_of(called_ns: int, returned_ns: int, send: TracedSend) -> tuple[int, ...]:
    """The parts of one send, in the order of PARTS; they add up to ``returned_ns - called_ns``."""
    host = send.host
    stored = host.commit_ns > 0
    # A host that has nothing to store confirms within its decision; one that commits at once has no pause before it.
    decided_ns = min(host.decided_ns, host.confirmed_ns)
    commit_ns = max(host.commit_ns, decided_ns) if stored else decided_ns
    committed_ns = host.committed_ns if stored else commit_ns
    pack, end = send.written_ns - called_ns, returned_ns - send.heard_ns
    there, back = host.read_ns - send.written_ns, send.heard_ns - host.confirmed_ns
    one_clock = send.same_clock and there >= 0 and back >= 0
    return (
        pack,
        there if one_clock else 0,
        decided_ns - host.read_ns,
        commit_ns - decided_ns,
        committed_ns - commit_ns - host.sync_ns if stored else 0,
        host.sync_ns if stored else 0,
        host.confirmed_ns - committed_ns,
        back if one_clock else 0,
        end,
        0 if one_clock else there + back,
    )
