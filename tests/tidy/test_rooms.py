"""Packages are rooms: each says what it is for, and none is a hall of files side by side."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

from tests.tidy.source import Sources, package, tree_of

FILES_MAX = 21
"""Files of one package beside its ``__init__``: about twenty can be read at a glance."""


def violations(sources: Sources) -> Iterator[str]:
    files = Counter(str(PurePosixPath(path).parent) for path in sources if not path.endswith("/__init__.py"))
    for room, count in sorted(files.items()):
        if count > FILES_MAX:
            yield f"{room} has {count} files; at most {FILES_MAX}: make packages of those that belong together"
        if ast.get_docstring(tree_of(sources.get(f"{room}/__init__.py", ""))) is None:
            yield f"{room}/__init__.py does not say what may live there"


def test_no_package_is_a_hall() -> None:
    assert list(violations(package())) == []


def test_a_hall_and_a_room_without_a_word_are_found() -> None:
    sources = {f"raybroker/a/f{number}.py": "" for number in range(22)} | {"raybroker/a/__init__.py": '"""A."""'}
    assert list(violations(sources)) == [
        "raybroker/a has 22 files; at most 21: make packages of those that belong together"
    ]
    assert list(violations({"raybroker/b/c.py": ""})) == ["raybroker/b/__init__.py does not say what may live there"]
