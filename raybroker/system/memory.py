"""The allocator of this process: memory that is kept, and memory that is given back."""

from __future__ import annotations

import gc
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
KEEP_BYTES: Final = 16 << 20
"""Freed memory that is kept for the next blocks instead of being given back to the system page by page."""

COLLECT_AFTER: Final = 10_000
"""So many more objects that may be in cycles are made than are freed before the collector looks at those."""
COLLECT_OLDER_EVERY: Final = 5
"""So many of its looks at young objects before it looks at older ones, and of those before it looks at all."""


def keep_freed_memory(keep_bytes: int = KEEP_BYTES) -> bool:
    """Let blocks reuse memory that is mapped already; false where the C library has no such option.

    By default glibc maps and unmaps every large buffer, and each fresh page costs a fault when bytes are received into
    it, which at hundreds of MB a second took a third of a host's time.
    """
    import ctypes

    try:
        libc = ctypes.CDLL(None)
        told = libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20) and libc.mallopt(_M_TRIM_THRESHOLD, keep_bytes)
    except (OSError, AttributeError):
        return False
    return bool(told)


def collect_seldom() -> None:
    """Let the garbage collector look less often, and never again at what is there now: modules, above all.

    For a process of our own that has just started.  Each message leaves some objects that stay, so by default the
    collector comes round every ninety messages, and goes through everything every few thousand.
    """
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, COLLECT_OLDER_EVERY, COLLECT_OLDER_EVERY)


def give_back_memory(*, thorough: bool) -> None:
    """Give freed memory back to the system, as far as the C library can; ``thorough``: collect garbage before."""
    import ctypes

    if thorough:
        gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return


def collections() -> int:
    """Return how often the garbage collector has run in this process."""
    return sum(generation["collections"] for generation in gc.get_stats())
