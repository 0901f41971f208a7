"""The allocator of this process."""

from __future__ import annotations

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
KEEP_BYTES: Final = 16 << 20
"""Freed memory that is kept for the next blocks instead of being given back to the system page by page."""


def keep_freed_memory(keep_bytes: int = KEEP_BYTES) -> bool:
    """Let blocks reuse memory that is mapped already; false where the C library has no such option.

    By default glibc maps and unmaps every large buffer, and each fresh page costs a fault when bytes are received into
    it, which at hundreds of MB a second took a third of a host's time.
    """
    try:
        libc = ctypes.CDLL(None)
        told = libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20) and libc.mallopt(_M_TRIM_THRESHOLD, keep_bytes)
    except (OSError, AttributeError):
        return False
    return bool(told)
