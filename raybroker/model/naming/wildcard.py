"""Patterns of topic names: ``*`` is one segment, ``**`` one or more, ``>`` any number, also none.

A name is its segments with dots between them.  ``*`` and ``**`` are a whole segment of the pattern.  ``>`` has no dot
before it: it stands at the end of a segment, or at the very start, and means that any number of segments may follow
there.

    large.*.circle    large.red.circle                       not large.circle, large.very.red.circle
    **.square         red.square, large.red.square           not square
    small>            small, small.x.y                       not smallyellow
    >.circle          circle, large.red.circle
    >                 every topic

What is left open is decided here: ``>`` may be followed by more segments (``small>.circle``), and a pattern does not
match the broker's own ``mq.…`` topics unless it starts with ``mq.`` itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from raybroker.model.errors import InvalidDestinationError

_OWN_PREFIX: Final = "mq."
_PATTERN_CHARS_MAX: Final = 255
_LITERAL = re.compile(r"[A-Za-z0-9_$\-]+", re.ASCII)
_SHOWN_CHARS_MAX: Final = 80

_ONE: Final = 0
_ANY: Final = 1
_Token = str | int
"""A segment's text, or ``_ONE`` or ``_ANY`` (any number of segments, also none)."""


def is_pattern(name: str) -> bool:
    """True when a topic's name is a pattern: ``*`` and ``>`` are in no other name."""
    return "*" in name or ">" in name


def check_pattern(pattern: str) -> str:
    """The pattern, unchanged; raises InvalidDestinationError saying what is wrong with it."""
    _tokens(pattern)
    return pattern


def matches(pattern: str, name: str) -> bool:
    """True when the topic of that name is one of the pattern's; raises InvalidDestinationError for a bad pattern.

    Takes at most segments of the name × segments of the pattern steps.
    """
    tokens = _tokens(pattern)
    if name.startswith(_OWN_PREFIX) and not pattern.startswith(_OWN_PREFIX):
        return False
    segments = name.split(".")
    at = place = 0
    last_any, tried = -1, 0
    while at < len(segments):
        token = tokens[place] if place < len(tokens) else None
        if token == _ANY:
            last_any, tried = place, at
            place += 1
        elif token == _ONE or token == segments[at]:
            at += 1
            place += 1
        elif last_any >= 0:
            tried += 1
            at, place = tried, last_any + 1
        else:
            return False
    return all(token == _ANY for token in tokens[place:])


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that match, in order of the alphabet."""
    return sorted(name for name in names if matches(pattern, name))


def common_name(first: str, second: str) -> str | None:
    """A name that both patterns match, None when there is none; raises InvalidDestinationError for a bad pattern.

    Takes at most tokens of the one × tokens of the other steps.
    """
    ones, others = _tokens(first), _tokens(second)
    seen: set[tuple[int, int]] = set()
    stack: list[tuple[int, int, tuple[str, ...]]] = [(0, 0, ())]
    while stack:
        at, place, name = stack.pop()
        if (at, place) in seen:
            continue
        seen.add((at, place))
        one = ones[at] if at < len(ones) else None
        other = others[place] if place < len(others) else None
        if one is None and other is None:
            found = ".".join(name) or "x"
            if matches(first, found) and matches(second, found):
                return found
            continue
        if one == _ANY:
            stack.append((at + 1, place, name))
        if other == _ANY:
            stack.append((at, place + 1, name))
        if one is None or other is None:
            continue
        segment = next((token for token in (one, other) if isinstance(token, str)), "x")
        if all(token in (_ANY, _ONE, segment) for token in (one, other)):
            stack.append((at + (one != _ANY), place + (other != _ANY), (*name, segment)))
    return None


@lru_cache(maxsize=1024)
def _tokens(pattern: str) -> tuple[_Token, ...]:
    if len(pattern) > _PATTERN_CHARS_MAX:
        raise _bad(pattern, f"has {len(pattern)} characters; at most {_PATTERN_CHARS_MAX} are allowed")
    found: list[_Token] = []
    for number, segment in enumerate(pattern.split(".")):
        base = segment.removesuffix(">")
        if ">" in base:
            raise _bad(pattern, "has '>' inside a segment; it stands at the end of one, as in small>")
        if not base and number > 0:
            why = "has '.' before '>': leave the dot out, as in small>" if segment else "has an empty segment"
            raise _bad(pattern, why)
        if not segment:
            raise _bad(pattern, "has an empty segment")
        if base == "**":
            found += (_ONE, _ANY)
        elif base == "*":
            found.append(_ONE)
        elif "*" in base:
            raise _bad(pattern, "has '*' beside other characters of a segment; '*' and '**' are whole segments")
        elif base:
            if not _LITERAL.fullmatch(base):
                raise _bad(pattern, f"has the segment {base!r}, which no name of a topic has")
            found.append(base)
        if base != segment:
            found.append(_ANY)
    return tuple(found)


def _bad(pattern: str, why: str) -> InvalidDestinationError:
    shown = pattern if len(pattern) <= _SHOWN_CHARS_MAX else pattern[:_SHOWN_CHARS_MAX] + "…"
    return InvalidDestinationError(f"topic pattern {shown!r} {why}")
