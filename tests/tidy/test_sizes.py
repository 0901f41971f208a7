"""A file has at most 400 lines and a function at most 70: what grows past that is two concepts.

RATCHET names the exceptions with their present size; they may shrink, and the entry has to shrink with them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tests.tidy.source import Sources, read

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
RATCHET: dict[str, int] = {}
"""``path`` or ``path:function`` → lines.  No entry is ever added or raised."""


def sizes(sources: Sources) -> Iterator[tuple[str, int, int]]:
    """(what, lines, most allowed) of every file and every function."""
    for path, source in sources.items():
        yield path, len(source.splitlines()), FILE_LINES_MAX
        for node in ast.walk(ast.parse(source)):
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


def test_files_and_functions_keep_their_size() -> None:
    assert list(violations(read("raybroker", "benchmarks", "deploy"), RATCHET)) == []


def test_a_long_file_and_a_long_function_are_found() -> None:
    function = "def f():\n" + "    pass\n" * 70
    assert list(violations({"a.py": "x = 1\n" * 401, "b.py": function}, {})) == [
        "a.py has 401 lines; allowed are 400",
        "b.py:f has 71 lines; allowed are 70",
    ]


def test_the_ratchet_only_tightens() -> None:
    source = {"a.py": "x = 1\n" * 450}
    assert list(violations(source, {"a.py": 450})) == []
    assert list(violations(source, {"a.py": 449})) == ["a.py has 450 lines; allowed are 449"]
    assert list(violations(source, {"a.py": 460})) == ["a.py has shrunk to 450 lines: tighten its entry in the ratchet"]
    assert list(violations(source, {"a.py": 450, "b.py": 500})) == ["b.py is gone: remove it from the ratchet"]
