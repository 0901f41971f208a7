"""The compiler of selectors: makes functions of the tree that take many messages at once.

A function goes over all messages of a block before the next one does: a *column* gives the values of an operand, a
*verdict* is the column of a condition (True, False, None for unknown), and a *sieve* gives the messages for which a
condition is what is wanted, True or False.  A sieve needs no third value: unknown passes neither.  So AND is one sieve
after the other, OR a sieve for what the others left, and NOT the sieve for the opposite; each looks only at messages
that are still undecided, which is the short cut from left to right.
"""

# ruff: noqa: B905 - columns are as long as their rows; zip's `strict` would be a third of the price of a small block
from __future__ import annotations

import operator as operators
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from raybroker.core.selector.check import is_constant
from raybroker.core.selector.content import Content
from raybroker.core.selector.like import matcher
from raybroker.core.selector.names import DELIVERY_COUNT, REDELIVERED, is_property
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
from raybroker.core.selector.values import COMPARISONS, MIRRORED, calculate, itself, negate

Rows = list[int]
"""Indexes of messages in their block."""
Column = Callable[[Content, int, Rows], list[Any]]
"""(content, attempts, rows) → the value for each row."""
Sieve = Callable[[Content, int, Rows], Rows]
"""(content, attempts, rows) → those of the rows that pass, in any order."""


class _Nothing:
    """Content without a message, for what depends on none."""

    def properties(self, index: int) -> Mapping[str, Any]:
        return {}

    def column(self, name: str, rows: Sequence[int]) -> list[Any]:
        return [None] * len(rows)

    def header(self, index: int, name: str) -> Any:
        return None

    def may_have(self, trace: bytes) -> bool:
        return True

    def dedup_ids(self) -> None:
        return None


_NOTHING: Final = _Nothing()
_NUMBERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operators.eq,
    "<>": operators.ne,
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}
"""Comparisons of two numbers, without a check of their types."""


def _every(content: Content, attempts: int, rows: Rows) -> Rows:
    return rows


def _none(content: Content, attempts: int, rows: Rows) -> Rows:
    return []


# ---- conditions as sieves ----------------------------------------------------------------------------------------


def sieve(node: Node, want: bool = True) -> Sieve:
    """The messages for which a condition is ``want``; raises Fault for a LIKE that cannot be."""
    if is_constant(node):
        return _every if _value_of(verdict(node)) is want else _none
    match node:
        case Not(_, operand, negative):
            return sieve(operand, want != negative)
        case AllOf(_, parts):
            return (_all_of if want else _any_of)([sieve(part, want) for part in parts])
        case AnyOf(_, parts):
            return (_any_of if want else _all_of)([sieve(part, want) for part in parts])
        case Between(at, value, low, high, negated):
            below, above = ("<", ">") if negated else (">=", "<=")
            pair = (Compare(at, below, value, low), Compare(at, above, value, high))
            return sieve(AnyOf(at, pair) if negated else AllOf(at, pair), want)
        case Compare(_, operator, left, right) if want:
            if is_constant(left):
                operator, left, right = MIRRORED[operator], right, left
            if is_constant(right):
                return _compared(operator, column(left), _value_of(column(right)))
        case In(_, value, texts, False) if want:
            return _among(column(value), texts)
        case Name():
            return _judged(column(node), want)
        case _:
            pass
    return _judged(verdict(node), want)


def _value_of(constant: Column) -> Any:
    return constant(_NOTHING, 0, [0])[0]


def _judged(verdicts: Column, want: bool) -> Sieve:
    def judged(content: Content, attempts: int, rows: Rows) -> Rows:
        return [row for row, value in zip(rows, verdicts(content, attempts, rows)) if value is want]

    return judged


def _all_of(sieves: list[Sieve]) -> Sieve:
    if _none in sieves:
        return _none
    needed = [one for one in sieves if one is not _every]
    if len(needed) < 2:
        return needed[0] if needed else _every

    def all_of(content: Content, attempts: int, rows: Rows) -> Rows:
        for one in needed:
            rows = one(content, attempts, rows)
            if not rows:
                break
        return rows

    return all_of


def _any_of(sieves: list[Sieve]) -> Sieve:
    if _every in sieves:
        return _every
    needed = [one for one in sieves if one is not _none]
    if len(needed) < 2:
        return needed[0] if needed else _none

    def any_of(content: Content, attempts: int, rows: Rows) -> Rows:
        passed: Rows = []
        for one in needed:
            found = one(content, attempts, rows)
            if len(found) == len(rows):
                return passed + rows if passed else rows
            if found:
                passed += found
                decided = set(found)
                rows = [row for row in rows if row not in decided]
        return passed

    return any_of


def _compared(operator: str, values: Column, constant: Any) -> Sieve:
    """The messages for which a comparison with a constant is true, the most frequent kind of condition."""
    if constant is None:
        return _none
    if operator == "=" and type(constant) is str:
        return lambda content, attempts, rows: [
            row for row, value in zip(rows, values(content, attempts, rows)) if value == constant
        ]
    if type(constant) is bool:
        wanted = constant if operator == "=" else not constant
        return _judged(values, wanted)
    if type(constant) is str:
        return lambda content, attempts, rows: [
            row for row, value in zip(rows, values(content, attempts, rows)) if type(value) is str and value != constant
        ]
    holds = _NUMBERS[operator]
    return lambda content, attempts, rows: [
        row
        for row, value in zip(rows, values(content, attempts, rows))
        if (type(value) is int or type(value) is float) and holds(value, constant)
    ]


def _among(values: Column, texts: frozenset[str]) -> Sieve:
    return lambda content, attempts, rows: [
        row for row, value in zip(rows, values(content, attempts, rows)) if type(value) is str and value in texts
    ]


# ---- conditions as values ----------------------------------------------------------------------------------------


def verdict(node: Node) -> Column:
    """A condition for each message: True, False, or None for unknown."""
    match node:
        case Not(_, operand, negative):
            return _mapped(verdict(operand), _inverse) if negative else verdict(operand)
        case AllOf(_, parts):
            return _joined([verdict(part) for part in parts], False)
        case AnyOf(_, parts):
            return _joined([verdict(part) for part in parts], True)
        case Compare(_, operator, left, right):
            return _combined(column(left), column(right), COMPARISONS[operator])
        case Between(at, value, low, high, negated):
            below, above = ("<", ">") if negated else (">=", "<=")
            pair = [verdict(Compare(at, below, value, low)), verdict(Compare(at, above, value, high))]
            return _joined(pair, negated)
        case In(_, value, texts, negated):
            return _mapped(column(value), lambda value: (type(value) is str and value in texts) is not negated)
        case Like(_, value, _, _, _, _, negated):
            fits = matcher(node)
            return _mapped(column(value), lambda value: (type(value) is str and fits(value)) is not negated)
        case IsNull(_, value, negated):
            values = column(value)
            return lambda content, attempts, rows: [
                (value is None) is not negated for value in values(content, attempts, rows)
            ]
        case _:
            return _mapped(column(node), lambda value: value if type(value) is bool else None)


def _inverse(value: bool) -> bool:
    return not value


def _mapped(values: Column, function: Callable[[Any], Any]) -> Column:
    """``function`` of each value that is there."""
    return lambda content, attempts, rows: [
        None if value is None else function(value) for value in values(content, attempts, rows)
    ]


def _combined(left: Column, right: Column, function: Callable[[Any, Any], Any]) -> Column:
    """``function`` of each pair of values that are both there."""
    return lambda content, attempts, rows: [
        None if one is None or other is None else function(one, other)
        for one, other in zip(left(content, attempts, rows), right(content, attempts, rows))
    ]


def _joined(verdicts: list[Column], decides: bool) -> Column:
    """Combine verdicts: one that is ``decides`` decides; otherwise one unknown makes the result unknown."""
    otherwise = not decides

    def joined(content: Content, attempts: int, rows: Rows) -> list[Any]:
        columns = [one(content, attempts, rows) for one in verdicts]
        return [decides if decides in values else None if None in values else otherwise for values in zip(*columns)]

    return joined


# ---- operands ----------------------------------------------------------------------------------------------------


def column(node: Node) -> Column:
    """The values of an operand, None where there is none."""
    match node:
        case Literal(_, value):
            return _constant(value)
        case Name(_, name):
            return _named(name)
        case Signed(_, operand, negative):
            values = _mapped(column(operand), negate if negative else itself)
        case Chain(_, first, rest):
            values = _chained(column(first), [(operator, column(operand)) for operator, operand in rest])
        case _:
            values = verdict(node)
    return _constant(_value_of(values)) if is_constant(node) else values


def _constant(value: Any) -> Column:
    return lambda content, attempts, rows: [value] * len(rows)


def _named(name: str) -> Column:
    if name == DELIVERY_COUNT:
        return lambda content, attempts, rows: [attempts + 1] * len(rows)
    if name == REDELIVERED:
        return lambda content, attempts, rows: [attempts > 0] * len(rows)
    if is_property(name):
        return lambda content, attempts, rows: content.column(name, rows)
    if not name.startswith("JMSX"):

        def headers(content: Content, attempts: int, rows: Rows) -> list[Any]:
            of_message = content.header
            return [of_message(row, name) for row in rows]

        return headers

    def either(content: Content, attempts: int, rows: Rows) -> list[Any]:
        found = [content.header(row, name) for row in rows]
        return [content.properties(row).get(name) if value is None else value for row, value in zip(rows, found)]

    return either


def _chained(first: Column, rest: list[tuple[str, Column]]) -> Column:
    def chained(content: Content, attempts: int, rows: Rows) -> list[Any]:
        results = first(content, attempts, rows)
        for operator, operand in rest:
            others = operand(content, attempts, rows)
            results = [calculate(operator, one, other) for one, other in zip(results, others)]
        return results

    return chained
