"""The read-ahead: what to fetch from the disk before it is asked for. Pure decisions, no files.

A consumer whose selector wants few of many, and one that drains a long queue after a restart, read block after block of
one destination in the order of the log.  While they look at one, the disk may as well fetch the next.
"""

from __future__ import annotations

from typing import Final, NamedTuple

AHEAD_BYTES: Final = 8 << 20
"""Fetched ahead of a reader, at most."""
GAP_BYTES: Final = 1 << 20
"""A reader who goes on that far behind where it was reads in order: blocks of others are in between."""
READERS_MAX: Final = 64
"""Destinations of which is known where they are read."""


class _Place(NamedTuple):
    segment: int
    end: int
    fetched: int


class ReadAhead:
    """The places where each destination was read last, and how far it was fetched."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[int, _Place] = {}

    def next(self, destination: int, segment: int, offset: int, nbytes: int, data_end: int) -> tuple[int, int]:
        """The stretch of the segment's file to fetch now that these bytes of it are read: offset and bytes, of which
        there are none if nothing is to be fetched."""
        places, end = self._places, offset + nbytes
        place = places.pop(destination, None)
        if place is None and len(places) >= READERS_MAX:
            del places[next(iter(places))]
        if place is not None and segment > place.segment:
            place = _Place(segment, 0, 0)  # Segments are read one after the other, each from its beginning.
        if place is None or segment != place.segment or not 0 <= offset - place.end <= GAP_BYTES:
            places[destination] = _Place(segment, end, end)
            return end, 0
        fetched = max(place.fetched, end)
        upto = min(end + AHEAD_BYTES, data_end)
        if upto <= fetched or (fetched - end > AHEAD_BYTES // 2 and upto < data_end):
            places[destination] = _Place(segment, end, fetched)
            return end, 0
        places[destination] = _Place(segment, end, upto)
        return fetched, upto - fetched
