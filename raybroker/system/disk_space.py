"""Space of file systems."""

from __future__ import annotations

import os
from pathlib import Path


def disk_space(path: Path) -> tuple[int, int]:
    """Bytes that are free for this user, and bytes of the whole file system; raises OSError."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
