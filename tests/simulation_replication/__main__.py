"""``python -m tests.simulation_replication --seeds 10000 --start 0 --jobs 2``: run seeds until one fails."""

from __future__ import annotations

import sys

from tests.simulation_replication.run import SIMULATION

if __name__ == "__main__":
    sys.exit(SIMULATION.main(__doc__))
