"""Functions made of trees that are built by hand: columns, verdicts and sieves over the messages of a block."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.core.selector.compile import column, sieve, verdict
from raybroker.core.selector.names import DELIVERY_COUNT, REDELIVERED
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
from tests.unit.core.selector.samples import Messages

A, B = Name(0, "a"), Name(0, "b")
ONE, TWO = Literal(0, 1), Literal(0, 2)
ROWS = [{"a": 1, "b": True}, {"a": 2, "b": False}, {"a": "x"}, {"b": "x"}]
EVERY = [0, 1, 2, 3]


def values(node: Node, attempts: int = 0) -> list[Any]:
    return column(node)(Messages(ROWS), attempts, EVERY)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (A, [1, 2, "x", None]),
        (ONE, [1, 1, 1, 1]),
        (Signed(0, A, True), [-1, -2, None, None]),
        (Chain(0, A, (("+", ONE), ("*", TWO))), [4, 6, None, None]),
        (Chain(0, ONE, (("/", Literal(0, 0)),)), [None] * 4),
        (Name(0, DELIVERY_COUNT), [4] * 4),
        (Name(0, REDELIVERED), [True] * 4),
        (Compare(0, "=", A, ONE), [True, False, False, None]),
    ],
)
def test_a_column_has_a_value_for_each_message_or_none(node: Node, expected: list[Any]) -> None:
    assert values(node, 3) == expected


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (B, [True, False, None, None]),
        (Not(0, B, True), [False, True, None, None]),
        (Not(0, B, False), [True, False, None, None]),
        (AllOf(0, (B, Compare(0, "=", A, ONE))), [True, False, False, None]),
        (AnyOf(0, (B, Compare(0, "=", A, TWO))), [True, True, None, None]),
        (Between(0, A, ONE, ONE, False), [True, False, False, None]),
        (Between(0, A, ONE, ONE, True), [False, True, False, None]),
        (In(0, A, frozenset({"x"}), False), [False, False, True, None]),
        (In(0, A, frozenset({"x"}), True), [True, True, False, None]),
        (Like(0, A, "x%", 0, None, 0, True), [True, True, False, None]),
        (IsNull(0, A, False), [False, False, False, True]),
    ],
)
def test_a_verdict_knows_three_values_and_its_sieves_agree(node: Node, expected: list[bool | None]) -> None:
    content = Messages(ROWS)
    assert verdict(node)(content, 0, EVERY) == expected
    for want in (True, False):
        passing = [row for row, value in enumerate(expected) if value is want]
        assert sorted(sieve(node, want)(content, 0, EVERY)) == passing


def test_a_constant_condition_looks_at_no_message() -> None:
    content = Messages(ROWS)
    assert sieve(AnyOf(0, (Compare(0, "=", ONE, ONE), A)))(content, 0, EVERY) == EVERY
    assert sieve(AllOf(0, (Compare(0, "=", ONE, TWO), A)))(content, 0, EVERY) == []
    assert content.looks == []


def test_a_sieve_asks_only_for_messages_that_are_not_decided() -> None:
    content = Messages(ROWS)
    assert sorted(sieve(AnyOf(0, (Compare(0, "=", A, ONE), B)))(content, 0, EVERY)) == [0]
    assert [row for row, _ in content.looks] == [0, 1, 2, 3, 1, 2, 3]


def test_a_constant_may_stand_on_either_side() -> None:
    assert sieve(Compare(0, "<", ONE, A))(Messages(ROWS), 0, EVERY) == [1]
    assert sieve(Compare(0, ">", A, ONE))(Messages(ROWS), 0, EVERY) == [1]
