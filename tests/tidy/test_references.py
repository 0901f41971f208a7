"""Modules and files that docstrings and comments refer to are there: a moved one leaves no old name behind."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.tidy.source import Sources, comments, package, read, stray_texts

_DOTTED = re.compile(r"(?<![\w./*-])([a-z_]+(?:\.[A-Za-z_]\w*)+)")
_FILE = re.compile(r"(?<![\w./-])((?:[a-z_]+/)*[a-z_]+\.py)\b")
_FORMER = frozenset({"client", "control", "engine", "services", "wire"})
"""Packages that were split up: their former modules are looked for by these names, too."""
_NO_MODULES = frozenset({"admin", "cluster", "config", "raybroker", "record"})
"""Names that texts use for other things too: ``admin.browse_messages()``, cluster.toml, record.backup, settings."""


def prose(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of docstrings and comments."""
    yield from stray_texts(source)
    yield from comments(source)


def modules_of(sources: Sources) -> dict[str, str]:
    """Dotted name below the package → source."""
    return {
        path.removesuffix(".py").removesuffix("/__init__").removeprefix("raybroker/").replace("/", "."): source
        for path, source in sources.items()
    }


def resolves(name: str, modules: dict[str, str]) -> bool:
    """Whether a dotted name is a module, or something that a module mentions."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        source = modules.get(".".join(parts[:end]))
        if source is not None:
            return end == len(parts) or re.search(rf"\b{parts[end]}\b", source) is not None
    return False


def violations(sources: Sources, others: Sources) -> Iterator[str]:
    """``others``: files beside the package."""
    modules = modules_of(sources)
    packages = ({name.split(".")[0] for name in modules} | _FORMER) - _NO_MODULES
    files = {f"/{path}" for path in (*sources, *others)}
    for path, source in sources.items():
        for number, text in prose(source):
            for name in _DOTTED.findall(text):
                if name.split(".")[0] in packages and not name.endswith(".py") and not resolves(name, modules):
                    yield f"{path}:{number}: {name} is not there"
            for name in _FILE.findall(text):
                if not any(file.endswith(f"/{name}") for file in files):
                    yield f"{path}:{number}: there is no file {name}"


def test_what_prose_refers_to_is_there() -> None:
    assert list(violations(package(), read("benchmarks", "tests"))) == []


def test_references_to_moved_modules_are_found() -> None:
    sources = {
        "raybroker/engine/runner.py": '"""See engine.handing, and handing.py."""\nclass Runner: ...\n',
        "raybroker/core/queue.py": "x = 1  # services.ports, engine.runner.Runner, runner.py, engine.runner.Other\n",
    }
    assert [found.split(": ")[1].split(" is not")[0] for found in violations(sources, {})] == [
        "engine.handing",
        "there is no file handing.py",
        "services.ports",
        "engine.runner.Other",
    ]
