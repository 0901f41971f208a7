"""T3: every disk image that a power cut can leave opens, holds what was acknowledged, and no half batch."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.store_faults import power_loss
from tests.store_faults.power_loss import Call, Disk

FEW, MANY = 40, 2000


def test_a_few_legal_images_lose_no_acknowledged_operation(tmp_path: Path) -> None:
    assert power_loss.run(tmp_path, images=FEW, seed=1) >= FEW


@pytest.mark.sweep
@pytest.mark.parametrize("seed", [1, 2])
def test_no_legal_image_loses_an_acknowledged_operation(tmp_path: Path, seed: int, sweep_seconds: float) -> None:
    assert power_loss.run(tmp_path, images=MANY, seed=seed, seconds=sweep_seconds) >= 1


def test_an_unsynced_write_may_be_lost_torn_or_kept() -> None:
    disk = Disk()
    for call in (Call("create", 1, "a"), Call("sync_dir"), Call("write", 1, data=b"x" * 1024)):
        disk.apply(call)
    found = {image.files["a"] for image in disk.images(random.Random(1), 256)}
    found |= {image.files["a"] for seed in range(50) for image in disk.images(random.Random(seed), 2)}
    assert found == {b"", b"x" * 1024, b"x" * 512, bytes(512) + b"x" * 512}


def test_a_synced_write_is_in_every_image_and_an_unsynced_name_is_not() -> None:
    disk = Disk()
    for call in (Call("create", 1, "a"), Call("write", 1, data=b"x"), Call("sync", 1)):
        disk.apply(call)
    assert [image.files for image in disk.images(random.Random(1), 256)] == [{}, {"a": b"x"}]
