"""The bytes of batches, segment headers and summaries: round trips, and every cut and flip noticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.model.blocks.record import BLOCK, CHECKPOINT, NOTE, LogEntry
from raybroker.store.journal.format import (
    BATCH_HEADER_BYTES,
    SECTOR_BYTES,
    FormatError,
    JournalRow,
    SegmentHeader,
    SummaryWriter,
    batch_head,
    decode_batch_header,
    decode_head,
    first_chain,
    iter_summary,
    pack_entries,
    padded,
)

blocks = st.builds(
    LogEntry,
    st.just(BLOCK),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=100),
    st.lists(st.binary(max_size=300), max_size=5).map(tuple),
)
others = st.builds(
    LogEntry,
    st.sampled_from([NOTE, CHECKPOINT]),
    st.integers(0, 2**32 - 1),
    st.just(0),
    st.binary(max_size=300),
    st.just(()),
)
batches = st.lists(blocks | others, min_size=1, max_size=8)
SAMPLE = [
    LogEntry(BLOCK, 1, 2, b"meta", (b"some ", b"payload")),
    LogEntry(NOTE, 1, 0, b"a note"),
    LogEntry(BLOCK, 3, 2**64 - 1, b"", (b"x" * 40,)),
]


def encode(entries: list[LogEntry], *, segment: int = 7, first_seq: int = 100, chain: int = 12345) -> bytes:
    packed = pack_entries(entries)
    head, _ = batch_head(packed, segment=segment, incarnation=3, first_seq=first_seq, chain=chain)
    return b"".join((head, *packed.payloads))


def decode(data: bytes, *, segment: int = 7, room_bytes: int | None = None) -> list[JournalRow]:
    header = decode_batch_header(data, 0, segment=segment, room_bytes=len(data) if room_bytes is None else room_bytes)
    return decode_head(header, data[: header.head_bytes])


@given(batches)
def test_a_batch_comes_back_as_it_was(entries: list[LogEntry]) -> None:
    data = encode(entries)
    assert padded(len(data)) == pack_entries(entries).nbytes
    rows = decode(data)
    found = [
        LogEntry(row.kind, row.destination, row.ordinal, row.meta, (data[row.offset : row.offset + row.nbytes],))
        for row in rows
    ]
    joined = [LogEntry(e.kind, e.destination, e.ordinal, e.meta, (b"".join(e.payload),)) for e in entries]
    assert found == joined


@given(batches)
def test_the_chain_goes_on_from_batch_to_batch(entries: list[LogEntry]) -> None:
    packed = pack_entries(entries)
    head, after = batch_head(packed, segment=1, incarnation=1, first_seq=0, chain=99)
    header = decode_batch_header(head, 0, segment=1, room_bytes=1 << 30)
    assert (header.chain_before, header.chain) == (99, after)
    _, other = batch_head(packed, segment=1, incarnation=1, first_seq=0, chain=98)
    assert other != after


def test_a_batch_cut_anywhere_is_not_a_batch() -> None:
    data = encode(SAMPLE)
    for nbytes in range(len(data)):
        with pytest.raises(FormatError):
            decode(data[:nbytes])
        with pytest.raises(FormatError):
            decode(data[:nbytes] + bytes(len(data) - nbytes), room_bytes=nbytes)


def test_a_head_with_any_bit_flipped_is_not_a_head() -> None:
    data = encode(SAMPLE)
    head_bytes = len(data) - sum(len(buffer) for entry in SAMPLE for buffer in entry.payload)
    for bit in range(head_bytes * 8):
        broken = bytearray(data)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError):
            decode(bytes(broken))


def test_a_head_of_another_segment_is_refused() -> None:
    with pytest.raises(FormatError, match="a batch of segment 7"):
        decode(encode(SAMPLE), segment=8)


@given(st.binary(max_size=200))
def test_noise_is_not_a_batch(data: bytes) -> None:
    with pytest.raises(FormatError):
        decode(data)


def test_a_batch_is_aligned_to_sectors() -> None:
    assert [padded(n) for n in (0, 1, 511, 512, 513)] == [0, 512, 512, 512, 1024]
    assert pack_entries([LogEntry(NOTE, 0, 0, b"")]).nbytes == SECTOR_BYTES
    assert BATCH_HEADER_BYTES == 56


def test_only_blocks_have_ordinal_and_payload() -> None:
    with pytest.raises(AssertionError):
        pack_entries([LogEntry(NOTE, 0, 1, b"")])
    with pytest.raises(AssertionError):
        pack_entries([LogEntry(CHECKPOINT, 0, 0, b"", (b"x",))])
    with pytest.raises(AssertionError):
        pack_entries([LogEntry(9, 0, 0, b"")])
    with pytest.raises(AssertionError):
        pack_entries([LogEntry(NOTE, 0, 0, bytes((1 << 20) + 1))])


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_a_segment_header_comes_back_as_it_was(number: int, chain: int, size_bytes: int) -> None:
    header = SegmentHeader(bytes(range(16)), number, 5, 6, 7, size_bytes, chain)
    assert SegmentHeader.decode(header.encode()) == header
    assert len(header.encode()) == SECTOR_BYTES


def test_a_segment_header_with_any_bit_flipped_is_refused() -> None:
    data = SegmentHeader(bytes(range(16)), 4, 5, 6, 7, 8, 9).encode()
    for bit in range(len(data) * 8):
        broken = bytearray(data)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError):
            SegmentHeader.decode(bytes(broken))
    for nbytes in range(len(data)):
        with pytest.raises(FormatError):
            SegmentHeader.decode(data[:nbytes])


def test_chains_of_segments_and_stores_differ() -> None:
    store, other = bytes(16), b"\1" + bytes(15)
    assert (
        len({first_chain(store, 1, 0), first_chain(store, 2, 0), first_chain(other, 1, 0), first_chain(store, 1, 1)})
        == 4
    )


@given(st.lists(blocks, max_size=10))
def test_a_summary_comes_back_as_it_was(entries: list[LogEntry]) -> None:
    writer = SummaryWriter()
    expected = []
    if entries:
        for block in pack_entries(entries, 1).blocks:
            writer.add(block, 1000)
            expected.append((*block[:2], block.offset + 1000, *block[3:]))
    assert list(iter_summary(writer.encode(), writer.blocks)) == expected
