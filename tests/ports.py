"""Ports for those who have to know theirs before anybody listens at it, and again after a restart."""

from __future__ import annotations

import itertools
import os
import socket

FIRST = 20_000
WORKERS, EACH = 8, 1_500
"""Workers of a run, and ports of each: all are above those of Ray's workers, which end at 19999, and below what the
system takes for connections that go out, which begins at 32768."""
_numbers = itertools.count(os.getpid())


def free_port() -> int:
    """A port that nobody has now, and that neither the system nor another worker gives to anybody else meanwhile."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    for _ in range(EACH):
        port = FIRST + worker * EACH + next(_numbers) % EACH
        with socket.socket() as tried:
            try:
                tried.bind(("", port))
            except OSError:
                continue
            return port
    raise AssertionError(f"each of {EACH} ports from {FIRST + worker * EACH} on is taken")
