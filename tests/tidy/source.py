"""Reads the repository for the tidy tests: its files, their syntax trees, and the names that a module reaches."""

from __future__ import annotations

import ast
import io
import os
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_NOT_OURS = frozenset(
    {
        ".git",
        ".venv",
        "__pycache__",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".hypothesis",
        "build",
        "dist",
    }
)

Sources = Mapping[str, str]
"""Path from the root of the repository, with slashes → text."""


@cache
def read(*tops: str, suffixes: tuple[str, ...] = (".py",)) -> Sources:
    """The text files below the given folders (or the files themselves) whose names end in one of ``suffixes``."""
    found: dict[str, str] = {}
    for top in tops:
        if (ROOT / top).is_file():
            found[top] = (ROOT / top).read_text(encoding="utf-8")
        for folder, folders, files in os.walk(ROOT / top):
            folders[:] = sorted(name for name in folders if name not in _NOT_OURS and not name.endswith(".egg-info"))
            for name in sorted(files):
                if name.endswith(suffixes):
                    path = Path(folder, name)
                    found[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
    return found


def package() -> Sources:
    """The sources of the package itself."""
    return read("raybroker")


@cache
def tree_of(source: str) -> ast.Module:
    """The syntax tree, which several tests walk and nobody changes."""
    return ast.parse(source)


@cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """All nodes of the tree, as ``ast.walk`` gives them; walking a tree takes longer than reading its text."""
    return tuple(ast.walk(tree_of(source)))


@cache
def comments(source: str) -> tuple[tuple[int, str], ...]:
    """(line, text) of every comment."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return tuple((token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT)


@cache
def stray_texts(source: str) -> tuple[tuple[int, str], ...]:
    """(line, text) of docstrings, and of other strings that stand alone."""
    return tuple(
        (node.lineno, node.value.value)
        for node in nodes(source)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


def imports(source: str) -> Iterator[tuple[int, str]]:
    """(line, dotted module) of every import, wherever it stands; ``from a import b`` gives ``a.b``."""
    for node in nodes(source):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, f"{'.' * node.level}{node.module or ''}.{alias.name}"


def reached_names(source: str) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything taken from other modules: the imports, and attributes used through them."""
    aliases: dict[str, str] = {}
    for node in nodes(source):
        if isinstance(node, ast.Import):
            for alias in node.names:
                aliases[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
    yield from imports(source)
    for node in nodes(source):
        if isinstance(node, ast.Attribute):
            dotted = _dotted(node)
            first, _, rest = dotted.partition(".")
            if first in aliases:
                yield node.lineno, f"{aliases[first]}.{rest}"


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"
