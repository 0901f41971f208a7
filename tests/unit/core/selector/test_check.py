"""Which trees are refused whatever a message has, for trees that are built by hand."""

from __future__ import annotations

import pytest

from raybroker.core.selector.check import check, is_constant, names
from raybroker.core.selector.faults import SelectorFault
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
    Node,
    Not,
    Signed,
)

A, B = Name(0, "a"), Name(5, "b")
ONE, TEXT, TRUE = Literal(9, 1), Literal(9, "x"), Literal(9, True)
TEXTS = frozenset({"x"})


@pytest.mark.parametrize(
    "node",
    [
        A,
        TRUE,
        Compare(0, "=", A, TEXT),
        Compare(0, "<>", TRUE, TRUE),
        Compare(0, "<", A, ONE),
        Not(0, A, True),
        AllOf(0, (A, TRUE)),
        AnyOf(0, (A, B)),
        Between(0, A, ONE, B, False),
        In(0, A, TEXTS, True),
        Like(0, A, "x", 9, None, 0, False),
        IsNull(0, A, False),
        Compare(0, "=", Signed(0, A, True), ONE),
        Compare(0, ">", Chain(0, A, (("+", ONE), ("*", B))), ONE),
    ],
)
def test_a_tree_that_may_be_true_for_some_message_passes(node: Node) -> None:
    check(node)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (ONE, "a condition"),
        (Signed(9, A, True), "a condition"),
        (Compare(0, "=", ONE, Literal(9, "x")), "a number after =, as before it"),
        (Compare(0, "<", A, TEXT), "a number after <"),
        (Compare(0, "=", Chain(0, A, (("+", TEXT),)), ONE), "a number after +"),
        (Compare(0, "=", Chain(9, TRUE, (("*", ONE),)), ONE), "a number before *"),
        (Compare(0, "=", Signed(0, TEXT, True), ONE), "a number after a sign"),
        (Between(0, A, TEXT, ONE, False), "a number after BETWEEN"),
        (Between(0, A, ONE, TEXT, False), "a number after AND of BETWEEN"),
        (In(0, TEXT, TEXTS, False), "IN"),
        (Like(0, ONE, "x", 20, None, 0, False), "LIKE"),
        (IsNull(0, TEXT, False), "IS"),
        (Not(0, ONE, True), "a condition after NOT"),
        (AllOf(0, (A, ONE)), "a condition beside AND"),
        (AnyOf(0, (TEXT, A)), "a condition beside OR"),
        (Compare(0, "=", A, Literal(9, 1 << 63)), f"at most {(1 << 63) - 1}"),
    ],
)
def test_parts_that_never_fit_are_faults_at_the_part(node: Node, expected: str) -> None:
    with pytest.raises(SelectorFault) as fault:
        check(node)
    assert fault.value.at == 9
    assert expected in fault.value.expected


def test_the_smallest_integer_fits() -> None:
    check(Compare(0, "=", A, Literal(9, -(1 << 63))))


def test_names_are_found_at_any_depth() -> None:
    between = Between(0, ONE, Chain(0, B, (("+", Name(1, "c")),)), A, True)
    tree = AllOf(0, (Not(0, In(0, A, TEXTS, False), True), between))
    assert list(names(tree)) == ["a", "b", "c", "a"]


def test_a_tree_without_names_is_constant() -> None:
    assert is_constant(Compare(0, "=", Chain(0, ONE, (("+", ONE),)), ONE))
    assert not is_constant(Compare(0, "=", Chain(0, ONE, (("+", A),)), ONE))
