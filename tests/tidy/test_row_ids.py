"""Texts that users see name no rows of a specification, which they do not have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.tidy.source import Sources, package

ROW = re.compile(r"\((?:see )?(?:[A-Z]{1,2}-\d{1,3}|[BDKRUW]\d{1,2})\b[^()]*\)")


def violations(sources: Sources) -> Iterator[str]:
    for path, source in sources.items():
        tree = ast.parse(source)
        notes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in notes:
                for found in ROW.findall(node.value):
                    yield f"{path}:{node.lineno}: {found} is in a text: a user cannot look it up"
        if path.startswith("raybroker/cli/"):
            yield from (f"{path}: {found} is in a help text" for found in ROW.findall(source))


def test_no_text_names_a_row() -> None:
    assert list(violations(package())) == []


def test_a_row_in_an_error_is_found_and_one_in_a_docstring_is_not() -> None:
    sample = 'def f():\n    """Says so (D-26)."""\n    raise E(f"{name} is paused (D-26)")\n'
    assert list(violations({"raybroker/core/a.py": sample})) == [
        "raybroker/core/a.py:3: (D-26) is in a text: a user cannot look it up"
    ]
