"""Copies on real disks and sockets under faults: nothing that was confirmed is lost, and all copies are equal then.

More seeds and longer ones: ``python -m tests.unit.copies --seeds 100``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.copies.chaos import CONFIRMED_MIN, Chaos


@pytest.mark.parametrize("seed", [2, 3])
def test_nothing_that_was_confirmed_is_lost(tmp_path: Path, seed: int) -> None:
    chaos = Chaos(tmp_path, seed, steps=6)
    chaos.run()
    assert chaos.happened["confirmed"] >= CONFIRMED_MIN
