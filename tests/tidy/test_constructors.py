"""A constructor takes few arguments: what belongs together is one value."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.tidy.source import Sources, package, tree_of

MOST = 8


def wide(sources: Sources) -> Iterator[str]:
    """Classes whose constructors take more than MOST; what dataclasses and tuples hold are fields of a value."""
    for path, source in sources.items():
        for node in ast.walk(tree_of(source)):
            if isinstance(node, ast.ClassDef):
                for one in node.body:
                    if isinstance(one, ast.FunctionDef) and one.name == "__init__":
                        taken = len([*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs]) - 1
                        if taken > MOST:
                            name = f"{path.removesuffix('.py').replace('/', '.')}.{node.name}"
                            yield f"{name} takes {taken} arguments: make one value of those that belong together"


def test_constructors_take_few_arguments() -> None:
    assert list(wide(package())) == []


def test_a_wide_constructor_is_found() -> None:
    arguments = ", ".join(f"a{number}" for number in range(MOST + 1))
    (told,) = wide({"raybroker/a.py": f"class Wide:\n    def __init__(self, {arguments}, *rest, **more): ...\n"})
    assert told.startswith("raybroker.a.Wide takes 9 arguments")
    arguments = arguments.rpartition(",")[0]
    assert not list(wide({"raybroker/a.py": f"class Narrow:\n    def __init__(self, {arguments}): ...\n"}))
