"""The block against a list of messages: what went in comes back, a part is a block of its own, damage is refused."""

from __future__ import annotations

import struct
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.model.block import (
    BLOCK_MESSAGES_MAX,
    HEAD_BYTES,
    Block,
    count_of,
    encode_block,
)
from raybroker.model.errors import ProtocolError

U64 = (1 << 64) - 1


class Row(NamedTuple):
    """One message of the dumb twin."""

    seq: int
    kind: int
    header: bytes
    body: bytes


class Sample(NamedTuple):
    data: bytes
    rows: list[Row]
    head: dict[str, object]
    uniform: bool
    with_headers: bool


@st.composite
def samples(draw: st.DrawFn, most: int = 12) -> Sample:
    bodies = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=most))
    count = len(bodies)
    uniform, with_headers = draw(st.booleans()), draw(st.booleans())
    one = draw(st.integers(0, 255))
    kinds = bytes([one] * count) if uniform else draw(st.binary(min_size=count, max_size=count))
    headers = draw(st.lists(st.binary(max_size=20), min_size=count, max_size=count)) if with_headers else None
    first = draw(st.integers(0, U64 - count))
    head: dict[str, object] = {
        "producer": draw(st.integers(0, U64)),
        "first_seq": first,
        "timestamp_ms": draw(st.integers(0, U64)),
        "persistent": draw(st.booleans()),
        "priority": draw(st.integers(0, 255)),
    }
    data = encode_block(bodies, kinds=one if uniform else kinds, headers=headers, **head)  # type: ignore[arg-type]
    rows = [
        Row(first + i, kinds[i], headers[i] if headers is not None else b"", bodies[i]) for i in range(count)
    ]
    return Sample(data, rows, head, uniform, with_headers)


def rows_of(block: Block) -> list[Row]:
    """What a block holds, message by message, through every accessor."""
    kinds = block.kinds()
    found = []
    for index in range(block.count):
        header = block.header(index)
        kind = block.kind_of(index)
        assert kinds is None or kinds[index] == kind
        assert block.lengths[index] == block.body(index).nbytes
        found.append(
            Row(block.first_seq + index, kind, b"" if header is None else bytes(header), bytes(block.body(index)))
        )
    return found


@given(samples())
def test_what_was_encoded_comes_back(sample: Sample) -> None:
    block = Block(sample.data)
    block.check()
    assert rows_of(block) == sample.rows
    assert {name: getattr(block, name) for name in sample.head} == sample.head
    assert block.count == count_of(sample.data) == len(sample.rows)
    assert block.bodies_bytes == sum(len(row.body) for row in sample.rows)
    assert (block.kinds() is None) == sample.uniform
    assert (block.header_offsets() is None) == (not sample.with_headers)


@given(samples(), st.data())
def test_a_part_is_the_block_of_those_messages(sample: Sample, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(sample.rows) - 1))
    end = data.draw(st.integers(start + 1, len(sample.rows)))
    buffers = Block(sample.data).part(start, end)
    part = Block(b"".join(buffers))
    part.check()
    assert count_of(buffers[0]) == end - start
    assert rows_of(part) == sample.rows[start:end]
    expected = {**sample.head, "first_seq": sample.rows[start].seq}
    assert {name: getattr(part, name) for name in expected} == expected


@given(samples(), st.data())
def test_a_part_of_a_part_is_a_part(sample: Sample, data: st.DataObject) -> None:
    count = len(sample.rows)
    start = data.draw(st.integers(0, count - 1))
    end = data.draw(st.integers(start + 1, count))
    outer = Block(b"".join(Block(sample.data).part(start, end)))
    low = data.draw(st.integers(0, end - start - 1))
    high = data.draw(st.integers(low + 1, end - start))
    inner = b"".join(outer.part(low, high))
    assert inner == b"".join(Block(sample.data).part(start + low, start + high))


def test_the_whole_block_is_its_own_part_without_a_copy() -> None:
    data = encode_block([b"a", b"b"], producer=1, first_seq=1, timestamp_ms=0, persistent=True, kinds=0)
    (whole,) = Block(data).part(0, 2)
    assert isinstance(whole, memoryview)
    assert whole.obj is data


@given(samples(), st.data())
def test_a_block_that_is_cut_or_longer_than_it_says_is_refused(sample: Sample, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(sample.data) - 1))
    with pytest.raises(ProtocolError):
        Block(sample.data[:cut])
    with pytest.raises(ProtocolError):
        Block(sample.data + b"\0")


@given(samples(most=4), st.data())
def test_a_changed_byte_is_refused_or_every_accessor_still_answers(sample: Sample, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(sample.data) - 1))
    changed = bytearray(sample.data)
    changed[at] ^= data.draw(st.integers(1, 255))
    try:
        block = Block(bytes(changed))
        block.check()
    except ProtocolError:
        return
    assert len(rows_of(block)) == block.count
    assert len(b"".join(block.part(0, 1))) >= HEAD_BYTES


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_every_accessor_still_answers(data: bytes) -> None:
    try:
        block = Block(data)
        block.check()
    except ProtocolError:
        return
    assert len(rows_of(block)) == block.count


def forged(
    *, version: int = 1, flags: int = 0, kind: int = 0, count: int = 1, headers_bytes: int = 0, bodies_bytes: int = 1,
    rest: bytes = b"\1\0\0\0x",
) -> bytes:  # fmt: skip
    """A block with a head of our choice; without arguments it is a right one."""
    return struct.pack("<BBBBIQQQII", version, flags, kind, 4, count, 7, 1, 0, headers_bytes, bodies_bytes) + rest


def test_the_forged_block_without_a_fault_is_right() -> None:
    block = Block(forged())
    block.check()
    assert rows_of(block) == [Row(1, 0, b"", b"x")]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "shorter than its head"),
        (forged()[:35], "shorter than its head"),
        (forged(version=0), "version 0"),
        (forged(version=2), "version 2"),
        (forged(flags=8), "flags 0x8"),
        (forged(flags=0x80), "flags 0x80"),
        (forged(count=0, bodies_bytes=0, rest=b""), "0 messages"),
        (forged(count=BLOCK_MESSAGES_MAX + 1, bodies_bytes=0, rest=bytes(4 * (BLOCK_MESSAGES_MAX + 1))), "1025"),
        (forged(count=0xFFFF_FFFF), "4294967295 messages"),
        (forged(headers_bytes=1), "without a header column"),
        (forged(bodies_bytes=0xFFFF_FFFF), "declares"),
        (forged(bodies_bytes=2), "declares"),
        (forged(rest=b"\2\0\0\0x"), "add up to 2, not 1"),
        (forged(rest=b"\xff\xff\xff\xffx"), "add up to 4294967295"),
        (forged(flags=2, rest=b"\1\0\0\0" + b"\1\0\0\0" + b"x"), "header lengths of a block add up to 1, not 0"),
    ],
)
def test_a_malformed_block_is_refused_with_its_reason(data: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        Block(data).check()


def test_a_block_holds_1024_messages_of_no_bytes() -> None:
    data = encode_block(
        [b""] * BLOCK_MESSAGES_MAX, producer=1, first_seq=1, timestamp_ms=0, persistent=False, kinds=1,
        headers=[b""] * BLOCK_MESSAGES_MAX,
    )  # fmt: skip
    block = Block(data)
    block.check()
    assert block.count == BLOCK_MESSAGES_MAX
    assert block.header(1023) is None
    assert [len(p) for p in block.part(1023, 1024)] == [HEAD_BYTES + 4 + 4, 0]
