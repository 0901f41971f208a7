"""The selector language a second time, written from the text of JMS and straight: one message, one value at a time.

Shares nothing with the package but the choices that its documentation names.  ``Refused`` stands for a selector that is
not valid.  Values are Python's, None is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Tree = tuple[Any, ...]
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
KEYWORDS = ["NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"]
HEADERS = [
    "JMSDeliveryMode",
    "JMSPriority",
    "JMSMessageID",
    "JMSTimestamp",
    "JMSCorrelationID",
    "JMSType",
    "JMSRedelivered",
]
_TOKEN = re.compile(
    r"\s*(?:('(?:[^']|'')*')|(\d+\.\d*|\.\d+|\d+)((?:[Ee][+-]?\d+)?)|([A-Za-z_$][\w$]*)|(<>|<=|>=|[-+*/<>=(),]))"
)


class Refused(Exception):  # noqa: N818 - an outcome to be compared
    pass


def tokens(text: str) -> list[tuple[str, Any]]:
    """Plain literals only: the forms of numbers have tests of their own."""
    found: list[tuple[str, Any]] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise Refused(text[at:])
        quoted, number, exponent, word, sign = match.groups()
        if quoted:
            found.append(("text", quoted[1:-1].replace("''", "'")))
        elif number:
            whole = number.isdigit() and not exponent
            found.append(("number", int(number) if whole else float(number + exponent)))
        elif word and word.upper() in KEYWORDS:
            found.append(("keyword", word.upper()))
        elif word:
            if word.startswith("JMS") and word not in HEADERS and word[3:4] not in ("X", "_"):
                raise Refused(word)
            found.append(("name", word))
        else:
            found.append(("sign", sign))
        at = match.end()
    return [*found, ("end", "")]


class Parser:
    """Recursive descent; a tree is a tuple whose first element says what it is."""

    def __init__(self, text: str) -> None:
        self.rest = tokens(text)

    def is_next(self, *values: str) -> bool:
        kind, value = self.rest[0]
        return kind in ("keyword", "sign") and value in values

    def took(self, *values: str) -> str | None:
        return self.rest.pop(0)[1] if self.is_next(*values) else None

    def need(self, value: str) -> None:
        if not self.took(value):
            raise Refused(f"{value} instead of {self.rest[0]}")

    def text(self) -> str:
        kind, value = self.rest.pop(0)
        if kind != "text":
            raise Refused(value)
        return str(value)

    def whole(self) -> Tree:
        tree = self.disjunction()
        if self.rest[0][0] != "end":
            raise Refused(self.rest[0])
        return tree

    def disjunction(self) -> Tree:
        tree = self.conjunction()
        while self.took("OR"):
            tree = ("or", tree, self.conjunction())
        return tree

    def conjunction(self) -> Tree:
        tree = self.inversion()
        while self.took("AND"):
            tree = ("and", tree, self.inversion())
        return tree

    def inversion(self) -> Tree:
        return ("not", self.inversion()) if self.took("NOT") else self.comparison()

    def comparison(self) -> Tree:
        left = self.sum()
        if operator := self.took("=", "<>", "<", "<=", ">", ">="):
            return ("compare", operator, left, self.sum())
        if self.took("IS"):
            negated = self.took("NOT")
            self.need("NULL")
            return ("not", ("null", left)) if negated else ("null", left)
        negated = self.took("NOT")
        if self.took("BETWEEN"):
            low = self.sum()
            self.need("AND")
            return ("outside" if negated else "between", left, low, self.sum())
        if self.took("IN"):
            tree: Tree = ("in", left, self.texts())
        elif self.took("LIKE"):
            tree = ("like", left, self.text(), self.text() if self.took("ESCAPE") else None)
        elif negated:
            raise Refused("NOT")
        else:
            return left
        return ("not", tree) if negated else tree

    def texts(self) -> list[str]:
        self.need("(")
        found = [self.text()]
        while self.took(","):
            found.append(self.text())
        self.need(")")
        return found

    def sum(self) -> Tree:
        tree = self.product()
        while operator := self.took("+", "-"):
            tree = ("arithmetic", operator, tree, self.product())
        return tree

    def product(self) -> Tree:
        tree = self.signed()
        while operator := self.took("*", "/"):
            tree = ("arithmetic", operator, tree, self.signed())
        return tree

    def signed(self) -> Tree:
        minus, signs = 0, 0
        while sign := self.took("+", "-"):
            minus, signs = minus + (sign == "-"), signs + 1
        tree = self.operand()
        if signs and tree[0] == "signed":
            return ("signed", tree[1] != bool(minus % 2), tree[2])
        return ("signed", bool(minus % 2), tree) if signs else tree

    def operand(self) -> Tree:
        if self.took("("):
            tree = self.disjunction()
            self.need(")")
            return tree
        if word := self.took("TRUE", "FALSE"):
            return ("literal", word == "TRUE")
        kind, value = self.rest.pop(0)
        if kind not in ("text", "number", "name"):
            raise Refused(value)
        return ("name" if kind == "name" else "literal", value)


def type_of(tree: Tree) -> str:
    """number, text, truth or any; raises Refused where types that are known do not fit."""
    what, *parts = tree
    if what == "literal":
        if type(parts[0]) is int and parts[0] > LONG_MAX:
            raise Refused(parts[0])
        return {int: "number", float: "number", str: "text", bool: "truth"}[type(parts[0])]
    if what == "name":
        return "any"
    if what == "signed" and parts[1] == ("literal", 2**63) and parts[0]:
        return "number"
    if what in ("signed", "arithmetic", "between", "outside"):
        for operand in parts:
            if isinstance(operand, tuple):
                need(operand, "number")
        return "number" if what in ("signed", "arithmetic") else "truth"
    if what == "compare":
        one, other = type_of(parts[1]), type_of(parts[2])
        if parts[0] not in ("=", "<>"):
            need(parts[1], "number")
            need(parts[2], "number")
        elif "any" not in (one, other) and one != other:
            raise Refused(tree)
    elif what in ("and", "or", "not"):
        for operand in parts:
            need(operand, "truth")
    elif type_of(parts[0]) != "any":
        raise Refused(tree)
    if what == "like":
        regex_of(parts[1], parts[2])
    return "truth"


def need(tree: Tree, kind: str) -> None:
    if type_of(tree) not in (kind, "any"):
        raise Refused(tree)


def regex_of(pattern: str, escape: str | None) -> str:
    if escape is not None and len(escape) != 1:
        raise Refused(escape)
    found, at = "", 0
    while at < len(pattern):
        if pattern[at] == escape:
            at += 1
            if pattern[at : at + 1] not in ("%", "_", escape):
                raise Refused(pattern)
            found += re.escape(pattern[at])
        else:
            found += {"%": ".*", "_": "."}.get(pattern[at], re.escape(pattern[at]))
        at += 1
    return found


def number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def value_of(tree: Tree, names: Mapping[str, Any]) -> Any:
    """The value of a tree for one message; ``names`` holds headers and properties alike."""
    what, *parts = tree
    if what == "literal":
        return parts[0]
    if what == "name":
        return names.get(parts[0])
    if what == "signed":
        operand = value_of(parts[1], names)
        return bounded(-operand if parts[0] else operand) if number(operand) else None
    if what == "arithmetic":
        return arithmetic(parts[0], value_of(parts[1], names), value_of(parts[2], names))
    if what == "compare":
        return compare(parts[0], value_of(parts[1], names), value_of(parts[2], names))
    if what in ("and", "or", "not"):
        return logic(what, [condition(part, names) for part in parts])
    value = value_of(parts[0], names)
    if what == "null":
        return value is None
    if what in ("between", "outside"):
        return bound(what, value, parts, names)
    if value is None:
        return None
    if what == "in":
        return isinstance(value, str) and value in parts[1]
    return isinstance(value, str) and bool(re.fullmatch(regex_of(parts[1], parts[2]), value, re.DOTALL))


def bound(what: str, value: Any, parts: list[Tree], names: Mapping[str, Any]) -> Any:
    low, high = value_of(parts[1], names), value_of(parts[2], names)
    if what == "between":
        return logic("and", [compare(">=", value, low), compare("<=", value, high)])
    return logic("or", [compare("<", value, low), compare(">", value, high)])


def condition(tree: Tree, names: Mapping[str, Any]) -> bool | None:
    value = value_of(tree, names)
    return value if isinstance(value, bool) else None


def logic(what: str, values: list[bool | None]) -> bool | None:
    if what == "not":
        return None if values[0] is None else not values[0]
    decisive = what == "or"
    if decisive in values:
        return decisive
    return None if None in values else not decisive


def compare(operator: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if number(left) and number(right):
        order = {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}
        return bool({**order, "=": left == right, "<>": left != right}[operator])
    alike = type(left) is type(right) and isinstance(left, str | bool)
    return alike and {"=": left == right, "<>": left != right}.get(operator, False)


def bounded(value: Any) -> Any:
    return value if isinstance(value, float) or LONG_MIN <= value <= LONG_MAX else None


def arithmetic(operator: str, left: Any, right: Any) -> Any:
    if not (number(left) and number(right)) or (operator == "/" and right == 0):
        return None
    if operator != "/":
        return bounded(left + right if operator == "+" else left - right if operator == "-" else left * right)
    if isinstance(left, float) or isinstance(right, float):
        return left / right
    remainder = abs(left) % abs(right)
    return bounded((left - (remainder if left >= 0 else -remainder)) // right)


def matches(text: str, names: Mapping[str, Any]) -> bool:
    """Whether a message is selected; raises Refused for text that is no selector."""
    tree = Parser(text).whole()
    need(tree, "truth")
    return condition(tree, names) is True
