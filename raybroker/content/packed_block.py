"""The packed block: a block whose bodies are compressed together where it is kept, in the store or in a paging file.

Head, columns and headers stay as they are, but for the version in the first byte, so that whatever reads a head reads
that of a packed block too; the bodies follow as one stream of zlib.  Nobody sends a packed block: it is packed by the
host that keeps it, and opened where it is read back.  Bodies that their producers have compressed are not compressed
again, and what does not get smaller stays as it was.
"""

from __future__ import annotations

import zlib
from typing import Final

from raybroker.content.bodies import COMPRESSED
from raybroker.model.blocks.block import HEAD_BYTES, Block
from raybroker.model.blocks.columns import HEAD, VERSION, WIDTHS
from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import StoreDamagedError

PACKED: Final = 0x80 | VERSION
"""The first byte of a packed block."""
BODIES_BYTES_MIN: Final = 256
"""Fewer bytes of bodies are not worth a stream of their own."""
LEVEL: Final = zlib.Z_BEST_SPEED
"""It is done in the path of a send: twice as fast as the default of zlib, for a tenth more bytes."""


def packed(data: Buffer) -> Buffer:
    """An encoded block as it is kept: packed, or ``data`` itself where that is of no use."""
    block = Block(data)
    if block.bodies_bytes < BODIES_BYTES_MIN or _compressed_already(block):
        return data
    front_bytes = block.nbytes - block.bodies_bytes
    small = zlib.compress(block.view[front_bytes:], LEVEL)
    if len(small) >= block.bodies_bytes:
        return data
    return b"".join((bytes((PACKED,)), block.view[1:front_bytes], small))


def unpacked(data: Buffer) -> Buffer:
    """The encoded block that :func:`packed` was given; raises StoreDamagedError for what it did not make."""
    view = memoryview(data)
    if not view.nbytes or view[0] != PACKED:
        return data
    if view.nbytes < HEAD_BYTES:
        raise StoreDamagedError(f"a packed block of {view.nbytes} bytes is shorter than its head")
    _, flags, _, _, count, _, _, _, headers_bytes, bodies_bytes = HEAD.unpack_from(view)
    if flags >= len(WIDTHS):
        raise StoreDamagedError(f"a packed block with flags {flags:#x} is not understood")
    front_bytes = HEAD_BYTES + count * WIDTHS[flags] + headers_bytes
    machine = zlib.decompressobj()
    try:
        bodies = machine.decompress(view[front_bytes:], bodies_bytes + 1)
    except zlib.error as error:
        raise StoreDamagedError(f"the bodies of a packed block do not inflate: {error}") from None
    if len(bodies) != bodies_bytes or not machine.eof or machine.unused_data:
        raise StoreDamagedError(f"the bodies of a packed block are not the {bodies_bytes} bytes that it declares")
    return b"".join((bytes((VERSION,)), view[1:front_bytes], bodies))


def legible(data: bytes) -> bytes:
    """What can be read of a block that may be packed and is damaged: all of it where it opens, else as it is kept."""
    try:
        return bytes(unpacked(data))
    except StoreDamagedError:
        return data


def _compressed_already(block: Block) -> bool:
    """Whether the producer has compressed every body."""
    kinds = block.kinds()
    return bool(block.kind & COMPRESSED) if kinds is None else all(kind & COMPRESSED for kind in kinds)
