"""The grammar of selectors, and the syntax tree that it makes.

Precedence from low to high: OR, AND, NOT, one comparison, + and -, * and /, a sign; equal ranks associate to the left.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, cast

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedToken
from lark.lexer import Lexer

from raybroker.core.selector.faults import SelectorFault
from raybroker.core.selector.limits import IN_LIST_MAX
from raybroker.core.selector.tokens import number_of, text_of, words
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

_GRAMMAR: Final = """
?any_of: all_of (_OR all_of)*
?all_of: inverse (_AND inverse)*
?inverse: NOT inverse -> inverted
    | condition
?condition: total
    | total COMPARE total -> compare
    | total [NOT] _BETWEEN total _AND total -> between
    | total [NOT] _IN _OPEN TEXT (_COMMA TEXT)* _CLOSE -> among
    | total [NOT] _LIKE TEXT [_ESCAPE TEXT] -> like
    | total _IS [NOT] _NULL -> is_null
?total: product (SIGN product)*
?product: signed (TIMES signed)*
?signed: SIGN signed -> sign
    | NUMBER -> number
    | TEXT -> text
    | (TRUE | FALSE) -> truth
    | NAME -> name
    | _OPEN any_of _CLOSE
%declare _OR _AND NOT COMPARE _BETWEEN _IN _OPEN TEXT _COMMA _CLOSE _LIKE _ESCAPE _IS _NULL
%declare SIGN TIMES NUMBER TRUE FALSE NAME
"""
_SILENT: Final = frozenset({"OR", "AND", "BETWEEN", "IN", "OPEN", "COMMA", "CLOSE", "LIKE", "ESCAPE", "IS", "NULL"})
"""Kinds of tokens that are not part of the tree."""

_VALUE: Final = frozenset({"NAME", "NUMBER", "TEXT", "TRUE", "FALSE", "OPEN"})
_AFTER_ALL: Final = ("AND", "OR", "$END")
"""Tokens that may follow a whole condition, which the parser does not list at the end."""
_EXPECTED: Final = {
    "NOT": "NOT",
    "COMPARE": "a comparison (= <> < <= > >=)",
    "BETWEEN": "BETWEEN",
    "IN": "IN",
    "LIKE": "LIKE",
    "IS": "IS",
    "NULL": "NULL",
    "SIGN": "+ or -",
    "TIMES": "* or /",
    "AND": "AND",
    "OR": "OR",
    "ESCAPE": "ESCAPE",
    "OPEN": '"("',
    "COMMA": "a comma",
    "CLOSE": '")"',
    "TEXT": "a text in single quotes",
    "$END": "the end",
}
"""Kind of token → its name in error texts, in this order."""


class _Words(Lexer):
    """The lexer of the parser: the tokens of ``tokens.words``."""

    def __init__(self, conf: object) -> None:
        """``conf`` is what the grammar declares; it is not needed."""

    def lex(self, data: str) -> Iterator[Token]:  # type: ignore[override]  # what lark asks of a lexer of one's own
        for kind, text, at in words(data):
            yield Token("_" + kind if kind in _SILENT else kind, text, start_pos=at)


class _Tree(Transformer[Token, Node]):
    """One method for each name in the grammar; a part that is absent is None."""

    def any_of(self, parts: list[Node]) -> Node:
        return AnyOf(parts[0].at, tuple(parts))

    def all_of(self, parts: list[Node]) -> Node:
        return AllOf(parts[0].at, tuple(parts))

    def inverted(self, found: tuple[Token, Node]) -> Node:
        word, operand = found
        if isinstance(operand, Not):
            return Not(_at(word), operand.operand, not operand.negative)
        return Not(_at(word), operand, True)

    def compare(self, found: tuple[Node, Token, Node]) -> Node:
        left, operator, right = found
        return Compare(left.at, str(operator), left, right)

    def between(self, found: tuple[Node, Token | None, Node, Node]) -> Node:
        value, negation, low, high = found
        return Between(value.at, value, low, high, negation is not None)

    def among(self, found: list[Any]) -> Node:
        value, negation, *texts = found
        if len(texts) > IN_LIST_MAX:
            raise SelectorFault(_at(texts[IN_LIST_MAX]), f"{len(texts)} texts in one list", f"at most {IN_LIST_MAX}")
        return In(value.at, value, frozenset(text_of(text) for text in texts), negation is not None)

    def like(self, found: tuple[Node, Token | None, Token, Token | None]) -> Node:
        value, negation, pattern, escape = found
        return Like(
            value.at,
            value,
            text_of(pattern),
            _at(pattern),
            None if escape is None else text_of(escape),
            0 if escape is None else _at(escape),
            negation is not None,
        )

    def is_null(self, found: tuple[Node, Token | None]) -> Node:
        value, negation = found
        return IsNull(value.at, value, negation is not None)

    def total(self, found: list[Any]) -> Node:
        first, *rest = found
        return Chain(first.at, first, tuple(zip(map(str, rest[::2]), rest[1::2], strict=True)))

    product = total

    def sign(self, found: tuple[Token, Node]) -> Node:
        sign, operand = found
        negative = sign == "-"
        if isinstance(operand, Literal) and not isinstance(operand.value, bool | str):
            return Literal(_at(sign), -operand.value if negative else operand.value)
        if isinstance(operand, Signed):
            return Signed(_at(sign), operand.operand, negative != operand.negative)
        return Signed(_at(sign), operand, negative)

    def number(self, found: list[Token]) -> Node:
        return Literal(_at(found[0]), number_of(found[0], _at(found[0])))

    def text(self, found: list[Token]) -> Node:
        return Literal(_at(found[0]), text_of(found[0]))

    def truth(self, found: list[Token]) -> Node:
        return Literal(_at(found[0]), found[0].type == "TRUE")

    def name(self, found: list[Token]) -> Node:
        return Name(_at(found[0]), str(found[0]))


def _at(token: Token) -> int:
    assert token.start_pos is not None
    return token.start_pos


@lru_cache(maxsize=1)
def _parser() -> Lark:
    """The parser, made at the first selector: its tables take some hundredths of a second."""
    return Lark(_GRAMMAR, start="any_of", parser="lalr", lexer=_Words, transformer=_Tree(), maybe_placeholders=True)


def parse(text: str) -> Node:
    """The tree of a selector; raises Fault where the text leaves the grammar."""
    try:
        return cast(Node, _parser().parse(text))
    except UnexpectedToken as error:
        token = error.token
        if token.type == "$END":
            at, found = len(text), "the end"
        else:
            at, found = _at(token), _shown(token)
        accepted = {kind.removeprefix("_") for kind in error.accepts or _AFTER_ALL}
        raise SelectorFault(at, found, _expected(token.type.removeprefix("_"), accepted)) from None


def _shown(token: Token) -> str:
    kind = token.type.removeprefix("_")
    text = token if len(token) <= 40 else f"{token[:40]}…"
    if kind == "TEXT":
        return f"the text {text}"
    if kind == "NUMBER":
        return f"the number {text}"
    if kind == "NAME":
        return f"the name {text}"
    return f'"{text}"'


def _expected(found: str, accepted: set[str]) -> str:
    if accepted >= _VALUE:
        accepted -= _VALUE | {"SIGN"}
        said = ["a name", "a value", "a parenthesis"]
    else:
        said = []
    said += [words for kind, words in _EXPECTED.items() if kind in accepted]
    expected = f"{', '.join(said[:-1])} or {said[-1]}" if len(said) > 1 else "".join(said)
    return f"{expected} (NULL stands only after IS or IS NOT)" if found == "NULL" else expected
