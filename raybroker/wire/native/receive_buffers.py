"""Buffers for large frames, used again as soon as nobody looks at them any more.

A fresh buffer costs twice: it is filled with zeros, and its memory is cold.  A block that went through is usually done
with by the time the next few have come, so a handful of buffers serve a stream of any length and stay in the
processor's caches.  Whether a buffer is free is told by its reference count: every view of a block keeps the buffer.
"""

from __future__ import annotations

import sys
from typing import Final

BUFFERS_KEPT_MAX: Final = 16
"""Buffers that wait to be used again; a pool holds at most so many frames' bytes longer than it must."""
ROUND_BYTES: Final = 64 * 1024
"""Sizes are rounded up to this, so that blocks of nearly the same size share buffers."""
_FREE: Final = 3
"""References to a buffer that only the pool has: its list, the local name, and the argument of getrefcount."""


class FrameBuffers:
    """The buffers of one event loop; they are not thread safe."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take_buffer(self, size: int) -> bytearray:
        """A buffer of at least ``size`` bytes with any content, nobody else's until its last view is gone."""
        kept = self._kept
        for index in range(len(kept)):
            buffer = kept[index]
            if size <= len(buffer) <= 2 * size + ROUND_BYTES and sys.getrefcount(buffer) == _FREE:
                del kept[index]
                kept.append(buffer)
                return buffer
        buffer = bytearray(-(-size // ROUND_BYTES) * ROUND_BYTES)
        kept.append(buffer)
        if len(kept) > BUFFERS_KEPT_MAX:
            del kept[0]
        return buffer
