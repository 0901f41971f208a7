"""The rule of a threshold: over above High, until below Low."""

from __future__ import annotations

import pytest

from raybroker.engine.measuring.thresholds import is_over


@pytest.mark.parametrize(
    ("held", "was", "over"),
    [
        (0, False, False),
        (9, False, False),
        (10, False, False),
        (11, False, True),
        (11, True, True),
        (10, True, True),
        (5, True, True),
        (4, True, False),
        (0, True, False),
    ],
)
def test_it_is_over_above_high_until_below_low(held: int, *, was: bool, over: bool) -> None:
    assert is_over(held, 10, 5, was=was) is over


@pytest.mark.parametrize("was", [True, False])
def test_without_high_nothing_is_over(*, was: bool) -> None:
    assert not is_over(1 << 60, -1, -1, was=was)


def test_a_high_of_nothing_is_over_with_the_first_message() -> None:
    assert not is_over(0, 0, 0, was=False)
    assert is_over(1, 0, 0, was=False)
