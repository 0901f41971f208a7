"""No text that a user can see names a row of tests/behaviour.toml, which users do not have: rows stay in docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.tidy.rows import HYPHENATED, PLAIN
from tests.tidy.source import Sources, nodes, package

ROW = re.compile(rf"(?<![\w.-]){HYPHENATED}(?![\w-])|\((?:see )?{PLAIN}\b[^()]*\)")
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(source: str) -> set[int]:
    """Which nodes are docstrings, by their identity."""
    first = (node.body[0] for node in nodes(source) if isinstance(node, _DOCUMENTED) and node.body)
    return {id(node.value) for node in first if isinstance(node, ast.Expr)}


def violations(sources: Sources) -> Iterator[str]:
    for path, source in sources.items():
        excused = docstrings(source)
        for node in nodes(source):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in excused:
                for found in ROW.finditer(node.value):
                    yield f"{path}:{node.lineno}: {found[0]} is in a text: a user cannot look it up"
        if path.startswith("raybroker/cli/"):
            yield from (f"{path}: {found[0]} is in a help text" for found in ROW.finditer(source))


def test_no_text_names_a_row() -> None:
    assert list(violations(package())) == []


def test_a_row_in_an_error_is_found_and_one_in_a_docstring_is_not() -> None:
    sample = 'def f():\n    """Says so (D-26)."""\n    raise E(f"{name} is paused (local, D-26)", "CRC-32", "(B21)")\n'
    assert list(violations({"raybroker/core/a.py": sample})) == [
        f"raybroker/core/a.py:3: {row} is in a text: a user cannot look it up" for row in ("(B21)", "D-26")
    ]
    assert len(list(violations({"raybroker/cli/a.py": '"""Shown (D-26)."""\n'}))) == 1
    assert len(list(violations({"raybroker/a.py": 'X = 1\n"""A note (D-26)."""\n'}))) == 1
