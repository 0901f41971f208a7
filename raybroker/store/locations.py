"""Locations of the live blocks of one destination, by ordinal; those of neighbours share columns.

A location is one integer, see :func:`location`.  In a dictionary it costs about 150 bytes, more than most else of a
message that was sent alone, so neighbours are kept as *pages*: four columns of 32 bits for ``PAGE`` ordinals.  An
ordinal without a block has the offset 0, where the header of a segment stands.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import compress
from typing import Final

PAGE_BITS: Final = 8
PAGE: Final = 1 << PAGE_BITS
_LAST: Final = PAGE - 1
PACKED_LEAST: Final = PAGE // 2
"""A page is made of at least so many."""
PACKED_KEPT: Final = PAGE // 8
"""A page with fewer is taken apart again, so that a few survivors do not cost a page each."""
_EMPTY: Final = array("I", bytes(4 * 4 * PAGE))
_WORD: Final = 0xFFFF_FFFF
ORDINAL_LAST: Final = (1 << 64) - 1
NOWHERE_BEHIND: Final = 1 << 128
"""Behind every location."""
BlockKey = tuple[int, int]
"""Destination and ordinal of a block."""
FIRST_KEY: Final[BlockKey] = (0, 0)
"""Before every block."""
LAST_KEY: Final[BlockKey] = ((1 << 32) - 1, ORDINAL_LAST)


def location(segment: int, offset: int, nbytes: int, crc: int) -> int:
    """Location of a payload as one integer."""
    return segment << 96 | offset << 64 | nbytes << 32 | crc


def location_parts(value: int) -> tuple[int, int, int, int]:
    """(segment, offset, nbytes, crc)."""
    return value >> 96, value >> 64 & _WORD, value >> 32 & _WORD, value & _WORD


class LocationPage:
    """``columns``: segments, offsets, sizes and checksums, ``PAGE`` of each. ``live``: how many blocks it has."""

    __slots__ = ("columns", "live")

    def __init__(self) -> None:
        self.columns = _EMPTY[:]
        self.live = 0

    def get(self, at: int) -> int | None:
        columns = self.columns
        offset = columns[PAGE + at]
        if not offset:
            return None
        return columns[at] << 96 | offset << 64 | columns[2 * PAGE + at] << 32 | columns[3 * PAGE + at]

    def put(self, at: int, value: int) -> None:
        columns = self.columns
        self.live += not columns[PAGE + at]
        columns[at], columns[PAGE + at], columns[2 * PAGE + at], columns[3 * PAGE + at] = location_parts(value)

    def is_before(self, location: int) -> bool:
        """Whether all blocks that are or were here are in segments before that of a location."""
        return max(self.columns[:PAGE]) < location >> 96

    def ordinals(self, start: int) -> Iterator[int]:
        """Return the ordinals that are here, ascending; ``start``: the first that may be."""
        return compress(range(start, start + PAGE), self.columns[PAGE : 2 * PAGE])

    def drop(self, at: int) -> None:
        self.columns[PAGE + at] = 0
        self.live -= 1


class Locations:
    """Ordinal → location. Segments are numbered up to 2^32."""

    __slots__ = ("_loose", "_newest", "_pages")

    def __init__(self) -> None:
        self._loose: dict[int, int] = {}
        self._pages: dict[int, LocationPage] = {}
        self._newest = 0
        """The page of the newest block, which is not packed yet."""

    def get(self, ordinal: int) -> int | None:
        value = self._loose.get(ordinal)
        if value is None and self._pages:
            page = self._pages.get(ordinal >> PAGE_BITS)
            if page is not None:
                return page.get(ordinal & _LAST)
        return value

    def __getitem__(self, ordinal: int) -> int:
        value = self.get(ordinal)
        if value is None:
            raise KeyError(ordinal)
        return value

    def __setitem__(self, ordinal: int, value: int) -> None:
        number = ordinal >> PAGE_BITS
        if number != self._newest:
            before, self._newest = self._newest, number
            if before not in self._pages:
                self._pack(before)
        page = self._pages.get(number)
        if page is None:
            self._loose[ordinal] = value
        else:
            page.put(ordinal & _LAST, value)

    def put_all(self, first: int, segment: int, offsets: array[int], sizes: array[int], crcs: array[int]) -> None:
        """Blocks ``first``, ``first`` + 1, … of one segment, none of which is here."""
        at, count = 0, len(offsets)
        begun = None if count < PAGE else {ordinal >> PAGE_BITS for ordinal in self._loose}
        while at < count:
            place, number = (first + at) & _LAST, (first + at) >> PAGE_BITS
            some = min(PAGE - place, count - at)
            page = self._pages.get(number)
            if page is None and some < PACKED_LEAST:
                for i in range(at, at + some):
                    self[first + i] = location(segment, offsets[i], sizes[i], crcs[i])
            else:
                if page is None:
                    page = LocationPage() if begun is not None and number not in begun else self._of_loose(number)
                    self._pages[number] = page
                columns, end = page.columns, at + some
                columns[place : place + some] = array("I", [segment]) * some
                for column, items in ((PAGE, offsets), (2 * PAGE, sizes), (3 * PAGE, crcs)):
                    columns[column + place : column + place + some] = items[at:end]
                page.live += some
            at += some

    def pop(self, ordinal: int) -> int | None:
        """Forget a block; returns where it was, None if it is not known."""
        value = self._loose.pop(ordinal, None)
        if value is None and self._pages:
            number, at = ordinal >> PAGE_BITS, ordinal & _LAST
            page = self._pages.get(number)
            value = None if page is None else page.get(at)
            if page is not None and value is not None:
                page.drop(at)
                if page.live < PACKED_KEPT:
                    self._unpack(number)
        return value

    def any_between(self, first: int, count: int) -> bool:
        """Whether there is a block first … first + count - 1."""
        loose, span = self._loose, range(first, first + count)
        if any(o in span for o in loose) if len(loose) < count else any(o in loose for o in span):
            return True
        for number in range(first >> PAGE_BITS, (first + count - 1 >> PAGE_BITS) + 1):
            page = self._pages.get(number)
            if page is not None:
                start = number << PAGE_BITS
                here = range(max(first, start) - start, min(first + count, start + PAGE) - start)
                if any(page.columns[PAGE + here.start : PAGE + here.stop]):
                    return True
        return False

    def spans(
        self, after: int = -1, upto: int = ORDINAL_LAST, before: int = NOWHERE_BEHIND, most: int = 0
    ) -> list[tuple[int, int]]:
        """Return the blocks behind ``after`` up to ``upto`` as first and last of ordinals that follow each other,
        ascending; ``before``: those alone whose location is less; ``most``: no more spans than that, 0: all."""
        found: list[tuple[int, int]] = []
        first, last = -1, -2
        for start, end in self._stretches(after, upto, before):
            if start != last + 1:
                if first >= 0:
                    found.append((first, last))
                    if len(found) == most:
                        return found
                first = start
            last = end
        return [*found, (first, last)] if first >= 0 else found

    def _stretches(self, after: int, upto: int, before: int) -> Iterator[tuple[int, int]]:
        """Blocks as :meth:`spans` wants them: single ones, and full pages together."""
        loose = self._loose_by_page(after, upto)
        for number in sorted([*self._numbers(after, upto), *loose]):
            page, start = self._pages.get(number), number << PAGE_BITS
            ordinals: Iterable[int] = loose.get(number, ()) if page is None else page.ordinals(start)
            if page is None or not page.is_before(before):
                ordinals = [ordinal for ordinal in ordinals if self[ordinal] < before]
            elif page.live == PAGE and after < start and start + _LAST <= upto:
                yield start, start + _LAST
                continue
            for ordinal in ordinals:
                if after < ordinal <= upto:
                    yield ordinal, ordinal

    def _numbers(self, after: int, upto: int) -> list[int]:
        """Pages in a stretch of ordinals, without order."""
        low, high = max(after, 0) >> PAGE_BITS, upto >> PAGE_BITS
        if high - low < len(self._pages):
            return [number for number in range(low, high + 1) if number in self._pages]
        return [number for number in self._pages if low <= number <= high]

    def _loose_by_page(self, after: int, upto: int) -> dict[int, list[int]]:
        """Ordinals in a stretch that are in no page, by the page that they would be in, ascending in each."""
        if upto - after < len(self._loose):
            ordinals = [ordinal for ordinal in range(after + 1, upto + 1) if ordinal in self._loose]
        else:
            ordinals = sorted([ordinal for ordinal in self._loose if after < ordinal <= upto])
        found: dict[int, list[int]] = {}
        for ordinal in ordinals:
            found.setdefault(ordinal >> PAGE_BITS, []).append(ordinal)
        return found

    def usage(self) -> tuple[int, int]:
        """(blocks, bytes of their payloads)."""
        nbytes = sum([value >> 32 & _WORD for value in self._loose.values()])
        for page in self._pages.values():
            nbytes += sum(compress(page.columns[2 * PAGE : 3 * PAGE], page.columns[PAGE : 2 * PAGE]))
        return len(self), nbytes

    def __contains__(self, ordinal: int) -> bool:
        return self.get(ordinal) is not None

    def __len__(self) -> int:
        return len(self._loose) + sum(page.live for page in self._pages.values())

    def __bool__(self) -> bool:
        return bool(self._loose or self._pages)

    def _of_loose(self, number: int) -> LocationPage:
        """A page of what is loose of it."""
        page, first = LocationPage(), number << PAGE_BITS
        for at in range(PAGE):
            value = self._loose.pop(first + at, None)
            if value is not None:
                page.put(at, value)
        return page

    def _pack(self, number: int) -> None:
        """Make a page, if there is enough for it."""
        first = number << PAGE_BITS
        if sum(first + at in self._loose for at in range(PAGE)) >= PACKED_LEAST:
            self._pages[number] = self._of_loose(number)

    def _unpack(self, number: int) -> None:
        page, first = self._pages.pop(number), number << PAGE_BITS
        for at in range(PAGE):
            value = page.get(at)
            if value is not None:
                self._loose[first + at] = value
