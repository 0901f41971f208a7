"""The connection of benchmark workers to raybroker, and the constants that all of its figures share."""

from __future__ import annotations

from typing import Any

from benchmarks.peers.base import Address
from benchmarks.ray_head import join

CLUSTER = "bench"
PREFETCH = 20_000
TAKE = 4_000
WARM_UP_BYTES, WARM_UPS = 128 << 20, 3
"""Sent and purged, so many times, before the clock runs: the journal's segments were written before and come round, as
the pipe's file was and does."""
PATIENCE_SECONDS = 30.0


def connect(address: Address) -> Any:
    """A connection to the benchmark's cluster, started."""
    join(address, CLUSTER)
    import raybroker as rb

    connection = rb.connect(cluster=CLUSTER)
    connection.start()
    return connection
