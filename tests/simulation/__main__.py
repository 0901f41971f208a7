"""``python -m tests.simulation --seeds 100000 --start 0 --jobs 2``: run seeds until one fails, or all are done."""

from __future__ import annotations

import sys

from tests.simulation.run import SIMULATION

if __name__ == "__main__":
    sys.exit(SIMULATION.main(__doc__))
