"""A constructor takes few arguments: what belongs together is one value. How many take more, and how many more, only
shrinks."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tests.tidy.source import Sources, package, tree_of

MOST = 8
TABLE: dict[str, int] = {
    "raybroker.broker.definitions.definitions.RecordedDefinitions": 11,
}
"""Class → arguments of its constructor, without ``self``.  No entry is ever added or raised."""


def wide(sources: Sources) -> dict[str, int]:
    """Classes whose constructors take more than MOST; what dataclasses and tuples hold are fields of a value."""
    found: dict[str, int] = {}
    for path, source in sources.items():
        for node in ast.walk(tree_of(source)):
            if isinstance(node, ast.ClassDef):
                for one in node.body:
                    if isinstance(one, ast.FunctionDef) and one.name == "__init__":
                        taken = len([*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs]) - 1
                        if taken > MOST:
                            found[f"{path.removesuffix('.py').replace('/', '.')}.{node.name}"] = taken
    return found


def violations(sources: Sources, table: Mapping[str, int]) -> Iterator[str]:
    found = wide(sources)
    for name in sorted({*found, *table}):
        taken, allowed = found.get(name, 0), table.get(name, MOST)
        if taken > allowed:
            yield f"{name} takes {taken} arguments; allowed are {allowed}: make one value of those that belong together"
        elif name in table and taken < allowed:
            yield f"{name} takes {taken or 'few'} arguments: {'lower' if taken else 'remove'} its entry"


def test_constructors_only_get_narrower() -> None:
    assert list(violations(package(), TABLE)) == []


def test_a_wide_constructor_is_found_and_a_narrower_one_is_noted() -> None:
    arguments = ", ".join(f"a{number}" for number in range(MOST + 1))
    sources = {"raybroker/a.py": f"class Wide:\n    def __init__(self, {arguments}, *rest, **more): ...\n"}
    (told,) = violations(sources, {})
    assert told.startswith("raybroker.a.Wide takes 9 arguments; allowed are 8")
    assert list(violations(sources, {"raybroker.a.Wide": 9})) == []
    (told,) = violations(sources, {"raybroker.a.Wide": 10})
    assert told == "raybroker.a.Wide takes 9 arguments: lower its entry"
    (told,) = violations({}, {"raybroker.a.Gone": 9})
    assert told == "raybroker.a.Gone takes few arguments: remove its entry"
