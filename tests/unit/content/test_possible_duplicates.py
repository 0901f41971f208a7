"""Messages that may be second copies say so, and keep everything else."""

from __future__ import annotations

import pytest

from raybroker.content.headers import decode_header, encode_header
from raybroker.content.possible_duplicates import in_doubt
from raybroker.model.blocks.block import Block, encode_block

BODIES = [b"one", b"two", b"three"]


@pytest.mark.parametrize("headers", [None, [b"", encode_header({"n": 1}, "c", None, None, "d"), b""]])
def test_a_block_in_doubt_is_the_same_but_for_the_mark(headers: list[bytes] | None) -> None:
    data = encode_block(BODIES, producer=7, first_seq=5, timestamp_ms=9, persistent=True, kinds=0, headers=headers)
    before, after = Block(data), Block(in_doubt(data))
    assert (after.producer, after.first_seq, after.count, after.persistent) == (7, 5, 3, True)
    for index in range(3):
        assert bytes(after.body(index)) == BODIES[index]
        was, now = decode_header(before.header(index)), decode_header(after.header(index))
        assert (was.doubtful, now.doubtful) == (False, True)
        assert now._replace(doubtful=False) == was


def test_marking_twice_changes_nothing_more() -> None:
    data = encode_block(BODIES, producer=7, first_seq=5, timestamp_ms=9, persistent=True, kinds=0)
    assert in_doubt(in_doubt(data)) == in_doubt(data)


def test_a_header_that_does_not_decode_stays_as_it_is() -> None:
    data = encode_block(
        BODIES, producer=7, first_seq=5, timestamp_ms=9, persistent=True, kinds=0, headers=[b"\xc1", b"", b""]
    )
    block = Block(in_doubt(data))
    assert bytes(block.header(0) or b"") == b"\xc1"
    assert decode_header(block.header(1)).doubtful
