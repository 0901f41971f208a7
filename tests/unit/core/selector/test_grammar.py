"""The tree that the grammar makes of a selector, before anything is checked or compiled."""

from __future__ import annotations

import pytest

from raybroker.core.selector.faults import SelectorFault
from raybroker.core.selector.grammar import parse
from raybroker.core.selector.limits import IN_LIST_MAX
from raybroker.core.selector.tree import (
    AllOf,
    AnyOf,
    Between,
    Chain,
    Compare,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Not,
    Signed,
)


def test_and_binds_tighter_than_or_and_not_tighter_than_both() -> None:
    assert parse("NOT a AND b OR c") == AnyOf(0, (AllOf(0, (Not(0, Name(4, "a"), True), Name(10, "b"))), Name(15, "c")))


def test_conditions_of_one_rank_are_one_node() -> None:
    assert parse("a OR b OR c") == AnyOf(0, (Name(0, "a"), Name(5, "b"), Name(10, "c")))


def test_parentheses_leave_nothing_in_the_tree() -> None:
    assert parse("((a))") == Name(2, "a")


def test_products_bind_tighter_than_sums_and_go_from_left_to_right() -> None:
    product = Chain(4, Name(4, "b"), (("*", Name(6, "c")), ("/", Name(8, "d"))))
    assert parse("a - b*c/d + e > 0") == Compare(
        0, ">", Chain(0, Name(0, "a"), (("-", product), ("+", Name(12, "e")))), Literal(16, 0)
    )


def test_signs_and_nots_in_a_row_are_one() -> None:
    assert parse("- + -a = 1") == Compare(0, "=", Signed(0, Name(5, "a"), False), Literal(9, 1))
    assert parse("NOT NOT NOT a") == Not(0, Name(12, "a"), True)
    assert parse("a = - -5") == Compare(0, "=", Name(0, "a"), Literal(4, 5))


@pytest.mark.parametrize("negated", [False, True])
def test_each_condition_has_its_negated_form(negated: bool) -> None:
    a, word = Name(0, "a"), "NOT " if negated else ""
    shift = len(word)
    assert parse(f"a {word}BETWEEN 1 AND 2") == Between(0, a, Literal(10 + shift, 1), Literal(16 + shift, 2), negated)
    assert parse(f"a {word}IN ('x', 'y')") == In(0, a, frozenset({"x", "y"}), negated)
    assert parse(f"a {word}LIKE 'x%' ESCAPE '!'") == Like(0, a, "x%", 7 + shift, "!", 19 + shift, negated)
    assert parse(f"a IS {word}NULL") == IsNull(0, a, negated)


def test_literals_have_the_types_of_their_words() -> None:
    values = [parse(f"a = {word}").right.value for word in ("1", "1.0", "'1'", "true")]  # type: ignore[union-attr]
    assert [(type(value), value) for value in values] == [(int, 1), (float, 1.0), (str, "1"), (bool, True)]


@pytest.mark.parametrize(
    ("text", "at", "found", "expected"),
    [
        ("a =", 3, "the end", "a name, a value or a parenthesis"),
        ("a IN (1)", 6, "the number 1", "a text in single quotes"),
        ("a 'x'", 2, "the text 'x'", "NOT, a comparison"),
        ("a = NULL", 4, '"NULL"', "NULL stands only after IS"),
        ("a IS 5", 5, "the number 5", "NOT or NULL"),
        ("(a", 2, "the end", '")"'),
        ("a = b c", 6, "the name c", "AND, OR or the end"),
    ],
)
def test_a_text_outside_the_grammar_is_a_fault_that_says_what_may_stand_there(
    text: str, at: int, found: str, expected: str
) -> None:
    with pytest.raises(SelectorFault) as fault:
        parse(text)
    assert (fault.value.at, fault.value.found) == (at, found)
    assert expected in fault.value.expected


def test_a_list_is_limited() -> None:
    assert parse(f"a IN ({', '.join(repr(str(n)) for n in range(IN_LIST_MAX))})")
    with pytest.raises(SelectorFault, match=f"at most {IN_LIST_MAX}"):
        parse(f"a IN ({', '.join(repr(str(n)) for n in range(IN_LIST_MAX + 1))})")
