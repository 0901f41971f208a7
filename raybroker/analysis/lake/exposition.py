"""The exposition format, read exactly: lines, and the type of each sample (Prometheus text format 0.0.4).

This is the reference that the fast reader in ``columns`` falls back to and is tested against.  It takes what the
format allows, a little more leniently where prometheus_client does (blanks, tabs), and refuses single lines rather than
whole texts: one bad line says nothing about the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_WORD: Final = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_QUOTED: Final = r'"(?:[^"\\]|\\.)*"'
_BARE = re.compile(rf"({_WORD})(?=[{{ \t]|$)")
_BRACE = re.compile(r"[ \t]*\{")
_CLOSING = re.compile(r"[ \t]*\}")
_TERM = re.compile(rf"[ \t]*(?:({_WORD})|({_QUOTED}))[ \t]*(?:=[ \t]*({_QUOTED}))?[ \t]*(,|\}}|$)")
_NUMBERS = re.compile(r"[ \t]*(\S+)(?:[ \t]+(\S+))?")
_COMMENT = re.compile(rf"#[ \t]*(TYPE|HELP)[ \t]+(?:({_WORD})|({_QUOTED}))(?:[ \t]+(.*))?")
_ESCAPE = re.compile(r'\\[\\n"]')
_ESCAPES: Final = {r"\\": "\\", r"\n": "\n", r"\"": '"'}

ALLOWED: Final = {"summary": ("_count", "_sum", ""), "histogram": ("_count", "_sum", "_bucket")}
"""Suffixes of the samples of a family, by type; other types have the family's own name alone."""
UNTYPED: Final = "untyped"


class Sample(NamedTuple):
    """One sample line. ``timestamp_ms`` only when the line has one of its own."""

    name: str
    labels: dict[str, str]
    value: float
    timestamp_ms: int | None


class Comment(NamedTuple):
    """A HELP or TYPE line: which, of what family, and the rest of the line."""

    kind: str
    family: str
    text: str


def parse_line(line: str) -> Sample | Comment | None:
    """What a line says; None for blank lines and other comments. Raises ValueError for what is no exposition."""
    line = line.strip()
    if not line:
        return None
    if line[0] == "#":
        return _comment(line)
    name = ""
    at = 0
    labels: dict[str, str] = {}
    if bare := _BARE.match(line):
        name, at = bare[1], bare.end()
    if brace := _BRACE.match(line, at):
        name, labels, at = _terms(line, brace.end(), name)
    if not name:
        raise ValueError(f"no metric name: {line[:80]!r}")
    numbers = _NUMBERS.fullmatch(line, at)
    if numbers is None:
        raise ValueError(f"no value: {line[:80]!r}")
    stamp = numbers[2]
    return Sample(name, labels, number(numbers[1]), None if stamp is None else _stamp(stamp))


def number(text: str) -> float:
    """A value. Raises ValueError for what is none; Python's underscores are none."""
    if "_" in text:
        raise ValueError(f"invalid value: {text!r}")
    return float(text)


def _stamp(text: str) -> int:
    value = number(text)
    if not abs(value) < 1e17:
        raise ValueError(f"invalid timestamp: {text!r}")
    return round(value)


def _comment(line: str) -> Comment | None:
    match = _COMMENT.fullmatch(line)
    if match is None:
        if re.match(r"#[ \t]*TYPE[ \t]+\S", line):
            raise ValueError(f"no family name: {line[:80]!r}")
        return None
    family = match[2] if match[2] is not None else _unquoted(match[3])
    if match[1] == "TYPE" and not (match[4] or "").strip():
        raise ValueError(f"no type: {line[:80]!r}")
    return Comment(match[1], family, (match[4] or "").strip())


def _terms(line: str, at: int, name: str) -> tuple[str, dict[str, str], int]:
    """Labels from behind the opening brace to behind the closing one, and the name if it stands among them."""
    labels: dict[str, str] = {}
    while True:
        closing = _CLOSING.match(line, at)
        if closing is not None:
            return name, labels, closing.end()
        term = _TERM.match(line, at)
        if term is None or term[4] == "":
            raise ValueError(f"invalid labels: {line[:80]!r}")
        key = term[1] if term[1] is not None else _unquoted(term[2])
        if term[3] is None:
            if name or term[2] is None or not key:
                raise ValueError(f"label without a value: {line[:80]!r}")
            name = key
        elif key in labels or key == "__name__" or (term[1] is not None and ":" in key):
            raise ValueError(f"invalid label {key!r}: {line[:80]!r}")
        else:
            labels[key] = _unquoted(term[3])
        at = term.end()
        if term[4] == "}":
            return name, labels, at


def _unquoted(text: str) -> str:
    inner = text[1:-1]
    return _ESCAPE.sub(lambda match: _ESCAPES[match[0]], inner) if "\\" in inner else inner


class Typer:
    """Which type a sample has: that of the family whose comments stand before it and whose name it may bear."""

    __slots__ = ("_allowed", "_family", "_type")

    def __init__(self) -> None:
        self._family, self._type = "", UNTYPED
        self._allowed: frozenset[str] = frozenset()

    def comment(self, comment: Comment) -> None:
        if comment.kind == "TYPE":
            self._family, self._type = comment.family, comment.text
            suffixes = ALLOWED.get(comment.text, ("",))
            self._allowed = frozenset(comment.family + suffix for suffix in suffixes)
        elif comment.family != self._family:
            self._family, self._type = comment.family, UNTYPED
            self._allowed = frozenset((comment.family,))

    def sample(self, name: str) -> str:
        """The type of a sample of this name that stands here."""
        if name not in self._allowed:
            self._family, self._type, self._allowed = "", UNTYPED, frozenset()
        return self._type


def parse(text: str) -> Iterator[tuple[Sample, str] | str]:
    """(sample, type) of every sample line in its order; a bad line comes as its text."""
    typer = Typer()
    for line in text.split("\n"):
        try:
            got = parse_line(line)
        except ValueError:
            yield line
            continue
        if isinstance(got, Comment):
            typer.comment(got)
        elif got is not None:
            yield got, typer.sample(got.name)
