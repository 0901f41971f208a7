"""One class name has one meaning: what a reader finds by its name is what he looks for."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.tidy.source import Sources, package, tree_of

SHARED = ("Consumer", "Destination", "Queue", "Session", "Topic", "Transaction")
"""Class names with two meanings: a handle of the client, and what it stands for in a host."""
SHARED_MAX = 20


def homonyms(sources: Sources) -> Iterator[tuple[str, list[str]]]:
    """Names of classes that several files define; the blocking face is the asynchronous one again."""
    found: dict[str, set[str]] = defaultdict(set)
    for path, source in sources.items():
        if path.startswith("raybroker/client/blocking/"):
            continue
        for node in ast.walk(tree_of(source)):
            if isinstance(node, ast.ClassDef):
                found[node.name].add(path)
    for name, paths in sorted(found.items()):
        if len(paths) > 1:
            yield name, sorted(paths)


def test_a_class_name_has_one_meaning() -> None:
    assert {name: paths for name, paths in homonyms(package()) if name not in SHARED} == {}


def test_the_list_of_shared_names_is_short_and_true() -> None:
    assert set(SHARED) <= {name for name, _ in homonyms(package())}
    assert len(SHARED) <= SHARED_MAX


def test_a_name_of_two_classes_is_found() -> None:
    sources = {"raybroker/a.py": "class Row: ...\n", "raybroker/b.py": "def f():\n    class Row: ...\n"}
    assert list(homonyms(sources)) == [("Row", ["raybroker/a.py", "raybroker/b.py"])]
