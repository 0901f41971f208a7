"""A function has at most 70 lines, and a file is one concept: over 600 lines a warning asks whether it still is.

RATCHET names the functions that may be longer, with their present size; they may shrink, and the entry has to shrink
with them.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping

from tests.tidy.source import Sources, read, tree_of

FILE_LINES_NOTED = 600
FUNCTION_LINES_MAX = 70
RATCHET: dict[str, int] = {}
"""``path:function`` → lines.  No entry is ever added or raised."""


def sizes(sources: Sources) -> Iterator[tuple[str, int, int]]:
    """(what, lines, most allowed) of every function."""
    for path, source in sources.items():
        for node in ast.walk(tree_of(source)):
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


def long_files(sources: Sources) -> list[str]:
    """Files of more than FILE_LINES_NOTED lines: worth a look, never a reason to cut one concept into slices."""
    return [path for path, source in sources.items() if len(source.splitlines()) > FILE_LINES_NOTED]


def test_functions_keep_their_size() -> None:
    sources = read("raybroker", "benchmarks", "deploy")
    for path in long_files(sources):
        warnings.warn(f"{path} has more than {FILE_LINES_NOTED} lines: is it still one concept?", stacklevel=1)
    assert list(violations(sources, RATCHET)) == []


def test_a_long_function_is_found() -> None:
    function = "def f():\n" + "    pass\n" * 70
    assert list(violations({"b.py": function}, {})) == ["b.py:f has 71 lines; allowed are 70"]


def test_a_long_file_is_noted() -> None:
    assert long_files({"a.py": "x = 1\n" * 601, "b.py": "x = 1\n" * 600}) == ["a.py"]


def test_the_ratchet_only_tightens() -> None:
    source = {"a.py": "def f():\n" + "    pass\n" * 89}
    assert list(violations(source, {"a.py:f": 90})) == []
    assert list(violations(source, {"a.py:f": 89})) == ["a.py:f has 90 lines; allowed are 89"]
    shrunk = "a.py:f has shrunk to 90 lines: tighten its entry in the ratchet"
    assert list(violations(source, {"a.py:f": 95})) == [shrunk]
    assert list(violations(source, {"a.py:f": 90, "b.py:g": 80})) == ["b.py:g is gone: remove it from the ratchet"]
