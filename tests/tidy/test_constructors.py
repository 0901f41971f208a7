"""A constructor takes few arguments, and so does a function: what belongs together is one value."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.tidy.source import Sources, package, tree_of

MOST = 8
TABLE: dict[str, int] = {
    "raybroker.boards.layout.panel": 9,
    "raybroker.content.headers.encode_header": 9,
    "raybroker.content.quarantine_record.quarantine_record": 9,
    "raybroker.core.admission.intake.store": 9,
    "raybroker.engine.ports.quarantined": 9,
    "raybroker.hosting.block_codec.quarantined": 9,
    "raybroker.model.blocks.block.encode_block": 12,
    "raybroker.model.blocks.columns.encode_prefix": 9,
    "raybroker.services.gateways.gateway.connect_as": 9,
    "raybroker.services.gateways.gateway.core_as": 9,
    "raybroker.store.sql.opening.open_store": 11,
}
"""Function → its arguments, outside of the client, whose methods have those of the public interface, and without the
options of commands.  No entry is ever added or raised."""


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


def wide_functions(sources: Sources) -> dict[str, int]:
    """Functions that take more than MOST, but for commands, whose arguments are options that Typer reads."""
    found = {}
    for path, source in sources.items():
        for node in ast.walk(tree_of(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name != "__init__":
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                taken = [one for one in given if one.arg not in ("self", "cls")]
                if len(taken) > MOST and not _is_command(node):
                    found[f"{path.removesuffix('.py').replace('/', '.')}.{node.name}"] = len(taken)
    return found


def _is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Its decorator says so, or an option of its own."""
    marks = [ast.unparse(one) for one in node.decorator_list]
    return "typer." in ast.unparse(node.args) or any(".command(" in mark or ".callback(" in mark for mark in marks)


def test_constructors_take_few_arguments() -> None:
    assert list(wide(package())) == []


def test_functions_take_few_arguments() -> None:
    sources = {path: source for path, source in package().items() if not path.startswith("raybroker/client/")}
    found = wide_functions(sources)
    assert {name: count for name, count in found.items() if count > TABLE.get(name, MOST)} == {}, "make values of them"
    assert found == TABLE, "lower these entries, or take them out of the table"


def test_a_wide_constructor_is_found() -> None:
    arguments = ", ".join(f"a{number}" for number in range(MOST + 1))
    (told,) = wide({"raybroker/a.py": f"class Wide:\n    def __init__(self, {arguments}, *rest, **more): ...\n"})
    assert told.startswith("raybroker.a.Wide takes 9 arguments")
    arguments = arguments.rpartition(",")[0]
    assert not list(wide({"raybroker/a.py": f"class Narrow:\n    def __init__(self, {arguments}): ...\n"}))


def test_a_wide_function_is_found_and_a_command_is_none() -> None:
    arguments = ", ".join(f"a{number}" for number in range(MOST + 1))
    text = (
        f"def wide({arguments}): ...\n@app.command()\ndef add({arguments}): ...\ndef up(a: typer.X, {arguments}): ...\n"
    )
    assert wide_functions({"raybroker/a.py": text}) == {"raybroker.a.wide": 9}
