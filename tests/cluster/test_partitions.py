"""Nodes lose sight of each other for a while: see partitions.py and copied_partitions.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cluster import copied_partitions, netspaces, parted_nodes, rays
from tests.cluster.copied_partitions import CopiedQueue
from tests.cluster.partitions import Parted


@pytest.fixture
def namespaces() -> None:
    """They are permitted; in CI they must be."""
    reason = netspaces.missing()
    if reason and not os.environ.get("CI"):
        pytest.skip(reason)
    assert not reason, reason
    rays.folder()


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("namespaces")
def test_partitions_leave_one_owner_of_everything_and_heal(tmp_path: Path) -> None:
    kinds = ["head", "master", "all", "other"]
    verdict, parted = parted_nodes.run(Parted, tmp_path, kinds, seconds=4.0, seed=1)
    print(f"{parted.times()}: {verdict}")
    assert verdict.acknowledged > 500
    assert verdict.valid, str(verdict)
    assert max(parted.detection) < 4.0


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("kind", copied_partitions.KINDS)
def test_partitions_of_copies_lose_nothing_and_confirm_nothing_to_a_minority(tmp_path: Path, kind: str) -> None:
    verdict, copied = parted_nodes.run(CopiedQueue, tmp_path, [kind], seconds=5.0, seed=1)
    print(f"{copied.times()}: {verdict}")
    assert verdict.acknowledged > 500
    assert verdict.valid, str(verdict)


def test_what_each_side_should_see_follows_from_who_is_alone() -> None:
    expected = Parted.expected({"b3"})
    assert expected["b3"] == {"b1": "DOWN", "b2": "DOWN", "b3": "UP"}
    assert expected["b1"] == expected["b2"] == {"b1": "UP", "b2": "UP", "b3": "DOWN"}
