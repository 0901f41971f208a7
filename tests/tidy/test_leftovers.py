"""Nothing unfinished and nothing of one machine is left behind."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.tidy.source import Sources, read

# Put together from halves, so that this file does not find itself.
UNFINISHED = re.compile(r"\b(TO" + "DO|FIX" + "ME|XX" + "X|NotImpl" + r"ementedError)\b")
MACHINE_PATH = re.compile(r"(?<![\w.}])/(work|root|farm|home|Users|tmp/[a-z]+)" + r"/[\w.]")
_TEXT = (".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".json", ".sh", ".cfg", "run")


def violations(sources: Sources) -> Iterator[str]:
    for path, source in sources.items():
        for number, line in enumerate(source.splitlines(), start=1):
            if path.endswith(".py") and (found := UNFINISHED.search(line)):
                yield f"{path}:{number}: {found[0]} is left over: finish it, or open an issue"
            if found := MACHINE_PATH.search(line):
                yield f"{path}:{number}: {found[0]}… is a path of one machine"


def everything() -> dict[str, str]:
    tops = ("raybroker", "tests", "benchmarks", "deploy", "dashboards", ".ci", "README.md", "pyproject.toml")
    return read(*tops, suffixes=_TEXT)


def test_nothing_is_left_unfinished_and_no_machine_shows() -> None:
    assert list(violations(everything())) == []


def test_unfinished_marks_are_found() -> None:
    for mark in ("# TO" + "DO: later", "raise NotImpl" + "ementedError", "# XX" + "X"):
        assert len(list(violations({"a.py": f"x = 1  {mark}\n"}))) == 1
    assert list(violations({"a.py": "XXXL = 1\n"})) == []


def test_paths_of_one_machine_are_found() -> None:
    for path in ("/home" + "/ann/x", "open('/tmp" + "/lab/x')", "/root" + "/.cache"):
        assert len(list(violations({"README.md": f"see {path}\n"}))) == 1
    assert list(violations({"a.md": "mq://host:7676/jms and a/home/page\n"})) == []
