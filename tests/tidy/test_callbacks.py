"""What a part calls is given to it when it is made: nobody sets a callback of another object from outside.

Found are assignments to an attribute of something other than ``self``: of a lambda or a ``partial``, and of a method
where some class annotates an attribute of that name as a Callable.  What comes through a variable is not found.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.tidy.source import Sources, nodes, package

ALLOWED = {
    "listener": "an application sets the listener of a consumer, and takes it away, while the consumer lives",
    "pack": "whether paging files are compressed changes with the configuration of a host that runs",
    "payload": "whether blocks are compressed for the store changes with the configuration of a host that runs",
    "read_headers": "a destination is made by recovery, before its host knows it",
}
"""Attribute → why it is set from outside.  No entry is ever added."""


def callables(sources: Sources) -> set[str]:
    """Names of attributes that some class annotates as a Callable."""
    return {
        node.target.attr if isinstance(node.target, ast.Attribute) else node.target.id
        for source in sources.values()
        for node in nodes(source)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Attribute | ast.Name)
        and "Callable" in ast.unparse(node.annotation)
    }


def functions(source: str) -> set[str]:
    return {node.name for node in nodes(source) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def set_from_outside(sources: Sources) -> Iterator[tuple[str, str]]:
    """(attribute, where) of every callback that is assigned to another object."""
    known, methods = callables(sources), set().union(*map(functions, sources.values()))
    for path, source in sources.items():
        for node in nodes(source):
            if isinstance(node, ast.Assign):
                for target, value in _pairs(node):
                    if isinstance(target, ast.Attribute) and ast.unparse(target.value) not in ("self", "cls"):
                        for one in (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,):
                            if _is_made(one) or (
                                target.attr in known and isinstance(one, ast.Attribute) and one.attr in methods
                            ):
                                yield target.attr, f"{path}:{node.lineno} {ast.unparse(target)}"
                                break


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value


def _is_made(value: ast.expr) -> bool:
    return isinstance(value, ast.Lambda) or (isinstance(value, ast.Call) and _name(value.func) == "partial")


def _name(value: ast.expr) -> str:
    return value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""


def test_callbacks_are_given_when_a_part_is_made() -> None:
    found = list(set_from_outside(package()))
    assert [where for attribute, where in found if attribute not in ALLOWED] == []
    assert {attribute for attribute, _ in found} == set(ALLOWED), "an entry that nobody needs is removed"


def test_a_callback_that_is_set_from_outside_is_found() -> None:
    taking = "class A:\n    def __init__(self, a):\n        self.told: Callable[[], None] = a\n        self.size = 0\n"
    using = (
        "class B:\n    def go(self): ...\n    def make(self, a, b):\n"
        "        a.told = self.go\n        a.size, self.a.told = b.size, lambda: None\n        self.told = self.go\n"
        "        a.other = partial(b, 1)\n        a.told = self.go if b else None\n        a.size = b.size\n"
    )
    found = [where for _, where in set_from_outside({"a.py": taking, "b.py": using})]
    assert found == ["b.py:4 a.told", "b.py:5 self.a.told", "b.py:7 a.other", "b.py:8 a.told"]
