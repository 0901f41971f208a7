"""Finds the Protocols of the package, and the classes that have all of a Protocol's members."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from tests.tidy.source import Sources, nodes, tree_of


class Shape(NamedTuple):
    """How a member is used: a method (``least`` to ``most`` arguments by position, perhaps awaited), or a value."""

    method: bool = False
    awaited: bool = False
    least: int = 0
    most: int = 0

    def serves(self, wanted: Shape) -> bool:
        """A value may be a function too, which serves as a method; a method does not serve as a value."""
        if not self.method:
            return True
        return wanted.method and self.awaited == wanted.awaited and self.least <= wanted.most <= self.most


class Known(NamedTuple):
    """A class at the top of a file: its own members, and the dotted names of its bases."""

    path: str
    protocol: bool
    members: Mapping[str, Shape]
    bases: tuple[str, ...]


MANY = 99
"""Stands for the arguments of a function that takes ``*args``."""


def protocols(sources: Sources) -> dict[str, tuple[str, ...]]:
    """Dotted name of each Protocol → the classes of the package whose members include all of its members."""
    known = all_classes(sources)
    whole = {name: _members(name, known) for name in known}
    return {
        name: tuple(
            other
            for other, kept in known.items()
            if not kept.protocol
            and wanted.keys() <= whole[other].keys()
            and all(whole[other][member].serves(shape) for member, shape in wanted.items())
        )
        for name, one in known.items()
        if one.protocol
        for wanted in (whole[name],)
    }


def all_classes(sources: Sources) -> dict[str, Known]:
    """Dotted name → class, of all classes at the top of a file."""
    return {name: one for path, source in sources.items() for name, one in _classes_of(path, source).items()}


@cache
def _classes_of(path: str, source: str) -> dict[str, Known]:
    module = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    found = [node for node in tree_of(source).body if isinstance(node, ast.ClassDef)]
    names = {node.name: f"{module}.{node.name}" for node in found}
    for node in nodes(source):
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return {
        f"{module}.{node.name}": Known(
            path, "Protocol" in bases, _own(node), tuple(names.get(one, one) for one in bases)
        )
        for node in found
        for bases in ([ast.unparse(one).partition("[")[0] for one in node.bases],)
    }


def _members(name: str, known: Mapping[str, Known]) -> dict[str, Shape]:
    found: dict[str, Shape] = {}
    if name in known:
        for base in reversed(known[name].bases):
            found |= _members(base, known)
        found |= known[name].members
    return found


def _own(node: ast.ClassDef) -> dict[str, Shape]:
    found: dict[str, Shape] = {}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and ast.unparse(inner.value) == "self":
            found[inner.attr] = Shape()
    for line in node.body:
        if isinstance(line, ast.FunctionDef | ast.AsyncFunctionDef):
            if line.name != "__init__":
                found[line.name] = _shape(line)
        elif isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            found[line.target.id] = Shape()
        elif isinstance(line, ast.Assign):
            found |= {target.id: Shape() for target in line.targets if isinstance(target, ast.Name)}
    return found


def _shape(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Shape:
    marks = {ast.unparse(one).rpartition(".")[2] for one in function.decorator_list}
    if marks & {"property", "cached_property", "setter"}:
        return Shape()
    taken = len(function.args.posonlyargs) + len(function.args.args) - ("staticmethod" not in marks)
    most = MANY if function.args.vararg else taken
    return Shape(True, isinstance(function, ast.AsyncFunctionDef), taken - len(function.args.defaults), most)
