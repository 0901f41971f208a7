"""Traces: bytes that stand in the encoded headers of every message that a selector selects.

A property is written as its name, followed at once by its value, and texts are written as they are (UTF-8); in
MessagePack that holds for each of the ways in which a name, a text, TRUE or FALSE may be encoded.  So a block whose
headers do not have a trace has no message for the selector, which one search tells without decoding any of them.
Selectors of which nothing is known have no traces.
"""

from __future__ import annotations

from typing import Any, Final

from raybroker.core.selector.names import is_property
from raybroker.core.selector.tree import AllOf, Between, Compare, In, IsNull, Like, Literal, Name, Node, Not

Traces = frozenset[bytes]
_NONE: Final[Traces] = frozenset()
_TRUTH: Final = {True: b"\xc3", False: b"\xc2"}
"""How MessagePack writes them."""


def traces(node: Node) -> Traces:
    """What has to be there for a condition to be true."""
    match node:
        case AllOf(_, parts):
            return _NONE.union(*map(traces, parts))
        case Not(_, operand, False):
            return traces(operand)
        case Name():
            return _property(node, True)
        case Compare(_, operator, left, right):
            return _compared(operator, left, right) | _compared(operator, right, left)
        case Between(_, value) | In(_, value) | Like(_, value) | IsNull(_, value, True):
            return _property(value)
        case _:
            return _NONE


def _compared(operator: str, side: Node, other: Node) -> Traces:
    """What a comparison needs of one of its sides: unknown is never true."""
    if not isinstance(other, Literal):
        return _property(side)
    if isinstance(other.value, bool):
        return _property(side, other.value is (operator == "="))
    found = _property(side)
    if found and operator == "=" and isinstance(other.value, str):
        return found | {_encoded(other.value)}
    return found


def _property(node: Node, value: Any = None) -> Traces:
    """A property that has to be there, with that truth value if one is given; headers of JMS leave no traces."""
    if not isinstance(node, Name) or not is_property(node.name):
        return _NONE
    return frozenset({_encoded(node.name) + _TRUTH.get(value, b"")})


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
