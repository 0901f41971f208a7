"""A function has at most 90 lines. A file has as many as its concept needs.

RATCHET names the functions that may be longer, with their present size; they may shrink, and the entry has to shrink
with them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tests.tidy.source import Sources, nodes, read

FUNCTION_LINES_MAX = 90
"""Formatted, with an argument on each line where they do not fit on one."""
RATCHET: dict[str, int] = {}
"""``path:function`` → lines.  No entry is ever added or raised."""


def sizes(sources: Sources) -> Iterator[tuple[str, int, int]]:
    """(what, lines, most allowed) of every function."""
    for path, source in sources.items():
        for node in nodes(source):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path}:{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1, FUNCTION_LINES_MAX


def violations(sources: Sources, ratchet: Mapping[str, int]) -> Iterator[str]:
    unused = set(ratchet)
    for what, lines, most in sizes(sources):
        allowed = ratchet.get(what, most)
        unused.discard(what)
        if lines > allowed:
            yield f"{what} has {lines} lines; allowed are {allowed}"
        elif what in ratchet and (lines < allowed or lines <= most):
            yield f"{what} has shrunk to {lines} lines: tighten its entry in the ratchet"
    for what in sorted(unused):
        yield f"{what} is gone: remove it from the ratchet"


def test_functions_keep_their_size() -> None:
    sources = read("raybroker", "benchmarks", "deploy")
    assert list(violations(sources, RATCHET)) == []


def test_a_long_function_is_found() -> None:
    function = "def f():\n" + "    pass\n" * 90
    assert list(violations({"b.py": function}, {})) == ["b.py:f has 91 lines; allowed are 90"]


def test_the_ratchet_only_tightens() -> None:
    source = {"a.py": "def f():\n" + "    pass\n" * 109}
    assert list(violations(source, {"a.py:f": 110})) == []
    assert list(violations(source, {"a.py:f": 109})) == ["a.py:f has 110 lines; allowed are 109"]
    shrunk = "a.py:f has shrunk to 110 lines: tighten its entry in the ratchet"
    assert list(violations(source, {"a.py:f": 115})) == [shrunk]
    assert list(violations(source, {"a.py:f": 110, "b.py:g": 100})) == ["b.py:g is gone: remove it from the ratchet"]
