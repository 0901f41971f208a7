"""The blocking handles are what is generated from the asynchronous ones."""

from __future__ import annotations

import ast

from tests.tidy.blocking_face import blocking, generated
from tests.tidy.source import ROOT, tree_of


def test_the_blocking_handles_are_up_to_date() -> None:
    stale = [path for path, text in generated() if (ROOT / path).read_text(encoding="utf-8") != text]
    assert stale == [], "run: python -m tests.tidy.blocking_face"


def test_nothing_asynchronous_is_left() -> None:
    kinds = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
    left = [
        f"{path}:{node.lineno}"
        for path, text in generated()
        for node in ast.walk(tree_of(text))
        if isinstance(node, kinds)
    ]
    assert left == []


def test_coroutines_become_plain_calls() -> None:
    source = (
        '"""Use it by ``async with``."""\n'
        "async def f(x):\n"
        "    async with x as y, z:\n"
        "        async for each in await y.all():\n"
        "            yield await each\n"
    )
    assert blocking(source, "a.py").partition('"""')[2] == (
        'Use it by ``with``."""\n\n\ndef f(x):\n    with x as y, z:\n        for each in y.all():\n'
        "            yield each\n"
    )
