"""tests/behaviour.toml: its rows are whole, their tests exist, and code and tests name no row that is not in it."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from raybroker.model.settings.setting_table import LATER
from tests.tidy.rows import HYPHENATED, PLAIN
from tests.tidy.source import ROOT, Sources, comments, nodes, read, stray_texts

TABLE = "tests/behaviour.toml"
STATES = {"works": "tests", "partly": "missing", "planned": "", "not planned": "reason", "elsewhere": "reason"}
"""State → what it needs beside its line of behaviour."""
SHOWN = ("works", "partly")
"""States that need tests."""
WELL_FORMED = re.compile(f"{HYPHENATED}|{PLAIN}")
_ANYWHERE = re.compile(rf"(?<![\w.-])(?:{HYPHENATED}|modern-{PLAIN})(?![\w-])")
_IN_PROSE = re.compile(rf"(?<![\w.@/-]){PLAIN}(?![\w.@-]\w)")
_DIRECTIVE = re.compile(r"#\s*(?:noqa|ruff|type|fmt):.*")

Rows = Mapping[str, dict[str, Any]]


@cache
def table() -> Rows:
    """The rows; two with one name are an error of the format."""
    return tomllib.loads((ROOT / TABLE).read_text(encoding="utf-8"))


def faults(rows: Rows) -> Iterator[str]:
    """What is wrong with rows by themselves."""
    for row, entry in rows.items():
        state = entry.get("state")
        if not WELL_FORMED.fullmatch(row):
            yield f"{row} is no number of a row"
        if not str(entry.get("behaviour", "")).endswith("."):
            yield f"{row} has no sentence of behaviour"
        if state not in STATES:
            yield f"{row} has the state {state!r}; there are {', '.join(STATES)}"
            continue
        wanted = {"behaviour", "state"} | {STATES[state]} - {""} | ({"tests"} if state in SHOWN else set())
        if set(entry) != wanted or not all(entry.values()):
            yield f"{row} is {state}: it needs {', '.join(sorted(wanted))} and nothing else"


@cache
def functions(source: str) -> set[str]:
    """The names of its tests."""
    found = (node for node in nodes(source) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name for node in found if node.name.startswith("test_")}


def lost_tests(rows: Rows, sources: Sources) -> Iterator[str]:
    """Tests of rows that are not among the sources."""
    for row, entry in rows.items():
        for test in entry.get("tests", ()):
            path, _, function = test.partition("::")
            if path not in sources:
                yield f"{row}: there is no {path}"
            elif function and function not in functions(sources[path]):
                yield f"{row}: {path} has no {function}"


def prose(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of the comments and of the strings that stand alone."""
    yield from ((line, _DIRECTIVE.sub("", text)) for line, text in comments(source))
    yield from stray_texts(source)


def written(path: str, source: str) -> Iterator[tuple[int, str]]:
    """(line, row) of every row that a file names; those without a hyphen count in prose alone."""
    for number, line in enumerate(source.splitlines(), start=1):
        yield from ((number, found[0].removeprefix("modern-")) for found in _ANYWHERE.finditer(line))
    if path.endswith(".py") and _IN_PROSE.search(source):
        for number, text in prose(source):
            yield from ((number, found[0]) for found in _IN_PROSE.finditer(text))


def unknown(rows: Rows, sources: Sources) -> Iterator[str]:
    """Rows that are named and are not in the table."""
    for path, source in sources.items():
        for number, row in written(path, source):
            if row not in rows:
                yield f"{path}:{number}: {row} is not in {TABLE}"


def untold(rows: Rows, stories: Sources) -> Iterator[str]:
    """Stories that are named after a row which does not name them."""
    for path in stories:
        if found := re.fullmatch(r"(modern)?([a-z])(\d+)", path.rpartition("/")[2].partition("_")[0]):
            row = f"{found[2].upper()}{'' if found[1] else '-'}{found[3]}"
            if path not in rows.get(row, {}).get("tests", ()):
                yield f"{row} does not name {path}"


def test_every_row_is_whole() -> None:
    assert list(faults(table())) == []


def test_the_tests_of_every_row_exist() -> None:
    assert list(lost_tests(table(), read("tests", suffixes=(".py", ".txt")))) == []


def test_every_row_that_is_written_is_in_the_table() -> None:
    sources = read("raybroker", "tests", "benchmarks", "deploy", suffixes=(".py", ".txt", ".toml", ".yaml", ".md"))
    assert list(unknown(table(), {path: text for path, text in sources.items() if path != TABLE})) == []


def test_stories_of_a_row_are_among_its_tests() -> None:
    assert list(untold(table(), read("tests/scenarios", suffixes=(".txt",)))) == []


def test_settings_of_later_belong_to_rows_that_are_not_whole() -> None:
    waiting = " ".join(" ".join(map(str, entry.values())) for entry in table().values() if entry["state"] != "works")
    assert [name for name in LATER if not re.search(rf"{re.escape(name)}(?![\w.])", waiting)] == []


def test_what_is_wrong_with_a_row_is_found() -> None:
    good = {"behaviour": "It works.", "state": "works", "tests": ["tests/a.py"]}
    assert list(faults({"B-20": good, "B20": good, "W-120": good, "U18": good})) == []
    for row in ("B-2", "B020", "X-01", "Z1", "B-020"):
        assert list(faults({row: good})) == [f"{row} is no number of a row"]
    for changed in (
        {"state": "done"},
        {"tests": []},
        {"behaviour": "no sentence"},
        {"state": "partly"},
        {"state": "planned"},
        {"state": "not planned"},
        {"missing": "it"},
    ):
        assert len(list(faults({"B-20": {**good, **changed}}))) == 1


def test_a_test_that_is_gone_and_a_row_that_nobody_knows_are_found() -> None:
    rows = {"B-20": {"tests": ["tests/a.py::test_a", "tests/a.py::test_b", "tests/b.py"]}}
    assert list(lost_tests(rows, {"tests/a.py": "def test_a(): ...\n"})) == [
        "B-20: tests/a.py has no test_b",
        "B-20: there is no tests/b.py",
    ]
    source = 'H1 = "B-20"\n\n\ndef f():  # B21, U1 … U3\n    """As modern-B20 says (W-95)."""  # noqa: A002\n'
    assert [line.partition(" is ")[0] for line in unknown(rows, {"a.py": source})] == [
        "a.py:5: B20",
        "a.py:5: W-95",
        "a.py:4: B21",
        "a.py:4: U1",
        "a.py:4: U3",
    ]
    assert list(untold(rows, {"tests/scenarios/b20_x.txt": "", "tests/scenarios/retry.txt": ""})) == [
        "B-20 does not name tests/scenarios/b20_x.txt"
    ]
