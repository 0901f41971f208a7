"""Operators on two values: JMS's comparisons, and Java's arithmetic where it gives a true result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from raybroker.core.selector.tokens import LONG_END

_LIKE: Final = {int: "number", float: "number", str: "text", bool: "truth"}
"""Type → kind of value; values of one kind may be compared."""


def alike(left: Any, right: Any) -> bool:
    kind = _LIKE.get(type(left))
    return kind is not None and kind is _LIKE.get(type(right))


def is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": lambda left, right: alike(left, right) and bool(left == right),
    "<>": lambda left, right: alike(left, right) and bool(left != right),
    "<": lambda left, right: is_number(left) and is_number(right) and bool(left < right),
    "<=": lambda left, right: is_number(left) and is_number(right) and bool(left <= right),
    ">": lambda left, right: is_number(left) and is_number(right) and bool(left > right),
    ">=": lambda left, right: is_number(left) and is_number(right) and bool(left >= right),
}
"""Whether a comparison of two values that are both there is true."""
MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""a < b is b > a."""


def calculate(operator: str, left: Any, right: Any) -> int | float | None:
    """None when an operand is no number, the divisor is 0, or an integer result does not fit 64 bits."""
    if not (is_number(left) and is_number(right)):
        return None
    try:
        if operator == "+":
            result = left + right
        elif operator == "-":
            result = left - right
        elif operator == "*":
            result = left * right
        else:
            result = _divide(left, right)
    except (ZeroDivisionError, OverflowError):
        return None
    return _fitting(result)


def negate(value: Any) -> int | float | None:
    return _fitting(-value) if is_number(value) else None


def itself(value: Any) -> int | float | None:
    """What a plus sign makes of a value."""
    return _fitting(value) if is_number(value) else None


def _divide(left: Any, right: Any) -> Any:
    if type(left) is float or type(right) is float:
        return left / right
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _fitting(result: Any) -> int | float | None:
    if type(result) is int and not -LONG_END <= result < LONG_END:
        return None
    number: int | float = result
    return number
