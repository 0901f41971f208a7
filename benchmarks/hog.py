"""A processor hog: one process at priority 0 that takes a whole core, for figures of a machine that has other work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.servers import die_with_parent


@contextmanager
def hog(wanted: bool = True) -> Iterator[None]:
    """Keeps one core busy until the block ends; nothing when it is not wanted."""
    if not wanted:
        yield
        return
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", "while True: pass"],
        preexec_fn=die_with_parent,  # noqa: PLW1509 - as in servers
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()
