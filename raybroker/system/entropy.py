"""Real randomness: the only place that draws it."""

from __future__ import annotations

import os


def token(nbytes: int) -> bytes:
    """``nbytes`` unpredictable bytes from the kernel."""
    return os.urandom(nbytes)
