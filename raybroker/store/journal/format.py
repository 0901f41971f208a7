"""The bytes of the journal: pure encoding and decoding, no files.

A segment file is a header, batches, and, once sealed, a summary.  All of them start at multiples of 512 bytes, so that
no sector ever holds bytes of two batches: a write that is torn cannot hurt what was durable before it.

    batch    header | entry rows | metas | payloads | zeros up to the next sector
    summary  rows of all blocks of the segment | their metas

The *chain* is a CRC that runs over the heads (header, rows, metas) of all batches of a segment, started from the
store's UUID, the segment's number and the chain of the segment before.  A head that is stale (of an earlier life of a
recycled file), misdirected or from another store does not continue the chain.  Each batch also carries the chain value
before it, so that a lone batch behind a damaged one can be told from noise.  Each row carries the CRC of its payload:
a trusted head is enough to check the payload.

``recovery`` decides about the meaning of a failed check: a torn tail, or damage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from zlib import crc32

from raybroker.model.blocks.record import BLOCK, CHECKPOINT, NOTE, NOTE_BYTES_MAX, Buffer, LogEntry, PackedPayload

SECTOR_BYTES: Final = 512
ZEROS: Final = bytes(SECTOR_BYTES)

BATCH_MAGIC: Final = b"RBbatch1"
SEGMENT_MAGIC: Final = b"RBsegmt1"

RELOCATED: Final = 1
"""Row flag: a copy of a block that lives on; not a new block."""

OWN_FILE: Final = 2
"""Row flag: the payload is a reference to the file that has the block's payload, see ``own_files``."""

HEAD_BYTES_MAX: Final = 1 << 30
SEGMENT_BYTES_MAX: Final = (1 << 32) - 1
"""Offsets within a segment are kept in 32 bits."""

_BATCH = struct.Struct("<8sQQQIIIIII")
_BATCH_START = struct.Struct("<8sQQQIIIII")
"""A batch header up to its chain value."""
_BATCH_UNCHAINED: Final = _BATCH_START.size
_CHAIN = struct.Struct("<I")
_ROW = struct.Struct("<BBHIQIII")
_FLAGS_AT: Final = 1
"""Where the flags are in a row."""
_SEGMENT = struct.Struct("<8s16sQIIQQII")
_SUMMARY_ROW = struct.Struct("<QIIIIII")

BATCH_HEADER_BYTES: Final = _BATCH.size
ROW_BYTES: Final = _ROW.size
SUMMARY_ROW_BYTES: Final = _SUMMARY_ROW.size


class FormatError(ValueError):
    """Bytes in another form than the function decodes; the text says why.  Never leaves the store."""


def padded(nbytes: int) -> int:
    """``nbytes`` rounded up to whole sectors."""
    return -(-nbytes // SECTOR_BYTES) * SECTOR_BYTES


class JournalBlockRow(NamedTuple):
    """Location of a block's payload; ``offset`` is from the start of the batch's payloads, or of the segment."""

    ordinal: int
    destination: int
    offset: int
    nbytes: int
    crc: int
    meta: bytes
    flags: int


class Packed:
    """Entries as bytes, before they have a place in a segment.

    nbytes         of the whole batch in the file
    compressed     it has blocks that were compressed where they are kept
    summary_bytes  that the batch adds to the summary of its segment
    """

    __slots__ = (
        "blocks",
        "body",
        "checkpoint",
        "compressed",
        "count",
        "nbytes",
        "payload_bytes",
        "payloads",
        "summary_bytes",
    )

    def __init__(
        self,
        count: int,
        body: bytes,
        payloads: list[Buffer],
        payload_bytes: int,
        blocks: list[JournalBlockRow],
        *,
        checkpoint: bool,
        compressed: bool,
    ) -> None:
        self.count = count
        self.body = body
        self.payloads = payloads
        self.payload_bytes = payload_bytes
        self.blocks = blocks
        self.checkpoint = checkpoint
        self.compressed = compressed
        self.nbytes = padded(BATCH_HEADER_BYTES + len(body) + payload_bytes)
        summary_bytes = SUMMARY_ROW_BYTES * len(blocks)
        for block in blocks:
            summary_bytes += len(block.meta)
        self.summary_bytes = summary_bytes


def pack_entries(entries: Sequence[LogEntry], flags: int = 0) -> Packed:
    """Check and encode ``entries``; every payload is read once, for its CRC."""
    assert entries, "a batch has at least one entry"
    rows: list[bytes] = []
    metas: list[bytes] = []
    payloads: list[Buffer] = []
    blocks: list[JournalBlockRow] = []
    offset = 0
    checkpoint = compressed = False
    for entry in entries:
        kind = entry.kind
        meta = entry.meta
        crc = nbytes = 0
        if kind == BLOCK:
            compressed = compressed or type(entry.payload) is PackedPayload
            for buffer in entry.payload:
                nbytes += buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)
                crc = crc32(buffer, crc)
            payloads += entry.payload
            blocks.append(JournalBlockRow(entry.ordinal, entry.destination, offset, nbytes, crc, meta, flags))
            offset += nbytes
        else:
            assert kind in (NOTE, CHECKPOINT), f"no such kind of entry: {kind}"
            assert not entry.payload, "only blocks have a payload"
            assert not entry.ordinal, "only blocks have an ordinal"
            assert kind == CHECKPOINT or len(meta) <= NOTE_BYTES_MAX, "a note is small"
            checkpoint = checkpoint or kind == CHECKPOINT
        rows.append(_ROW.pack(kind, flags, 0, entry.destination, entry.ordinal, len(meta), nbytes, crc))
        metas.append(meta)
    body = b"".join((*rows, *metas))
    return Packed(len(rows), body, payloads, offset, blocks, checkpoint=checkpoint, compressed=compressed)


def with_flag(packed: Packed, entries: Sequence[int], blocks: Sequence[int], flag: int) -> Packed:
    """Set a flag in the rows of some entries of the batch: by their place among all, and among the blocks."""
    body = bytearray(packed.body)
    for entry in entries:
        body[entry * ROW_BYTES + _FLAGS_AT] |= flag
    packed.body = bytes(body)
    for block in blocks:
        row = packed.blocks[block]
        packed.blocks[block] = row._replace(flags=row.flags | flag)
    return packed


def with_note(packed: Packed, meta: bytes) -> Packed:
    """The batch with one more note behind its entries, of destination 0."""
    assert len(meta) <= NOTE_BYTES_MAX, "a note is small"
    rows_end = packed.count * ROW_BYTES
    row = _ROW.pack(NOTE, 0, 0, 0, 0, len(meta), 0, 0)
    body = b"".join((packed.body[:rows_end], row, packed.body[rows_end:], meta))
    return Packed(
        packed.count + 1,
        body,
        packed.payloads,
        packed.payload_bytes,
        packed.blocks,
        checkpoint=packed.checkpoint,
        compressed=packed.compressed,
    )


def joined(parts: Sequence[Packed]) -> Packed:
    """One batch of the entries of several, in their order."""
    if len(parts) == 1:
        return parts[0]
    rows, metas, payloads, blocks, offset = list[bytes](), list[bytes](), list[Buffer](), list[JournalBlockRow](), 0
    for part in parts:
        end = part.count * ROW_BYTES
        rows.append(part.body[:end])
        metas.append(part.body[end:])
        payloads += part.payloads
        blocks += [block._replace(offset=block.offset + offset) for block in part.blocks]
        offset += part.payload_bytes
    return Packed(
        sum([part.count for part in parts]),
        b"".join((*rows, *metas)),
        payloads,
        offset,
        blocks,
        checkpoint=any(part.checkpoint for part in parts),
        compressed=any(part.compressed for part in parts),
    )


NOTHING: Final = Packed(0, b"", [], 0, [], checkpoint=False, compressed=False)
"""A batch without entries, for what is only a note."""


def unpack_body(count: int, body: bytes, payloads: Sequence[Buffer], *, compressed: bool) -> Packed:
    """The batch whose rows and metas are ``body``, as :func:`pack_entries` made them; raises FormatError.

    Checksums of payloads are taken as they are: whoever sends the bytes on has them checked in another way.
    """
    metas = count * ROW_BYTES
    if metas > len(body):
        raise FormatError("its rows are cut off")
    blocks, offset, checkpoint = list[JournalBlockRow](), 0, False
    for kind, flags, _, destination, ordinal, meta_bytes, nbytes, crc in _ROW.iter_unpack(memoryview(body)[:metas]):
        if kind not in (BLOCK, NOTE, CHECKPOINT) or flags or (nbytes and kind != BLOCK):
            raise FormatError(f"an entry of kind {kind} with flags {flags} and {nbytes} bytes")
        if kind == BLOCK:
            meta = body[metas : metas + meta_bytes]
            blocks.append(JournalBlockRow(ordinal, destination, offset, nbytes, crc, meta, 0))
            offset += nbytes
        checkpoint = checkpoint or kind == CHECKPOINT
        metas += meta_bytes
    given = sum([part.nbytes if isinstance(part, memoryview) else len(part) for part in payloads])
    if metas != len(body) or offset != given:
        raise FormatError("the lengths of its entries do not add up")
    return Packed(count, body, list(payloads), offset, blocks, checkpoint=checkpoint, compressed=compressed)


def batch_head(packed: Packed, segment: int, incarnation: int, first_seq: int, chain: int) -> tuple[bytes, int]:
    """The head of a batch that follows the chain value ``chain``, and the chain value after it."""
    body, head_bytes = packed.body, BATCH_HEADER_BYTES + len(packed.body)
    header = _BATCH_START.pack(
        BATCH_MAGIC,
        segment,
        first_seq,
        head_bytes + packed.payload_bytes,
        head_bytes,
        packed.count,
        incarnation,
        0,
        chain,
    )
    after = crc32(body, crc32(header, chain))
    return b"".join((header, _CHAIN.pack(after), body)), after


class BatchHeader(NamedTuple):
    """The fixed part of a batch, not yet trusted: only the chain makes it so."""

    magic: bytes
    segment: int
    first_seq: int
    nbytes: int
    head_bytes: int
    entries: int
    incarnation: int
    reserved: int
    chain_before: int
    chain: int


def decode_batch_header(data: Buffer, offset: int, *, segment: int, room_bytes: int) -> BatchHeader:
    """The header at ``offset`` of ``data``, checked for sense only; raises FormatError."""
    if len(data) - offset < BATCH_HEADER_BYTES:
        raise FormatError("no room for a batch header")
    header = BatchHeader._make(_BATCH.unpack_from(data, offset))
    if header.magic != BATCH_MAGIC:
        raise FormatError("no batch starts here")
    if header.segment != segment:
        raise FormatError(f"a batch of segment {header.segment}")
    least = BATCH_HEADER_BYTES + header.entries * ROW_BYTES
    if not (header.entries and least <= header.head_bytes <= min(header.nbytes, HEAD_BYTES_MAX)):
        raise FormatError("lengths make no sense")
    if header.nbytes > room_bytes:
        raise FormatError("longer than its segment")
    return header


class JournalRow(NamedTuple):
    """One entry of a batch as found in a file."""

    kind: int
    flags: int
    destination: int
    ordinal: int
    meta: bytes
    offset: int
    nbytes: int
    crc: int


def decode_head(header: BatchHeader, head: Buffer) -> list[JournalRow]:
    """The rows of a batch; ``head`` is its header, rows and metas.  Raises FormatError unless the chain fits.

    Offsets are counted from the start of the batch.
    """
    view = memoryview(head)
    if view.nbytes != header.head_bytes:
        raise FormatError("the head is cut off")
    after = crc32(view[BATCH_HEADER_BYTES:], crc32(view[:_BATCH_UNCHAINED], header.chain_before))
    if after != header.chain:
        raise FormatError("the checksum of the head is wrong")
    metas = BATCH_HEADER_BYTES + header.entries * ROW_BYTES
    offset = header.head_bytes
    rows: list[JournalRow] = []
    for kind, flags, _, destination, ordinal, meta_bytes, nbytes, crc in _ROW.iter_unpack(
        view[BATCH_HEADER_BYTES:metas]
    ):
        meta = bytes(view[metas : metas + meta_bytes])
        rows.append(JournalRow(kind, flags, destination, ordinal, meta, offset, nbytes, crc))
        metas += meta_bytes
        offset += nbytes
    if metas != header.head_bytes or offset != header.nbytes:
        raise FormatError("the lengths of its entries do not add up")
    return rows


def rows_body(rows: Sequence[JournalRow]) -> bytes:
    """Rows and metas of entries that were found in a file, as :func:`pack_entries` made them."""
    packed = [_ROW.pack(r.kind, r.flags, 0, r.destination, r.ordinal, len(r.meta), r.nbytes, r.crc) for r in rows]
    return b"".join((*packed, *[row.meta for row in rows]))


def pack_rows(rows: Sequence[JournalRow]) -> Packed:
    """A batch of entries that were found in files, with the checksums that they have; its payloads come from there."""
    assert rows, "a batch has at least one entry"
    blocks, offset = list[JournalBlockRow](), 0
    for row in rows:
        if row.kind == BLOCK:
            blocks.append(
                JournalBlockRow(row.ordinal, row.destination, offset, row.nbytes, row.crc, row.meta, row.flags)
            )
        offset += row.nbytes
    body = rows_body(rows)
    checkpoint = any(row.kind == CHECKPOINT for row in rows)
    return Packed(len(rows), body, [], offset, blocks, checkpoint=checkpoint, compressed=False)


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The header of a segment file."""

    store: bytes
    number: int
    slot: int
    incarnation: int
    first_seq: int
    size_bytes: int
    chain: int

    def encode(self) -> bytes:
        fields = _SEGMENT.pack(
            SEGMENT_MAGIC,
            self.store,
            self.number,
            self.slot,
            self.incarnation,
            self.first_seq,
            self.size_bytes,
            self.chain,
            0,
        )
        return (fields + _CHAIN.pack(crc32(fields))).ljust(SECTOR_BYTES, b"\0")

    @staticmethod
    def decode(data: bytes) -> SegmentHeader:
        fields = data[: _SEGMENT.size]
        if len(data) < SECTOR_BYTES or data[:8] != SEGMENT_MAGIC:
            raise FormatError("no segment header")
        if _CHAIN.unpack_from(data, _SEGMENT.size)[0] != crc32(fields) or any(data[_SEGMENT.size + 4 : SECTOR_BYTES]):
            raise FormatError("the checksum of the segment header is wrong")
        _, store, number, slot, incarnation, first_seq, size_bytes, chain, _ = _SEGMENT.unpack(fields)
        return SegmentHeader(store, number, slot, incarnation, first_seq, size_bytes, chain)


def first_chain(store: bytes, number: int, chain_before: int) -> int:
    """The chain value at the start of a segment that follows one ending with ``chain_before``."""
    return crc32(store + number.to_bytes(8, "little") + chain_before.to_bytes(4, "little"))


class SummaryWriter:
    """Collects the summary of the segment being written: every block, nothing else.

    Notes are left out: before the last checkpoint they are superseded, after it the batches themselves are read.
    """

    __slots__ = ("_metas", "_rows", "blocks")

    def __init__(self) -> None:
        self._rows = bytearray()
        self._metas: list[bytes] = []
        self.blocks = 0

    def add(self, block: JournalBlockRow, base_offset: int) -> int:
        """One block whose ``offset`` counts from ``base_offset`` of the segment; how many bytes that adds."""
        ordinal, destination, offset, nbytes, crc, meta, flags = block
        self._rows += _SUMMARY_ROW.pack(ordinal, destination, offset + base_offset, nbytes, crc, len(meta), flags)
        self._metas.append(meta)
        self.blocks += 1
        return SUMMARY_ROW_BYTES + len(meta)

    def encode(self) -> bytes:
        return b"".join((self._rows, *self._metas))


SummaryRow = tuple[int, int, int, int, int, bytes, int]
"""The fields of a BlockRow."""


def iter_summary(data: bytes, blocks: int) -> Iterator[SummaryRow]:
    """The fields of a BlockRow for every block of a summary whose checksum was verified; offsets within the segment."""
    rows_bytes = blocks * SUMMARY_ROW_BYTES
    at = rows_bytes
    for ordinal, destination, offset, nbytes, crc, meta_bytes, flags in _SUMMARY_ROW.iter_unpack(data[:rows_bytes]):
        end = at + meta_bytes
        yield ordinal, destination, offset, nbytes, crc, data[at:end], flags
        at = end
