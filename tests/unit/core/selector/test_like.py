"""Patterns of LIKE, matched without a selector around them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.core.selector.faults import SelectorFault
from raybroker.core.selector.like import matcher
from raybroker.core.selector.tree import Like, Name


def like(pattern: str, escape: str | None = None) -> Like:
    return Like(0, Name(0, "x"), pattern, 7, escape, 20, negated=False)


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("abc", ["abc"], ["", "ab", "abcd", "ABC"]),
        ("", [""], ["a"]),
        ("%", ["", "a", "a\nb"], []),
        ("a%", ["a", "ab"], ["", "ba"]),
        ("%a", ["a", "ba"], ["ab"]),
        ("a%a", ["aa", "aba", "aaa"], ["a", "ab"]),
        ("a_c", ["abc", "a\nc", "a_c"], ["ac", "abbc"]),
        ("%b_%", ["bc", "abc"], ["ab"]),
        ("a%bc%d", ["abcd", "axbcbcd"], ["abd", "acbd"]),
        ("a.c", ["a.c"], ["abc"]),
    ],
)
def test_a_percent_sign_is_any_text_and_an_underline_one_character(
    pattern: str, fits: list[str], does_not: list[str]
) -> None:
    matches = matcher(like(pattern))
    assert all(matches(text) for text in fits)
    assert not any(matches(text) for text in does_not)


def test_an_escaped_sign_stands_for_itself() -> None:
    matches = matcher(like("50!%!_!!%", "!"))
    assert matches("50%_!")
    assert matches("50%_! off")
    assert not matches("500_!")


@pytest.mark.parametrize(
    ("pattern", "escape", "at", "found"),
    [
        ("a", "", 20, "an escape text of 0 characters"),
        ("a", "!!", 20, "an escape text of 2 characters"),
        ("a!b", "!", 7, "'!' before 'b'"),
        ("a!", "!", 7, "'!' at the end of the pattern"),
    ],
)
def test_a_wrong_escape_is_a_fault_at_the_text_that_is_wrong(pattern: str, escape: str, at: int, found: str) -> None:
    with pytest.raises(SelectorFault) as fault:
        matcher(like(pattern, escape))
    assert (fault.value.at, fault.value.found) == (at, found)


@given(st.text("ab%_", max_size=8), st.text("ab", max_size=10))
def test_a_pattern_matches_what_its_regular_expression_matches(pattern: str, text: str) -> None:
    expected = re.fullmatch(pattern.replace("%", ".*").replace("_", "."), text, re.DOTALL)
    assert matcher(like(pattern))(text) is (expected is not None)
