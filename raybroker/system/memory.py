"""The allocator of this process: memory that is kept, and memory that is given back."""

from __future__ import annotations

import ctypes
import gc
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


def give_back_memory(*, thorough: bool) -> None:
    """Give freed memory back to the system, as far as the C library can; ``thorough``: collect garbage before."""
    if thorough:
        gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return
