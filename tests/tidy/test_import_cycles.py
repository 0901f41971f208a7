"""No file of the repository imports itself through others; imports under TYPE_CHECKING and inside functions count."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.tidy.source import Sources, nodes, read

KNOWN: frozenset[str] = frozenset()
"""Files that are still in a cycle.  Entries only ever go."""


def module_of(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def graph(sources: Sources) -> dict[str, set[str]]:
    """Module → the modules that it imports, among the given ones."""
    known = {module_of(path) for path in sources}
    edges: dict[str, set[str]] = {}
    for path, source in sources.items():
        name = module_of(path)
        found: set[str] = set()
        for node in nodes(source):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names if alias.name in known)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    found.update([full] if full in known else [node.module] if node.module in known else [])
        edges[name] = found - {name}
    return edges


def cycles(edges: dict[str, set[str]]) -> Iterator[list[str]]:
    """Sets of modules that reach one another, as Tarjan's algorithm finds them, without recursion."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: list[str] = []
    for start in sorted(edges):
        if start in number:
            continue
        work = [(start, iter(sorted(edges[start])))]
        number[start] = low[start] = len(number)
        open_.append(start)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in number:
                    number[other] = low[other] = len(number)
                    open_.append(other)
                    work.append((other, iter(sorted(edges[other]))))
                    break
                if other in open_:
                    low[node] = min(low[node], number[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    at = open_.index(node)
                    group, open_[at:] = open_[at:], []
                    if len(group) > 1:
                        yield sorted(group)


def violations(sources: Sources, known: frozenset[str]) -> Iterator[str]:
    found = {module for group in cycles(graph(sources)) for module in group}
    for group in cycles(graph(sources)):
        if not known.issuperset(group):
            yield f"these import one another: {', '.join(group)}"
    for module in sorted(known - found):
        yield f"{module} is in no cycle any more: remove it from the table"


def test_no_file_imports_itself_through_others() -> None:
    assert list(violations(read("raybroker", "tests", "benchmarks", "deploy", "dashboards"), KNOWN)) == []


def test_a_cycle_is_found_wherever_its_imports_stand() -> None:
    late = "def f():\n    from p import a\n"
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.c import C\n"
    rest = {"p/__init__.py": "", "p/c.py": "import p.b\n", "p/d.py": "from p import a\n"}
    bad = {"p/a.py": typed, "p/b.py": late, **rest}
    assert list(violations(bad, frozenset())) == ["these import one another: p.a, p.b, p.c"]
    assert list(violations(bad, frozenset({"p.a", "p.b", "p.c"}))) == []
    good = {**bad, "p/b.py": ""}
    assert list(violations(good, frozenset())) == []
    assert list(violations(good, frozenset({"p.a"}))) == ["p.a is in no cycle any more: remove it from the table"]
