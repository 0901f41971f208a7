"""Syntax tree of a selector; ``at`` is where a part begins in the text.

Chains of equal rank (``a AND b AND c``, ``a + b - c``) are one node, and signs and NOTs in a row are one: a tree is as
deep as its parentheses, which are limited.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Literal:
    at: int
    value: bool | int | float | str


@dataclass(frozen=True, slots=True)
class Name:
    at: int
    name: str


@dataclass(frozen=True, slots=True)
class Signed:
    """``negative``: an odd number of minus signs before the operand."""

    at: int
    operand: Node
    negative: bool


@dataclass(frozen=True, slots=True)
class Chain:
    """Operators of one rank, from left to right: first, then (operator, operand) …"""

    at: int
    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class Compare:
    at: int
    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Between:
    at: int
    value: Node
    low: Node
    high: Node
    negated: bool


@dataclass(frozen=True, slots=True)
class In:
    at: int
    value: Node
    texts: frozenset[str]
    negated: bool


@dataclass(frozen=True, slots=True)
class Like:
    """``pattern_at`` and ``escape_at`` are where the two texts stand."""

    at: int
    value: Node
    pattern: str
    pattern_at: int
    escape: str | None
    escape_at: int
    negated: bool


@dataclass(frozen=True, slots=True)
class IsNull:
    at: int
    value: Node
    negated: bool


@dataclass(frozen=True, slots=True)
class Not:
    """``negative``: an odd number of NOTs before the operand."""

    at: int
    operand: Node
    negative: bool


@dataclass(frozen=True, slots=True)
class AllOf:
    at: int
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    at: int
    parts: tuple[Node, ...]


Node = Literal | Name | Signed | Chain | Compare | Between | In | Like | IsNull | Not | AllOf | AnyOf
