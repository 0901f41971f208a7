"""The rule of a threshold with two levels: over from the first time above High, until below Low."""

from __future__ import annotations


def is_over(held: int, high: int, low: int, *, was: bool) -> bool:
    """Whether what holds so much is over now; ``was``: whether it was at the last look. ``high`` -1: it never is."""
    return high >= 0 and (held >= low if was else held > high)
