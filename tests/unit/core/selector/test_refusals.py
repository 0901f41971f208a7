"""What is no selector is refused, with words that lead to the fault."""

from __future__ import annotations

import pytest

from raybroker.core.selector import IN_LIST_MAX, NESTING_MAX, SELECTOR_CHARS_MAX, compile_selector
from raybroker.model.errors import InvalidSelectorError
from tests.unit.core.selector.samples import selects

FAULTS = [
    # (selector, column, found, part of what was expected)
    ("", 1, "the end", "a name, a value, a parenthesis or NOT"),
    ("price >", 8, "the end", "a name, a value or a parenthesis"),
    ("a b", 3, "the name b", "a comparison (= <> < <= > >=)"),
    ("a)", 2, '")"', "AND, OR or the end"),
    ("(a", 3, "the end", '")"'),
    ("a = ", 5, "the end", "a name, a value or a parenthesis"),
    ("a == 5", 4, '"="', "a name, a value or a parenthesis"),
    ("a != 5", 3, "the sign !", "<> for not equal"),
    ("a && b", 3, "the sign &", "AND"),
    ('a = "x"', 5, 'the sign "', "a text in single quotes: 'like this'"),
    ("a = 'x", 5, "a text without its end", "a second ' that closes it"),
    ("a = 5;", 6, "the character ';'", "a sign of the language"),
    ("a < b < c", 7, '"<"', "AND, OR or the end"),
    ("a = b = c", 7, '"="', "AND, OR or the end"),
    ("a = NULL", 5, '"NULL"', "(NULL stands only after IS or IS NOT)"),
    ("a IS 5", 6, "the number 5", "NOT or NULL"),
    ("a NOT = 5", 7, '"="', "BETWEEN, IN or LIKE"),
    ("a BETWEEN 1", 12, "the end", "AND"),
    ("a BETWEEN 1 OR 2", 13, '"OR"', "AND"),
    ("a IN ()", 7, '")"', "a text in single quotes"),
    ("a IN (5)", 7, "the number 5", "a text in single quotes"),
    ("a IN ('x' 'y')", 11, "the text 'y'", 'a comma or ")"'),
    ("a IN 'x'", 6, "the text 'x'", '"("'),
    ("a LIKE 5", 8, "the number 5", "a text in single quotes"),
    ("a LIKE b", 8, "the name b", "a text in single quotes"),
    # types that are known and do not fit
    ("5", 1, "the number 5", "a condition"),
    ("'a'", 1, "the text 'a'", "a condition"),
    ("a + 1", 1, "a number", "a condition"),
    ("b AND a + 1", 7, "a number", "a condition beside AND"),
    ("'a' OR b", 1, "the text 'a'", "a condition beside OR"),
    ("NOT 5", 5, "the number 5", "a condition after NOT"),
    ("'a' < 5", 1, "the text 'a'", "a number before <"),
    ("price > 'a'", 9, "the text 'a'", "a number after > (texts and truth values have only = and <>)"),
    ("x >= TRUE", 6, "TRUE", "a number after >="),
    ("(a = 1) < 2", 2, "a condition", "a number before <"),
    ("5 = 'a'", 5, "the text 'a'", "a number after =, as before it"),
    ("TRUE <> 1", 9, "the number 1", "a condition after <>, as before it"),
    ("a + 1 = 'x'", 9, "the text 'x'", "a number after =, as before it"),
    ("TRUE + 1", 1, "TRUE", "a number before +"),
    ("a = 1 + 'x'", 9, "the text 'x'", "a number after +"),
    ("a * (b > 1) = 2", 6, "a condition", "a number after *"),
    ("- 'x' = a", 3, "the text 'x'", "a number after a sign"),
    ("a = - (b = 1)", 8, "a condition", "a number after a sign"),
    ("'x' BETWEEN 1 AND 2", 1, "the text 'x'", "a number before BETWEEN"),
    ("a BETWEEN 'x' AND 2", 11, "the text 'x'", "a number after BETWEEN"),
    ("a BETWEEN 1 AND TRUE", 17, "TRUE", "a number after AND of BETWEEN"),
    ("5 LIKE 'a'", 1, "the number 5", "a name before LIKE"),
    ("'a' IN ('a')", 1, "the text 'a'", "a name before IN"),
    ("a + 1 IS NULL", 1, "a number", "a name before IS"),
    # patterns
    ("a LIKE 'x' ESCAPE 'ab'", 19, "an escape text of 2 characters", "one character"),
    ("a LIKE 'x' ESCAPE ''", 19, "an escape text of 0 characters", "one character"),
    ("a LIKE 'x!y' ESCAPE '!'", 8, "'!' before 'y'", "%, _ or '!' after the escape character"),
    ("a LIKE 'x!' ESCAPE '!'", 8, "'!' at the end of the pattern", "%, _ or '!' after the escape character"),
]


@pytest.mark.parametrize(("text", "column", "found", "expected"), FAULTS)
def test_a_refusal_says_where_what_and_what_instead(text: str, column: int, found: str, expected: str) -> None:
    with pytest.raises(InvalidSelectorError) as caught:
        compile_selector(text)
    said = str(caught.value)
    assert said.startswith(f"the selector {text!r} is wrong at column {column}: found {found}, expected ")
    assert expected in said.partition(", expected ")[2]


def test_a_long_selector_is_shown_around_the_fault() -> None:
    text = "a = 1 OR " * 100 + "b ! 2 OR " + "a = 1 OR " * 100 + "TRUE"
    with pytest.raises(InvalidSelectorError) as caught:
        compile_selector(text)
    said = str(caught.value)
    assert "at column 903" in said
    assert "OR b ! 2 OR" in said
    assert said.startswith("the selector '…")
    assert len(said) < 400


def test_what_is_refused_once_is_refused_again() -> None:
    for _ in range(2):
        with pytest.raises(InvalidSelectorError, match="at column 4"):
            compile_selector("a =")


def test_a_selector_has_a_greatest_length() -> None:
    longest = "a = 1".ljust(SELECTOR_CHARS_MAX)
    assert selects(longest, a=1)
    with pytest.raises(InvalidSelectorError, match=f"at column 8193: found a selector of 8193 .* at most {8192}"):
        compile_selector(longest + " ")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(", ")"),
        ("NOT (", ")"),
        ("TRUE AND NOT (FALSE OR ", ") = TRUE"),
        ("(b = 1) = (", ")"),
        ("- + (1 + 2 * (", "))"),
    ],
)
def test_parentheses_have_a_greatest_depth(before: str, after: str) -> None:
    each = (before + after).count("(") - before.count("(b")
    depth = NESTING_MAX // each
    inner = "b" if "+" not in before else "b + 0"
    end = "" if "+" not in before else " = 1"
    compile_selector(before * depth + inner + after * depth + end)
    with pytest.raises(InvalidSelectorError, match=f"found 33 parentheses inside each other, expected at most {32}"):
        compile_selector(before * (depth + 1) + inner + after * (depth + 1) + end)


@pytest.mark.parametrize(
    "text",
    [
        "NOT " * 2_000 + "flag",
        "x = " + "-" * 8_000 + "1",
        "x = 1" + " + 0" * 2_000,
        "FALSE OR " * 900 + "flag",
        "TRUE AND " * 900 + "flag",
    ],
)
def test_length_alone_is_no_depth(text: str) -> None:
    assert selects(text, x=1, flag=True)


def test_a_list_has_a_greatest_length() -> None:
    longest = ",".join(["'a'"] * IN_LIST_MAX)
    assert selects(f"x IN ({longest})", x="a")
    with pytest.raises(InvalidSelectorError, match=f"at column 4007: found 1001 texts in one list, .* {IN_LIST_MAX}"):
        compile_selector(f"x IN ({longest},'a')")
