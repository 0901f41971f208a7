"""Patterns of LIKE: ``_`` is any one character, ``%`` any number of them.

A pattern is cut at its ``%`` into pieces of fixed length; each is searched behind the one before it, and its first
occurrence suffices. So the search never backtracks, whatever the pattern and the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from raybroker.core.selector.faults import SelectorFault
from raybroker.core.selector.tree import Like

_ONE: Final = None
"""Stands in a piece for any one character."""

Piece = list[str | None]
Find = Callable[[str, int, int], int]
"""(text, start, end) → where a piece is found between them, -1 if nowhere."""


def matcher(node: Like) -> Callable[[str], bool]:
    """Whether a text fits the pattern; raises Fault for an escape character that is used wrongly."""
    pieces = _cut(node)
    if len(pieces) == 1:
        return _whole(pieces[0])
    first, *between, last = pieces
    head, tail = _finder(first), _finder(last)
    finders = [(_finder(piece), len(piece)) for piece in between if piece]
    head_chars, tail_chars, least_chars = len(first), len(last), sum(map(len, pieces))

    def fits(text: str) -> bool:
        if len(text) < least_chars:
            return False
        end = len(text) - tail_chars
        if head(text, 0, head_chars) < 0 or tail(text, end, len(text)) < 0:
            return False
        at = head_chars
        for find, chars in finders:
            at = find(text, at, end)
            if at < 0:
                return False
            at += chars
        return True

    return fits


def _whole(piece: Piece) -> Callable[[str], bool]:
    find, chars = _finder(piece), len(piece)
    return lambda text: len(text) == chars and find(text, 0, chars) == 0


def _finder(piece: Piece) -> Find:
    if _ONE not in piece:
        literal = "".join(char for char in piece if char is not None)
        return lambda text, start, end: text.find(literal, start, end)
    search = re.compile("".join("." if char is None else re.escape(char) for char in piece), re.DOTALL).search

    def find(text: str, start: int, end: int) -> int:
        found = search(text, start, end)
        return -1 if found is None else found.start()

    return find


def _cut(node: Like) -> list[Piece]:
    """The pieces between the ``%``; the first and the last may be empty."""
    escape = node.escape
    if escape is not None and len(escape) != 1:
        raise SelectorFault(node.escape_at, f"an escape text of {len(escape)} characters", "one character")
    pieces: list[Piece] = [[]]
    chars = iter(node.pattern)
    for char in chars:
        if char == escape:
            escaped = next(chars, "")
            if escaped not in ("%", "_", escape):
                found = f"{escape!r} before {escaped!r}" if escaped else f"{escape!r} at the end of the pattern"
                raise SelectorFault(node.pattern_at, found, f"%, _ or {escape!r} after the escape character")
            pieces[-1].append(escaped)
        elif char == "%":
            pieces.append([])
        else:
            pieces[-1].append(_ONE if char == "_" else char)
    return pieces
