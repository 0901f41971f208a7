"""Packed blocks: what a host keeps compressed is opened as it was, and what is no use is kept as it came."""

from __future__ import annotations

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.content.bodies import DEFLATED, TEXT, ZSTD
from raybroker.content.packed_block import BODIES_BYTES_MIN, PACKED, legible, packed, unpacked
from raybroker.model.blocks.block import Block, count_of, encode_block
from raybroker.model.errors import StoreDamagedError


def block(*bodies: bytes, kinds: int | bytes = TEXT, headers: list[bytes] | None = None) -> bytes:
    return encode_block(
        bodies,
        producer=7,
        first_seq=3,
        timestamp_ms=5,
        persistent=True,
        kinds=kinds,
        headers=headers,
        priorities=bytes(range(len(bodies))) if len(bodies) < 10 else None,
    )


@given(
    st.lists(st.tuples(st.binary(max_size=400), st.integers(0, 40)), min_size=1, max_size=9),
    st.booleans(),
)
def test_what_was_packed_is_opened_as_it_was(rows: list[tuple[bytes, int]], with_headers: bool) -> None:
    headers = [body[:3] for body, _ in rows] if with_headers else None
    data = block(*(body * times for body, times in rows), headers=headers)
    kept = packed(data)
    assert bytes(unpacked(kept)) == data
    assert memoryview(kept).nbytes <= len(data)
    if kept is not data:
        assert count_of(kept) == len(rows), "the head is read as that of any block"


def test_the_front_stays_legible_and_the_bodies_shrink() -> None:
    data = block(b"flight " * 1_000, headers=[b"header"])
    kept = bytes(packed(memoryview(data)))
    assert kept[0] == PACKED
    assert b"header" in kept
    assert len(kept) < len(data) // 20


def test_what_gets_no_smaller_or_came_compressed_stays_as_it_is() -> None:
    noise, small = random.Random(1).randbytes(5_000), zlib.compress(b"a" * 100_000)
    for data in (
        block(noise),
        block(b"a" * (BODIES_BYTES_MIN - 1)),
        block(small * 9, kinds=TEXT | DEFLATED),
        block(b"a" * 999, b"b" * 999, kinds=bytes([TEXT | ZSTD, TEXT | DEFLATED])),
    ):
        assert packed(data) is data
        assert unpacked(data) is data
    assert packed(block(b"a" * 999, b"b" * 999, kinds=bytes([TEXT, TEXT | DEFLATED]))) != data


def test_damage_is_told_and_never_opened_as_something_else() -> None:
    data = block(b"text " * 500, headers=[b"header"])
    kept = bytes(packed(data))
    zeros = kept[:60] + bytes(len(kept) - 60)
    for wrong in (kept[:20], kept[:-1], kept + b"x", zeros, bytes((PACKED, 0xFF)) + kept[2:]):
        with pytest.raises(StoreDamagedError):
            unpacked(wrong)
        assert legible(wrong) == wrong
    assert legible(kept) == data
    more = bytearray(kept)
    more[36:40] = (2_499).to_bytes(4, "little")
    with pytest.raises(StoreDamagedError, match="not the 2499 bytes that it declares"):
        unpacked(bytes(more))
    assert Block(unpacked(kept)).body(0) == b"text " * 500
