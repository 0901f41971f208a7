"""Operators of selectors on two values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.core.selector.values import COMPARISONS, MIRRORED, alike, calculate, itself, negate

LARGEST, SMALLEST = (1 << 63) - 1, -(1 << 63)
VALUES = st.one_of(
    st.integers(-3, 3), st.floats(-3, 3), st.sampled_from(["", "a"]), st.booleans(), st.just(b"a"), st.none()
)


def test_numbers_are_alike_and_truth_values_are_no_numbers() -> None:
    assert alike(1, 1.0)
    assert not alike(1, True)
    assert not alike("1", 1)
    assert not alike(b"a", b"a")


@pytest.mark.parametrize(
    ("operator", "left", "right", "holds"),
    [
        ("=", 1, 1.0, True),
        ("=", "a", "a", True),
        ("=", True, 1, False),
        ("<>", True, 1, False),
        ("<>", "a", "b", True),
        ("<", 1, 1.5, True),
        ("<", "a", "b", False),
        (">=", 2**53 + 1, float(2**53), True),
        ("=", 2**53 + 1, float(2**53), False),
        ("<=", False, True, False),
    ],
)
def test_only_values_of_one_kind_compare(operator: str, left: Any, right: Any, holds: bool) -> None:
    assert COMPARISONS[operator](left, right) is holds


@given(st.sampled_from(sorted(COMPARISONS)), VALUES, VALUES)
def test_a_mirrored_comparison_says_the_same(operator: str, left: Any, right: Any) -> None:
    assert COMPARISONS[operator](left, right) is COMPARISONS[MIRRORED[operator]](right, left)


@pytest.mark.parametrize(
    ("operator", "left", "right", "result"),
    [
        ("+", 1, 2, 3),
        ("-", 1, 2.5, -1.5),
        ("*", 3, 4, 12),
        ("/", 7, 2, 3),
        ("/", -7, 2, -3),
        ("/", 7, -2, -3),
        ("/", -7, -2, 3),
        ("/", 7, 2.0, 3.5),
        ("/", 1, 0, None),
        ("/", 1.0, 0, None),
        ("+", LARGEST, 1, None),
        ("-", SMALLEST, 1, None),
        ("*", LARGEST, 2, None),
        ("/", SMALLEST, -1, None),
        ("+", "a", 1, None),
        ("+", True, 1, None),
        ("+", None, 1, None),
        ("*", 1e300, 1e300, float("inf")),
        ("+", LARGEST, 0.0, float(LARGEST)),
    ],
)
def test_arithmetic_gives_a_true_result_or_none(operator: str, left: Any, right: Any, result: Any) -> None:
    found = calculate(operator, left, right)
    assert found == result
    assert type(found) is type(result)


def test_signs_take_numbers_that_fit_alone() -> None:
    assert (negate(5), negate(-0.5), itself(5)) == (-5, 0.5, 5)
    assert (negate(SMALLEST), negate("a"), negate(True), itself(LARGEST + 1), itself(None)) == (None,) * 5
