"""Buffers for large frames are used again, and never while somebody looks at them."""

from __future__ import annotations

from raybroker.model.blocks.block import Block, encode_block
from raybroker.wire.native import frames
from raybroker.wire.native.connection import Native
from raybroker.wire.native.receive_buffers import BUFFERS_KEPT_MAX, ROUND_BYTES, FrameBuffers


def test_a_buffer_nobody_looks_at_is_used_again() -> None:
    buffers = FrameBuffers()
    first = id(buffers.take_buffer(100_000))
    assert id(buffers.take_buffer(100_000)) == first


def test_a_buffer_with_a_view_is_left_alone() -> None:
    buffers = FrameBuffers()
    view = memoryview(buffers.take_buffer(100_000))[10:20]
    view[:] = b"0123456789"
    for _ in range(3 * BUFFERS_KEPT_MAX):
        buffers.take_buffer(100_000)[:100] = bytes(100)
    assert bytes(view) == b"0123456789"


def test_a_buffer_is_neither_too_small_nor_far_too_large() -> None:
    buffers = FrameBuffers()
    for size in (1_000_000, 70_000, 300_000, 1_000_000):
        buffer = buffers.take_buffer(size)
        assert size <= len(buffer) <= 2 * size + ROUND_BYTES


def test_blocks_received_one_after_another_keep_their_bytes() -> None:
    sender = [
        encode_block([bytes([n]) * 1000] * 200, producer=7, first_seq=1, timestamp_ms=0, persistent=True, kinds=0)
        for n in range(40)
    ]
    receiver = Native(token=None)
    kept: list[Block] = []
    for n, block in enumerate(sender):
        (frame,) = receiver.receive_data(b"".join(map(bytes, frames.deliver(1, 2, 3, 1, (block,)))))
        assert isinstance(frame, frames.DeliverFrame)
        if n % 3 == 0:
            kept.append(frame.block)
    assert [block.body(199)[0] for block in kept] == list(range(0, 40, 3))
