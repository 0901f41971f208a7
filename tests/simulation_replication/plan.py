"""What a seed has: how many copies, how bad the network, disks and clocks are, and which faults come how often."""

from __future__ import annotations

from random import Random
from typing import Final

MS: Final = 1000
S: Final = 1000 * MS


class Plan:
    """Times in microseconds; shares between 0 and 1."""

    def __init__(self, rng: Random) -> None:
        self.voters = rng.choice((1, 3, 3, 3, 3, 5))
        self.nodes = self.voters + 2
        self.min_in_sync = rng.choice((0, 0, 0, self.voters // 2 + 1, self.voters))
        self.kept_bytes = rng.choice((2_000, 6_000, 1 << 20))
        self.length_us = rng.randrange(20, 60) * S
        self.lost = rng.choice((0.0, 0.01, 0.1))
        self.repeated = rng.choice((0.0, 0.02, 0.1))
        self.flipped = rng.choice((0.0, 0.0, 0.02))
        self.delay_us = rng.choice((2 * MS, 20 * MS, 150 * MS))
        self.late_share = rng.choice((0.0, 0.02, 0.1))
        self.late_us = rng.choice((300 * MS, 2 * S, 5 * S))
        self.sync_us = rng.choice((500, 5 * MS, 60 * MS))
        self.slow_share = rng.choice((0.0, 0.02, 0.1))
        self.slow_us = rng.choice((100 * MS, 2 * S))
        self.apart_us = rng.choice((3 * MS, 30 * MS, 200 * MS))
        """Between two batches of the clients."""
        self.body_bytes = rng.choice((10, 200, 2_000))
        self.drift = {node: 1 + rng.uniform(-0.045, 0.045) for node in range(self.nodes)}
        self.faults_us = rng.choice((400 * MS, 1500 * MS, 5 * S))
        """Between two faults."""
        self.weights = {
            name: rng.choice((0, 1, 1, 3))
            for name in (
                "kill",
                "pause",
                "cut",
                "unlink",
                "wipe",
                "flip",
                "clone",
                "suspect",
                "change",
                "require",
                "restart_all",
                "usurp",
                "overtake",
                "outdate",
                "unheal",
                "hand_over",
            )
        }
        self.suspect_anybody = rng.choice((0.0, 0.2, 0.6))
        """How often whoever looks for a new leader asks one that is not the best."""
