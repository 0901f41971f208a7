"""Private parts of libraries are kept out, or behind a fence: one file a library, with a test that tells of a change.

A part is private whose name, or that of its module, begins with an underscore, and a module that is named as an
implementation (``…_impl``).  An attribute of that kind counts where the package has none of that name itself, and
wherever it is reached through the name of an imported library, whose objects nobody changes either.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.tidy.source import ROOT, Sources, package, tree_of

FENCES = {
    "raybroker/actors/ray_inside.py": "tests/unit/actors/test_ray_inside.py",
    "raybroker/analysis/spark/spark_inside.py": "tests/analysis/test_spark_inside.py",
    "raybroker/client/io/held_signals.py": "tests/unit/client/connection/test_held_signals.py",
    "raybroker/transport/loops.py": "tests/unit/transport/test_loops.py",
}
"""File → the test that fails when what it leans on is no longer there, or is something else."""
DOCUMENTED = frozenset({"_asdict", "_replace", "_fields", "_make", "_exit"})
"""Of named tuples, and of os."""
ASKS = frozenset({"getattr", "setattr", "hasattr", "delattr"})


def is_private(name: str) -> bool:
    return (name.startswith("_") and not name.startswith("__")) or name.endswith("_impl")


def own_names(sources: Sources) -> set[str]:
    """Names that the package defines somewhere: of functions, classes, variables, and attributes of its objects."""
    found: set[str] = set()
    for source in sources.values():
        for node in ast.walk(tree_of(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and root_of(node) == "self":
                found.add(node.attr)
    return found


def imported(tree: ast.Module) -> set[str]:
    """Names that stand for libraries, or for what was imported of them."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("raybroker"):
            found |= {alias.asname or alias.name for alias in node.names}
    return found - {"raybroker"}


def root_of(node: ast.expr) -> str:
    """The name that a chain of attributes begins with."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def private_parts(source: str, own: set[str]) -> Iterator[tuple[int, str]]:
    """(line, what) of each private part of a library that a file uses."""
    tree = tree_of(source)
    libraries = imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if any(map(is_private, alias.name.split("."))):
                    yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith(("raybroker", "__future__")):
            for alias in node.names:
                if any(map(is_private, [*(node.module or "").split("."), alias.name])):
                    yield node.lineno, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and root_of(node) in libraries:
            yield node.lineno, f"{ast.unparse(node)}, which is set,"
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in DOCUMENTED:
            if node.attr not in own or root_of(node) in libraries:
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ASKS:
            name = node.args[1].value if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) else ""
            if isinstance(name, str) and is_private(name) and name not in own | DOCUMENTED:
                yield node.lineno, ast.unparse(node)


def violations(sources: Sources) -> Iterator[str]:
    own = own_names(sources)
    for path, source in sources.items():
        found = list(private_parts(source, own))
        if path in FENCES:
            if not found:
                yield f"{path} needs no fence any more"
            continue
        for line, what in found:
            yield f"{path}:{line}: {what} is private to a library; do without, or put it into a file of FENCES"


def test_private_parts_of_libraries_are_fenced() -> None:
    assert list(violations(package())) == []


def test_each_fence_has_a_test() -> None:
    assert [path for path in FENCES.values() if not (ROOT / path).is_file()] == []


def test_private_parts_are_found() -> None:
    bad = {
        "raybroker/a.py": "import _signal\nfrom uvicorn.protocols.http.httptools_impl import P\n",
        "raybroker/b.py": "import asyncio\n\n\ndef f(loop):\n    asyncio._set(loop._ready)\n    getattr(loop, '_c')\n",
        "raybroker/c.py": "from asyncio.events import _get_running_loop\nclass A:\n    def f(self, other):\n"
        "        self._x = 1\n        return other._x, other._asdict(), self._y\n",
        "raybroker/d.py": "import json\njson.dumps = print\n",
    }
    assert sorted(found.partition(" is ")[0] for found in violations(bad)) == [
        "raybroker/a.py:1: _signal",
        "raybroker/a.py:2: uvicorn.protocols.http.httptools_impl.P",
        "raybroker/b.py:5: asyncio._set",
        "raybroker/b.py:5: loop._ready",
        "raybroker/b.py:6: getattr(loop, '_c')",
        "raybroker/c.py:1: asyncio.events._get_running_loop",
        "raybroker/c.py:5: self._y",
        "raybroker/d.py:2: json.dumps, which",
    ]
