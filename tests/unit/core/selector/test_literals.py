"""Literals and names, as Java and JMS write them."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.core.selector import compile_selector
from raybroker.model.errors import InvalidSelectorError
from tests.unit.core.selector.samples import selects, truth


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("0", 0),
        ("57", 57),
        ("-957", -957),
        ("+62", 62),
        ("57L", 57),
        ("57l", 57),
        ("0x1F", 31),
        ("0XfFL", 255),
        ("017", 15),
        ("0_17", 15),
        ("0b101", 5),
        ("1_000_000", 1_000_000),
        ("- 5", -5),
        ("--5", 5),
        ("00", 0),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("0x7FFFFFFFFFFFFFFF", 2**63 - 1),
        ("7E3", 7000.0),
        ("-57.9E2", -5790.0),
        ("7.", 7.0),
        ("-95.7", -95.7),
        ("+6.2", 6.2),
        (".5", 0.5),
        ("1e-3", 0.001),
        ("1.5e+2f", 150.0),
        ("2d", 2.0),
        ("2.5F", 2.5),
        ("09.5", 9.5),
        ("1_0.2_5", 10.25),
        ("0x1.8p3", 12.0),
        ("0x.8P1d", 1.0),
        ("0xAp-1", 5.0),
    ],
)
def test_numbers_are_those_of_java(literal: str, value: float) -> None:
    assert selects(f"x = {literal}", x=value)
    assert not selects(f"x <> {literal}", x=value)


def test_a_hexadecimal_e_is_a_digit_and_not_an_exponent() -> None:
    assert selects("x = 0x1E-3", x=27)


@pytest.mark.parametrize(
    ("literal", "found"),
    [
        ("9223372036854775808", "an integer that is too large"),
        ("- -9223372036854775808", "an integer that is too"),
        ("0xFFFFFFFFFFFFFFFF", "an integer that is too large"),
        ("1" * 5000, "an integer that is too large"),
        ("1e400", "a number that is too large"),
        ("0x1p2000", "a number that is too large"),
        ("09", "09, which is no number"),
        ("1_", "1_, which is no number"),
        ("12abc", "12abc, which is no number"),
        ("0x", "0x, which is no number"),
        ("1.2.3", "1.2.3, which is no number"),
        ("1e", "1e, which is no number"),
        ("0b2", "0b2, which is no number"),
    ],
)
def test_what_is_no_number_is_refused_where_it_stands(literal: str, found: str) -> None:
    with pytest.raises(InvalidSelectorError, match=rf"at column \d+: found {found}"):
        compile_selector(f"x = {literal}")


@pytest.mark.parametrize(
    ("literal", "value"),
    [("'literal'", "literal"), ("'literal''s'", "literal's"), ("''", ""), ("''''", "'"), ("'Ärger ✓\n'", "Ärger ✓\n")],
)
def test_texts_stand_in_single_quotes_which_are_doubled_inside(literal: str, value: str) -> None:
    assert selects(f"x = {literal}", x=value)
    assert not selects(f"x = {literal}", x=value + " ")


def test_texts_keep_their_case() -> None:
    assert not selects("x = 'EU'", x="eu")


@pytest.mark.parametrize("text", ["TRUE", "true", "True", "NOT False"])
def test_truth_values_have_no_case(text: str) -> None:
    assert selects(text)
    assert selects(f"x = ({text})", x=True)


def test_keywords_have_no_case_and_names_have() -> None:
    assert selects("a bEtWeEn 1 aNd 3 And b iS nOt nUlL oR c In ('x') aNd NoT d LiKe 'x' eScApE '!'", a=2, b=0)
    assert selects("x IS NULL AND X = 1", X=1)


@pytest.mark.parametrize(
    "name",
    ["a", "_", "$", "a1", "_a$", "größe", "名前", "€uro", "a\u0301", "nullable", "INN", "JMS_x", "JMSXy", "jmsX"],
)
def test_names_are_identifiers_of_java(name: str) -> None:
    assert selects(f"{name} = 1", **{name: 1})
    assert compile_selector(f"{name} = 1").identifiers == {name}


@pytest.mark.parametrize(
    ("text", "column", "found"),
    [
        ("a§ = 1", 2, "the character '§'"),
        ("x = 1 AND a½ = 1", 12, "the character '½'"),
        ("\u0301a = 1", 1, "the character '\u0301'"),
        ("a\xa0= 1", 2, r"the character '\\xa0'"),
        ("a.b = 1", 2, ".*"),
        ("#a = 1", 1, "the character '#'"),
        ("JMS = 1", 1, "JMS"),
        ("a-b.c", 4, ".*"),
        ("JMSDestination = 'x'", 1, "JMSDestination"),
        ("a = 1 OR JMSExpiration > 5", 10, "JMSExpiration"),
    ],
)
def test_other_names_are_refused_where_they_stand(text: str, column: int, found: str) -> None:
    with pytest.raises(InvalidSelectorError, match=f"at column {column}: found {found}, expected"):
        compile_selector(text)


@pytest.mark.parametrize("word", ["NULL", "TRUE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE", "is"])
def test_reserved_words_are_no_names(word: str) -> None:
    with pytest.raises(InvalidSelectorError):
        compile_selector(f"{word} < 1")


def test_blanks_are_those_of_jms() -> None:
    assert selects(" a\t=\f1\r\nAND\nb = 2 ", a=1, b=2)
    assert selects("a='x'AND(b)IN('y')OR a<>'x'", a="x", b="y")
    with pytest.raises(InvalidSelectorError, match="at column 2"):
        compile_selector("a\v= 1")


@pytest.mark.parametrize("value", [b"", b"a", None, [], {}])
def test_a_value_of_a_type_unknown_to_jms_equals_nothing(value: Any) -> None:
    assert truth("x = 'a' OR x = 1 OR x = TRUE OR x = y OR x <> 'a' OR x < 1", x=value, y=value) is (
        None if value is None else False
    )
