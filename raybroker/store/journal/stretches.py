"""Rows of blocks that stand side by side, as columns: what recovery reads of messages that were sent one by one.

A *stretch* is blocks of one destination and one segment whose ordinals follow each other and whose metas are of one
length; none has a file of its own.  Recovery takes a stretch as a whole, so that a block costs it a place in some
columns instead of some objects.  :func:`summary_pieces` cuts the summary of a segment without looking at single rows,
and :class:`Gatherer` makes stretches of rows that come one by one, from batches or from a summary in which destinations
alternate.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from raybroker.store.journal.format import RELOCATED, SUMMARY_ROW_BYTES, SummaryRow

STRETCH_ROWS: Final = 256
"""Rows of a summary that are compared together."""
_WORDS: Final = SUMMARY_ROW_BYTES // 4
_WORD_END: Final = 1 << 32


class Stretch(NamedTuple):
    """Blocks ``first``, ``first`` + 1, … of a destination; ``metas`` one behind the other, offsets within the
    segment."""

    destination: int
    first: int
    offsets: array[int]
    sizes: array[int]
    crcs: array[int]
    metas: bytes

    @property
    def end(self) -> int:
        """The ordinal behind the last."""
        return self.first + len(self.offsets)

    def block_rows(self) -> Iterator[SummaryRow]:
        """Its blocks one by one, without their flags."""
        each = len(self.metas) // len(self.offsets)
        for i, (offset, nbytes, crc) in enumerate(zip(self.offsets, self.sizes, self.crcs, strict=True)):
            meta = self.metas[i * each : (i + 1) * each]
            yield self.first + i, self.destination, offset, nbytes, crc, meta, 0


def summary_pieces(data: bytes, blocks: int) -> Iterator[Stretch | list[SummaryRow]]:
    """What :func:`~raybroker.store.journal.format.iter_summary` gives, in its order; stretches without flags."""
    words, metas_at = array("I", data[: blocks * SUMMARY_ROW_BYTES]), blocks * SUMMARY_ROW_BYTES
    if sys.byteorder == "big":
        words.byteswap()
    lows, highs, destinations, offsets, sizes, crcs, lengths, flags = (words[i::_WORDS] for i in range(_WORDS))

    def alike(at: int, end: int, first: int) -> bool:
        count = end - at
        return (
            first + count <= _WORD_END
            and lows[at] == first
            and lows[end - 1] == first + count - 1
            and destinations[at:end].count(destinations[at]) == highs[at:end].count(highs[at]) == count
            and lengths[at:end].count(lengths[at]) == count == flags[at:end].count(0) + flags[at:end].count(RELOCATED)
            and lows[at:end] == array("I", range(first, first + count))
        )

    at = 0
    while at < blocks:
        end = min(at + STRETCH_ROWS, blocks)
        if not alike(at, end, lows[at]):
            rows: list[SummaryRow] = []
            for i in range(at, end):
                metas_end = metas_at + lengths[i]
                meta = data[metas_at:metas_end]
                rows.append((highs[i] << 32 | lows[i], destinations[i], offsets[i], sizes[i], crcs[i], meta, flags[i]))
                metas_at = metas_end
            yield rows
            at = end
            continue
        key = destinations[at], highs[at], lengths[at]
        while end < blocks and (destinations[end], highs[end], lengths[end]) == key:
            further = min(end + STRETCH_ROWS, blocks)
            if not alike(end, further, lows[at] + end - at):
                break
            end = further
        metas_end = metas_at + (end - at) * lengths[at]
        first = highs[at] << 32 | lows[at]
        yield Stretch(destinations[at], first, offsets[at:end], sizes[at:end], crcs[at:end], data[metas_at:metas_end])
        at, metas_at = end, metas_end


class _Growing:
    """A stretch that the next row of its destination may continue. ``next``: the ordinal of that row."""

    __slots__ = ("crcs", "destination", "first", "metas", "next", "offsets", "sizes", "width")

    def __init__(self, ordinal: int, destination: int, width: int) -> None:
        self.destination = destination
        self.first = self.next = ordinal
        self.width = width
        self.offsets = array("I")
        self.sizes = array("I")
        self.crcs = array("I")
        self.metas = bytearray()

    def stretch(self) -> Stretch:
        return Stretch(self.destination, self.first, self.offsets, self.sizes, self.crcs, bytes(self.metas))


class Gatherer:
    """Makes stretches of rows of one segment that come one by one; each is given back once it cannot grow, or is
    asked for."""

    __slots__ = ("_growing",)

    def __init__(self) -> None:
        self._growing: dict[int, _Growing] = {}

    def add(self, ordinal: int, destination: int, offset: int, nbytes: int, crc: int, meta: bytes) -> Stretch | None:
        """One row; returns the stretch of its destination that it does not continue."""
        growing, ended = self._growing.get(destination), None
        if growing is None or growing.next != ordinal or growing.width != len(meta):
            ended = growing.stretch() if growing is not None else None
            growing = self._growing[destination] = _Growing(ordinal, destination, len(meta))
        growing.next += 1
        growing.offsets.append(offset)
        growing.sizes.append(nbytes)
        growing.crcs.append(crc)
        growing.metas += meta
        return ended

    def take_stretch(self, destination: int) -> Stretch | None:
        """The stretch of a destination as far as it goes."""
        growing = self._growing.pop(destination, None)
        return growing.stretch() if growing is not None else None

    def rest(self) -> list[Stretch]:
        """What is left."""
        found = [growing.stretch() for growing in self._growing.values()]
        self._growing.clear()
        return found


def gathered(pieces: Iterable[Stretch | Iterable[SummaryRow]]) -> Iterator[Stretch | list[SummaryRow]]:
    """Pieces of one segment with single rows gathered, in order within each destination; a row with a flag that counts
    stays a row."""
    gatherer = Gatherer()
    for piece in pieces:
        if isinstance(piece, Stretch):
            ended = gatherer.take_stretch(piece.destination)
            if ended is not None:
                yield ended
            yield piece
            continue
        for ordinal, destination, offset, nbytes, crc, meta, flags in piece:
            if flags & ~RELOCATED:
                ended = gatherer.take_stretch(destination)
                if ended is not None:
                    yield ended
                yield [(ordinal, destination, offset, nbytes, crc, meta, flags)]
                continue
            ended = gatherer.add(ordinal, destination, offset, nbytes, crc, meta)
            if ended is not None:
                yield ended
    yield from gatherer.rest()
