"""Where a run of bodies is cut into blocks."""

from __future__ import annotations

import pytest

from raybroker.client.producer.bodies import block_split
from raybroker.client.producer.bodies.block_split import by_bytes, pieces


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([3], [(0, 1)]),
        ([4, 6], [(0, 2)]),
        ([4, 6, 1], [(0, 2), (2, 3)]),
        ([50], [(0, 1)]),
        ([50, 1], [(0, 1), (1, 2)]),
        ([1, 50, 1], [(0, 1), (1, 2), (2, 3)]),
        ([5] * 5, [(0, 2), (2, 4), (4, 5)]),
        ([0] * 4, [(0, 4)]),
    ],
)
def test_no_block_of_several_messages_grows_past_its_target(
    sizes: list[int], expected: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_split, "BLOCK_BYTES_TARGET", 10)
    assert list(by_bytes([b"x" * size for size in sizes])) == expected


def test_a_piece_has_no_more_bodies_than_are_allowed_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_split, "BLOCK_BYTES_TARGET", 10)
    allowed = iter([2, 1, 0])
    assert list(pieces([b"x"] * 7, lambda: next(allowed))) == [(0, 2), (2, 3), (3, 7)]
    assert list(pieces([b"x" * 10] * 2, lambda: 0)) == [(0, 1), (1, 2)]
