"""The type check of selectors: refuses parts whose types are known and do not fit, for whatever message."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from raybroker.core.selector.faults import SelectorFault
from raybroker.core.selector.tokens import LONG_END
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


class OperandKind(Enum):
    """Type of a part of a selector, with its name in error texts."""

    NUMBER = "a number"
    TEXT = "a text"
    CONDITION = "a condition"
    NAME = "a name"
    """Known only when there is a message."""


def check(node: Node) -> None:
    """Raises Fault unless ``node`` can be a selector."""
    _want(node, OperandKind.CONDITION, "a condition")


def names(node: Node) -> Iterator[str]:
    """The names that a selector uses."""
    if isinstance(node, Name):
        yield node.name
    for part in _parts(node):
        yield from names(part)


def _parts(node: Node) -> tuple[Node, ...]:
    match node:
        case Signed(_, operand) | Not(_, operand):
            return (operand,)
        case Chain(_, first, rest):
            return (first, *(operand for _, operand in rest))
        case Compare(_, _, left, right):
            return (left, right)
        case Between(_, value, low, high):
            return (value, low, high)
        case In(_, value) | Like(_, value) | IsNull(_, value):
            return (value,)
        case AllOf(_, parts) | AnyOf(_, parts):
            return parts
        case _:
            return ()


def is_constant(node: Node) -> bool:
    """Whether no message can change the value."""
    return not isinstance(node, Name) and all(is_constant(part) for part in _parts(node))


def _kind(node: Node) -> OperandKind:
    """The type of ``node``; raises Fault for parts of it that do not fit."""
    match node:
        case Literal():
            return _kind_of_literal(node)
        case Name():
            return OperandKind.NAME
        case Signed(_, operand):
            _want_number(operand, "after a sign")
            return OperandKind.NUMBER
        case Chain(_, first, rest):
            _want_number(first, f"before {rest[0][0]}")
            for operator, operand in rest:
                _want_number(operand, f"after {operator}")
            return OperandKind.NUMBER
        case Compare():
            _check_comparison(node)
        case Between(_, value, low, high):
            _want_number(value, "before BETWEEN")
            _want_number(low, "after BETWEEN")
            _want_number(high, "after AND of BETWEEN")
        case In(_, value):
            _want_name(value, "IN")
        case Like(_, value):
            _want_name(value, "LIKE")
        case IsNull(_, value):
            _want_name(value, "IS")
        case Not(_, operand):
            _want(operand, OperandKind.CONDITION, "a condition after NOT")
        case AllOf(_, parts):
            for part in parts:
                _want(part, OperandKind.CONDITION, "a condition beside AND")
        case AnyOf(_, parts):
            for part in parts:
                _want(part, OperandKind.CONDITION, "a condition beside OR")
    return OperandKind.CONDITION


def _kind_of_literal(node: Literal) -> OperandKind:
    if isinstance(node.value, str):
        return OperandKind.TEXT
    if isinstance(node.value, bool):
        return OperandKind.CONDITION
    if isinstance(node.value, int) and not -LONG_END <= node.value < LONG_END:
        raise SelectorFault(node.at, "an integer that is too large", f"at most {LONG_END - 1}")
    return OperandKind.NUMBER


def _check_comparison(node: Compare) -> None:
    left, right = _kind(node.left), _kind(node.right)
    if node.operator not in ("=", "<>"):
        for kind, operand, side in ((left, node.left, "before"), (right, node.right, "after")):
            if kind not in (OperandKind.NUMBER, OperandKind.NAME):
                expected = f"a number {side} {node.operator} (texts and truth values have only = and <>)"
                raise SelectorFault(operand.at, _shown(operand, kind), expected)
    elif left is not right and OperandKind.NAME not in (left, right):
        raise SelectorFault(
            node.right.at, _shown(node.right, right), f"{left.value} after {node.operator}, as before it"
        )


def _want_number(node: Node, where: str) -> None:
    _want(node, OperandKind.NUMBER, f"a number {where}")


def _want(node: Node, wanted: OperandKind, expected: str) -> None:
    kind = _kind(node)
    if kind not in (wanted, OperandKind.NAME):
        raise SelectorFault(node.at, _shown(node, kind), expected)


def _want_name(node: Node, word: str) -> None:
    kind = _kind(node)
    if kind is not OperandKind.NAME:
        raise SelectorFault(node.at, _shown(node, kind), f"a name before {word}")


def _shown(node: Node, kind: OperandKind) -> str:
    if not isinstance(node, Literal):
        return kind.value
    if isinstance(node.value, bool):
        return str(node.value).upper()
    if isinstance(node.value, str):
        return f"the text {node.value[:40]!r}"
    return f"the number {node.value}"
