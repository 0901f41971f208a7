"""The tokens of a selector, and the values of its literals."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from raybroker.core.selector.faults import SelectorFault
from raybroker.core.selector.limits import NESTING_MAX
from raybroker.core.selector.names import check_name
from raybroker.model.naming.property_names import RESERVED_WORDS

LONG_END: Final = 1 << 63
"""The first integer that is too large for a literal, except as the digits of the smallest one."""

_WORDS: Final = re.compile(
    r"""
      (?P<SPACE>   [ \t\f\r\n]+ )
    | (?P<NAME>    [A-Za-z_$\x80-\U0010ffff] [A-Za-z0-9_$\x00-\x08\x0e-\x1b\x7f-\U0010ffff]* )
    | (?P<NUMBER>  0[xX] [0-9A-Za-z_.]* (?: (?<=[pP]) [+-] [0-9A-Za-z_.]* )?
                 | \.? [0-9] (?: [eE][+-] | [0-9A-Za-z_.] )* )
    | (?P<TEXT>    ' [^']* (?: '' [^']* )* ' )
    | (?P<COMPARE> <> | <= | >= | < | > | = )
    | (?P<SIGN>    [+-] )
    | (?P<TIMES>   [*/] )
    | (?P<OPEN>    \( )
    | (?P<CLOSE>   \) )
    | (?P<COMMA>   , )
    """,
    re.VERBOSE,
)

_DIGITS: Final = r"[0-9](?:[0-9_]*[0-9])?"
_HEX: Final = r"[0-9a-f](?:[0-9a-f_]*[0-9a-f])?"
_INTEGER: Final = re.compile(
    rf"(?: 0x(?P<hex>{_HEX}) | 0b(?P<binary>[01](?:[01_]*[01])?) | 0_*(?P<octal>[0-7](?:[0-7_]*[0-7])?)"
    r" | (?P<decimal> 0 | [1-9](?:[0-9_]*[0-9])? ) ) l?",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_FLOAT: Final = re.compile(
    rf"(?P<value> (?: {_DIGITS} \. (?:{_DIGITS})? | \. {_DIGITS} ) (?: e[+-]?{_DIGITS} )? | {_DIGITS} e[+-]?{_DIGITS}"
    rf" | {_DIGITS} (?=[fd]) ) [fd]?",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_HEX_FLOAT: Final = re.compile(
    rf"(?P<value> 0x (?: {_HEX} \.? | (?:{_HEX})? \. {_HEX} ) p[+-]?{_DIGITS} ) [fd]?",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_BASES: Final = {"hex": 16, "binary": 2, "octal": 8, "decimal": 10}
_LONG_CHARS_MAX: Final = 64
"""Digits of the longest integer that can fit, which is a binary one."""

_STRANGERS: Final = {
    "'": ("a text without its end", "a second ' that closes it"),
    '"': ('the sign "', "a text in single quotes: 'like this'"),
    "!": ("the sign !", "<> for not equal"),
    "&": ("the sign &", "AND"),
    "|": ("the sign |", "OR"),
}


class Word(NamedTuple):
    """``kind`` is a group of the expression above, or a reserved word in capitals; ``at`` an offset."""

    kind: str
    text: str
    at: int


def words(text: str) -> Iterator[Word]:
    """The words of a selector; raises Fault for what cannot be one, and where parentheses are too deep."""
    at, depth = 0, 0
    while at < len(text):
        found = _WORDS.match(text, at)
        if found is None:
            raise SelectorFault(
                at, *_STRANGERS.get(text[at], (f"the character {text[at]!r}", "a sign of the language"))
            )
        kind, word = str(found.lastgroup), found[0]
        if kind == "NAME":
            if word.isascii() and word.upper() in RESERVED_WORDS:
                kind = word.upper()
            else:
                check_name(word, at)
        elif kind == "OPEN":
            depth += 1
            if depth > NESTING_MAX:
                raise SelectorFault(at, f"{depth} parentheses inside each other", f"at most {NESTING_MAX}")
        elif kind == "CLOSE":
            depth -= 1
        if kind != "SPACE":
            yield Word(kind, word, at)
        at = found.end()


def text_of(word: str) -> str:
    """What a text in quotes says."""
    return word[1:-1].replace("''", "'")


def number_of(word: str, at: int) -> int | float:
    """The value of a number as Java writes it; raises Fault for one that is malformed or out of range.

    2**63 comes through: with a minus sign before it, it is the smallest integer.
    """
    if found := _INTEGER.fullmatch(word):
        base = str(found.lastgroup)
        digits = found[base].replace("_", "").lstrip("0") or "0"
        value = int(digits, _BASES[base]) if len(digits) <= _LONG_CHARS_MAX else LONG_END + 1
        if value > LONG_END:
            raise SelectorFault(at, "an integer that is too large", f"at most {LONG_END - 1}")
        return value
    if found := _FLOAT.fullmatch(word):
        number = float(found["value"].replace("_", ""))
        if not math.isinf(number):
            return number
    elif found := _HEX_FLOAT.fullmatch(word):
        try:
            return float.fromhex(found["value"].replace("_", ""))
        except OverflowError:
            pass
    else:
        raise SelectorFault(
            at, f"{word[:40]}, which is no number", "a number as Java writes it, such as 7, 0x1F, 7.5 or 7E3"
        )
    raise SelectorFault(at, "a number that is too large", "at most 1.7976931348623157E308")
