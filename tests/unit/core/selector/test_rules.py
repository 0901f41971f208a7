"""The operators, rule by rule as JMS states them; each condition is also asked for its opposite."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from raybroker.core.selector import compile_selector
from tests.unit.core.selector.samples import Messages, selects, truth

TRUTHS = {"t": True, "f": False, "u": None}
SPELT = {"t": "t", "f": "f", "u": "nowhere"}


@pytest.mark.parametrize(("left", "right"), list(product("tfu", repeat=2)))
def test_and_and_or_have_three_values(left: str, right: str) -> None:
    values = {TRUTHS[left], TRUTHS[right]}
    both = False if False in values else None if None in values else True
    either = True if True in values else None if None in values else False
    assert truth(f"{SPELT[left]} AND {SPELT[right]}", t=True, f=False) is both
    assert truth(f"{SPELT[left]} OR {SPELT[right]}", t=True, f=False) is either


def test_not_leaves_the_unknown_unknown() -> None:
    assert (truth("NOT t", t=True), truth("NOT t", t=False), truth("NOT t")) == (False, True, None)
    assert truth("NOT NOT t", t=True) is True


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("TRUE OR TRUE AND FALSE", True),
        ("(TRUE OR TRUE) AND FALSE", False),
        ("NOT FALSE AND FALSE", False),
        ("NOT (FALSE AND FALSE)", True),
        ("NOT FALSE OR TRUE", True),
        ("NOT x = 2", True),
        ("x + 2 * 3 = 7", True),
        ("(x + 2) * 3 = 9", True),
        ("-x + 3 = 2", True),
        ("8 / 2 / 2 = x + x", True),
        ("8 - 2 - 2 = 4", True),
        ("8 / 2 * 4 = 16", True),
        ("2 * -x = -2", True),
        ("- - x = 1", True),
        ("- + - - x = -1", True),
        ("+ - x = -1", True),
        ("x BETWEEN 0 AND 1 AND FALSE", False),
        ("x + 1 BETWEEN 1 + 1 AND 2", True),
    ],
)
def test_ranks_and_parentheses(text: str, value: bool) -> None:
    assert truth(text, x=1) is value


def test_evaluation_stops_where_the_answer_is_known() -> None:
    messages = Messages([{"a": 1}, {"a": 2}], [{"JMSPriority": 1}, {"JMSPriority": 9}])
    assert compile_selector("JMSPriority > 4 AND a = 2").pick(messages, 0b11, 0) == 0b10
    assert (0, "properties") not in messages.looks
    messages.looks.clear()
    assert compile_selector("JMSPriority > 4 OR a = 1").pick(messages, 0b11, 0) == 0b11
    assert (1, "properties") not in messages.looks


@pytest.mark.parametrize(
    ("operator", "less", "same", "more"),
    [
        ("=", False, True, False),
        ("<>", True, False, True),
        ("<", True, False, False),
        ("<=", True, True, False),
        (">", False, False, True),
        (">=", False, True, True),
    ],
)
def test_comparisons_of_numbers_mix_integers_and_floats(operator: str, less: bool, same: bool, more: bool) -> None:
    for value, expected in ((4, less), (4.5, less), (5, same), (5.0, same), (6, more), (5.5, more)):
        assert truth(f"x {operator} 5", x=value) is expected
        assert truth(f"x {operator} 5.0", x=value) is expected
        assert truth(f"x {operator} y", x=value, y=5) is expected
        assert truth(f"{value} {operator} x", x=5) is expected
        assert truth(f"{value} {operator} 5") is expected
    assert truth(f"x {operator} 5") is None
    assert truth(f"x {operator} y", x=5) is None


def test_large_integers_are_not_rounded_to_be_compared() -> None:
    assert truth("x = 9007199254740992.0", x=2**53 + 1) is False


@pytest.mark.parametrize("operator", ["=", "<>", "<", "<=", ">", ">="])
@pytest.mark.parametrize(
    ("one", "other"), [("2", 2), (True, 1), (False, 0), ("TRUE", True), (b"a", "a"), (b"a", b"a"), (b"a", 1)]
)
def test_comparing_unlike_types_is_false(operator: str, one: Any, other: Any) -> None:
    assert truth(f"x {operator} y", x=one, y=other) is False
    assert truth(f"y {operator} x", x=one, y=other) is False


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("x > 1", "2", False),
        ("x <> 1", "2", False),
        ("x = 1", True, False),
        ("x <> 1", True, False),
        ("x = 'a'", 1, False),
        ("x <> 'a'", 1, False),
        ("x <> 'a'", b"a", False),
        ("x <> 'a'", "b", True),
        ("x = TRUE", 1, False),
        ("x <> TRUE", 1, False),
        ("x <> TRUE", False, True),
        ("x = false", False, True),
    ],
)
def test_a_property_keeps_the_type_it_was_set_with(text: str, value: Any, expected: bool) -> None:
    assert truth(text, x=value) is expected


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
def test_texts_and_truth_values_have_no_order(operator: str) -> None:
    assert truth(f"x {operator} y", x="a", y="a") is False
    assert truth(f"x {operator} y", x=True, y=True) is False


def test_a_condition_may_be_compared_in_parentheses() -> None:
    assert truth("(x > 1) = flag", x=2, flag=True) is True
    assert truth("(x > 1) <> (y > 1)", x=2, y=0) is True
    assert truth("(x > 1 AND y > 1 OR x IS NULL) = TRUE", x=2) is None
    assert truth("(NOT x IN ('a')) = (x LIKE 'b%')", x="bc") is True
    assert truth("(x NOT BETWEEN 1 AND 3) = (x BETWEEN 4 AND 5)", x=4) is True


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("7 / -2", -3),
        ("-7 / -2", 3),
        ("7.0 / 2", 3.5),
        ("7 / 2.0", 3.5),
        ("2 * 2.5", 5.0),
        ("1 + 2 - 4", -1),
        ("+5", 5),
        ("-9223372036854775807 - 1", -(2**63)),
        ("9223372036854775807 - 1", 2**63 - 2),
    ],
)
def test_arithmetic_is_that_of_java(text: str, value: float) -> None:
    assert selects(f"x = {text}", x=value)
    assert selects(f"x = one * ({text})", x=value, one=1)
    assert selects("x = zero + " + text, x=value, zero=0)


@pytest.mark.parametrize(
    "text",
    [
        "x / 0 = 1",
        "x / 0.0 > 1",
        "1.0 / zero > 1",
        "0 / zero = 0",
        "most + 1 > 0",
        "least - 1 < 0",
        "most * 2 <> 0",
        "-least > 0",
        "least / -1 > 0",
        "- name > x",
        "name + 1 > 2",
        "flag + 1 > 0",
        "x * nowhere = 1",
        "-nowhere = 1",
        "+ name <> 1",
        "9223372036854775807 + 1 > 0",
        "1 / 0 = 1",
        "blob * 1 = 0",
    ],
)
def test_arithmetic_without_a_true_result_is_unknown(text: str) -> None:
    properties = {"x": 1, "zero": 0, "most": 2**63 - 1, "least": -(2**63), "name": "7", "flag": True, "blob": b"1"}
    assert truth(text, **properties) is None


def test_between_has_its_ends_and_its_opposite() -> None:
    for value, expected in ((14, False), (15, True), (19, True), (20, False), (15.5, True), (None, None)):
        assert truth("age BETWEEN 15 AND 19", age=value) is expected
        assert truth("age NOT BETWEEN 15 AND 19", age=value) is (None if expected is None else not expected)
        assert truth("age BETWEEN low AND 19", age=value, low=15) is expected


def test_between_is_two_comparisons() -> None:
    assert truth("x BETWEEN low AND 3", x=4) is False
    assert truth("x BETWEEN low AND 3", x=2) is None
    assert truth("x NOT BETWEEN low AND 3", x=4) is True
    assert truth("x BETWEEN 1 AND 3", x="2") is False
    assert truth("x NOT BETWEEN 1 AND 3", x="2") is False


def test_in_is_one_of_the_texts() -> None:
    for value, expected in (("UK", True), ("US", True), ("Peru", False), ("uk", False), (5, False), (b"UK", False)):
        assert truth("Country IN ('UK', 'US', 'O''Land')", Country=value) is expected
        assert truth("Country NOT IN ('UK', 'US', 'O''Land')", Country=value) is not expected
    assert truth("Country IN ('UK')") is None
    assert truth("Country NOT IN ('UK')") is None


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("'12%3'", ["123", "12993", "123123"], ["1234", "12", "3"]),
        ("'l_se'", ["lose"], ["loose", "lse"]),
        ("'\\_%' ESCAPE '\\'", ["_foo", "_"], ["bar", "\\_"]),
        ("'%'", ["", "a\nb"], []),
        ("''", [""], ["a"]),
        ("'%a%b%'", ["ab", "xaxbx"], ["ba", ""]),
        ("'_%_'", ["ab", "abc"], ["a", ""]),
        ("'ab%ba'", ["abba"], ["aba"]),
        ("'a.*'", ["a.*"], ["abb"]),
        ("'100!%' ESCAPE '!'", ["100%"], ["1000"]),
        ("'!!%' ESCAPE '!'", ["!x"], ["x"]),
        ("'%%_b'", ["ab", "xxb"], ["b"]),
        ("'%aa%aa%'", ["aaaa", "aabaa"], ["aaa", "baaab"]),
        ("'_'", ["a", "\n", "€"], ["ab", ""]),
        ("'%a_%'", ["bab"], ["bba"]),
        ("'%%x' ESCAPE '%'", ["%x"], ["x"]),
        ("'%aab'", ["aaab"], ["aaba"]),
    ],
)
def test_like_matches_patterns(pattern: str, yes: list[str], no: list[str]) -> None:
    for value in yes + no:
        assert truth(f"x LIKE {pattern}", x=value) is (value in yes)
        assert truth(f"x NOT LIKE {pattern}", x=value) is (value not in yes)


def test_like_is_unknown_without_a_value_and_false_for_what_is_no_text() -> None:
    assert truth("x LIKE '%'") is None
    assert truth("x NOT LIKE '%'") is None
    assert truth("x LIKE '%'", x=5) is False
    assert truth("x NOT LIKE '%'", x=b"a") is True


def test_is_null_is_never_unknown() -> None:
    assert [truth("x IS NULL", **row) for row in ({}, {"x": None}, {"x": 0}, {"x": b""})] == [True, True, False, False]
    assert [truth("x IS NOT NULL", **row) for row in ({}, {"x": None}, {"x": ""})] == [False, False, True]


@pytest.mark.parametrize("value", [1, 0, "TRUE", b"1", None])
def test_what_is_no_truth_value_is_no_condition(value: Any) -> None:
    assert truth("x", x=value) is None
    assert truth("x AND TRUE", x=value) is None
    assert truth("(x OR FALSE) = TRUE", x=value) is None
