"""Scanning a segment file, batch by batch.

The result is a batch, or the reason why there is none; ``recovery`` and ``verify`` decide about its meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from zlib import crc32

from raybroker.store.fileio import FileIO, read_exact
from raybroker.store.journal.format import (
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    SECTOR_BYTES,
    BatchHeader,
    FormatError,
    JournalRow,
    decode_batch_header,
    decode_head,
    padded,
)

_WINDOW_BYTES: Final = 256 << 10
_SEARCH_BYTES: Final = 4 << 20


class SegmentScan:
    """The batches of one segment file; offsets are bytes in that file."""

    def __init__(self, io: FileIO, fd: int, number: int, end: int) -> None:
        self._io = io
        self._fd = fd
        self._number = number
        self._end = end
        self._window = memoryview(b"")
        self._window_at = 0

    def batch(self, offset: int) -> tuple[BatchHeader, list[JournalRow]]:
        """The batch at ``offset``, its head verified in itself; raises FormatError."""
        data = self._bytes(offset, BATCH_HEADER_BYTES)
        header = decode_batch_header(data, 0, segment=self._number, room_bytes=self._end - offset)
        return header, decode_head(header, self._bytes(offset, header.head_bytes))

    def header_bytes(self, offset: int) -> memoryview:
        """What stands where the header of a batch would be; less at the end of the file."""
        return self._bytes(offset, BATCH_HEADER_BYTES)

    def bad_payloads(self, rows: list[JournalRow], offset: int) -> list[JournalRow]:
        """The rows of the batch at ``offset`` whose payload does not match its checksum."""
        return [row for row in rows if row.nbytes and crc32(self._bytes(offset + row.offset, row.nbytes)) != row.crc]

    def payload(self, row: JournalRow, offset: int) -> bytes:
        """The payload of a row of the batch at ``offset``, not verified."""
        return bytes(self._bytes(offset + row.offset, row.nbytes))

    def later_batches(self, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """Every batch with a valid head behind ``offset``, wherever it starts, whether or not it follows another."""
        wanted = BATCH_MAGIC + self._number.to_bytes(8, "little")
        for start in range(offset + SECTOR_BYTES, self._end, _SEARCH_BYTES):
            data = read_exact(self._io, self._fd, min(_SEARCH_BYTES, self._end - start), start)
            at = data.find(wanted)
            while at >= 0:
                if at % SECTOR_BYTES == 0:
                    try:
                        yield start + at, self.batch(start + at)[0]
                    except FormatError:
                        pass
                at = data.find(wanted, at + 1)

    def batches(
        self, offset: int, chain: int | None, seq: int | None
    ) -> Iterator[tuple[int, BatchHeader, list[JournalRow]]]:
        """(offset, header, rows) of the batches from ``offset`` to the end that was given; FormatError where it breaks.

        ``chain`` and ``seq`` are what must come before the first batch; None takes them from the batch itself.
        """
        while offset < self._end:
            header, rows = self.batch(offset)
            if chain is not None and (header.chain_before, header.first_seq) != (chain, seq):
                raise FormatError("this batch does not follow the one before it")
            yield offset, header, rows
            chain, seq = header.chain, header.first_seq + header.entries
            offset += padded(header.nbytes)

    def _bytes(self, offset: int, nbytes: int) -> memoryview:
        at = offset - self._window_at
        if at < 0 or at + nbytes > len(self._window):
            wanted = min(max(nbytes, _WINDOW_BYTES), max(self._end - offset, 0))
            self._window = memoryview(read_exact(self._io, self._fd, wanted, offset))
            self._window_at = offset
            at = 0
        return self._window[at : at + nbytes]
