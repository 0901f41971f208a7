"""Where a run of bodies is cut into blocks."""

from __future__ import annotations

import pytest

from raybroker.client.producer import block_split
from raybroker.client.producer.block_split import by_bytes


@pytest.mark.parametrize(
    ("sizes", "pieces"),
    [
        ([3], [(0, 1)]), ([4, 6], [(0, 2)]), ([4, 6, 1], [(0, 2), (2, 3)]), ([50], [(0, 1)]),
        ([50, 1], [(0, 1), (1, 2)]), ([1, 50, 1], [(0, 1), (1, 2), (2, 3)]), ([5] * 5, [(0, 2), (2, 4), (4, 5)]),
        ([0] * 4, [(0, 4)]),
    ],
)  # fmt: skip
def test_no_block_of_several_messages_grows_past_its_target(
    sizes: list[int], pieces: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_split, "BLOCK_BYTES_TARGET", 10)
    assert list(by_bytes([b"x" * size for size in sizes])) == pieces
