"""The large block: its front alone, and with a body."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.model.blocks.block import Block, encode_block
from raybroker.model.blocks.large_block import (
    PIECE_BYTES,
    LargeBlock,
    LargePayload,
    missing,
    payload_of,
    piece_bytes,
    pieces_of,
)
from raybroker.model.errors import ProtocolError, StoreError


class Body:
    """A body in memory that counts how often it is read; ``free`` until it is claimed."""

    def __init__(self, data: bytes, *, free: bool = False) -> None:
        self.data, self.free, self.reads = data, free, 0

    @property
    def nbytes(self) -> int:
        return len(self.data)

    def piece(self, number: int) -> bytes:
        self.reads += 1
        return self.data[number * PIECE_BYTES : (number + 1) * PIECE_BYTES]

    def claim(self) -> bool:
        free, self.free = self.free, False
        return free


DATA = bytes(range(256)) * 2048 + b"end"


def front(data: bytes = DATA, count: int = 1) -> bytes:
    return encode_block(
        [data] * count,
        producer=7,
        first_seq=5,
        timestamp_ms=9,
        persistent=True,
        kinds=0,
        headers=[b"h"] * count,
        front=True,
    )


def test_headers_and_sizes_are_known_without_the_body() -> None:
    body = Body(DATA)
    block = LargeBlock(front(), body)
    block.check()
    assert (block.count, block.lengths, block.producer, block.first_seq) == (1, (len(DATA),), 7, 5)
    assert bytes(block.header(0) or b"") == b"h"
    assert block.nbytes == len(front()) + len(DATA)
    assert body.reads == 0


def test_what_needs_all_of_it_reads_all_of_it() -> None:
    whole = encode_block([DATA], producer=7, first_seq=5, timestamp_ms=9, persistent=True, kinds=0, headers=[b"h"])
    block = LargeBlock(front(), Body(DATA))
    assert bytes(block.view) == whole == b"".join(block.pick(1)) == b"".join(block.part(0, 1))
    assert bytes(block.body(0)) == DATA
    assert bytes(Block(block.view).body(0)) == DATA


def test_a_change_of_its_headers_leaves_the_body_where_it_is() -> None:
    body = Body(DATA)
    changed = LargeBlock(front(), body).with_headers([b"other"]).with_overrides(now_ms=1, priority=9, ttl_ms=5)
    assert isinstance(changed, LargeBlock)
    assert (bytes(changed.header(0) or b""), changed.priority_of(0), changed.expires_of(0)) == (b"other", 9, 6)
    assert body.reads == 0
    assert bytes(Block(changed.view).body(0)) == DATA


def test_a_front_must_be_that_of_one_message_and_fit_its_body() -> None:
    with pytest.raises(ProtocolError, match="only one alone may"):
        LargeBlock(front(b"x" * 10, count=2), Body(b"x" * 20))
    with pytest.raises(ProtocolError, match="declares"):
        LargeBlock(front(), Body(DATA[1:]))
    with pytest.raises(ProtocolError, match="shorter than its head"):
        LargeBlock.promised(b"short")


def test_a_promised_body_is_missing_until_it_is_there() -> None:
    block = LargeBlock.promised(front())
    assert missing(block)
    with pytest.raises(StoreError, match="has not come"):
        block.body(0)
    block.large = Body(DATA)
    assert not missing(block)
    assert not missing(Block(block.view))


def test_a_body_is_claimed_once_and_otherwise_goes_whole() -> None:
    block = LargeBlock(front(), Body(DATA, free=True))
    first, second = payload_of(block), payload_of(block)
    assert type(first) is LargePayload
    assert first.large is block.large
    assert second == (block.view,)


@given(st.integers(1, 5 * PIECE_BYTES))
def test_pieces_cover_a_body(nbytes: int) -> None:
    sizes = [piece_bytes(nbytes, number) for number in range(pieces_of(nbytes))]
    assert sum(sizes) == nbytes
    assert set(sizes[:-1]) <= {PIECE_BYTES}
    assert 1 <= sizes[-1] <= PIECE_BYTES
