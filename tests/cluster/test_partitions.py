"""Nodes lose sight of each other for a while: see partitions.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cluster import netspaces, partitions, rays


@pytest.mark.long
@pytest.mark.timeout(240)
def test_partitions_leave_one_owner_of_everything_and_heal(tmp_path: Path) -> None:
    reason = netspaces.missing()
    if reason and not os.environ.get("CI"):
        pytest.skip(reason)
    assert not reason, reason
    rays.folder()
    verdict, parted = partitions.run(tmp_path, ["head", "master", "all", "other"], seconds=4.0, seed=1)
    print(f"detection {parted.detection}, steady {parted.steady}: {verdict}")
    assert verdict.acknowledged > 500
    assert verdict.valid, str(verdict)
    assert max(parted.detection) < 4.0


def test_what_each_side_should_see_follows_from_who_is_alone() -> None:
    expected = partitions.Parted.expected({"b3"})
    assert expected["b3"] == {"b1": "DOWN", "b2": "DOWN", "b3": "UP"}
    assert expected["b1"] == expected["b2"] == {"b1": "UP", "b2": "UP", "b3": "DOWN"}
